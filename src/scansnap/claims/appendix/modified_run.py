"""The proof's own dynamics: Lemmas 3, 5 and 12, Theorem 5, Corollary 1, and Eqs. 84 to 88 of Theorem 1.

The proof replaces Ẏ = η_Y f_n r_nᵀ by Ẏ = η_Y (f_n − F E′e_n) r_nᵀ with frozen attention (Eq. 26). Its formulas
(`scansnap.theory.modified`) are compared with SGD of batch size 1 that makes this update, on the classes of the
evidence. They are exact there, so that only rounding is allowed: it shows that the algebra is right, and gradient
descent (``update="gradient"``) is the control.

Printed differently from what holds: Lemma 12 asks nothing of F°, which completes F to a basis, but its proof needs
F° ⊥ F; Eq. 71 has h where h* is meant; Eq. 88 has two wrong signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from scipy.linalg import null_space

from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.decoder import decoder_flow
from scansnap.theory import h, modified_decoder, u
from scansnap.theory.modified import ModifiedDecoder

ROWS = Statement("lemma-3-modified", "Lemma 3", "with the modified update of Eq. 26 the logit gap is exactly u(p_n t)",
                 kind="identity")  # fmt: skip
LEMMA_5 = Statement("lemma-5", "Lemma 5", "after N_n draws of class n row n of W = FᵀY is (M−1) h*(N_n) ζ_n",
                    kind="identity")  # fmt: skip
THEOREM_5 = Statement("theorem-5", "Theorem 5", "Y = F(I − E′)(I + Θ)W̄ for the modified update", kind="identity")
LEMMA_12 = Statement("lemma-12", "Lemma 12", "Y = F′^{−⊤}(I + Θ′)W̄′ with F′ = [F, F°], as printed: for any F°",
                     kind="identity")  # fmt: skip
ORTHOGONAL = Statement("lemma-12-orthogonal", "Lemma 12 (as its proof needs it)", "the same with F° orthogonal to F",
                       kind="identity")  # fmt: skip
COROLLARY_1 = Statement("corollary-1", "Corollary 1", "e_n − α_n = (M−1)/(M−1+e^{Mh*(N_n)}) ζ_n", kind="identity")
EQ_71 = Statement("corollary-1-eq-71", "Corollary 1, Eq. 71", "the same with h(N_n), as printed", kind="proof step")
GRADIENT = Statement("theorem-1-eq-84", "Theorem 1, Eqs. 84–86 and 88",
                     "g_n = γ(ι_n f_n − Σ β_nn' f_n') with the proof's γ and ι_n, and β_nn' with corrected signs",
                     kind="proof step")  # fmt: skip
EQ_88 = Statement("theorem-1-eq-88", "Theorem 1, Eq. 88", "the same with β_nn' as printed", kind="proof step")
FORCE = Statement(
    "xi-force", "ξ_n under the modified update (ours, docs/theory.md)",
    "ξ_n/γ is the squared length q₁‖F E′e_n‖² of what the proof adds to gradient descent, up to Σ|E′_nk|/M",
    kind="ours",
)  # fmt: skip
POSITIVE = Statement(
    "xi-positive", "ξ_n > 0 without a lower eigenvalue bound (ours, docs/theory.md)",
    "under the modified update ξ_n > 0 for every class that overlaps, if min h(N_k) > max_n Σ_k E_nk · max h(N_k)",
    kind="ours",
)  # fmt: skip
STATEMENTS = (ROWS, LEMMA_5, THEOREM_5, LEMMA_12, ORTHOGONAL, COROLLARY_1, EQ_71, GRADIENT, EQ_88, FORCE, POSITIVE)

ROUNDING = 1e-9  # relative; runs agree to 1e-13 and less, and the least printed error is 1e-5
INTEGRATED = 1e-6  # of the decoder flow, as for Lemma 3

_STEPS = (40, 4000)  # least and most; about t₀ between them
_LARGEST = 4000  # M: Y has M² entries
_INDEPENDENT = 1e-5  # least eigenvalue of FᵀF
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class ModifiedRun:
    """SGD of batch size 1 on the decoder with frozen attention, T = ∞. K classes, S context tokens, M outputs."""

    f: Array  # (S, K)
    y: Array  # (S, M)
    visits: Array  # (K,) draws of each class
    next_token: Array  # (K,)
    eta_y: float

    @property
    def vocab_size(self) -> int:
        """M."""
        return self.y.shape[1]

    @cached_property
    def decoder(self) -> ModifiedDecoder:
        """What the proof predicts for these draws."""
        return modified_decoder(self.f.T @ self.f, self.visits, eta_y=self.eta_y, vocab_size=self.vocab_size)

    @property
    def zeta(self) -> Array:
        """(K, M) ζ_n."""
        return (self.vocab_size * np.eye(self.vocab_size)[self.next_token] - 1) / (self.vocab_size - 1)

    @property
    def w(self) -> Array:
        """(K, M) W = FᵀY."""
        return self.f.T @ self.y

    @property
    def w_predicted(self) -> Array:
        """(K, M) (I + Θ)W̄, by Lemma 5."""
        return (self.vocab_size - 1) * self.decoder.h[:, None] * self.zeta

    @property
    def r(self) -> Array:
        """(K, M) e_n − α_n."""
        alpha = np.exp(self.w - self.w.max(1, keepdims=True))
        return np.eye(self.vocab_size)[self.next_token] - alpha / alpha.sum(1, keepdims=True)

    @property
    def g(self) -> Array:
        """(K, S) Y r_n."""
        return self.r @ self.y.T

    def y_from_basis(self, complement: Array) -> Array:
        """(S, M) F′^{−⊤}(I + Θ′)W̄′ with F′ = [F, F°]; W̄′ has zero rows below W̄."""
        rows = np.zeros_like(self.y)
        rows[: self.f.shape[1]] = self.w_predicted
        return np.asarray(np.linalg.solve(np.hstack([self.f, complement]).T, rows))


Runner = Callable[..., ModifiedRun]
Update = Literal["gradient", "modified"]


def modified_run(classes: SequenceClasses, eta_y: float, steps: int, *, update: Update = "modified") -> ModifiedRun:
    """The state after so many steps; its draws are counted from the sampler's stream."""
    from scansnap.dynamics.engines.layout import make_layout
    from scansnap.dynamics.settings import ModelConfig
    from scansnap.dynamics.simulate import simulate
    from scansnap.sampling.counts import sample_classes

    data = simulate(classes, eta_y=eta_y, eta_z=0.0, seed=0, steps=steps, batch_size=1, context=math.inf,
                    update=update, dtype="float64", variables="y", record=[steps], device="cpu")  # fmt: skip
    table = make_layout(classes, ModelConfig(), decays=False).table
    drawn = sample_classes(table, torch.zeros(1, dtype=torch.int64), torch.arange(steps), 1).numpy()
    p = classes.p_context
    inside = p.any(0)
    f = (p[:, inside] / np.linalg.norm(p, axis=1, keepdims=True)).T
    visits = np.bincount(drawn.ravel(), minlength=classes.n_classes)
    return ModifiedRun(f, data["y"].values[0, 0][inside], visits, classes.next_token, eta_y)


def check(evidence: Evidence, *, run: Runner = modified_run, update: Update = "modified") -> list[Claim]:
    """Against a run of its own to about t₀, and against the decoder flow up to 10 t₀."""
    classes = evidence.classes
    reason = ""
    if not 2 <= classes.vocab_size <= _LARGEST:
        reason = f"Y is recorded for 2 to {_LARGEST} tokens"
    elif np.linalg.eigvalsh(evidence.overlap[0])[0] < _INDEPENDENT:
        reason = "the modified update needs linearly independent f_n"
    if reason:
        return [statement.not_applicable(reason) for statement in STATEMENTS]
    state = run(classes, evidence.eta_y, int(np.clip(evidence.t_snap, *_STEPS)), update=update)
    m, decoder, own = state.vocab_size, state.decoder, state.f.shape[0] - classes.n_classes
    oblique = np.random.default_rng(0).normal(size=(len(state.f), own))
    by_flow_height = 1 / (1 + np.exp(m * np.asarray(h(state.visits, eta_y=state.eta_y, vocab_size=m))) / (m - 1))
    combination = decoder.gradient_coefficients() @ state.f.T
    printed = decoder.gradient_coefficients(decoder.beta_printed) @ state.f.T
    dual = state.f @ (np.eye(classes.n_classes) - decoder.e_prime)
    pairs = (
        (LEMMA_5, "W", state.w, state.w_predicted),
        (THEOREM_5, "Y", state.y, dual @ state.w_predicted),
        (LEMMA_12, "Y, for a random F°", state.y, state.y_from_basis(oblique)),
        (ORTHOGONAL, "Y, for F° ⊥ F", state.y, state.y_from_basis(null_space(state.f.T))),
        (COROLLARY_1, "e_n − α_n", state.r, decoder.error[:, None] * state.zeta),
        (EQ_71, "e_n − α_n", state.r, by_flow_height[:, None] * state.zeta),
        (GRADIENT, "g_n", state.g, combination),
        (EQ_88, "g_n", state.g, printed),
    )
    return [
        _rows(evidence, update), *(_exact(state, *pair) for pair in pairs), *_force(state),
    ]  # fmt: skip


def _rows(evidence: Evidence, update: Update) -> Claim:
    classes, t = evidence.classes, np.geomspace(0.01 * evidence.t_scan, 10 * evidence.t_snap, 40)
    f = evidence.f[0][:, classes.p_context[:, : evidence.f.shape[-1]].any(0)].T
    data = decoder_flow(f, classes.p_class, evidence.eta_y, t, classes.vocab_size, update=update)
    if classes.vocab_size == classes.n_classes:
        return ROWS.not_applicable("no output is never right, so that the gap has no meaning")
    gap = data["gap"].values
    predicted = np.asarray(u(t[:, None] * classes.p_class, eta_y=evidence.eta_y, vocab_size=classes.vocab_size))
    off = np.abs(gap / predicted - 1)
    i, n = index_of_largest(off)
    return ROWS.judge(
        quantity=f"logit gap of class {n} on the decoder flow of Eq. 26 at {evidence.format_time(t[i])}",
        measured=gap[i, n], predicted=predicted[i, n], deviation=off[i, n], tolerance=INTEGRATED,
        failure=f"off by {off[i, n]:.2g}", curve=Curve("t", f"logit gap of class {n}", t, gap[:, n], predicted[:, n]),
    )  # fmt: skip


def _exact(state: ModifiedRun, statement: Statement, what: str, measured: Array, predicted: Array) -> Claim:
    off = float(np.abs(measured - predicted).max() / np.abs(measured).max())
    return statement.judge(
        quantity=f"largest error of {what} relative to its largest entry, after {state.visits.sum()} steps of batch "
        f"size 1 by Eq. 26",
        measured=off, predicted=0.0, deviation=off, tolerance=ROUNDING, failure=f"off by {off:.2g}",
    )  # fmt: skip


def _force(state: ModifiedRun) -> list[Claim]:
    """ξ_n as −Σ of the measured coefficients of g_n along f_n' times the overlaps."""
    decoder, m = state.decoder, state.vocab_size
    size = decoder.e + np.eye(len(decoder.e))
    along = np.linalg.solve(size, state.f.T @ state.g.T).T  # (K, K) coefficients of g_n along f_n'
    xi = -(along * decoder.e).sum(1) / decoder.gamma / (1 + decoder.sigma)
    spread = np.abs(decoder.theta).max()  # sampling multiplies each term by at most 1 + θ
    allowed = 1.01 * m / (m - 1) * (np.abs(decoder.e_prime).sum(1) * (1 + spread) / (m - 1) + spread * decoder.force)
    n = int(np.argmax(np.abs(xi - decoder.force) / allowed))
    row = decoder.e.sum(1).max()
    overlaps = np.abs(decoder.e).max(1) > 0
    force = FORCE.judge(
        quantity=f"ξ_n/γ of class {n} against q₁‖F E′e_n‖², with what 1/M and the draws leave open",
        measured=xi[n], predicted=decoder.force[n], deviation=abs(xi[n] - decoder.force[n]),
        tolerance=float(allowed[n]) or ROUNDING, failure=f"class {n}",
    )  # fmt: skip
    if not overlaps.any():
        return [force, POSITIVE.not_applicable("no class overlaps with another")]
    if not decoder.h.min() > row * decoder.h.max():
        reason = f"min h/max h is {decoder.h.min() / decoder.h.max():.3g}, Σ_k E_nk up to {row:.3g}"
        return [force, POSITIVE.not_applicable(reason)]
    lowest = int(np.argmin(np.where(overlaps, xi, np.inf)))
    printed = (decoder.beta_printed * decoder.e).sum(1)
    positive = POSITIVE.judge_cases(
        xi[overlaps] > 0,
        quantity=f"share of the classes that overlap with ξ_n > 0 (least ξ_n/γ: {xi[lowest]:.3g}; by Eq. 88 as "
        f"printed {printed[overlaps].min():.3g})",
        failure=f"ξ_n/γ is {xi[lowest]:.3g} for class {lowest}",
    )  # fmt: skip
    return [force, positive]
