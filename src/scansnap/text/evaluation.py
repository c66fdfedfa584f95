"""Perplexity of a trained model on a stream of tokens, and statistics of its attention, without dropout.

The stream is cut into consecutive windows of ``length`` tokens, and the model reads each on its own, as in training.
With a ``stride`` below the length windows overlap, so that every token after the first window has at least length −
stride tokens before it.

A row is the attention of one position of a window. Its keys are the positions that it may attend to, also those with a
weight of exactly 0. Rows with a single key (the first position of a causal window) have no choice and count in no mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.checks import InputError, check_float, check_integer
from scansnap.corpus.windows import place_stream, send
from scansnap.progress import Progress
from scansnap.text.model import LanguageModel, top_mass_mask
from scansnap.text.transformer.draws import mask_every_token


def evaluate(
    model: LanguageModel,
    tokens: Any,
    *,
    mass: float = 0.95,
    length: int = 35,
    batch: int = 20,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure the perplexity of a model, how sparse its attention is, and what the other keys contribute.

    Parameters
    ----------
    model
        A trained model.
    tokens
        A row of token ids.
    mass
        The share of attention whose keys are counted.
    length, batch
        Tokens of a window, and windows of a batch.
    progress
        Called as ``progress(done, total)`` with the number of passes over the stream.

    Returns
    -------
    dict
        ``perplexity``; by layer ``entropy`` (nats), ``keys_needed`` and ``share_needed``, the smallest set of keys
        with the mass and its share of all keys; ``perplexity_sparse``, with attention to those keys only; ``mass``.

    Examples
    --------
    >>> import scansnap as ss
    >>> model = ss.text.YZTransformer(ss.text.YZSettings(vocab_size=4))
    >>> results = ss.text.evaluate(model, [0, 1, 2, 3] * 5, length=5)
    >>> round(results["perplexity"], 3), [round(n, 2) for n in results["keys_needed"]]
    (4.0, [2.91])
    """
    check_float("mass", mass, above=0, most=1)
    passes = progress or (lambda done, total: None)
    rows = attention_statistics(model, tokens, length=length, batch=batch, mass=mass)
    passes(1, 3)
    results = {name: [row[name] for row in rows] for name in ("entropy", "share_needed", "keys_needed")}
    full = perplexity(model, tokens, length=length, batch=batch)
    passes(2, 3)
    sparse = perplexity(model, tokens, length=length, batch=batch, attention_mass=mass)
    passes(3, 3)
    return {"mass": mass, **results, "perplexity": full, "perplexity_sparse": sparse}


def perplexity(
    model: LanguageModel,
    tokens: Any,
    *,
    length: int = 35,
    batch: int = 20,
    stride: int | None = None,
    attention_mass: float | None = None,
    progress: Progress | None = None,
) -> float:
    """exp of the mean −ln p over the stream; every token but the first is predicted once.

    ``attention_mass`` restricts attention to the smallest set of keys with this mass. A model of the masked objective
    has each token of a window masked once, some at a time (a pseudo-perplexity: the model sees both sides).
    """
    is_masked = model.describe().get("objective") == "masked"
    total, n = torch.zeros((), dtype=torch.float64, device=model.device), 0
    last = len(_stream(tokens, model.device)) - 1
    for part in stream_batches(tokens, length, batch, stride, model.device):
        if is_masked:
            nats = _masked_nats(model, part, attention_mass)
        else:
            nats = _nats(_logits(model, part.inputs, attention_mass), part.targets)
        total += nats[:, -part.n_new :].double().sum()
        n += part.inputs.shape[0] * part.n_new
        if progress is not None:
            progress(n, last)
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
    """The means of `AttentionStatistics.means` for each layer, over the rows of all windows.

    Figure 10 shows ``entropy``, a mean over all positions with a choice. In windows of 35 causal positions it is at
    most mean ln t, t = 2 … 35, which is 2.71; the last of ``entropy_by_position`` is at most ln 35 = 3.56.
    """
    statistics = AttentionStatistics(groups, mass)
    n, last = 0, len(_stream(tokens, model.device)) - 1
    for part in stream_batches(tokens, length, batch, None, model.device):
        statistics.add(model.attention(part.inputs), part.inputs, model.key_mask(part.inputs.shape[1]))
        n += part.inputs.numel()
        if progress is not None:
            progress(n, last)
    return [statistics.means(layer) for layer in range(model.layers)]


class AttentionStatistics:
    """Means over rows, by layer, from batches that are added one after the other.

    groups  (M,) integers from 0, a group of each token such as its distinctness; −1 leaves a token out
    mass    the share of attention whose keys are counted
    """

    def __init__(self, groups: Any = None, mass: float = 0.95) -> None:
        self.mass = check_float("mass", mass, above=0, most=1)
        self.groups = None if groups is None else _check_groups(groups)
        self.n_groups = 0 if self.groups is None else int(self.groups.max()) + 1
        self.sums: list[dict[str, Tensor]] = []

    def add(self, attention: list[Tensor], inputs: Tensor, key_mask: Tensor) -> None:
        """The attention (B, H, T, T) of each layer to the tokens (B, T) of a batch, and ``model.key_mask(T)``."""
        length = inputs.shape[-1]
        if key_mask.shape != (length, length) or key_mask.dtype != torch.bool:
            shape = f"{key_mask.dtype} of shape {tuple(key_mask.shape)}"
            raise InputError("key_mask", shape, f"booleans of shape ({length}, {length})")
        for layer, b in enumerate(attention):
            sums = self._sums(b.double(), inputs, key_mask.to(b.device))
            if layer == len(self.sums):
                self.sums.append(sums)
            else:
                self.sums[layer] = {name: _add_padded(self.sums[layer][name], value) for name, value in sums.items()}

    def _sums(self, b: Tensor, inputs: Tensor, key_mask: Tensor) -> dict[str, Tensor]:
        n_keys = key_mask.sum(-1)  # (T,)
        has_choice = n_keys > 1
        rows = has_choice * float(b.shape[0] * b.shape[1])  # (T,), how many rows of each position count
        entropy = torch.special.entr(b).sum(-1)  # (B, H, T)
        needed = top_mass_mask(b, self.mass).sum(-1).double()  # (B, H, T)
        needed = needed.masked_fill(entropy.isnan(), math.nan)

        def over_rows(x: Tensor) -> Tensor:
            return (x.sum((0, 1)) * has_choice).cpu()  # (T,)

        sums = {
            "rows": rows.cpu(),
            "entropy": over_rows(entropy),
            "uniform_entropy": (n_keys.double().clamp(min=1).log() * rows).cpu(),
            "max": over_rows(b.amax(-1)),
            "keys_needed": over_rows(needed),
            "share_needed": over_rows(needed / n_keys.clamp(min=1)),
        }
        if self.groups is not None:
            if int(inputs.max()) >= self.groups.numel():
                raise InputError("groups", f"{self.groups.numel()} integers", "one for each token of the vocabulary")
            group = self.groups.to(inputs.device)[inputs]  # (B, T)
            member = torch.stack([group == g for g in range(self.n_groups)], -1).double()  # (B, T, G)
            uniform = (key_mask.double() / n_keys.clamp(min=1)[:, None])[None, None].expand_as(b)
            for name, weights in (("group", b), ("group_uniform", uniform)):
                sums[name] = ((weights @ member[:, None]) * has_choice[:, None]).sum((0, 1, 2)).cpu()  # (G,)
        return sums

    def means(self, layer: int = 0) -> dict[str, float | np.ndarray]:
        """Means of a layer; NaN where no row counts.

        entropy              nats, mean over rows
        entropy_share        the mean entropy over that of uniform attention, mean ln(number of keys)
        entropy_by_position  (T,) nats
        max                  the largest weight of a row, mean over rows
        keys_needed          keys of the smallest set with ``mass``, mean over rows
        share_needed         the same as a share of the row's keys
        group_mass           (G,) attention to each group
        group_uniform        (G,) uniform attention to it
        """
        if not 0 <= layer < len(self.sums):
            raise InputError("layer", layer, f"an integer from 0 to {len(self.sums) - 1}")
        s = {name: value.numpy() for name, value in self.sums[layer].items()}
        rows = float(s["rows"].sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            means: dict[str, float | np.ndarray] = {
                name: float(s[name].sum() / rows) if rows else math.nan
                for name in ("entropy", "max", "keys_needed", "share_needed")
            }
            means["entropy_share"] = float(s["entropy"].sum() / s["uniform_entropy"].sum()) if rows else math.nan
            means["entropy_by_position"] = np.where(s["rows"] > 0, s["entropy"] / s["rows"], np.nan)
            if "group" in s:
                means["group_mass"], means["group_uniform"] = s["group"] / rows, s["group_uniform"] / rows
        return means


def _check_groups(groups: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(groups)
        is_valid = tensor.ndim == 1 and not tensor.is_floating_point()
        is_valid = is_valid and int(tensor.min()) >= -1 and int(tensor.max()) >= 0
    except (TypeError, ValueError, RuntimeError):  # min of nothing too
        is_valid = False
    if not is_valid:
        raise InputError("groups", groups, "one integer for each token, from 0, or −1 for none")
    return tensor.long()


def _add_padded(a: Tensor, b: Tensor) -> Tensor:
    """Sums by position, of windows whose lengths may differ."""
    if a.shape == b.shape:
        return a + b
    total = torch.zeros(max(len(a), len(b)), dtype=a.dtype)
    total[: len(a)] += a
    total[: len(b)] += b
    return total


class ScoredBatch(NamedTuple):
    """Windows of one length; the last ``n_new`` positions have targets that no earlier window had."""

    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    n_new: int


def stream_batches(
    tokens: Any, length: int, batch: int, stride: int | None, device: torch.device
) -> Iterator[ScoredBatch]:
    """All windows of a stream: every token but the first is a new target exactly once."""
    stream = _stream(tokens, device)
    most = check_integer("length", length, least=1)
    step = check_integer("stride", length if stride is None else stride, least=1, most=most)
    check_integer("batch", batch, least=1)
    ends = [*range(step, len(stream) - 1, step), len(stream) - 1]
    waiting: list[tuple[int, int, int]] = []  # first and last position, new targets
    for last, end in zip([0, *ends], ends, strict=False):
        first = last if step == length else max(0, end - length)  # without overlap the last window may be short
        window = (first, end, end - last)
        if waiting and (len(waiting) == batch or _shape(waiting[0]) != _shape(window)):
            yield _stack(stream, waiting, device)
            waiting = []
        waiting.append(window)
    yield _stack(stream, waiting, device)


def _shape(window: tuple[int, int, int]) -> tuple[int, int]:
    return window[1] - window[0], window[2]


def _stack(stream: Tensor, windows: list[tuple[int, int, int]], device: torch.device) -> ScoredBatch:
    length = windows[0][1] - windows[0][0]
    rows = torch.stack([stream[start : start + length + 1] for start, _, _ in windows]).long()  # (B, T + 1)
    rows = rows if rows.device.type == device.type else send(rows, device)
    return ScoredBatch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), windows[0][2])


def _stream(tokens: Any, device: torch.device) -> Tensor:
    stream = tokens if isinstance(tokens, Tensor) else torch.as_tensor(np.asarray(tokens))
    if stream.ndim != 1 or stream.is_floating_point() or len(stream) < 2:
        raise InputError("tokens", f"shape {tuple(stream.shape)}", "a row of at least 2 token ids")
    return place_stream(stream, device)


def _logits(model: LanguageModel, inputs: Tensor, attention_mass: float | None) -> Tensor:
    return model.logits(inputs) if attention_mass is None else model.logits(inputs, attention_mass=attention_mass)


def _nats(logits: Tensor, targets: Tensor) -> Tensor:
    """−ln p of each target, (B, T)."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)


def _masked_nats(model: LanguageModel, part: ScoredBatch, attention_mass: float | None) -> Tensor:
    """−ln p of each target, masked in the window of the targets."""
    nats = torch.zeros(part.targets.shape, dtype=torch.float64, device=part.targets.device)
    for inputs, positions, masked in mask_every_token(part.targets, model.describe()["mask_share"], model.vocab_size):
        logits = _logits(model, inputs, attention_mass)
        at = logits.gather(1, positions[..., None].expand(-1, -1, logits.shape[-1]))  # (B, k, M)
        nats.scatter_(1, positions, _nats(at, masked).double())
    return nats
