"""The population flow's vector field, T → ∞ and in expectation over the classes (Lemmas 1 and 2).

    Ẏ   = η_Y Σ_n p_n f_n (e_n − α_n)ᵀ
    ż_m = η_Z Σ_{n ∈ ψ⁻¹(m)} p_n diag(f_n)(I − f_n f_nᵀ) Y (e_n − α_n)

with c_n ∝ P(·|n) e^{z_m}, f_n = c_n/‖c_n‖₂, α_n = softmax(Yᵀ f_n). Exact reductions: Y(0) = 0, so all outputs that
are never a next token share one column of multiplicity M − K; tokens in no context have no row; z_ml is kept
only where some class of query m has token l (a *cell*). f_nᵀ Y (e_n − α_n) is the product of the logits with
e_n − α_n, so the projection I − f fᵀ costs no pass over Y.

    K classes · L = D + C tokens of a class, distinct then common, each padded · J = K + 1 outputs · Q queries
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrators import FloatArray, Stacked
from scansnap.dynamics.flow.votes import CommonVotes, DistinctVotes


class Point(NamedTuple):
    """Everything the field knows at one point, by the names of the symbol table. Classes in the field's order."""

    z: Tensor  # (cells,)
    attention: Tensor  # (K, L)  c_n
    f: Tensor  # (K, L)
    logits: Tensor  # (K, J)  Yᵀ f_n, the last one standing for each of the M − K other outputs
    r: Tensor  # (K, J)  e_n − α_n, the last one summed over the M − K other outputs
    g: Tensor  # (K, L)  Y (e_n − α_n) on the tokens of the class
    z_rate: Tensor  # (cells,)


def residual(logits: Tensor, n_rest: int) -> Tensor:
    """e_n − α_n, (K, J), where class n's next token is output n and the last output stands for ``n_rest``."""
    r = torch.softmax(logits, dim=1)  # in place from here on: for many classes this is a large table
    r[:, -1] *= n_rest
    r /= -r.sum(1, keepdim=True)  # −α_n
    r.diagonal().zero_()  # 1 − α_n as the sum of the others: full precision however close α_n is to 1
    r.diagonal().copy_(-r.sum(1))
    return r


class Layout:
    """Where classes, tokens and cells stand in the padded arrays; plain NumPy."""

    def __init__(self, classes: SequenceClasses) -> None:
        k = classes.n_classes
        distinct = [classes.distinct(n) for n in range(k)]
        common = [classes.common_of(n) for n in range(k)]
        self.classes = classes
        self.order = np.argsort([len(ids) for ids in distinct], kind="stable")  # (K,) the field's order of classes
        self.n_distinct = sorted(len(ids) for ids in distinct)
        d, c = max(self.n_distinct), max(len(ids) for ids in common)
        self.token = np.full((k, d + c), -1)  # (K, L), padding −1
        self.p = np.zeros((k, d + c))  # (K, L)  P(l|n)
        for row, n in enumerate(self.order):
            tokens, probs = classes.support(n)
            for first, ids in ((0, distinct[n]), (d, common[n])):
                self.token[row, first : first + len(ids)] = ids
                self.p[row, first : first + len(ids)] = probs[np.searchsorted(tokens, ids)]
        self.used = self.token >= 0
        common_row = np.unique(self.token[:, d:][self.used[:, d:]], return_inverse=True)[1]
        self.common_row = np.full((k, c), -1)
        self.common_row[self.used[:, d:]] = common_row
        self.queries, query = np.unique(classes.query[self.order], return_inverse=True)
        pair = (query[:, None] * classes.vocab_size + self.token)[self.used]  # (pairs,)
        cells, cell = np.unique(pair, return_inverse=True)
        self.cell_query, self.cell_token = np.divmod(cells, classes.vocab_size)  # (cells,) each
        self.cell = np.zeros((k, d + c), dtype=np.int64)  # (K, L)
        self.cell[self.used] = cell

    def find_cell(self, query: int, token: int) -> int | None:
        """The cell of a query token and a context token, or None where no class has both."""
        found = np.flatnonzero((self.queries[self.cell_query] == query) & (self.cell_token == token))
        return int(found[0]) if len(found) else None


class PopulationFlow:
    """State and vector field as a :class:`~scansnap.dynamics.flow.integrators.System`."""

    def __init__(self, layout: Layout, eta_y: float, eta_z: float, z0: FloatArray, device: torch.device) -> None:
        """``z0`` is the initial z by query and token, (Q, M); Y starts at 0."""
        classes = layout.classes
        k = classes.n_classes
        self.n_rest = classes.vocab_size - k  # outputs that are never a next token

        def put(array: NDArray[Any]) -> Tensor:
            return torch.as_tensor(array, device=device)

        self.layout, self.eta_y, self.eta_z = layout, eta_y, eta_z
        with np.errstate(divide="ignore"):
            self.log_p = put(np.log(layout.p))  # (K, L), −inf at padding
        self.p_class = put(classes.p_class[layout.order, None])  # (K, 1)
        self.cell = put(layout.cell)  # (K, L)
        self.cell_query = put(layout.cell_query)  # (cells,)
        self.none_distinct = put(np.array(layout.n_distinct) == 0)  # (K,)
        self.z = Stacked(put(z0[layout.cell_query, layout.cell_token]))  # (cells,)
        self.distinct = DistinctVotes(layout.n_distinct, k + 1, device)
        self.common = CommonVotes(layout.common_row, k + 1, device)

    def point(self, weights: FloatArray) -> Point:
        """The field at a point within a step."""
        d = self.distinct.shape[1]
        z = self.z.at(weights)  # (cells,)
        y_common = self.common.at(weights)  # (R, J)

        a = self.log_p + z[self.cell]  # (K, L)
        c = torch.exp(a - a.amax(1, keepdim=True))  # (K, L)
        f = c / torch.linalg.vector_norm(c, dim=1, keepdim=True)  # (K, L)

        logits = self.common.votes(f[:, d:], y_common)  # (K, J)
        self.distinct.add_votes(logits, f[:, :d], weights)
        r = residual(logits, self.n_rest)  # (K, J)

        g = torch.cat([self.distinct.pull(r, weights), self.common.pull(r, y_common)], dim=1)  # (K, L)
        fg = (logits * r).sum(1, keepdim=True)  # (K, 1)  f_n · g_n
        dz = self.eta_z * self.p_class * f * (g - f * fg)  # (K, L)
        z_rate = torch.zeros_like(z).index_add_(0, self.cell.flatten(), dz.flatten())
        return Point(z, c / c.sum(1, keepdim=True), f, logits, r, g, z_rate)

    # --- what the integrator asks for ------------------------------------------------------------------------

    def rates(self, stage: int, weights: FloatArray) -> None:
        at = self.point(weights)
        d = self.distinct.shape[1]
        f = self.eta_y * self.p_class * at.f  # (K, L)
        r = at.r  # (K, J)
        r[:, -1] /= max(self.n_rest, 1)  # from the sum over the other outputs to each of them
        self.z.rate[stage] = at.z_rate
        self.distinct.store(stage, f[:, :d], r)
        self.common.store(stage, f[:, d:], r)

    def magnitudes(self, weights: FloatArray) -> Tensor:
        """Rows are the rows of Y and, for each query, its row of Z."""
        z = torch.cat([self.z.value[None], self.z.sums(weights)]).abs()  # (4, cells)
        index = self.cell_query.expand_as(z)
        by_query = z.new_zeros(len(z), len(self.layout.queries)).scatter_reduce_(1, index, z, "amax")
        return torch.cat([by_query, self.distinct.magnitudes(weights), self.common.magnitudes(weights)], dim=1)

    def advance(self, weights: FloatArray) -> None:
        self.z.advance(weights)
        self.distinct.advance(weights)
        self.common.advance(weights)

    def put_y(self, y: FloatArray) -> None:
        """Set Y by token and output, (M, M): the inverse of :meth:`y`. Outputs never right must have equal columns."""
        at = self.layout
        right = at.classes.next_token[at.order]
        never = np.setdiff1d(np.arange(at.classes.vocab_size), right)[:1]
        columns = np.concatenate(
            [y[:, right], y[:, never] if len(never) else np.zeros_like(y[:, :1])], axis=1
        )  # (M, J)
        for block in self.distinct.blocks:
            token = at.token[block.classes, : block.d]
            block.rows[:, : block.d] = torch.as_tensor(np.where(token[..., None] >= 0, columns[token], 0.0))
        common = at.token[:, self.distinct.shape[1] :]
        self.common.value.copy_(torch.as_tensor(columns[np.unique(common[common >= 0])]))

    # --- readings --------------------------------------------------------------------------------------------

    def entropy(self, point: Point) -> Tensor:
        """Entropy (nats) of the attention over each class's distinct tokens, renormalised, (K,); NaN for none."""
        d = self.distinct.shape[1]
        q = torch.softmax((self.log_p + point.z[self.cell])[:, :d], dim=1)  # (K, D), however small their share
        return torch.special.entr(q).sum(1).masked_fill(self.none_distinct, torch.nan)

    def gap(self, point: Point) -> Tensor:
        """Logit of the right output less that of one that is never right, (K,); NaN where all outputs are."""
        return point.logits.diagonal() - (point.logits[:, -1] if self.n_rest else torch.nan)

    def y(self, weights: FloatArray) -> FloatArray:
        """Y by token and output, (M, M)."""
        at = self.layout
        m = at.classes.vocab_size
        y = np.zeros((m, len(at.order) + 1))  # (M, J)
        d = self.distinct.shape[1]
        for classes, rows in self.distinct.rows(weights):
            used = at.used[classes, : rows.shape[1]]
            y[at.token[classes, : rows.shape[1]][used]] = rows.cpu().numpy()[used]
        common = at.token[:, d:][at.used[:, d:]]
        y[np.unique(common)] = self.common.at(weights).cpu().numpy()
        full = np.repeat(y[:, -1:], m, axis=1)
        full[:, at.classes.next_token[at.order]] = y[:, :-1]
        return full
