"""Compact coordinates: which rows, columns and keys of Y and Z a simulation has to keep.

Without positions only tokens in some class's context ever enter f, so Y needs those rows alone; from Y(0) = 0
all outputs that are never a next token stay identical, so one column with a multiplicity stands for them. Both
reductions are exact. Where an option breaks the reason for one, the full table is kept.

Sizes: K classes, S slots (tokens that can enter f for a class, padded), L rows of Y, J columns of Y, Q queries,
M tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from scansnap.classes import SequenceClasses
from scansnap.dynamics.norms import NORMS
from scansnap.dynamics.settings import ModelConfig
from scansnap.sampling.counts import SamplingTable


@dataclass(frozen=True)
class TableLayout:
    """Index tables between tokens, slots, rows and columns; plain NumPy, moved to a device by the engine."""

    vocab_size: int
    slots: np.ndarray  # (K, S) token of each slot; padding repeats token 0 with probability 0
    n_slots: np.ndarray  # (K,) how many slots are real
    slot_p: np.ndarray  # (K, S) P(l|n)
    slot_query: np.ndarray  # (K, S) 1.0 where the slot is the class's own query and the model looks at it
    rows: np.ndarray  # (L,) token of each row of Y, ascending
    slot_row: np.ndarray  # (K, S) row of each slot
    columns: np.ndarray  # (J,) output token of each column; -1 for the lumped one
    multiplicity: np.ndarray  # (J,) how many outputs a column stands for
    target: np.ndarray  # (K,) column of each class's next token
    queries: np.ndarray  # (Q,) query tokens, ascending
    class_query: np.ndarray  # (K,) which query each class has
    table: SamplingTable

    def expected_counts(self, context: float, query_in_keys: bool) -> np.ndarray:
        """Counts of the class itself rather than of a sample, (K, S): P(l|n), or (T − 1) P(l|n) and the query."""
        if math.isinf(context):
            return self.slot_p
        return (context - 1) * self.slot_p + (self.slot_query if query_in_keys else 0.0)

    def expand_columns(self, y: np.ndarray) -> np.ndarray:
        """(…, J) columns as (…, M) outputs; outputs outside the objective are NaN."""
        full = np.full((*y.shape[:-1], self.vocab_size), np.nan, dtype=y.dtype)
        if (self.columns < 0).any():
            full[...] = y[..., [int(np.flatnonzero(self.columns < 0)[0])]]
        named = self.columns >= 0
        full[..., self.columns[named]] = y[..., named]
        return full


def make_layout(classes: SequenceClasses, model: ModelConfig, *, decays: bool) -> TableLayout:
    """The smallest exact layout; ``decays``: weight decay moves even what the data does not touch."""
    k, m = classes.n_classes, classes.vocab_size
    with_query = model.query_in_keys or model.residual != "none"
    dense = NORMS[model.norm].dense
    members = []
    for n in range(k):
        tokens = np.arange(m) if dense else classes.support(n)[0]
        members.append(np.union1d(tokens, classes.query[n : n + 1]) if with_query else tokens)
    n_slots = np.array([len(tokens) for tokens in members])
    slots = np.zeros((k, n_slots.max()), dtype=np.int64)
    slot_p = np.zeros(slots.shape)
    slot_query = np.zeros(slots.shape)
    for n, tokens in enumerate(members):
        slots[n, : n_slots[n]] = tokens
        support, probs = classes.support(n)
        slot_p[n, np.searchsorted(tokens, support)] = probs
        if with_query:
            slot_query[n, np.searchsorted(tokens, classes.query[n])] = 1.0
    zero = model.init == "zero"
    rows = np.arange(m) if dense or (decays and not zero) else np.unique(np.concatenate(members))
    slot_row = np.minimum(np.searchsorted(rows, slots), len(rows) - 1)  # padding points anywhere, with weight 0
    columns, multiplicity, target = _columns(classes, model.outputs, lump=zero)
    queries, class_query = np.unique(classes.query, return_inverse=True)
    return TableLayout(
        m, slots, n_slots, slot_p, slot_query, rows, slot_row, columns, multiplicity, target,
        queries, class_query, SamplingTable(classes.p_class, slot_p),
    )  # fmt: skip


def _columns(classes: SequenceClasses, outputs: str, lump: bool) -> tuple[Any, Any, Any]:
    m = classes.vocab_size
    if outputs == "all" and not lump:
        return np.arange(m), np.ones(m), classes.next_token.copy()
    tokens, first, target = np.unique(classes.next_token, return_index=True, return_inverse=True)
    order = np.argsort(first)  # columns in the order of the classes that name them first
    columns, target, j = tokens[order], np.argsort(order)[target], len(tokens)
    if outputs == "next" or j == m:
        return columns, np.ones(j), target
    return np.append(columns, -1), np.append(np.ones(j), m - j), target
