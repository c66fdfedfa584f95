"""Check a probe's batch before training starts, and bound what the probe stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from scansnap.checks import InputError
from scansnap.probe.batch import to_model
from scansnap.probe.capture import watch_attention
from scansnap.probe.capture.call import Shape
from scansnap.probe.distributed import is_sharded
from scansnap.probe.measurement import SAMPLE, AttentionLayer
from scansnap.probe.schema import VARIABLES
from scansnap.probe.state import pause_garbage_collection, preserve_state
from scansnap.probe.store.measurements import MeasurementLayout

SETS = 24  # stored samples: the first, the last 16, and those of some e-folds
MAX_BYTES = 200_000_000
LONG = 100_000  # steps of a training whose file should stay within the bound
_SHARE = 0.75  # of the bytes for samples; the rest is for statistics
_FIXED = 40_000  # bytes of a file beside its measurements and samples
_PIECE = 3500  # bytes of a measurement beside its numbers: names, and its line in the index


def try_batch(model: nn.Module, batch: Any, forward: Callable[[nn.Module, Any], Any]) -> list[Shape] | None:
    """Run the model on the batch once, which leaves no trace, and return the shapes of its attentions.

    None for a sharded model, which would need all processes.
    """
    if is_sharded(model):
        return None
    shapes: list[Shape] = []
    try:
        with (
            pause_garbage_collection(),
            preserve_state(model),
            watch_attention(model, lambda c: shapes.append(c.shape)),
        ):
            forward(model, to_model(batch, model))
    except InputError:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        hint = "pass a batch as in training, or forward= to call the model differently"
        raise InputError("batch", problem, "a batch that the model can run", hint) from error
    return shapes


def sample_size(shapes: list[Shape] | None, max_bytes: int) -> int:
    """Attention weights to store of each attention, so that all samples fit into ``max_bytes``."""
    if not shapes:
        return SAMPLE
    return min(SAMPLE, max(1, int(_SHARE * max_bytes / (4 * SETS * len(shapes)))))


class FileSize(NamedTuple):
    """The bytes of a probe's file, before the first measurement."""

    samples: int  # bounded by ``max_bytes``
    measurement: int  # of each measurement

    def of(self, n: int) -> int:
        """With n measurements."""
        return _FIXED + int(self.samples * min(n, SETS) / SETS) + n * self.measurement

    def sentence(self, due: Callable[[int], bool]) -> str:
        """For trainings of 1,000 and 100,000 steps."""
        counts = {steps: sum(map(due, range(steps + 1))) for steps in (1_000, LONG)}
        parts = (
            f"{self.of(n) / 1e6:,.1f} MB after {steps:,} steps ({n:,} measurements)" for steps, n in counts.items()
        )
        return f"about {', '.join(parts)}"

    def exceeded_at(self, max_bytes: int, due: Callable[[int], bool]) -> int | None:
        """The step of a long training whose measurement takes the file over ``max_bytes``; None if none does."""
        due_steps = enumerate(filter(due, range(LONG + 1)), start=1)
        return next((step for n, step in due_steps if self.of(n) > max_bytes), None)


def file_size(shapes: list[Shape], sample: int, queries: int | None) -> FileSize:
    """An estimate from the shapes of the attentions; a little more than what is written."""
    stored = 0
    for b, h, n_queries, n_keys in shapes:
        measured = n_queries if queries is None else min(queries, n_queries)
        stored += 4 * b * h * n_keys * max(1, min(measured, sample // (b * h * n_keys)))
    layers = tuple(AttentionLayer("", i, "self", shape[1]) for i, shape in enumerate(shapes))
    layout = MeasurementLayout(layers, tuple(shapes))
    return FileSize(SETS * stored, _PIECE + sum(layout.empty(name).nbytes for name in VARIABLES))


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
