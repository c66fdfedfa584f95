"""Check a probe's batch before training starts, and bound what the probe stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from scansnap.checks import InputError
from scansnap.probe.batch import to_model
from scansnap.probe.capture import watch_attention
from scansnap.probe.distributed import is_sharded
from scansnap.probe.measurement import SAMPLE
from scansnap.probe.state import pause_garbage_collection, preserve_state

SETS = 24  # stored samples: the first, the last 16, and those of some e-folds
MAX_BYTES = 200_000_000
_SHARE = 0.75  # of the bytes for samples; the rest is for statistics


def try_batch(model: nn.Module, batch: Any, forward: Callable[[nn.Module, Any], Any]) -> int | None:
    """Run the model on the batch once, which leaves no trace, and count its attentions.

    None for a sharded model, which would need all processes.
    """
    if is_sharded(model):
        return None
    paths: list[str] = []
    try:
        with pause_garbage_collection(), preserve_state(model), watch_attention(model, lambda c: paths.append(c.path)):
            forward(model, to_model(batch, model))
    except InputError:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        hint = "pass a batch as in training, or forward= to call the model differently"
        raise InputError("batch", problem, "a batch that the model can run", hint) from error
    return len(paths)


def sample_size(n_attentions: int | None, max_bytes: int) -> int:
    """Attention weights to store of each attention, so that all samples fit into ``max_bytes``."""
    if not n_attentions:
        return SAMPLE
    return min(SAMPLE, max(1, int(_SHARE * max_bytes / (4 * SETS * n_attentions))))


def check_words(words: Sequence[str] | None, tokens: Tensor | None) -> None:
    """Refuse texts that are no strings, or fewer than the token ids need."""
    if words is None:
        return
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise InputError("words", type(words).__name__, "a sequence with the text of each token id")
    if tokens is None:
        raise InputError("words", "no token ids", "a batch with token ids", "pass tokens= with words")
    if len(words) <= int(tokens.max()):
        raise InputError("words", f"{len(words)} texts", f"at least {int(tokens.max()) + 1}, one for each token id")
