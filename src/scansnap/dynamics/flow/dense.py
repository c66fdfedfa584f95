"""The population flow as it stands on paper, for every norm and residual connection; the reference.

    Ẏ   = η_Y Σ_n p_n f_n (e_n − α_n)ᵀ
    ż_m = η_Z Σ_{n ∈ ψ⁻¹(m)} p_n (diag(c_n) − c_n c_nᵀ) (∂f_n/∂c_n)ᵀ Y (e_n − α_n)

less η_Y λ_Y Y and η_Z λ_Z z with weight decay; with the modified update (update.py) dual vectors replace the f_n of Ẏ.
T → ∞ and in expectation over the classes, with c_n ∝ P(·|n) e^{z_m}, α_n = softmax(Yᵀ f_n) and, for the query m = ψ(n),

    f_n = norm(c_n),   norm(norm(c_n) + e_m) (residual "normed")   or   norm(c_n + e_m) (residual "plain")

For the l2 norm without residual ż is that of Lemma 1, diag(f)(I − f fᵀ) Y (e_n − α_n), and compact.py is the same
field, much faster for many classes. All outputs that are never a next token share one column, as from Y(0) = 0.

    K classes · M tokens · J = K + 1 outputs · Q queries
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.dynamics import norms
from scansnap.dynamics.flow.integrators import FloatArray, Stacked
from scansnap.dynamics.flow.state import FlowPoint, all_outputs, entropy, gap, loss, own_outputs
from scansnap.dynamics.settings import ModelConfig
from scansnap.dynamics.update import check_update, decoder_input


def error(logits: Tensor, n_rest: int, first: int = 0) -> Tensor:
    """e_n − α_n, (K, J): class n's next token is output ``first`` + n, the last output stands for ``n_rest``."""
    r = torch.softmax(logits, dim=1)  # in place from here on: for many classes this is a large table
    r[:, -1] *= n_rest
    r /= -r.sum(1, keepdim=True)  # −α_n
    own = r[:, first:].diagonal()
    own.zero_()  # 1 − α_n as the sum of the others: full precision however close α_n is to 1
    own.copy_(-r.sum(1))
    return r


class DenseFlow:
    """State and vector field as a `scansnap.dynamics.flow.state.Field`, on tables of all M tokens."""

    name = "dense"

    def __init__(
        self,
        classes: SequenceClasses,
        model: ModelConfig,
        eta_y: float,
        eta_z: float,
        z0: FloatArray,
        device: torch.device,
        y0: FloatArray | None = None,
        decay: tuple[float, float] = (0.0, 0.0),
        update: str = "gradient",
    ) -> None:
        """``z0`` is the initial z by query and token, (Q, M), ``y0`` that of Y by token and output, (M, M); None: 0.

        Of the model, norm and residual count. ``decay`` is λ_Y, λ_Z.
        """
        k, m = classes.n_classes, classes.vocab_size

        def put(array: ArrayLike) -> Tensor:
            return torch.tensor(np.asarray(array), device=device)

        self.classes, self.model, self.eta_y, self.eta_z = classes, model, eta_y, eta_z
        self.decay_y, self.decay_z = decay
        self.update = update
        self.n_rest = m - k  # outputs that are never a next token
        distinct, e_m = np.zeros((k, m), dtype=bool), np.zeros((k, m))
        for n in range(k):
            distinct[n, classes.distinct(n)] = True
            e_m[n, classes.query[n]] = model.residual != "none"
        with np.errstate(divide="ignore"):
            self.log_p = put(np.log(classes.p_context))  # (K, M), −inf outside the context
        self.distinct, self.e_m = put(distinct), put(e_m)  # (K, M) each
        self.p_class = put(classes.p_class[:, None])  # (K, 1)
        self.query = put(np.searchsorted(classes.queries, classes.query))  # (K,)
        start = np.zeros((m, k + 1)) if y0 is None else own_outputs(y0, classes.next_token)
        self.y = Stacked(put(start))  # (M, J)
        self.z = Stacked(put(z0))  # (Q, M)

    def f_of(self, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """f and what it is the norm of, from the inside out: norm(c) or c; that and e_m; f; (K, M) each."""
        inner = norms.apply(self.model.norm, c) if self.model.residual == "normed" else c
        v = inner + self.e_m
        return inner, v, norms.apply(self.model.norm, v)

    def error(self, logits: Tensor) -> Tensor:
        """e_n − α_n, (K, J)."""
        return error(logits, self.n_rest)

    def point(self, weights: FloatArray) -> FlowPoint:
        """The field at a point within a step."""
        norm, residual = self.model.norm, self.model.residual
        y, z = self.y.at(weights), self.z.at(weights)  # (M, J), (Q, M)

        c = torch.softmax(self.log_p + z[self.query], dim=1)  # (K, M)
        inner, v, f = self.f_of(c)
        logits = f @ y  # (K, J)
        r = self.error(logits)  # (K, J)

        g = r @ y.mT  # (K, M)
        dc = norms.pull_back(norm, g, v, f)  # (K, M)  (∂f/∂c)ᵀ g
        if residual == "normed":
            dc = norms.pull_back(norm, dc, c, inner)
        # A constant in dc does nothing. Less its value where attention is greatest, that of almost all attention on one
        # token keeps its digits: the differences are then products with what little is left, not of two numbers alike.
        dc = dc - dc.gather(1, c.argmax(1, keepdim=True))
        dz = self.eta_z * self.p_class * c * (dc - (c * dc).sum(1, keepdim=True))  # (K, M)
        z_rate = torch.zeros_like(z).index_add_(0, self.query, dz)
        if self.decay_z:
            z_rate -= self.eta_z * self.decay_z * z
        return FlowPoint(weights, z, c, f, logits, r, g, z_rate)

    def check_start(self) -> None:
        """Refuse a start at which the norm is 0/0, or would be but for rounding: f must not hang on last digits."""
        start = self.point(np.zeros(0))
        c = start.attention
        last_digits = 4 * torch.finfo(c.dtype).eps * torch.ones_like(c)
        last_digits[:, 1::2] *= -1
        f, rounded = self.f_of(c)[-1], self.f_of(c * (1 + last_digits))[-1]
        defined = ((f - rounded).abs() <= 1e-3 * f.abs().amax(1, keepdim=True)).all(1)  # (K,); false for NaN
        if not defined.all():
            n = int((~defined).nonzero()[0])
            allowed = f"a norm that is defined at the start (f of class {n} is 0/0)"
            if self.model.norm == "layernorm":
                allowed += f", as its attention is the same on all {c.shape[1]} tokens"
            raise InputError("norm", self.model.norm, allowed)
        check_update(start.f, self.update)

    # --- System ------------------------------------------------------------------------------------------------

    def rates(self, stage: int, weights: FloatArray) -> None:
        at = self.point(weights)
        at.r[:, -1] /= max(self.n_rest, 1)  # from the sum over the other outputs to each of them
        self.y.rate[stage] = (self.eta_y * self.p_class * decoder_input(at.f, self.update)).mT @ at.r
        if self.decay_y:
            self.y.rate[stage] -= self.eta_y * self.decay_y * self.y.at(weights)
        self.z.rate[stage] = at.z_rate

    def magnitudes(self, weights: FloatArray) -> Tensor:
        """Rows are the rows of Y and, for each query, its row of Z."""
        return torch.cat([self.z.magnitudes(weights), self.y.magnitudes(weights)], dim=1)

    def advance(self, weights: FloatArray) -> None:
        self.y.advance(weights)
        self.z.advance(weights)

    # --- StiffSystem -------------------------------------------------------------------------------------------

    def moving(self) -> list[tuple[Stacked, Tensor]]:
        """The two tables, each with which of its entries ever change: those of tokens that enter or are not 0."""
        enters = torch.isfinite(self.log_p) | (self.e_m > 0) | norms.NORMS[self.model.norm].dense  # (K, M)
        token = enters.any(0) | (self.y.value != 0).any(1) | (self.z.value != 0).any(0)  # (M,)
        return [(self.y, token[:, None].expand_as(self.y.value)), (self.z, token.expand_as(self.z.value))]

    # --- variables --------------------------------------------------------------------------------------------

    def read(self, name: str, at: FlowPoint) -> FloatArray:
        if name == "entropy":
            value = entropy((self.log_p + at.z[self.query]).masked_fill(~self.distinct, -torch.inf))
        elif name == "gap":
            value = gap(at, self.n_rest)
        elif name == "loss":
            value = loss(at, self.p_class)
        elif name == "y":
            return all_outputs(self.y.at(at.weights).cpu().numpy(), self.classes.next_token)
        elif name == "g":
            enters = torch.isfinite(self.log_p) | (self.e_m > 0) | norms.NORMS[self.model.norm].dense
            value = at.g.masked_fill(~enters, torch.nan)
        elif name == "z_terms":
            jacobian = at.f.norm(dim=1, keepdim=True) / at.attention.norm(dim=1, keepdim=True)  # (K, 1) its size
            terms = (self.eta_z * self.p_class * jacobian * at.attention * at.g).abs()  # (K, M)
            value = torch.zeros_like(at.z).index_add_(0, self.query, terms)
        else:
            value = getattr(at, name)  # attention, f, z, z_rate
        return value.cpu().numpy()


class HeavyBallFlow(DenseFlow):
    """The flow with momentum μ: (1 − μ) θ̇ + ½(1 + μ) θ̈ = η F from rest, for θ = Y and z.

    A step is θ_{t+1} − θ_t = μ (θ_t − θ_{t−1}) + η F; this is its second-order expansion in the step. Velocities relax
    within τ = (1 + μ)/(2(1 − μ)) steps at all times, so the integration takes about t/(6τ) steps of its own.
    """

    name = "heavy-ball"

    def __init__(self, momentum: float, *dense: Any) -> None:
        """``dense``: the arguments of `DenseFlow`."""
        super().__init__(*dense)
        self.momentum = momentum
        self.y_velocity, self.z_velocity = (Stacked(torch.zeros_like(table.value)) for table in (self.y, self.z))
        self._pairs = ((self.y, self.y_velocity), (self.z, self.z_velocity))

    def rates(self, stage: int, weights: FloatArray) -> None:
        super().rates(stage, weights)  # η F, where θ̇ belongs
        mu = self.momentum
        for table, velocity in self._pairs:
            speed = velocity.at(weights)
            velocity.rate[stage] = (table.rate[stage] - (1 - mu) * speed) * (2 / (1 + mu))
            table.rate[stage] = speed

    def magnitudes(self, weights: FloatArray) -> Tensor:
        velocities = [velocity.magnitudes(weights) for _, velocity in self._pairs]
        return torch.cat([super().magnitudes(weights), *velocities], dim=1)

    def advance(self, weights: FloatArray) -> None:
        super().advance(weights)
        for _, velocity in self._pairs:
            velocity.advance(weights)

    def moving(self) -> list[tuple[Stacked, Tensor]]:
        tables = super().moving()
        velocities = (self.y_velocity, self.z_velocity)
        return tables + [(velocity, mask) for velocity, (_, mask) in zip(velocities, tables, strict=True)]

    def read(self, name: str, at: FlowPoint) -> FloatArray:
        return self.z_velocity.at(at.weights).cpu().numpy() if name == "z_rate" else super().read(name, at)
