"""How good a trained model is on a stream, and how sparse its attention: no dropout, nothing moves.

The stream is cut into windows of ``length`` tokens one after the other, and the model reads each on its own, as in
training. With a ``stride`` below the length windows overlap, so that every token (but the first ones) has at least
length − stride tokens before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.checks import InputError, check_float, check_integer
from scansnap.corpus.windows import at_hand, sent
from scansnap.progress import Progress
from scansnap.text.attention_statistics import AttentionStatistics
from scansnap.text.model import LanguageModel
from scansnap.text.transformer.draws import rounds


class ScoredBatch(NamedTuple):
    """Windows of one length; the last ``new`` positions are those whose targets no window before had."""

    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    new: int


def stream_batches(
    tokens: Any, length: int, batch: int, stride: int | None, device: torch.device
) -> Iterator[ScoredBatch]:
    """All windows of a stream: every token but the first is a new target exactly once."""
    stream = _stream(tokens, device)
    step = check_integer(
        "stride", length if stride is None else stride, least=1, most=check_integer("length", length, least=1)
    )
    check_integer("batch", batch, least=1)
    ends = [*range(step, len(stream) - 1, step), len(stream) - 1]
    waiting: list[tuple[int, int, int]] = []
    for last, end in zip([0, *ends], ends, strict=False):
        first = last if step == length else max(0, end - length)  # the last window may be short, not overlap
        piece = (first, end, end - last)
        if waiting and (len(waiting) == batch or _size(waiting[0]) != _size(piece)):
            yield _gathered(stream, waiting, device)
            waiting = []
        waiting.append(piece)
    yield _gathered(stream, waiting, device)


def perplexity(
    model: LanguageModel,
    tokens: Any,
    *,
    length: int = 35,
    batch: int = 20,
    stride: int | None = None,
    keep: float | None = None,
    progress: Progress | None = None,
) -> float:
    """exp of the mean −ln p over the stream, every token but the first predicted once.

    ``keep`` gives the perplexity with attention dropped outside the smallest set of keys with this mass. A model of the
    masked objective has each token of a window hidden once, some at a time (a pseudo-perplexity: it sees both sides).
    """
    masked = model.describe().get("objective") == "masked"
    total, n, of = torch.zeros((), dtype=torch.float64, device=model.device), 0, len(_stream(tokens, model.device)) - 1
    for part in stream_batches(tokens, length, batch, stride, model.device):
        nats = _masked_nats(model, part, keep) if masked else _nats(_logits(model, part.inputs, keep), part.targets)
        total += nats[:, -part.new :].double().sum()
        n += part.inputs.shape[0] * part.new
        if progress is not None:
            progress(n, of)
    mean = float(total) / n
    return math.exp(mean) if mean < 700 else math.inf


def attention_statistics(
    model: LanguageModel,
    tokens: Any,
    *,
    length: int = 35,
    batch: int = 20,
    groups: Any = None,
    mass: float = 0.95,
    progress: Progress | None = None,
) -> list[dict[str, float | np.ndarray]]:
    """For each layer the means over the rows of all windows; see :class:`AttentionStatistics` for rows and names.

    The entropy of Figure 10 is ``entropy``: over all positions that have a choice, so of windows of 35 causal
    positions at most mean ln t, t = 2 … 35, which is 2.71; ``entropy_by_position`` of the last is at most ln 35 =
    3.56.
    """
    gathered = AttentionStatistics(groups, mass)
    n, of = 0, len(_stream(tokens, model.device)) - 1
    for part in stream_batches(tokens, length, batch, None, model.device):
        gathered.add(model.attention(part.inputs), part.inputs, model.keys(part.inputs.shape[1]))
        n += part.inputs.numel()
        if progress is not None:
            progress(n, of)
    return [gathered.means(layer) for layer in range(model.layers)]


def attention_measure(
    inputs: Tensor, *, groups: Any = None, mass: float = 0.95, maps: bool = False
) -> Callable[[LanguageModel, int], dict[str, Any]]:
    """A ``measure`` for the training loop: statistics of the attention to a batch (B, T), as ``layer0.entropy``, ….

    With ``maps`` also ``layer0.map`` (H, T, T), the attention in the first window (Figure 7).
    """

    def measure(model: LanguageModel, step: int) -> dict[str, Any]:
        seen, gathered = model.attention(inputs.to(model.device)), AttentionStatistics(groups, mass)
        gathered.add(seen, inputs.to(model.device), model.keys(inputs.shape[1]))
        found: dict[str, Any] = {}
        for layer, b in enumerate(seen):
            found |= {f"layer{layer}.{name}": value for name, value in gathered.means(layer).items()}
            if maps:
                found[f"layer{layer}.map"] = b[0]
        return found

    return measure


def contextual_sparsity(
    model: LanguageModel, tokens: Any, *, mass: float = 0.95, length: int = 35, batch: int = 20
) -> dict[str, Any]:
    """How few keys carry ``mass`` of the attention, and what leaving the others out at inference costs.

    share_needed (by layer), keys_needed (by layer), perplexity, perplexity_kept.
    """
    check_float("mass", mass, above=0, most=1)
    rows = attention_statistics(model, tokens, length=length, batch=batch, mass=mass)
    return {
        "mass": mass,
        "share_needed": [row["share_needed"] for row in rows],
        "keys_needed": [row["keys_needed"] for row in rows],
        "perplexity": perplexity(model, tokens, length=length, batch=batch),
        "perplexity_kept": perplexity(model, tokens, length=length, batch=batch, keep=mass),
    }


def _logits(model: LanguageModel, inputs: Tensor, keep: float | None) -> Tensor:
    return model.logits(inputs) if keep is None else model.logits(inputs, keep=keep)


def _nats(logits: Tensor, targets: Tensor) -> Tensor:
    """−ln p of each target, (B, T)."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)


def _masked_nats(model: LanguageModel, part: ScoredBatch, keep: float | None) -> Tensor:
    """−ln p of each target, hidden in a window that ends with the targets."""
    nats = torch.zeros(part.targets.shape, dtype=torch.float64, device=part.targets.device)
    for inputs, places, hidden in rounds(part.targets, model.describe()["mask_share"], model.vocab_size):
        logits = _logits(model, inputs, keep)
        at = logits.gather(1, places[..., None].expand(-1, -1, logits.shape[-1]))  # (B, k, M)
        nats.scatter_(1, places, _nats(at, hidden).double())
    return nats


def _stream(tokens: Any, device: torch.device) -> Tensor:
    stream = tokens if isinstance(tokens, Tensor) else torch.as_tensor(np.asarray(tokens))
    if stream.ndim != 1 or stream.is_floating_point() or len(stream) < 2:
        raise InputError("the stream", tuple(stream.shape), "one row of at least 2 token ids")
    return at_hand(stream, device)


def _size(piece: tuple[int, int, int]) -> tuple[int, int]:
    return piece[1] - piece[0], piece[2]


def _gathered(stream: Tensor, pieces: list[tuple[int, int, int]], device: torch.device) -> ScoredBatch:
    length = pieces[0][1] - pieces[0][0]
    rows = torch.stack([stream[start : start + length + 1] for start, _, _ in pieces]).long()  # (B, T + 1)
    both = rows if rows.device.type == device.type else sent(rows, device)
    return ScoredBatch(both[:, :-1].contiguous(), both[:, 1:].contiguous(), pieces[0][2])
