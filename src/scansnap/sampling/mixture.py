"""Sequences of a mixture of classes, which may share queries and next tokens.

Class n is drawn with probability p_n, its T − 1 context tokens independently from P(·|n), then comes its query. The
target is the class's next token, a token drawn from the class's distribution of next tokens, or that distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from scansnap.checks import InputError, check_integer
from scansnap.checks.arrays import class_row, distribution, numbers, per_class, table_rows
from scansnap.sampling.counts import SamplingTable, sample_classes, sample_tokens
from scansnap.sampling.philox import Purpose, uniforms
from scansnap.sampling.sampler import Sequences, digest, even


class MixtureSampler:
    """Token sequences of a mixture of K classes, with a next token or a distribution of next tokens for each.

    The draws of a seed and step are the same as with ``simulate(sampling="tokens")``.

    Parameters
    ----------
    p_context
        P(l|n), the probability of each context token in each class: shape (K, M), dense or sparse.
    query
        Token id of the query of each class, shape (K,).
    context
        Sequence length T in tokens, the query included.
    next_token
        Token id that follows in each class, shape (K,). Pass either this or ``p_next``.
    p_next
        Probability of each next token in each class, shape (K, M).
    soft
        Whether the target is the row of ``p_next`` instead of a token drawn from it.
    p_class
        Probability of each class, shape (K,); equal by default.

    Examples
    --------
    >>> import torch
    >>> sampler = MixtureSampler([[0.5, 0.5, 0], [1, 0, 0]], query=[2, 2], context=8, p_next=[[0, 1, 0], [0.5, 0, 0.5]])
    >>> batch = sampler(torch.tensor([0, 1]), torch.arange(3), batch_size=4)
    >>> batch.tokens.shape, batch.target.shape
    (torch.Size([2, 3, 4, 8]), torch.Size([2, 3, 4]))
    """

    def __init__(
        self,
        p_context: Any,
        query: ArrayLike,
        *,
        context: int,
        next_token: ArrayLike | None = None,
        p_next: Any = None,
        soft: bool = False,
        p_class: ArrayLike | None = None,
    ) -> None:
        tokens, probs, self.vocab_size = table_rows(p_context)
        k = len(tokens)
        if k == 0:
            raise InputError("p_context", "0 classes", "a table with at least one class")
        self.context = check_integer("context", context, least=2)
        self.query = per_class("query", query, k, self.vocab_size)
        p = np.full(k, 1 / k) if p_class is None else numbers("p_class", p_class)
        if p.shape != (k,):
            raise InputError("p_class", f"of shape {p.shape}", f"one number for each of the {k} classes")
        rows = [class_row(n, ids, row) for n, (ids, row) in enumerate(zip(tokens, probs, strict=True))]
        self.slots, p_slot = _padded(rows)
        self.table = SamplingTable(distribution("p_class", p), p_slot)
        if (next_token is None) == (p_next is None):
            raise InputError("next_token and p_next", "both given or both left out", "given one without the other")
        if next_token is not None:
            after = [
                (np.array([token]), np.ones(1)) for token in per_class("next_token", next_token, k, self.vocab_size)
            ]
        else:
            ids, values, width = table_rows(p_next)
            if (len(ids), width) != (k, self.vocab_size):
                raise InputError("p_next", f"of shape {(len(ids), width)}", f"of shape {(k, self.vocab_size)}")
            after = [(row, distribution(f"P(next|{n})", p)) for n, (row, p) in enumerate(zip(ids, values, strict=True))]
        self.soft = soft
        self.next_slots, p_after = _padded(after)
        self.next_table = SamplingTable(self.table.p_class, p_after)

    def __call__(self, seeds: Tensor, steps: Tensor, batch_size: int) -> Sequences:
        cls = sample_classes(self.table, seeds, steps, batch_size)  # (G, N, B)
        slots = self._context(cls, seeds, steps)  # (G, N, B, T − 1)
        context = torch.as_tensor(self.slots, device=seeds.device)[cls].gather(-1, slots)
        query = torch.as_tensor(self.query, device=seeds.device)[cls]
        tokens = torch.cat([context, query[..., None]], dim=-1)
        return Sequences(tokens, self._target(cls, seeds, steps), even(tokens))

    def describe(self) -> str:
        """Return a digest of the numbers that determine the data, and T."""
        tables = (
            self.slots,
            self.table.p_slot,
            self.query,
            self.table.p_class,
            self.next_slots,
            self.next_table.p_slot,
        )
        soft = ", soft labels" if self.soft else ""
        return f"{len(self.query)} classes of {self.vocab_size} tokens {digest(*tables)}, T = {self.context}{soft}"

    def _context(self, cls: Tensor, seeds: Tensor, steps: Tensor) -> Tensor:
        """Slots of the context tokens, independent of each other given the class."""
        return sample_tokens(self.table, cls, seeds, steps, self.context - 1)

    def _target(self, cls: Tensor, seeds: Tensor, steps: Tensor) -> Tensor:
        """The token that comes next (G, N, B), or its distribution (G, N, B, M)."""
        next_slots = torch.as_tensor(self.next_slots, device=cls.device)
        if self.soft:
            p = torch.as_tensor(self.next_table.p_slot, device=cls.device)
            rows = torch.zeros(len(p), self.vocab_size, dtype=torch.float64, device=cls.device)
            return rows.scatter_add_(1, next_slots, p)[cls]  # padding adds 0 to token 0
        sample = torch.arange(cls.shape[-1], device=cls.device)
        u, _ = uniforms(seeds[:, None, None], Purpose.NEXT, steps[:, None], torch.zeros_like(sample), sample)
        edges = torch.as_tensor(self.next_table.slot_edges, device=cls.device)[cls]  # (G, N, B, S)
        return next_slots[cls].gather(-1, torch.searchsorted(edges, u[..., None], right=True))[..., 0]


def _padded(rows: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and probabilities as tables (K, S), filled up with token 0 at probability 0."""
    size = max(len(ids) for ids, _ in rows)
    tokens, p = np.zeros((len(rows), size), dtype=np.int64), np.zeros((len(rows), size))
    for n, (ids, row) in enumerate(rows):
        tokens[n, : len(ids)], p[n, : len(ids)] = ids, row
    return tokens, p
