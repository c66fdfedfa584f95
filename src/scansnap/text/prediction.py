"""Which words each query will attend to, told by a model that never attends.

Y is trained with attention kept uniform, and Z only listens: it gathers the directions it would have moved by,

    Z_ml(t) = η_Z Σ_{steps ≤ t} −∂loss/∂Z_ml   at uniform attention, along the run of Y

(science: the drive, the frozen-attention response). It is the first order of attention's movement: the drive, with the
decoder's saturation in it, without what a moved attention does to itself and to Y. One pass over the text does both,
with the batches of a training of the same seed, at a training's speed. Z of plain SGD is proportional to η_Z, so one
run predicts for every η_Z, and for every step on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from scansnap.checks import InputError, check_integer
from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.corpus.encoding import BLOCK, pieces
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.progress import Progress
from scansnap.text.record import TrainingResult
from scansnap.text.settings import TrainingSettings
from scansnap.text.training import train
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

LEAST = 20  # a word is named where it stands so often before a query: what is seen less is told by chance


@dataclass(frozen=True, eq=False)
class AttentionPrediction:
    """What Z will be, at some steps, for some queries of M words."""

    model: YZTransformer  # after the last step; its Z is the prediction for all queries
    training: TrainingResult  # losses are those of a model that never attends
    queries: IntArray  # (Q,) token ids
    counts: IntArray  # (Q, M) how often a word stands before a query, in the windows' length
    z: dict[int, FloatArray]  # step → (Q, M)

    def words(self, query: int, step: int | None = None, *, top: int = 10, least: int = LEAST) -> IntArray:
        """The ``top`` tokens the query will attend to most, of those that stand ``least`` times before it."""
        at = np.flatnonzero(self.queries == query)
        if not len(at):
            raise InputError("query", query, "one of the prediction's queries")
        step = max(self.z, default=0) if step is None else step
        if step not in self.z:
            raise InputError("step", step, f"one of {', '.join(map(str, self.z))}")
        seen = np.flatnonzero(self.counts[at[0]] >= least)
        return np.asarray(seen[np.argsort(-self.z[step][at[0], seen], kind="stable")][:top])


def predict(
    model: YZSettings | YZTransformer,
    tokens: Any,
    training: TrainingSettings | None = None,
    *,
    queries: Sequence[int] | int = 10,
    device: str | torch.device = "cpu",
    vocabulary: Vocabulary | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> AttentionPrediction:
    """Predict Z of ``train(YZTransformer(model), tokens, training)`` from one run in which attention stays uniform.

    model      of one layer, full rank and zero init; everything else as in the training that is predicted
    training   or its fields as keywords; of ``steps``, ``shuffle`` and so on the same as there. ``snapshots`` are the
               steps that are predicted for (none: the last), ``checkpoint`` keeps the model, as of any training
    queries    token ids, or how many of the most frequent tokens
    """
    training = TrainingSettings(**options) if training is None else replace(training, **options)
    if isinstance(model, YZSettings):
        model = YZTransformer(model, device, listening=True)
    if not model.listening:
        raise InputError("model", "one that attends", "settings, or a model made with listening=True")
    stream = np.asarray(tokens)
    asked = _queries(stream, queries, model.vocab_size)
    rows = torch.as_tensor(asked, device=model.device)
    steps = [] if training.snapshots is None else list(training.snapshots)

    def look(now: Any, step: int) -> dict[str, Any]:
        return {"queries": asked, "z": now.z[0].matrix()[rows].float()}

    done = train(model, stream, training, snapshots=steps, measure=look, vocabulary=vocabulary, progress=progress)
    # a run that went on may have been asked for other words before
    z = {step: found["z"] for step, found in done.measured.items() if np.array_equal(found["queries"], asked)}
    z[done.step] = look(model, done.step)["z"].cpu().numpy()
    return AttentionPrediction(model, done, asked, counted_before(stream, asked, model.vocab_size, training.length), z)


def counted_before(tokens: np.ndarray, queries: IntArray, vocab_size: int, length: int) -> IntArray:
    """(Q, M) how often each token stands up to ``length`` − 1 places before each query."""
    found = np.zeros((len(queries), vocab_size), dtype=np.int64)
    for start in range(0, len(tokens), BLOCK):  # a stream may be longer than memory
        before = min(start, length - 1)
        block = np.asarray(tokens[start - before : start + BLOCK])
        for row, query in enumerate(queries):
            places = before + np.flatnonzero(block[before:] == query)
            for back in range(1, length):
                found[row] += np.bincount(block[places[places >= back] - back], minlength=vocab_size)
    return found


def _queries(stream: np.ndarray, queries: Sequence[int] | int, vocab_size: int) -> IntArray:
    if isinstance(queries, int):
        most = check_integer("queries", queries, least=1)
        counts = sum((np.bincount(block, minlength=vocab_size) for block in pieces(stream)), np.zeros(1, np.int64))
        return np.argsort(-counts, kind="stable")[:most]
    for one in queries:
        check_integer("queries", one, most=vocab_size - 1)
    return np.asarray(queries, dtype=np.int64)
