"""The rows of Y, held so that a step of the flow costs little memory and few passes over it.

A *distinct* token's row is moved by one class only, Ẏ[l,:] = η_Y p_n f_nl (e_n − α_n)ᵀ: the D rows of a class
share the right factor. :class:`DistinctVotes` keeps the rates of a step as these factors (K numbers per class
and stage instead of D·K) and reads rows inside the step through them, exactly. A *common* token's row is moved by
many classes; :class:`CommonVotes` keeps it and its rates in full.

    K classes · D distinct and C common tokens of a class (padded) · R common rows · J = K + 1 outputs
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


@dataclass
class _Block:
    """Some classes with about as many distinct tokens: their rows and, below them, the stage factors e_n − α_n."""

    classes: slice
    d: int
    rows: Tensor  # (B, d + 17, J)
    f: Tensor  # (B, 17, d)  η_Y p_n f of each stage


class DistinctVotes:
    """Y of the distinct tokens: Y[l,:] + Σ_j w_j η_Y p_n f_j[l] r_j, a combination of d + 17 rows per class."""

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
            d = n_distinct[last - 1]
            rows = torch.zeros(last - first, d + N_STAGES, n_outputs, dtype=torch.float64, device=device)
            f = rows.new_zeros(last - first, N_STAGES, d)
            self.blocks.append(_Block(slice(first, last), d, rows, f))
            first = last

    def _weights(self, weights: FloatArray) -> tuple[Tensor, int]:
        return torch.as_tensor(weights, device=self.device), weights.shape[-1]

    def add_votes(self, out: Tensor, f: Tensor, weights: FloatArray) -> None:
        """out_n += Σ_l f_nl Y[l,:] over the distinct tokens; out (K, J), f (K, D)."""
        w, s = self._weights(weights)
        for b in self.blocks:
            own = f[b.classes, None, : b.d]  # (B, 1, d)
            along = (own @ b.f[:, :s].mT) * w  # (B, 1, s)  w_j η_Y p_n f_j·f
            out[b.classes, None].baddbmm_(torch.cat([own, along], 2), b.rows[:, : b.d + s])

    def pull(self, r: Tensor, weights: FloatArray) -> Tensor:
        """Y r_n on the distinct tokens, (K, J) → (K, D)."""
        w, s = self._weights(weights)
        out = r.new_zeros(*self.shape[:2])
        for b in self.blocks:
            dots = (r[b.classes, None] @ b.rows[:, : b.d + s].mT)[:, 0]  # (B, d + s)
            past = ((dots[:, b.d :] * w)[:, None] @ b.f[:, :s])[:, 0]  # (B, d)
            out[b.classes, : b.d] = dots[:, : b.d] + past
        return out

    def store(self, stage: int, f: Tensor, r: Tensor) -> None:
        """Rates f_n r_nᵀ of a stage: f (K, D) with the rate η_Y p_n in it, r (K, J)."""
        for b in self.blocks:
            b.f[:, stage] = f[b.classes, : b.d]
            b.rows[:, b.d + stage] = r[b.classes]

    def magnitudes(self, weights: FloatArray) -> Tensor:
        """Largest |entry| of each row of Y and of its sums of rates, (1 + len(weights), K·D)."""
        w, s = self._weights(weights)  # (i, s)
        out = w.new_zeros(1 + len(w), *self.shape[:2])
        for b in self.blocks:
            step = max(1, _CHUNK[self.device.type] // (len(w) * b.d * self.shape[2]))
            for i in range(0, len(b.rows), step):
                rows, f = b.rows[i : i + step], b.f[i : i + step, :s]
                where = slice(b.classes.start + i, b.classes.start + i + len(rows))
                left = (f.mT[:, None] * w[:, None]).flatten(1, 2)  # (b, i·d, s)
                sums = left @ rows[:, b.d : b.d + s]  # (b, i·d, J)
                out[1:, where, : b.d] = largest(sums).unflatten(1, (len(w), b.d)).transpose(0, 1)
                out[0, where, : b.d] = largest(rows[:, : b.d])
        return out.flatten(1)

    def rows(self, weights: FloatArray) -> list[tuple[slice, Tensor]]:
        """Y itself, block by block: the classes and (B, d, J)."""
        w, s = self._weights(weights)
        return [(b.classes, torch.baddbmm(b.rows[:, : b.d], b.f[:, :s].mT * w, b.rows[:, b.d : b.d + s]))
                for b in self.blocks]  # fmt: skip

    def advance(self, weights: FloatArray) -> None:
        w, s = self._weights(weights)
        for b in self.blocks:
            b.rows[:, : b.d].baddbmm_(b.f[:, :s].mT * w, b.rows[:, b.d : b.d + s])
            b.rows[:, b.d] = b.rows[:, b.d + END]
            b.f[:, 0] = b.f[:, END]


class CommonVotes(Stacked):
    """Y of the common tokens, (R, J); ``row`` (K, C) says which one each class's C-th common token is.

    Products with the pattern are dense where it is dense (the paper's data) and sparse where it is not (text).
    Padded entries of ``row`` are −1 and carry f = 0.
    """

    def __init__(self, row: IntArray, n_outputs: int, device: torch.device) -> None:
        n_rows = int(row.max(initial=-1)) + 1
        super().__init__(torch.zeros(n_rows, n_outputs, dtype=torch.float64, device=device))
        cls, place = np.nonzero(row >= 0)  # by class, ascending
        token = row[cls, place]
        by_token = np.argsort(token, kind="stable")
        self.dense = len(token) >= _DENSE * n_rows * len(row)
        self.row = torch.as_tensor(np.maximum(row, 0), device=device)  # (K, C)
        index = {
            "cls": cls,  # (pairs,) class of each (class, common token) pair
            "token": token,  # (pairs,)
            "slot": np.ravel_multi_index((cls, place), row.shape),  # (pairs,) where it stands in (K, C)
            "cls_start": np.searchsorted(cls, np.arange(len(row))),  # (K,)
            "cls_by_token": cls[by_token],  # (pairs,)
            "slot_by_token": np.ravel_multi_index((cls[by_token], place[by_token]), row.shape),
            "token_start": np.searchsorted(token[by_token], np.arange(n_rows)),  # (R,)
        }
        self.index = {} if self.dense else {k: torch.as_tensor(v, device=device) for k, v in index.items()}

    def _spread(self, f: Tensor) -> Tensor:
        """f by rows of Y, (K, C) → (K, R)."""
        return f.new_zeros(len(f), len(self.value)).scatter_add_(1, self.row, f)

    def votes(self, f: Tensor, y: Tensor) -> Tensor:
        """Σ_l f_nl Y[l,:] over the common tokens, (K, C) → (K, J)."""
        if self.dense:
            return self._spread(f) @ y
        weight = f.flatten()[self.index["slot"]]
        tokens, start = self.index["token"], self.index["cls_start"]
        return F.embedding_bag(tokens, y, start, mode="sum", per_sample_weights=weight)

    def pull(self, r: Tensor, y: Tensor) -> Tensor:
        """Y r_n on the common tokens, (K, J) → (K, C); anything at padding, where f is 0."""
        if self.dense:
            return (r @ y.mT).gather(1, self.row)
        out = r.new_zeros(self.row.shape)
        step = max(1, _CHUNK[r.device.type] // r.shape[1])
        parts = zip(*(self.index[k].split(step) for k in ("token", "cls", "slot")), strict=True)
        for token, cls, slot in parts:
            out.view(-1)[slot] = (y[token][:, None] @ r[cls][:, :, None])[:, 0, 0]
        return out

    def store(self, stage: int, f: Tensor, r: Tensor) -> None:
        """Rates Σ_n f_n r_nᵀ of a stage: f (K, C) with the rate η_Y p_n in it, r (K, J)."""
        if self.dense:
            self.rate[stage] = self._spread(f).mT @ r
        else:
            weight = f.flatten()[self.index["slot_by_token"]]
            classes, start = self.index["cls_by_token"], self.index["token_start"]
            self.rate[stage] = F.embedding_bag(classes, r, start, mode="sum", per_sample_weights=weight)
