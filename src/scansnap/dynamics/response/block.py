"""The tables of the response for some of the classes, held so that a stage reads them once.

A class has its row a_n of the frozen decoder, with ȧ_n = η_Y p_n r_n, and for each of its distinct tokens a row δY_l
that only it moves, δẎ_l = δf_nl ȧ_n. Both are moved by ȧ alone, so their rates at stage j are kept as ȧ_j and δf_j:
with w_j the weights of the stages so far (see flow/integrators.System)

    a = a_0 + Σ_j w_j ȧ_j           δY_l = δY_0l + Σ_j w_j δf_jl ȧ_j

Rows δY_0, a_0 and ȧ_j stand below each other in one stack, and the products of all of them with r_n are one product
with it. The third table, e_n = Σ_l f_nl (δY_l + f_nl δa_n), is what a class's distinct tokens add to its logits; δa_n
itself, the change of a_n, follows from it, and is never formed:

    own δa_n = e_n − Σ_l f_nl δY_l,      own = Σ_l f_nl²

    B classes · d distinct tokens of a class (padded) · J outputs · s stages so far
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from scansnap.checks.arrays import IntArray
from scansnap.dynamics.flow.decoder_rows import Pattern
from scansnap.dynamics.flow.integrators import END, N_STAGES, largest

_CACHED = 2**16  # numbers in a (B, J) table: some of them together fit in a core's cache
_PADDED = 1.25  # most by which a class's tokens are padded, where that costs anything


class Block:
    """a, e and δY of some of the classes, which stand after each other."""

    def __init__(self, classes: slice, d: int, n_outputs: int, common_row: IntArray, n_rows: int) -> None:
        """``common_row`` (B, C) of the ``n_rows`` rows of common tokens, −1 at padding."""
        n = classes.stop - classes.start
        self.classes, self.d = classes, d
        cpu = torch.device("cpu")
        self.pattern = Pattern(common_row, n_rows, cpu)
        again = np.where(common_row < 0, -1, common_row + n_rows)  # the same tokens in a second table below the first
        self.twice = Pattern(np.concatenate([common_row, again], axis=1), 2 * n_rows, cpu)
        self.stack = torch.zeros(n, d + 1 + N_STAGES, n_outputs, dtype=torch.float64)  # δY_0, a_0, ȧ_j
        self.e_stack = torch.zeros(n, 1 + N_STAGES, n_outputs, dtype=torch.float64)  # e_0, ė_j
        self.df = torch.zeros(n, N_STAGES, d, dtype=torch.float64)

    def a(self, w: Tensor) -> Tensor:
        """(B, J)."""
        return _total(self.stack[:, self.d :], w)

    def e(self, w: Tensor) -> Tensor:
        """(B, J)."""
        return _total(self.e_stack, w)

    def back_project(self, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """δY_l·r_n by distinct token, (B, d), and a_n·r_n, (B, 1); r (B, J)."""
        d, s = self.d, len(w)
        products = (r[:, None] @ self.stack[:, : d + 1 + s].mT)[:, 0]  # (B, d + 1 + s)
        stages = products[:, d + 1 :] * w  # (B, s)
        return (
            products[:, :d] + (stages[:, None] @ self.df[:, :s])[:, 0],
            products[:, d : d + 1] + stages.sum(1, keepdim=True),
        )

    def logits(self, g: Tensor, w: Tensor) -> Tensor:
        """Σ_l g_nl δY_l, (B, d) → (B, J)."""
        s = len(w)
        along = (g[:, None] @ self.df[:, :s].mT) * w  # (B, 1, s)
        return (torch.cat([g[:, None], along.new_zeros(len(g), 1, 1), along], 2) @ self.stack[:, : self.d + 1 + s])[
            :, 0
        ]

    def gaps(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """a and e at each class's right output less those at one that is never right, (B,) each."""
        right = torch.arange(self.classes.start, self.classes.stop)[:, None, None]
        weights = torch.cat([w.new_ones(1), w])
        tables = (rows[:, : len(weights)] for rows in (self.stack[:, self.d :], self.e_stack))
        a, e = ((rows.take_along_dim(right, 2)[..., 0] - rows[..., -1]) @ weights for rows in tables)
        return a, e

    def rates_of(self, stage: int) -> tuple[Tensor, Tensor]:
        """Where ȧ and ė of a stage stand, (B, J) each."""
        return self.stack[:, self.d + 1 + stage], self.e_stack[:, 1 + stage]

    def magnitudes(self, weights: Tensor) -> Tensor:
        """Largest |entry| of each a_n, and of its sums of rates, (1 + len(weights), B)."""
        rows = self.stack[:, self.d :]
        sums = weights.expand(len(rows), -1, -1) @ rows[:, 1 : 1 + weights.shape[1]]  # (B, i, J)
        return torch.cat([largest(rows[:, 0])[None], largest(sums).mT])

    def advance(self, w: Tensor) -> None:
        d, s = self.d, len(w)
        rates = self.stack[:, d + 1 : d + 1 + s]
        self.stack[:, :d].baddbmm_(self.df[:, :s].mT * w, rates)
        for rows in (self.stack[:, d:], self.e_stack):
            rows[:, 0] = _total(rows, w)
            rows[:, 1] = rows[:, 1 + END]
        self.df[:, 0] = self.df[:, END]


def _total(rows: Tensor, w: Tensor) -> Tensor:
    """The first row and w_j times those after it, (B, 1 + …, J) → (B, J)."""
    weights = torch.cat([w.new_ones(1), w]).expand(len(rows), 1, -1)
    return torch.bmm(weights, rows[:, : 1 + len(w)])[:, 0]


def cut(n_distinct: list[int], n_outputs: int, n_rows: int) -> list[slice]:
    """Classes in blocks: of a size to stay in the cache, but not far smaller than the ``n_rows`` common tokens' table,
    which each block reads; and of about as many distinct tokens each (``n_distinct`` ascends)."""
    most = max(_CACHED // n_outputs, n_rows // 4, 1)
    cuts = [0]
    for n, d in enumerate(n_distinct):
        at = cuts[-1]
        padded = d > _PADDED * n_distinct[at] and (n + 1 - at) * d > most
        if n - at >= most or padded:
            cuts.append(n)
    return [slice(*ends) for ends in zip(cuts, [*cuts[1:], len(n_distinct)], strict=True)]
