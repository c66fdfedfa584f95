"""The population flow of the paper's model, made for speed: l2 norm, no residual connection (Lemmas 1 and 2).

    Ẏ   = η_Y Σ_n p_n f_n (e_n − α_n)ᵀ
    ż_m = η_Z Σ_{n ∈ ψ⁻¹(m)} p_n diag(f_n)(I − f_n f_nᵀ) Y (e_n − α_n)

with c_n ∝ P(·|n) e^{z_m}, f_n = c_n/‖c_n‖₂, α_n = softmax(Yᵀ f_n): the field of dense.py, which is easier to read;
tests compare the two. Exact reductions: tokens in no context have no row of Y; those of one class only are stored apart
(decoder_rows.py); z_ml is stored only where some class of query m has token l (a *cell*); and f_nᵀ Y (e_n − α_n) is the
product of the logits with e_n − α_n, so the projection I − f fᵀ costs no pass over Y.

    K classes · L = D + C tokens of a class, distinct then common, each padded · J = K + 1 outputs · Q queries
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.decoder_rows import CommonRows, DistinctRows
from scansnap.dynamics.flow.dense import error
from scansnap.dynamics.flow.integrators import SMALL, FloatArray, Stacked
from scansnap.dynamics.flow.state import FlowPoint, all_outputs, entropy, gap, loss, own_outputs
from scansnap.kernels.cpu import library
from scansnap.kernels.cpu.flow import FlowKernel


class PaddedLayout:
    """Indices of classes, tokens and cells in the padded arrays."""

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
        self.pairs = np.nonzero(self.used)  # row and place of each (class, token) pair
        common_row = np.unique(self.token[:, d:][self.used[:, d:]], return_inverse=True)[1]
        self.common_row = np.full((k, c), -1)
        self.common_row[self.used[:, d:]] = common_row
        self.queries, query = np.unique(classes.query[self.order], return_inverse=True)
        pair = (query[:, None] * classes.vocab_size + self.token)[self.used]  # (pairs,)
        cells, cell = np.unique(pair, return_inverse=True)
        self.cell_query, self.cell_token = np.divmod(cells, classes.vocab_size)  # (cells,) each
        self.cell = np.zeros((k, d + c), dtype=np.int64)  # (K, L)
        self.cell[self.used] = cell
        self.n_entries = len(np.unique(self.token[self.used])) * (k + 1)  # of Y


class CompactFlow:
    """State and vector field as a `scansnap.dynamics.flow.state.Field`."""

    name = "compact"

    def __init__(self, layout: PaddedLayout, eta_y: float, eta_z: float, z0: FloatArray, device: torch.device) -> None:
        """``z0`` is the initial z by query and token, (Q, M); Y starts at 0."""
        classes = layout.classes
        k = classes.n_classes
        self.n_rest = classes.vocab_size - k  # outputs that are never a next token

        def put(array: NDArray[Any]) -> Tensor:
            return torch.as_tensor(array, device=device)

        self.layout, self.eta_y, self.eta_z, self.z0 = layout, eta_y, eta_z, z0
        with np.errstate(divide="ignore"):
            self.log_p = put(np.log(layout.p))  # (K, L), −inf at padding
        self.p_class = put(classes.p_class[layout.order, None])  # (K, 1)
        self.cell = put(layout.cell)  # (K, L)
        self.cell_query = put(layout.cell_query)  # (cells,)
        self.none_distinct = put(np.array(layout.n_distinct) == 0)  # (K,)
        self.z = Stacked(put(z0[layout.cell_query, layout.cell_token]))  # (cells,)
        self.distinct = DistinctRows(layout.n_distinct, k + 1, device)
        self.common = CommonRows(layout.common_row, k + 1, device)
        self.kernel = self._kernel() if device.type == "cpu" and layout.n_entries < SMALL else None

    def _kernel(self) -> FlowKernel | None:
        """The compiled field, where it is installed."""
        if library.find("flow") is None:
            return None
        common = torch.as_tensor(self.layout.common_row)
        tables = [self.log_p, self.p_class, self.cell, common]
        tables += [self.z.value, self.z.rate, self.common.value, self.common.rate]
        blocks = [(block.stack, block.phi) for block in self.distinct.blocks]
        return FlowKernel((self.n_rest, self.eta_y, self.eta_z), tables, blocks)

    def point(self, weights: FloatArray) -> FlowPoint:
        """The field at a point within a step."""
        if self.kernel is not None:
            z, z_rate, _, c, f, g, logits, r = self.kernel.point(weights)
            return FlowPoint(weights, z, c, f, logits, r, g, z_rate)
        d = self.distinct.shape[1]
        z = self.z.at(weights)  # (cells,)
        y_common = self.common.at(weights)  # (R, J)

        a = self.log_p + z[self.cell]  # (K, L)
        c = torch.exp(a - a.amax(1, keepdim=True))  # (K, L)
        f = c / torch.linalg.vector_norm(c, dim=1, keepdim=True)  # (K, L)

        logits = self.common.logits(f[:, d:], y_common)  # (K, J)
        self.distinct.add_logits(logits, f[:, :d], weights)
        r = error(logits, self.n_rest)  # (K, J)

        g = torch.cat([self.distinct.back_project(r, weights), self.common.back_project(r, y_common)], dim=1)  # (K, L)
        fg = (logits * r).sum(1, keepdim=True)  # (K, 1)  f_n · g_n
        dz = self.eta_z * self.p_class * f * (g - f * fg)  # (K, L)
        return FlowPoint(weights, z, c / c.sum(1, keepdim=True), f, logits, r, g, self._by_cell(dz))

    def _by_cell(self, dz: Tensor) -> Tensor:
        """Sums over the classes of a query, (K, L) → (cells,)."""
        return dz.new_zeros(self.cell_query.shape).index_add_(0, self.cell.flatten(), dz.flatten())

    # --- System ------------------------------------------------------------------------------------------------

    def rates(self, stage: int, weights: FloatArray) -> None:
        if self.kernel is not None:
            self.kernel.rates(stage, weights)
            return
        at = self.point(weights)
        d = self.distinct.shape[1]
        f = self.eta_y * self.p_class * at.f  # (K, L)
        at.r[:, -1] /= max(self.n_rest, 1)  # from the sum over the other outputs to each of them
        self.z.rate[stage] = at.z_rate
        self.distinct.store(stage, f[:, :d], at.r)
        self.common.store(stage, f[:, d:], at.r)

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
        """Set Y by token and output, (M, M): the inverse of `y`. Outputs never right must have equal columns."""
        at = self.layout
        columns = own_outputs(y, at.classes.next_token[at.order])  # (M, J)
        for block in self.distinct.blocks:
            token = at.token[block.classes, : block.d]
            block.y.copy_(torch.as_tensor(np.where(token[..., None] >= 0, columns[token], 0.0)))
        common = at.token[:, self.distinct.shape[1] :]
        self.common.value.copy_(torch.as_tensor(columns[np.unique(common[common >= 0])]))

    # --- variables --------------------------------------------------------------------------------------------

    def read(self, name: str, at: FlowPoint) -> FloatArray:
        if name == "y":
            return self.y(at.weights)
        if name == "loss":
            return loss(at, self.p_class).cpu().numpy()
        if name in ("attention", "f", "g"):
            return self._by_token(getattr(at, name), outside=np.nan if name == "g" else 0.0)
        if name in ("z", "z_rate"):
            return self._by_query(getattr(at, name), outside=self.z0 if name == "z" else 0.0)
        if name == "z_terms":
            return self._by_query(self._by_cell((self.eta_z * self.p_class * at.f * at.g).abs()), outside=0.0)
        values = np.empty(len(self.layout.order))
        values[self.layout.order] = (self.entropy(at) if name == "entropy" else gap(at, self.n_rest)).cpu().numpy()
        return values

    def _by_token(self, values: Tensor, outside: float) -> FloatArray:
        """(K, L) by class and token, (K, M)."""
        at = self.layout
        full = np.full((len(at.order), at.classes.vocab_size), outside)
        full[at.order[at.pairs[0]], at.token[at.pairs]] = values.cpu().numpy()[at.pairs]
        return full

    def _by_query(self, values: Tensor, outside: FloatArray | float) -> FloatArray:
        """(cells,) by query and token, (Q, M)."""
        full = np.array(np.broadcast_to(outside, self.z0.shape))
        full[self.layout.cell_query, self.layout.cell_token] = values.cpu().numpy()
        return full

    def entropy(self, at: FlowPoint) -> Tensor:
        """Over each class's distinct tokens, (K,); NaN for none."""
        logits = (self.log_p + at.z[self.cell])[:, : self.distinct.shape[1]]  # (K, D)
        return entropy(logits).masked_fill(self.none_distinct, torch.nan)

    def y(self, weights: FloatArray) -> FloatArray:
        """Y by token and output, (M, M)."""
        at = self.layout
        y = np.zeros((at.classes.vocab_size, len(at.order) + 1))  # (M, J)
        d = self.distinct.shape[1]
        for classes, rows in self.distinct.rows(weights):
            used = at.used[classes, : rows.shape[1]]
            y[at.token[classes, : rows.shape[1]][used]] = rows.cpu().numpy()[used]
        common = at.token[:, d:][at.used[:, d:]]
        y[np.unique(common)] = self.common.at(weights).cpu().numpy()
        return all_outputs(y, at.classes.next_token[at.order])
