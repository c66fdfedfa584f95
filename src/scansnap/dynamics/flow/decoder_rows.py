"""The rows of Y, stored so that a step of the flow needs little memory and few passes over it.

dense.py has the same with Y as one table: the logits Yᵀ f_n, the gradient g_n = Y r and the rates η_Y Σ_n p_n f_n rᵀ
(r short for e_n − α_n). This is its optimisation, and exact.

A *distinct* token's row is moved by one class only, and all D of them in a class share the right factor. Within a step,
with w_j the weights of the stages so far (see integrators.System), φ_j = η_Y p_n f_n and r_j at stage j,

    Y = Y_0 + Σ_j w_j φ_j r_jᵀ                    (D × J; Y_0 at the start of the step)

so that a stage is kept as φ_j and r_j, D + J numbers instead of D·J, and Y itself is never formed:

    Yᵀ f = Y_0ᵀ f + Σ_j w_j (φ_j·f) r_j           Y r = Y_0 r + Σ_j w_j (r_j·r) φ_j

Y_0 and the r_j stand in one table, one below the other: then each of the two is one product with it. A *common* token's
row is moved by many classes: `CommonRows` keeps it and its rates in full.

    K classes · D distinct and C common tokens of a class (padded) · R common rows · J = K + 1 outputs · s stages so far
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.checks.arrays import IntArray
from scansnap.dynamics.flow.integrators import END, N_STAGES, FloatArray, Stacked, largest

_DENSE = 0.02  # share of (class, common token) pairs in use above which dense products are faster than sparse
_CHUNK = {"cpu": 2**17, "cuda": 2**24}  # numbers in a temporary: what a cache holds; enough to fill a GPU
_SMALL = 2**14  # numbers in a block that are not worth splitting further


class _Block:
    """The distinct rows of B classes that have about as many of them; d rows each, some of them padding."""

    def __init__(self, classes: slice, d: int, n_outputs: int, device: torch.device) -> None:
        n = classes.stop - classes.start
        self.classes, self.d = classes, d
        self.stack = torch.zeros(n, d + N_STAGES, n_outputs, dtype=torch.float64, device=device)  # (B, d + 17, J)
        self.y = self.stack[:, :d]  # (B, d, J)   Y_0, in the upper part of the stack
        self.r = self.stack[:, d:]  # (B, 17, J)  r_j, in the lower part
        self.phi = self.stack.new_zeros(n, N_STAGES, d)  # (B, 17, d)

    def add_logits(self, out: Tensor, f: Tensor, w: Tensor) -> None:
        """out_n += Yᵀ f_n; out (B, J), f (B, d), w (s,)."""
        s = w.shape[0]
        f = f[:, None]  # (B, 1, d)
        along = (f @ self.phi[:, :s].mT) * w  # (B, 1, s)  w_j φ_j·f
        out[:, None].baddbmm_(torch.cat([f, along], 2), self.stack[:, : self.d + s])

    def back_project(self, r: Tensor, w: Tensor) -> Tensor:
        """Y e_n, (B, J) → (B, d)."""
        s = w.shape[0]
        products = (r[:, None] @ self.stack[:, : self.d + s].mT)[:, 0]  # (B, d + s)  Y_0 r, then r_j·r
        stages = ((products[:, self.d :] * w)[:, None] @ self.phi[:, :s])[:, 0]  # (B, d)
        return products[:, : self.d] + stages

    def at(self, w: Tensor) -> Tensor:
        """Y, (B, d, J)."""
        s = w.shape[0]
        return torch.baddbmm(self.y, self.phi[:, :s].mT * w, self.r[:, :s])

    def advance(self, w: Tensor) -> None:
        s = w.shape[0]
        self.y.baddbmm_(self.phi[:, :s].mT * w, self.r[:, :s])
        self.r[:, 0] = self.r[:, END]
        self.phi[:, 0] = self.phi[:, END]

    def magnitudes(self, out: Tensor, w: Tensor) -> None:
        """Largest |entry| of each row of Y_0 and of Σ_j w_ij φ_j r_jᵀ; out (1 + i, B, d), w (i, s)."""
        n_sums, s = w.shape
        chunk = max(1, _CHUNK[w.device.type] // (n_sums * self.d * self.stack.shape[2]))
        for first in range(0, len(self.y), chunk):
            some = slice(first, first + chunk)  # b of the B classes
            left = (self.phi[some, :s].mT[:, None] * w[:, None]).flatten(1, 2)  # (b, i·d, s)
            sums = largest(left @ self.r[some, :s])  # (b, i·d)
            out[1:, some] = sums.unflatten(1, (n_sums, self.d)).transpose(0, 1)
            out[0, some] = largest(self.y[some])


class DistinctRows:
    """Y of the distinct tokens, in blocks of classes. Arguments and results are padded to D tokens a class."""

    def __init__(self, n_distinct: list[int], n_outputs: int, device: torch.device) -> None:
        """``n_distinct`` of each class, ascending, so that classes of similar size make a block."""
        self.shape = (len(n_distinct), max(n_distinct), n_outputs)  # K, D, J
        self.device = device
        self.blocks: list[_Block] = []
        first = next((i for i, d in enumerate(n_distinct) if d > 0), len(n_distinct))
        while first < len(n_distinct):
            last = first
            while last < len(n_distinct) and (
                n_distinct[last] <= 1.25 * n_distinct[first]  # little padding, or little altogether
                or (last + 1 - first) * n_distinct[last] * n_outputs <= _SMALL
            ):
                last += 1
            self.blocks.append(_Block(slice(first, last), n_distinct[last - 1], n_outputs, device))
            first = last

    def _on_device(self, weights: FloatArray) -> Tensor:
        return torch.as_tensor(weights, device=self.device)

    def add_logits(self, out: Tensor, f: Tensor, weights: FloatArray) -> None:
        """out_n += Σ_l f_nl Y[l,:] over the distinct tokens; out (K, J), f (K, D)."""
        w = self._on_device(weights)
        for block in self.blocks:
            block.add_logits(out[block.classes], f[block.classes, : block.d], w)

    def back_project(self, r: Tensor, weights: FloatArray) -> Tensor:
        """Y e_n on the distinct tokens, (K, J) → (K, D)."""
        w = self._on_device(weights)
        out = r.new_zeros(*self.shape[:2])
        for block in self.blocks:
            out[block.classes, : block.d] = block.back_project(r[block.classes], w)
        return out

    def store(self, stage: int, phi: Tensor, r: Tensor) -> None:
        """Rates φ_n r_nᵀ of a stage: φ (K, D), r (K, J)."""
        for block in self.blocks:
            block.phi[:, stage] = phi[block.classes, : block.d]
            block.r[:, stage] = r[block.classes]

    def magnitudes(self, weights: FloatArray) -> Tensor:
        """Largest |entry| of each row of Y and of its sums of rates, (1 + len(weights), K·D)."""
        w = self._on_device(weights)
        out = w.new_zeros(1 + len(w), *self.shape[:2])
        for block in self.blocks:
            block.magnitudes(out[:, block.classes, : block.d], w)
        return out.flatten(1)

    def rows(self, weights: FloatArray) -> list[tuple[slice, Tensor]]:
        """Y itself, block by block: the classes and (B, d, J)."""
        w = self._on_device(weights)
        return [(block.classes, block.at(w)) for block in self.blocks]

    def advance(self, weights: FloatArray) -> None:
        w = self._on_device(weights)
        for block in self.blocks:
            block.advance(w)


@dataclass(frozen=True)
class _Pairs:
    """The (class, common token) pairs in use, those of one class (or of one token) after each other."""

    start: Tensor  # where each one's pairs begin
    other: Tensor  # (pairs,) the row of each pair's token (or its class)
    slot: Tensor  # (pairs,) where the pair stands in a flat (K, C) table

    def sum(self, weight: Tensor, table: Tensor) -> Tensor:
        """Σ weight · table[other] over each one's pairs; weight (K, C)."""
        weights = weight.flatten()[self.slot]
        return F.embedding_bag(self.other, table, self.start, mode="sum", per_sample_weights=weights)


class Pattern:
    """Which common tokens classes have: ``row`` (K, C) says which row of Y each class's C-th common token is.

    Products with the pattern are dense where it is dense (the paper's data) and sparse where it is not (text).
    Padded entries of ``row`` are −1 and carry f = 0.
    """

    def __init__(self, row: IntArray, n_rows: int, device: torch.device) -> None:
        cls, place = np.nonzero(row >= 0)  # (pairs,) each, by class
        token, slot = row[cls, place], np.ravel_multi_index((cls, place), row.shape)
        self.n_rows, self.dense = n_rows, len(token) >= _DENSE * n_rows * len(row)
        self.row = torch.as_tensor(np.maximum(row, 0), device=device)  # (K, C)
        if not self.dense:

            def put(start: IntArray, other: IntArray, slot: IntArray) -> _Pairs:
                return _Pairs(*(torch.as_tensor(x, device=device) for x in (start, other, slot)))

            by_token = np.argsort(token, kind="stable")
            self.of_class = put(np.searchsorted(cls, np.arange(len(row))), token, slot)
            self.of_token = put(np.searchsorted(token[by_token], np.arange(n_rows)), cls[by_token], slot[by_token])
            self.cls = torch.as_tensor(cls, device=device)  # (pairs,) in the order of of_class

    def _spread(self, f: Tensor) -> Tensor:
        """f by rows of Y, (K, C) → (K, R)."""
        return f.new_zeros(len(f), self.n_rows).scatter_add_(1, self.row, f)

    def logits(self, f: Tensor, y: Tensor) -> Tensor:
        """Σ_l f_nl Y[l,:] over the common tokens, (K, C) → (K, J)."""
        return self._spread(f) @ y if self.dense else self.of_class.sum(f, y)

    def back_project(self, r: Tensor, y: Tensor) -> Tensor:
        """Y e_n on the common tokens, (K, J) → (K, C); anything at padding, where f is 0."""
        if self.dense:
            return (r @ y.mT).gather(1, self.row)
        out = r.new_zeros(self.row.shape)
        chunk = max(1, _CHUNK[r.device.type] // r.shape[1])  # pairs at a time
        pairs = zip(*(x.split(chunk) for x in (self.of_class.other, self.cls, self.of_class.slot)), strict=True)
        for token, cls, slot in pairs:
            out.view(-1)[slot] = (y[token][:, None] @ r[cls][:, :, None])[:, 0, 0]
        return out

    def collect(self, phi: Tensor, r: Tensor) -> Tensor:
        """Σ_n φ_n r_nᵀ by rows of Y, (K, C) and (K, J) → (R, J)."""
        return self._spread(phi).mT @ r if self.dense else self.of_token.sum(phi, r)


class CommonRows(Stacked, Pattern):
    """Y of the common tokens, (R, J), and its rates in full."""

    def __init__(self, row: IntArray, n_outputs: int, device: torch.device) -> None:
        n_rows = int(row.max(initial=-1)) + 1
        Stacked.__init__(self, torch.zeros(n_rows, n_outputs, dtype=torch.float64, device=device))
        Pattern.__init__(self, row, n_rows, device)

    def store(self, stage: int, phi: Tensor, r: Tensor) -> None:
        """Rates of a stage: φ (K, C), r (K, J)."""
        self.rate[stage] = self.collect(phi, r)
