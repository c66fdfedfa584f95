"""The linear response of attention to a learning decoder, around frozen attention.

While attention is frozen at F = [f_1 … f_K] the decoder is Y = Σ f_n a_nᵀ, ȧ_n = η_Y p_n r_n, r_n = e_n − α_n
(decoder.py). To first order in what attention then does, z = δz and Y = Σ f_n (a_n + δa_n)ᵀ + δY with

    δf_n  = f_n ∘ (δz_m − ⟨f_n², δz_m⟩)                                  m = ψ(n)
    δl_n  = Yᵀ δf_n + Σ_n' (f_n·f_n') δa_n' + δYᵀ f_n                     change of the logits
    δr_n  = −(diag α_n − α_n α_nᵀ) δl_n
    δẎ    = η_Y Σ p_n δf_n r_nᵀ,   δȧ_n = η_Y p_n δr_n
    δż_m  = η_Z Σ p_n { drive_n + memory_n }                             over the classes of query m

With x_n = Σ_{n'≠n} f_n' (a_n'·r_n), the effect of the other classes on frozen attention, and P = I − f_n f_nᵀ,

    drive_n  = f_n ∘ P x_n
    memory_n = f_n ∘ P [δY r_n + Σ_n' f_n' (δa_n'·r_n + a_n'·δr_n) − δf_n (a_n·r_n)]
             + δf_n ∘ P x_n − f_n ∘ (δf_n (f_n·x_n) + f_n (δf_n·x_n))

The largest term of the memory is −δf_n (a_n·r_n): P takes the present f_n out of Y, not the earlier ones of which Y was
made, and what is left of them pulls attention back. Nothing else is neglected but squares, so the answer is exact to
first order in δz whatever the classes, queries, overlaps and rates.

    K classes · L = D + C tokens of a class, distinct then common, each padded · R common tokens · J = K + 1 outputs
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scansnap.checks.arrays import FloatArray
from scansnap.dynamics.flow.compact import PaddedLayout
from scansnap.dynamics.flow.dense import error
from scansnap.dynamics.flow.integrators import END, INSIDE, PROBE, Stacked
from scansnap.dynamics.response.block import Block, cut
from scansnap.dynamics.yz import attention_of

T = TypeVar("T")
# stage: share of the step; where the flow itself is evaluated, too
_ERROR_STAGES = {0: 0.0, 5: 1 / 3, 14: 0.2, INSIDE: PROBE, END: 1.0}


class BlockMap(Protocol):
    """As ``map``, or the ``map`` of a pool of threads."""

    def __call__(self, function: Callable[[Block], T], blocks: Iterable[Block], /) -> Iterator[T]: ...


class BlockResponse(NamedTuple):
    """Contributions of the classes of a block at a point within a step; B classes, R common tokens, J outputs."""

    dy_r: Tensor  # (B, d) δY_l·r_n of the distinct tokens
    a_r: Tensor  # (B, 1) a_n·r_n
    e_r: Tensor  # (B, 1) e_n·r_n
    a_dr: Tensor  # (B, 1) a_n·δr_n
    y_r_common: Tensor  # (B, C) Y r_n of the common tokens
    change_common: Tensor  # (B, C) δY r_n + Y δr_n of the common tokens
    y_rate: Tensor  # (2R, J)
    flow_rate: Tensor | None  # (B, L) the rate of the flow itself


class ResponseField:
    """State and vector field, as the integrator asks for them; classes are in the order of ``layout``.

    The integrator's time is θ = ln(1 + t/τ), τ = 1/(η_Y max p_n), in which all is smooth: after t₀ the decoder grows as
    ln t.
    """

    def __init__(self, layout: PaddedLayout, eta_y: float, eta_z: float, each: BlockMap = map) -> None:
        """``each`` applies a function to blocks of classes, as ``map`` does; a pool's does so at the same time."""
        classes = layout.classes
        k = classes.n_classes
        self.layout, self.eta_y, self.eta_z, self.each = layout, eta_y, eta_z, each
        self.n_rest = classes.vocab_size - k
        self.d = max(layout.n_distinct)
        self.p = torch.as_tensor(layout.p)  # (K, L), 0 at padding
        self.f = self.p / torch.linalg.vector_norm(self.p, dim=1, keepdim=True)  # (K, L)
        self.own = (self.f[:, : self.d] ** 2).sum(1, keepdim=True)  # (K, 1) f_n·f_n on its distinct tokens
        self.per_own = torch.where(self.own > 0, 1 / self.own, 0.0)  # (K, 1)
        self.p_class = torch.as_tensor(classes.p_class[layout.order, None])  # (K, 1)
        self.cell, self.cell_query = torch.as_tensor(layout.cell), torch.as_tensor(layout.cell_query)
        self.n_evaluations = 0
        self.theta, self.tau = 0.0, 1 / (eta_y * classes.p_class.max())
        nothing = torch.zeros(len(layout.cell_query), dtype=torch.float64)
        self.z, self.drive = Stacked(nothing), Stacked(nothing)  # (cells,) each
        self.off, self.off_rate = nothing.clone(), dict.fromkeys(_ERROR_STAGES, nothing)
        n_rows = int(layout.common_row.max(initial=-1)) + 1
        self.y = Stacked(torch.zeros(2 * n_rows, k + 1, dtype=torch.float64))  # common tokens' Y, then its change
        self.blocks = [
            Block(some, layout.n_distinct[some.stop - 1], k + 1, layout.common_row[some], n_rows)
            for some in cut(layout.n_distinct, k + 1, n_rows)
        ]

    def log_time(self, t: FloatArray) -> FloatArray:
        """θ of times."""
        return np.asarray(np.log1p(t / self.tau))

    def rates(self, stage: int, weights: FloatArray) -> None:
        self.n_evaluations += 1
        d, f, w = self.d, self.f, torch.as_tensor(weights)
        pace = self.tau * math.exp(self.theta + weights.sum())  # dt/dθ
        z = self.z.at(weights)
        df = self._moved(z)  # (K, L)
        true_f = self.attention(z) if stage in self.off_rate else None
        y = self.y.at(weights)
        parts = list(self.each(lambda block: self._part(block, stage, w, df, y, true_f, pace), self.blocks))
        self.y.rate[stage] = sum(part.y_rate for part in parts)

        dy_r, a_r, e_r, a_dr, y_r_common, change_common = (
            torch.cat(values) for values in zip(*(part[:6] for part in parts), strict=True)
        )
        x = torch.zeros_like(f)  # (K, L) x_n: only common tokens know other classes
        x[:, d:] = (y_r_common - a_r * f[:, d:]) * (f[:, d:] > 0)  # anything at padding
        dg = torch.cat([self._distinct_change(dy_r, e_r, slice(None)) + f[:, :d] * a_dr, change_common], dim=1)
        dg -= df * a_r
        f_x = (f * x).sum(1, keepdim=True)  # (K, 1) f_n·x_n
        drive = f * (x - f * f_x)
        memory = f * (dg - f * (f * dg).sum(1, keepdim=True))
        memory += df * (x - f * f_x) - f * (df * f_x + f * (df * x).sum(1, keepdim=True))
        drive_rate, rate = self._by_cell(drive, pace), self._by_cell(drive + memory, pace)
        self.drive.rate[stage], self.z.rate[stage] = drive_rate, rate
        if true_f is not None:
            flow_rate = torch.cat([part.flow_rate for part in parts if part.flow_rate is not None])
            self.off_rate[stage] = self._by_cell(flow_rate, pace) - rate

    def _part(
        self, block: Block, stage: int, w: Tensor, df: Tensor, y_and_dy: Tensor, true_f: Tensor | None, pace: float
    ) -> BlockResponse:
        """The tables of a block: all that costs time. Stores their rates."""
        some, d, pattern = block.classes, block.d, block.pattern
        f, df, own = self.f[some], df[some], self.own[some]
        f_c, df_c = f[:, self.d :], df[:, self.d :]
        y, dy = y_and_dy.chunk(2)  # (R, J) each
        a, e = block.a(w), block.e(w)
        r = error(pattern.logits(f_c, y).addcmul_(own, a), self.n_rest, some.start)
        dy_r, a_r = block.back_project(r, w)
        f_df = (f * df)[:, :d].sum(1, keepdim=True)  # (B, 1)
        dl = block.twice.logits(torch.cat([df_c, f_c], 1), y_and_dy).add_(e).addcmul_(f_df, a)

        # α_n = e_n − r_n, so α_n·δl_n is the right output's δl less r_n·δl_n
        right_dl, r_dl = dl[:, some.start :].diagonal()[:, None], _dot(r, dl)  # (B, 1) each
        dr = dl.sub_(right_dl - r_dl).mul_(r)
        dr[:, some.start :].diagonal().copy_(((r[:, some.start :].diagonal()[:, None] - 1) * r_dl)[:, 0])

        step = pace * self.eta_y * self.p_class[some]  # (B, 1)
        a_rate, e_rate = block.rates_of(stage)
        self._each_output(torch.mul(r, step, out=a_rate))
        a_dr, y_dr = _dot(a, dr), pattern.back_project(dr, y)
        da_rate = self._each_output(dr.mul_(step))
        y_r_common, dy_r_common = block.twice.back_project(r, y_and_dy).chunk(2, 1)  # (B, C) each
        y_rate = block.twice.collect(torch.cat([f_c, df_c], 1), a_rate)
        y_rate[len(y) :] += pattern.collect(f_c, da_rate)
        part = BlockResponse(
            F.pad(dy_r, (0, self.d - d)), a_r, _dot(e, r), a_dr, y_r_common, dy_r_common + y_dr, y_rate,
            None if true_f is None else self._flow_rate(block, w, true_f[some], a, e, y + dy),
        )  # fmt: skip
        block.df[:, stage] = df[:, :d]
        torch.mul(da_rate, own, out=e_rate).addcmul_(f_df, a_rate)
        return part

    def _each_output(self, rate: Tensor) -> Tensor:
        """In place: the last column from the sum over the outputs never right to each of them."""
        rate[:, -1] /= max(self.n_rest, 1)
        return rate

    def _flow_rate(self, block: Block, w: Tensor, f: Tensor, a: Tensor, e: Tensor, y: Tensor) -> Tensor:
        """p_n diag(f_n)(I − f_n f_nᵀ) Y r_n at the response's state, nothing expanded; f of its z, y (R, J); (B, L)."""
        some, d, pattern = block.classes, block.d, block.pattern
        old, f_d, f_c = self.f[some, :d], f[:, :d], f[:, self.d :]
        f_old = (f_d * old).sum(1, keepdim=True)  # (B, 1)
        share = f_old * self.per_own[some]
        logits = pattern.logits(f_c, y).addcmul_(f_old, a).addcmul_(share, e).add_(block.logits(f_d - share * old, w))
        r = error(logits, self.n_rest, some.start)
        dy_r, a_r = block.back_project(r, w)
        distinct = self._distinct_change(dy_r, _dot(e, r), some) + old * a_r
        g = torch.cat([F.pad(distinct, (0, self.d - d)), pattern.back_project(r, y)], dim=1)
        return f * (g - f * _dot(logits, r))

    def _distinct_change(self, dy_r: Tensor, e_r: Tensor, some: slice) -> Tensor:
        """(δY_l + f_nl δa_n)·r_n of the distinct tokens, from δY_l·r_n and e_n·r_n."""
        f = self.f[some, : dy_r.shape[1]]
        return dy_r + f * self.per_own[some] * (e_r - (f * dy_r).sum(1, keepdim=True))

    def _by_cell(self, dz: Tensor, pace: float) -> Tensor:
        """Sums over the classes of a query, (K, L) → (cells,)."""
        dz = pace * self.eta_z * self.p_class * dz
        return dz.new_zeros(self.cell_query.shape).index_add_(0, self.cell.flatten(), dz.flatten())

    # --- System ------------------------------------------------------------------------------------------------

    def magnitudes(self, weights: FloatArray) -> Tensor:
        """Rows are, for each query, its row of z, and the rows of a."""
        z = torch.cat([self.z.value[None], self.z.sums(weights)]).abs()
        index = self.cell_query.expand_as(z)
        by_query = z.new_zeros(len(z), len(self.layout.queries)).scatter_reduce_(1, index, z, "amax")
        w = torch.as_tensor(weights)
        return torch.cat([by_query, *self.each(lambda block: block.magnitudes(w), self.blocks)], dim=1)

    def advance(self, weights: FloatArray) -> None:
        step = float(weights.sum())
        self.off = self.neglected(1.0, step)
        self.off_rate[0] = self.off_rate[END]
        self.theta += step
        for part in (self.z, self.drive, self.y):
            part.advance(weights)
        w = torch.as_tensor(weights)
        for _ in self.each(lambda block: block.advance(w), self.blocks):
            pass

    # --- readings --------------------------------------------------------------------------------------------

    def attention(self, z: Tensor) -> Tensor:
        """f of any z, nothing expanded, (cells,) → (K, L)."""
        c = attention_of(self.p, z[self.cell])
        return c / torch.linalg.vector_norm(c, dim=1, keepdim=True)

    def neglected(self, share: float, step: float) -> Tensor:
        """∫ of the flow's own rate less the response's, up to a share of the present step, (cells,).

        By the polynomial through some stages: for an estimate that is plenty.
        """
        degrees = np.arange(1, len(_ERROR_STAGES) + 1)
        weights = step * np.linalg.solve(
            np.vander(list(_ERROR_STAGES.values()), increasing=True).T, share**degrees / degrees
        )
        return self.off + sum(float(w) * rate for w, rate in zip(weights, self.off_rate.values(), strict=True))

    def gap(self, weights: FloatArray) -> Tensor:
        """Logit of the right output less that of one that is never right, (K,); NaN where all outputs are."""
        f, df = self.f, self._moved(self.z.at(weights))
        y, dy = self.y.at(weights).chunk(2)
        w, gaps = torch.as_tensor(weights), []
        for block in self.blocks:
            some, row = block.classes, block.pattern.row
            n = torch.arange(some.start, some.stop)[:, None]
            a, e = block.gaps(w)
            common = (f + df)[some, self.d :] * (y[row, n] - y[row, -1]) + f[some, self.d :] * (
                dy[row, n] - dy[row, -1]
            )
            distinct = (f * (f + df))[some, : self.d].sum(1) * a + e
            gaps.append(distinct + common.sum(1))
        return torch.cat(gaps) if self.n_rest else torch.full_like(f[:, 0], math.nan)

    def _moved(self, z: Tensor) -> Tensor:
        """δf, (cells,) → (K, L)."""
        x = z[self.cell]
        return self.f * (x - (self.f * self.f * x).sum(1, keepdim=True))


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """Products of the rows, (B, J) → (B, 1)."""
    return torch.linalg.vecdot(left, right)[:, None]
