"""How h depends on time: Lemmas 6 to 9, Remarks 1 to 3, and the number of steps of Corollary 1.

Nothing here is about attention: h*(s) is the recursion of Lemma 5, h(s) its flow, u = M h the logit gap. Vocabulary,
number of classes and η_Y are those of the evidence; formulas that must hold for every M are compared over a range.

* Remark 2 says that h* leads h by a bounded time c = O(ln M). The lead is ½ ln(η_Y s) (`scansnap.theory.step_lead`):
  the remark drops the source of the error, which Euler's method adds at every step.
* Remark 1 sets Σ_n ζ_n = 0, which is a sum over all M outputs and so needs K = M. There the gap is exactly h of the
  rate (1 − ρ)η_Y, while Eq. 43 prints (1 − ρ) h of the rate η_Y; for K < M the gap to the outputs that are no class's
  next token keeps the rate η_Y.
* Corollary 1 multiplies 1/ε and ln(M/ε) where they add.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

from scansnap import theory
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.time_windows import WINDOW_END
from scansnap.dynamics.flow.decoder import decoder_flow

LEMMA_6 = Statement("lemma-6", "Lemma 6", "e^{Mh} + (M−1)Mh = Mη_Y s + 1 solves dh/ds = η_Y/(M−1+e^{Mh})",
                    kind="formula")  # fmt: skip
BOUND = Statement("lemma-7", "Lemma 7", "0 ≤ h* − h ≤ 2η_Y/M for η_Y < 1", kind="formula")
LIMIT = Statement("lemma-7-limit", "Lemma 7", "h* − h vanishes as s → ∞", kind="formula")
LEAD = Statement("remark-2", "Remark 2", "h*(s) ≤ h(s + c) with a constant c = O(ln M)", kind="formula")
LOGARITHM = Statement(
    "step-lead", "Steps and flow (ours, docs/theory.md)",
    "h* leads h by a time ½ ln y, y = (M−1+e^u)/M, up to 0.1 η_Y: ½ ln(η_Y s) late", kind="ours",
)  # fmt: skip
CROSSINGS = Statement("lemma-8", "Lemma 8",
                      "e^u = (M−1)u at u ≈ M^{ω₀−1} and (1+ω₁) ln M only, with ω₁ of order ln ln M/ln M",
                      kind="formula")  # fmt: skip
FIRST_STEP = Statement("remark-3", "Remark 3",
                       "for M ≫ 100 and η_Y ≫ M^−0.99 the first step passes the first crossing of Lemma 8",
                       kind="formula")  # fmt: skip
PRINTED = Statement("remark-1", "Remark 1, Eq. 43", "with equal overlaps ρ and K = M the gap is (1−ρ) M h(t/K)",
                    kind="formula")  # fmt: skip
RATE = Statement(
    "remark-1-rate", "Remark 1", "with equal overlaps ρ and K = M gradient descent acts as the rate (1−ρ)η_Y",
    kind="formula",
)  # fmt: skip
FEWER = Statement("remark-1-fewer", "Remark 1", "the same for K < M, for the gap to an output that is no next token",
                  kind="formula")  # fmt: skip
PRODUCT = Statement("corollary-1-steps", "Corollary 1", "‖e_n − α_n‖ ≤ ε after O(K ln(M/ε)/(εη_Y)) steps",
                    kind="formula")  # fmt: skip
SUM = Statement("error-steps", "Number of steps (ours, docs/theory.md)",
                "that number is K(1/ε + ln(M/ε))/η_Y at most, and a tenth less at least", kind="ours")  # fmt: skip
STATEMENTS = (LEMMA_6, BOUND, LIMIT, LEAD, LOGARITHM, CROSSINGS, FIRST_STEP, PRINTED, RATE, FEWER, PRODUCT, SUM)

_LAST = 100_000  # steps of the recursion
_VANISHES = -0.5  # d ln(h* − h)/d ln s over the last decade; of a difference that stays it is 0
_STAYS = 0.05  # d c/d ln s over the last decade for a bounded lead c; of ½ ln s it is ½
_LEAD_ERROR = 0.1  # of the lead, in η_Y: what the modified equation leaves out is 0.05 η_Y
_VOCABULARIES = np.array([20, 100, 1e3, 1e4, 1e6, 1e9])
_ORDER = math.log(2.0)  # an order is right within a factor of 2 over these
_SQUARE, _OVERLAP = 50, 0.2  # K = M and ρ of Remark 1's own flow
_PLOT = 0.1  # as for equations of the paper
_EXACT = 1e-6
_EPSILON = np.array([0.1, 0.01, 0.001])

Height = Callable[..., Array]


def check(
    evidence: Evidence, *, height: Height = theory.h, recursion: Height = theory.h_recursion, linear: float = 1.0
) -> list[Claim]:
    """``height`` is h(s), ``recursion`` the table of h* after 0 … n steps; e^u meets (M−1)^linear u."""
    m, eta_y = evidence.classes.vocab_size, evidence.eta_y
    if m <= 20 or not eta_y < 1:
        reason = f"it is about η_Y < 1 and large M; M = {m}, η_Y = {eta_y:g}"
        return [statement.not_applicable(reason) for statement in STATEMENTS]
    return [
        _equation(evidence, height), *_steps(evidence, height, recursion), _crossings(linear), _first_step(evidence),
        *_equal_overlaps(evidence), *_number_of_steps(evidence),
    ]  # fmt: skip


def _equation(evidence: Evidence, height: Height) -> Claim:
    """Against the differential equation, integrated here."""
    m, eta_y = evidence.classes.vocab_size, evidence.eta_y
    s = np.geomspace(0.01, WINDOW_END, 40) * evidence.t_snap / evidence.classes.n_classes
    run = solve_ivp(lambda _, u: m * eta_y / (m - 1 + np.exp(u)), (0, s[-1]), [0.0], t_eval=s, method="LSODA",
                    rtol=1e-10, atol=1e-14)  # fmt: skip
    gap, predicted = run.y[0], m * np.asarray(height(s, eta_y=eta_y, vocab_size=m))
    off = np.abs(gap / predicted - 1)
    i = int(off.argmax())
    return LEMMA_6.judge(
        quantity=f"M h at s = {s[i]:.3g}, integrated", measured=gap[i], predicted=predicted[i], deviation=off[i],
        tolerance=_EXACT, failure=f"off by {off[i]:.2g}", curve=Curve("s", "M h", s, gap, predicted),
    )  # fmt: skip


def _steps(evidence: Evidence, height: Height, recursion: Height) -> list[Claim]:
    """Lemma 7 and Remark 2, from the recursion itself."""
    m, eta_y = evidence.classes.vocab_size, evidence.eta_y
    stepped = np.asarray(recursion(_LAST, eta_y=eta_y, vocab_size=m))
    s = np.unique(np.geomspace(1, _LAST, 120).astype(int))
    gap = stepped[s] - np.asarray(height(s, eta_y=eta_y, vocab_size=m))
    largest, least = float(gap.max()) * m / eta_y, float(gap.min()) * m / eta_y
    late = s >= _LAST / 10
    slope = float(np.polyfit(np.log(s[late]), np.log(gap[late]), 1)[0]) if (gap[late] > 0).all() else math.nan
    lead = np.asarray(theory.visits_at(m * stepped[s], eta_y=eta_y, vocab_size=m)) - s
    growth = float(np.polyfit(np.log(s[late]), lead[late], 1)[0])
    predicted = np.asarray(theory.step_lead(s, eta_y=eta_y, vocab_size=m))
    off = np.abs(lead - predicted)
    i = int(off.argmax())
    curve = Curve("s", "time by which steps lead the flow", s, lead, predicted)
    return [
        BOUND.judge(
            quantity=f"largest M(h* − h)/η_Y up to s = {_LAST:,} (least: {least:.2g}; ours: at most 1/2e = 0.184 "
            f"and terms of order η_Y)",
            measured=largest, predicted=2.0, deviation=max(largest - 2, -least, 0.0), tolerance=1e-9,
            failure=f"from {least:.3g} to {largest:.3g}",
        ),
        LIMIT.judge(
            quantity=f"d ln(h* − h)/d ln s from s = {_LAST // 10:,} to {_LAST:,}", measured=slope, predicted=_VANISHES,
            deviation=max(slope - _VANISHES, 0.0), tolerance=0.01, failure="it does not vanish",
        ),
        LEAD.judge(
            quantity=f"dc/d ln s from s = {_LAST // 10:,} to {_LAST:,} (c = {lead[-1]:.3g} there, ln M = "
            f"{math.log(m):.3g})",
            measured=growth, predicted=0.0, deviation=max(growth, 0.0), tolerance=_STAYS, curve=curve,
            failure=f"the lead grows by {growth:.2g} for every factor e in s",
        ),
        LOGARITHM.judge(
            quantity=f"time by which steps lead the flow at s = {s[i]:,}", measured=lead[i], predicted=predicted[i],
            deviation=off[i], tolerance=_LEAD_ERROR * eta_y, failure=f"off by {off[i]:.2g}", curve=curve,
        ),
    ]  # fmt: skip


def crossings(vocab_size: float, linear: float = 1.0) -> Array:
    """u at which e^u − (M−1)^linear u changes its sign, from a fine grid."""
    u = np.geomspace(1e-3 / vocab_size, 100, 400_000)
    above = u > linear * np.log(vocab_size - 1) + np.log(u)
    return np.asarray(u[1:][above[1:] != above[:-1]])


def _crossings(linear: float) -> Claim:
    """Both roots for each M, and their orders."""
    roots = [crossings(m, linear) for m in _VOCABULARIES]
    number = max(abs(len(root) - 2) for root in roots)
    if number:
        off, measured = math.inf, math.nan
    else:
        first, second = np.transpose(roots)
        omega = second / np.log(_VOCABULARIES) - 1
        ratio = np.array([first * _VOCABULARIES, omega * np.log(_VOCABULARIES) / np.log(np.log(_VOCABULARIES))])
        distance = np.abs(np.log(np.maximum(ratio, 1e-300)))
        off, measured = float(distance.max()), float(ratio.flat[distance.argmax()])
        off = off if omega[-1] < omega[0] else math.inf
    return CROSSINGS.judge(
        quantity=f"of M u at the first crossing and ω₁ ln M/ln ln M at the second, that furthest from 1 for M from "
        f"{_VOCABULARIES[0]:g} to {_VOCABULARIES[-1]:.0e}",
        measured=measured, predicted=1.0, deviation=off, tolerance=_ORDER, failure="not of this order",
    )  # fmt: skip


def _first_step(evidence: Evidence) -> Claim:
    m, eta_y = evidence.classes.vocab_size, evidence.eta_y
    first = float(crossings(m)[0])
    return FIRST_STEP.judge(
        quantity="first crossing of e^u and (M−1)u, against the gap η_Y after one step", measured=first,
        predicted=eta_y, deviation=max(first - eta_y, 0.0), tolerance=1e-12, failure="the first step is shorter",
        assumptions=[evidence.assumptions[name] for name in ("large vocabulary", "eta_y not too small")],
    )  # fmt: skip


def _equal_overlaps(evidence: Evidence) -> list[Claim]:
    """Remark 1 on decoder flows of equal overlaps: K = M, and the K, M and mean overlap of the evidence."""
    eta_y, k, m = evidence.eta_y, evidence.classes.n_classes, evidence.classes.vocab_size

    def gaps(n: int, vocab: int, rho: float) -> tuple[Array, Array, Array]:
        """t in t₀, the gap, and the rate's gap at (1−ρ)η_Y."""
        times = np.geomspace(0.01, WINDOW_END, 40)
        t = times * float(theory.t_snap(eta_y=eta_y, n_classes=n, vocab_size=vocab))
        f = np.linalg.cholesky((1 - rho) * np.eye(n) + rho).T
        data = decoder_flow(f, None, eta_y, t, vocab)
        wrong = data["logits"].values[:, 0, 1 if n == vocab else n]
        slower = np.asarray(theory.u(t / n, eta_y=(1 - rho) * eta_y, vocab_size=vocab))
        full = (1 - rho) * np.asarray(theory.u(t / n, eta_y=eta_y, vocab_size=vocab))
        return np.array([times, data["logits"].values[:, 0, 0] - wrong]), slower, full

    (times, square), exact, printed = gaps(_SQUARE, _SQUARE, _OVERLAP)
    where = f"at K = M = {_SQUARE}, ρ = {_OVERLAP}"
    claims = [
        _gap(PRINTED, where, times, square, printed, _PLOT), _gap(RATE, where, times, square, exact, _EXACT),
    ]  # fmt: skip
    rho = (evidence.overlap[0].sum() - k) / (k * (k - 1)) if k > 1 else 0.0
    if not 0 < rho < 1 or m == k:
        return [*claims, FEWER.not_applicable("the classes do not overlap, or K = M")]
    (times, gap), slower, _ = gaps(k, m, rho)
    where = f"to an output that is no class's next token, K = {k}, M = {m}, ρ = {rho:.3g}"
    return [*claims, _gap(FEWER, where, times, gap, slower, _PLOT)]


def _gap(statement: Statement, where: str, times: Array, gap: Array, predicted: Array, tolerance: float) -> Claim:
    off = np.abs(gap / predicted - 1)
    i = int(off.argmax())
    return statement.judge(
        quantity=f"logit gap {where}, at {times[i]:.3g} t₀", measured=gap[i], predicted=predicted[i],
        deviation=off[i], tolerance=tolerance, failure=f"off by {off[i]:.2g}",
        curve=Curve("t/t₀", "logit gap", times, gap, predicted),
    )  # fmt: skip


def _number_of_steps(evidence: Evidence) -> list[Claim]:
    """Visits of a class, from the recursion."""
    m, eta_y = evidence.classes.vocab_size, evidence.eta_y
    total = (1 / _EPSILON + np.log(m / _EPSILON)) / eta_y
    product = np.log(m / _EPSILON) / _EPSILON / eta_y
    if total.max() > _LAST:
        return [statement.not_applicable(f"it takes more than {_LAST:,} steps") for statement in (PRODUCT, SUM)]
    stepped = m * np.asarray(theory.h_recursion(int(1.1 * total.max()) + 2, eta_y=eta_y, vocab_size=m))
    error = math.sqrt(m / (m - 1)) / (1 + np.exp(stepped) / (m - 1))
    visits = np.searchsorted(-error, -_EPSILON).astype(float)
    share = visits / total
    i = int(np.abs(share - 1).argmax())
    return [
        PRODUCT.judge(
            quantity=f"steps until ‖e_n − α_n‖ = ε over K ln(M/ε)/(εη_Y), the largest for ε from {_EPSILON[0]:g} to "
            f"{_EPSILON[-1]:g}",
            measured=float((visits / product).max()), predicted=1.0,
            deviation=float(np.maximum(visits / product - 1, 0).max()), tolerance=_PLOT, failure="it takes more",
        ),
        SUM.judge(
            quantity=f"visits of a class until ‖e_n − α_n‖ = {_EPSILON[i]:g}", measured=visits[i], predicted=total[i],
            deviation=float(np.abs(share - 1)[i]), tolerance=_PLOT, failure=f"{share[i]:.3g} of the sum",
        ),
    ]  # fmt: skip
