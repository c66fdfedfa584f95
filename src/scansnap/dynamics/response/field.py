"""How attention answers to a decoder that learns: the linear response of the population flow around frozen attention.

While attention is frozen at F = [f_1 … f_K] the decoder is Y = Σ f_n a_nᵀ, ȧ_n = η_Y p_n r_n, r_n = e_n − α_n
(decoder.py). To first order in what attention then does, z = δz and Y = Σ f_n (a_n + δa_n)ᵀ + δY with

    δf_n  = f_n ∘ (δz_m − ⟨f_n², δz_m⟩)                                  m = ψ(n)
    δl_n  = Yᵀ δf_n + Σ_n' (f_n·f_n') δa_n' + δYᵀ f_n                     change of the logits
    δr_n  = −(diag α_n − α_n α_nᵀ) δl_n
    δẎ    = η_Y Σ p_n δf_n r_nᵀ,   δȧ_n = η_Y p_n δr_n
    δż_m  = η_Z Σ p_n { drive_n + memory_n }                             over the classes of query m

With x_n = Σ_{n'≠n} f_n' (a_n'·r_n), what frozen attention feels of the other classes, and P = I − f_n f_nᵀ,

    drive_n  = f_n ∘ P x_n
    memory_n = f_n ∘ P [δY r_n + Σ_n' f_n' (δa_n'·r_n + a_n'·δr_n) − δf_n (a_n·r_n)]
             + δf_n ∘ P x_n − f_n ∘ (δf_n (f_n·x_n) + f_n (δf_n·x_n))

The largest term of the memory is −δf_n (a_n·r_n): P takes the present f_n out of Y, not the earlier ones of which Y was
made, and what is left of them pulls attention back. Nothing else is neglected but squares, so the answer is exact to
first order in δz whatever the classes, queries, overlaps and rates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.checks.arrays import FloatArray
from scansnap.dynamics.flow.integrators import Stacked
from scansnap.dynamics.flow.plain import error
from scansnap.dynamics.flow.population import Places
from scansnap.dynamics.flow.votes import CommonVotes, DistinctVotes


class ResponsePoint(NamedTuple):
    """The response at a point within a step; K classes, L tokens of a class, J outputs."""

    z: Tensor  # (cells,)
    drive: Tensor  # (cells,) ∫ of what frozen attention feels
    logits: Tensor  # (K, J) of the decoder with its change
    r: Tensor  # (K, J) of the frozen decoder, the last summed over the outputs never right
    dr: Tensor  # (K, J)
    df: Tensor  # (K, L)
    z_rate: Tensor  # (cells,)
    drive_rate: Tensor  # (cells,)
    true_rate: Tensor  # (cells,) what the flow itself would do from here


class ResponseField:
    """State and vector field, as the integrator asks for them; classes are in the order of ``places``."""

    def __init__(self, places: Places, eta_y: float, eta_z: float) -> None:
        classes = places.classes
        k = classes.n_classes
        self.places, self.eta_y, self.eta_z = places, eta_y, eta_z
        self.n_rest = classes.vocab_size - k
        self.d = max(places.n_distinct)
        self.p = torch.as_tensor(places.p)  # (K, L), 0 at padding
        self.f = self.p / torch.linalg.vector_norm(self.p, dim=1, keepdim=True)  # (K, L)
        self.own = (self.f[:, : self.d] ** 2).sum(1, keepdim=True)  # (K, 1) f_n·f_n on its distinct tokens
        self.p_class = torch.as_tensor(classes.p_class[places.order, None])  # (K, 1)
        self.cell, self.cell_query = torch.as_tensor(places.cell), torch.as_tensor(places.cell_query)
        nothing = torch.zeros(len(places.cell_query), dtype=torch.float64)
        self.z, self.drive, self.off = Stacked(nothing), Stacked(nothing), Stacked(nothing)  # (cells,) each
        table = torch.zeros(k, k + 1, dtype=torch.float64)
        self.a, self.da = Stacked(table), Stacked(table)  # (K, J) each
        self.distinct = DistinctVotes(places.n_distinct, k + 1, table.device)
        self.common = CommonVotes(places.common_row, k + 1, table.device)

    def point(self, weights: FloatArray) -> ResponsePoint:
        d, f, common = self.d, self.f, self.common
        a, da, z = self.a.at(weights), self.da.at(weights), self.z.at(weights)
        y_common = common.at(weights)  # (R, J) δY of the common tokens
        from_a, from_da = common.collect(f[:, d:], a), common.collect(f[:, d:], da)  # (R, J) rows of Σ f_n a_nᵀ
        frozen = self.own * a + common.votes(f[:, d:], from_a)  # (K, J) logits
        r = error(frozen, self.n_rest)
        alpha = -r
        alpha.diagonal().add_(1.0)

        x = z[self.cell]  # (K, L)
        df = f * (x - (f * f * x).sum(1, keepdim=True))
        dl = self.own * da + common.votes(f[:, d:], from_da + y_common) + common.votes(df[:, d:], from_a)
        dl += (df[:, :d] * f[:, :d]).sum(1, keepdim=True) * a
        self.distinct.add_votes(dl, f[:, :d], weights)
        dr = -alpha * (dl - (alpha * dl).sum(1, keepdim=True))

        kept = (a * r).sum(1, keepdim=True)  # (K, 1) a_n·r_n
        others = torch.zeros_like(f)  # (K, L) x_n: only common tokens know other classes
        others[:, d:] = common.pull(r, from_a) - kept * f[:, d:]
        others[:, d:] *= self.f[:, d:] > 0  # anything at padding
        felt = torch.cat(
            [self.distinct.pull(r, weights) + f[:, :d] * ((da * r) + (a * dr)).sum(1, keepdim=True),
             common.pull(r, y_common + from_da) + common.pull(dr, from_a)], dim=1
        )  # fmt: skip
        along = (f * others).sum(1, keepdim=True)  # (K, 1) f_n·x_n
        drive = f * (others - f * along)
        felt = felt - df * kept
        memory = f * (felt - f * (f * felt).sum(1, keepdim=True))
        memory += df * (others - f * along) - f * (df * along + f * (df * others).sum(1, keepdim=True))
        rate = self.eta_z * self.p_class
        drive_rate = self._by_cell(rate * drive)
        true = self._true_rate(x, a + da, from_a + from_da + y_common, weights)
        return ResponsePoint(z, self.drive.at(weights), frozen + dl, r, dr, df,
                             drive_rate + self._by_cell(rate * memory), drive_rate, true)  # fmt: skip

    def _true_rate(self, x: Tensor, a: Tensor, y_common: Tensor, weights: FloatArray) -> Tensor:
        """ż of the flow itself at the response's state, nothing expanded, (cells,)."""
        d = self.d
        c = self.p * torch.exp(x - x.amax(1, keepdim=True))
        f = c / torch.linalg.vector_norm(c, dim=1, keepdim=True)
        logits = (f[:, :d] * self.f[:, :d]).sum(1, keepdim=True) * a + self.common.votes(f[:, d:], y_common)
        self.distinct.add_votes(logits, f[:, :d], weights)
        r = error(logits, self.n_rest)
        g = torch.cat([self.distinct.pull(r, weights) + self.f[:, :d] * (a * r).sum(1, keepdim=True),
                       self.common.pull(r, y_common)], dim=1)  # fmt: skip
        return self._by_cell(self.eta_z * self.p_class * f * (g - f * (logits * r).sum(1, keepdim=True)))

    def _by_cell(self, dz: Tensor) -> Tensor:
        return dz.new_zeros(self.cell_query.shape).index_add_(0, self.cell.flatten(), dz.flatten())

    # --- what the integrator asks for ------------------------------------------------------------------------

    def rates(self, stage: int, weights: FloatArray) -> None:
        at = self.point(weights)
        each = torch.ones(at.r.shape[1], dtype=torch.float64)
        each[-1] = max(self.n_rest, 1)
        r, step = at.r / each, self.eta_y * self.p_class
        self.z.rate[stage], self.drive.rate[stage] = at.z_rate, at.drive_rate
        self.off.rate[stage] = at.true_rate - at.z_rate
        self.a.rate[stage], self.da.rate[stage] = step * r, step * at.dr / each
        self.distinct.store(stage, step * at.df[:, : self.d], r)
        self.common.store(stage, step * at.df[:, self.d :], r)

    def magnitudes(self, weights: FloatArray) -> Tensor:
        z = torch.cat([self.z.value[None], self.z.sums(weights)]).abs()
        index = self.cell_query.expand_as(z)
        by_query = z.new_zeros(len(z), len(self.places.queries)).scatter_reduce_(1, index, z, "amax")
        return torch.cat([by_query, self.a.magnitudes(weights)], dim=1)

    def advance(self, weights: FloatArray) -> None:
        for part in (self.z, self.drive, self.off, self.a, self.da, self.distinct, self.common):
            part.advance(weights)
