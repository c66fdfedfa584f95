"""Predict which words each query will attend to, from one run of a model with uniform attention.

Y is trained with uniform attention, and Z sums the updates of the same run:

    Z_ml(t) = η_Z Σ_{steps ≤ t} −∂loss/∂Z_ml   at uniform attention, along the run of Y

This is the drive, the first-order response of attention (science: frozen attention). It includes the saturation of the
decoder, and leaves out the effect of changed attention on itself and on Y. The run needs one pass over the text at the
speed of a training, with the batches of a training of the same seed. With plain SGD, Z is proportional to η_Z, so one
run predicts for every η_Z and for every step before its last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from scansnap.checks import InputError, check_integer
from scansnap.checks.arrays import FloatArray, IntArray
from scansnap.corpus.encoding import BLOCK, split_into_blocks
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.progress import Progress
from scansnap.text.settings import TrainingSettings
from scansnap.text.training import TrainingResult, train
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

MIN_COUNT = 20  # of a listed word before the query: the logits of rarer words are mostly chance


@dataclass(frozen=True, eq=False)
class AttentionPrediction:
    """Predicted attention logits Z of some queries for M words, at some steps."""

    model: YZTransformer  # after the last step; its Z is the prediction for all queries
    training: TrainingResult  # its losses are those of uniform attention
    queries: IntArray  # (Q,) token ids
    counts: IntArray  # (Q, M) how often each word occurs before a query, within a window
    z: dict[int, FloatArray]  # step → (Q, M)

    def words(self, query: int, step: int | None = None, *, top: int = 10, least: int = MIN_COUNT) -> IntArray:
        """The ``top`` tokens that the query will attend to most, of those that occur ``least`` times before it."""
        row = np.flatnonzero(self.queries == query)
        if not len(row):
            raise InputError("query", query, "one of the prediction's queries")
        step = max(self.z, default=0) if step is None else step
        if step not in self.z:
            raise InputError("step", step, f"one of {', '.join(map(str, self.z))}")
        frequent = np.flatnonzero(self.counts[row[0]] >= least)
        return np.asarray(frequent[np.argsort(-self.z[step][row[0], frequent], kind="stable")][:top])


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
    """Predict Z of ``train(YZTransformer(model), tokens, training)`` from one run with uniform attention.

    Parameters
    ----------
    model
        Settings of one layer, full rank and zero init, or a model made with ``uniform_attention=True``.
    tokens
        A row of token ids.
    training
        Settings of the training to predict; its fields as keywords count first. ``snapshots`` are the steps to predict
        (None: the last), and ``checkpoint`` is the file of the model.
    queries
        Token ids, or the number of the most frequent tokens.
    device
        Where to train, if ``model`` is settings.
    vocabulary
        Saved with the model.
    progress
        Called as ``progress(done, total)`` with the number of steps.

    Returns
    -------
    AttentionPrediction
        ``z`` by step; ``words(query)`` ranks the words that a query will attend to.

    Examples
    --------
    >>> import numpy as np, scansnap as ss
    >>> tokens = np.random.default_rng(0).integers(0, 5, 2000)
    >>> settings = ss.text.YZSettings(vocab_size=5, eta_y=20.0, eta_z=1.0)
    >>> prediction = ss.text.predict(settings, tokens, queries=[0, 1], steps=10, length=8)
    >>> prediction.z[10].shape, len(prediction.words(0, top=3))
    ((2, 5), 3)
    """
    training = TrainingSettings(**options) if training is None else replace(training, **options)
    if isinstance(model, YZSettings):
        model = YZTransformer(model, device, uniform_attention=True)
    if not model.uniform_attention:
        raise InputError("model", "a model that attends", "settings, or a model made with uniform_attention=True")
    stream = np.asarray(tokens)
    ids = _query_ids(stream, queries, model.vocab_size)
    rows = torch.as_tensor(ids, device=model.device)
    steps = [] if training.snapshots is None else list(training.snapshots)

    def measure(current: Any, step: int) -> dict[str, Any]:
        return {"queries": ids, "z": current.z[0].matrix()[rows].float()}

    result = train(model, stream, training, snapshots=steps, measure=measure, vocabulary=vocabulary, progress=progress)
    # the first part of a resumed run may have measured other queries
    z = {step: values["z"] for step, values in result.measured.items() if np.array_equal(values["queries"], ids)}
    z[result.step] = measure(model, result.step)["z"].cpu().numpy()
    return AttentionPrediction(model, result, ids, count_before(stream, ids, model.vocab_size, training.length), z)


def count_before(tokens: np.ndarray, queries: IntArray, vocab_size: int, length: int) -> IntArray:
    """(Q, M) how often each token occurs among the ``length`` − 1 tokens before each query."""
    counts = np.zeros((len(queries), vocab_size), dtype=np.int64)
    for start in range(0, len(tokens), BLOCK):  # a stream may be larger than memory
        before = min(start, length - 1)
        block = np.asarray(tokens[start - before : start + BLOCK])
        for row, query in enumerate(queries):
            positions = before + np.flatnonzero(block[before:] == query)
            for back in range(1, length):
                counts[row] += np.bincount(block[positions[positions >= back] - back], minlength=vocab_size)
    return counts


def _query_ids(stream: np.ndarray, queries: Sequence[int] | int, vocab_size: int) -> IntArray:
    if isinstance(queries, int):
        n = check_integer("queries", queries, least=1)
        blocks = split_into_blocks(stream)
        counts = sum((np.bincount(block, minlength=vocab_size) for block in blocks), np.zeros(1, np.int64))
        return np.argsort(-counts, kind="stable")[:n]
    for query in queries:
        check_integer("queries", query, most=vocab_size - 1)
    return np.asarray(queries, dtype=np.int64)
