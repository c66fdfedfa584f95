"""Theorem 4: the phase transition from scanning to snapping (Section 6, Eqs. 13 and 14; Appendix F).

The theorem starts from an estimate for one common token and one shared query, ξ_n = γ e^{4z}/C₀ and
ż = −η_Z γ e^{4z}/C₀ with z the common token's logit, and concludes B = ¼ ln(1 + 4Γ/C₀). A class gains its share of
what the common token loses, so B_n = (p_n/P) ¼ ln(1 + 4PΓ/C₀) is what is predicted here, P the probability of the
query's classes (see :func:`scansnap.theory.growth`).

Where the estimate comes from and where it fails. It takes β_nn' = E'_nn' ≈ f_nᵀ f_n' = ρ, so that ξ_n ∝ γ ρ² with
ρ ∝ e^{2z} and a constant normaliser. Two things are different in exact flows:

* The decoder learns only what the loss asks for. While M − K other outputs are wrong as well, the output of class n'
  takes its share of the error of class n, and with frozen attention (ours, leading order in 1/M, u the logit gap)

      β_nn' = [e^{ρu} + (e^{ρu} − 1)/(ρu) − 1]/M     as long as ρu < ln M,

  which begins at 1/M and is still far below ρ at t₀, where u ≈ ln M. So ξ_n/γ *rises* while z falls, the fitted
  exponent is negative, and growth is faster than predicted from the earliest times, though far slower than with
  β = E'. This is worst for weak overlap and a large vocabulary, where Theorem 1 is meant to hold.
* Where ξ_n = γ ρ² does hold (late times, strong overlap, small vocabularies), the normaliser is not constant: common
  tokens fall out of it and distinct ones rise in it. Its slope d ln ρ²/dz is (ours) 4(1 − f²) + (4/K) Σ f_l⁴/Σ f_l²
  with f the common token's share and l the distinct tokens: between 0 and 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy.optimize import minimize_scalar

from scansnap.claims import premises
from scansnap.claims import theorem3 as growing
from scansnap.claims.assumptions import Assumption
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.windows import LAST, TRANSITION
from scansnap.classes import SequenceClasses
from scansnap.measure.snap import snap_time
from scansnap.theory import gamma, gamma_integral
from scansnap.theory import growth as closed_form

PREMISE = Statement(
    "theorem-4-premise",
    "Theorem 4 (Eq. 13)",
    "The speed falls with the common token's logit z as ξ_n ∝ γ e^{4z}, and so does ż itself.",
    kind="measured",
)
GROWTH = Statement(
    "theorem-4-growth",
    "Theorem 4 (Eq. 14)",
    "The growth exponent is B_n = p_n · ¼ ln(1 + 4Γ/C₀), Γ = η_Z∫γ, with C₀ taken from the earliest times.",
    kind="measured",
)
TIME = Statement(
    "theorem-4-time",
    "Theorem 4",
    "Attention passes from scanning to snapping when B_n of Eq. 14 does, at about t₀ = 2K ln M/η_Y.",
    kind="measured",
)
EXPONENT = 4.0  # of e^{4z} in Eq. 13

# Late B_n is ln(…)/q for an exponent q, so an exponent off by a quarter puts B_n off by a quarter: as for GROWTH.
PREMISE_TOLERANCE = 0.25  # relative to 4
# The paper calls its premise a qualitative estimation: it drops ρ against 1, and ρ is allowed up to 1/K. A quarter
# is half of that for K = 2, and still tells the exponent 4 from 3 and 5.
GROWTH_TOLERANCE = 0.25  # relative to the prediction
# The theorem knows the transition as what lies between t₀′ and t₀, which are a factor of two apart.
TIME_TOLERANCE = math.log(2)

FEWEST = 5  # recorded times without which nothing is fitted
_FEWEST_TO_SNAP = 8  # what snap_time asks for
_SUBSTEPS = 4  # between two recorded times, when the premise's attention is built


@np.errstate(all="ignore")  # what is not a number is judged a failure, in Statement.judge
def check(evidence: Evidence) -> list[Claim]:
    """The premise, the growth it implies and the time of the transition."""
    return [_premise(evidence), _growth(evidence), _time(evidence)]


def setting(evidence: Evidence) -> list[Assumption]:
    """What Theorem 4 asks on top of Theorem 1."""
    common, queries = len(evidence.classes.common), len(evidence.classes.queries)
    return [
        *evidence.assume(*premises.THEOREM_1),
        Assumption(
            "one common token", "a single common token (Section 6)", float(common), 1.0, common == 1,
            "several common tokens fall at different speeds",
        ),
        Assumption(
            "one query", "all classes share one query (Section 6)", float(queries), 1.0, queries == 1,
            "each query has its own logit for the common token",
        ),
    ]  # fmt: skip


# --- ξ ∝ γ e^{4z} ------------------------------------------------------------------------------------------------


def _premise(evidence: Evidence) -> Claim:
    """Straight lines through ln(ξ_n/γ) and ln(−ż/γ) over z.

    γ is measured, as the coefficient of f_n in g_n (γι_n, with ι_n = 1 up to terms that the premise drops), not the
    closed form: whether the closed form describes γ is Theorem 1's matter, and a slow drift between the two would
    pass for a slope here, since late z hardly moves.
    """
    assumed = setting(evidence)
    unmet = [a for a in assumed[-2:] if not a.met]
    if unmet:
        return PREMISE.not_applicable(f"{unmet[0].name}: there are {unmet[0].value:.0f}", assumed)
    if evidence.g is None or evidence.z_rate is None:
        return PREMISE.not_applicable("the record holds no gradient: record y", assumed)
    with_distinct = with_distinct_tokens(evidence.classes)
    if not with_distinct:
        return PREMISE.not_applicable("no class has distinct tokens", assumed)
    window = TRANSITION.times(evidence)
    if len(window) < FEWEST:
        return PREMISE.not_applicable(f"fewer than {FEWEST} recorded times in {TRANSITION.words(evidence)}", assumed)
    common = evidence.classes.common[0]
    z = evidence.z[window, 0, common]
    if np.ptp(z) <= evidence.told:
        return PREMISE.not_applicable("the common token's logit does not move", assumed)
    speeds, own = {}, {}
    for n in with_distinct:
        own[f"γ of class {n}"], xi = (values[window] for values in growing.coefficients(evidence, n))
        speeds[f"ξ of class {n}, over γ"] = xi / own[f"γ of class {n}"]
    fall = -evidence.z_rate[window, 0, common] / evidence.eta_z
    speeds["−ż of the common token, over η_Z γ"] = fall / np.mean(list(own.values()), axis=0)
    for name, speed in {**own, **speeds}.items():
        if not (speed > 0).all():
            at = int(np.argmin(np.where(np.isfinite(speed), speed, -np.inf)))
            return PREMISE.judge(
                quantity=f"{name}, at t = {evidence.t[window[at]]:.4g}, against the least it may be: no exponent",
                measured=float(speed[at]), predicted=0.0, deviation=math.inf,
                tolerance=PREMISE_TOLERANCE, assumptions=assumed,
                where=f"{name}, is {speed[at]:.3g} at t = {evidence.t[window[at]]:.4g}, not positive",
            )  # fmt: skip
    lines = {name: _line(z, np.log(speed)) for name, speed in speeds.items()}
    worst = max(lines, key=lambda name: nan_is_worst(abs(lines[name][0] - EXPONENT)))
    slope, offset = lines[worst]
    speed = speeds[worst]
    return PREMISE.judge(
        quantity=f"slope of ln({worst}) against z of the common token, {TRANSITION.words(evidence)} "
        f"(worst of {len(lines)}; z moves by {np.ptp(z):.3g})",
        measured=slope,
        predicted=EXPONENT,
        deviation=abs(slope - EXPONENT) / EXPONENT,
        tolerance=PREMISE_TOLERANCE,
        assumptions=assumed,
        where=f"{worst}, goes from {speed[0]:.3g} at t = {evidence.t[window[0]]:.4g} to {speed[-1]:.3g} at "
        f"t = {evidence.t[window[-1]]:.4g} while z goes from {z[0]:.3g} to {z[-1]:.3g}: slope {slope:.3g} "
        f"instead of {EXPONENT:g}; β = E' would give {_from_overlap(evidence, with_distinct[0]):.3g} at t = 0",
        curve=Curve("z of the common token", worst, z, speed,
                    np.exp(offset + slope * z.mean() + EXPONENT * (z - z.mean())), log_x=False, log_y=True),
    )  # fmt: skip


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Slope and offset by least squares; NaN where y is not finite."""
    dx = x - x.mean()
    slope = float((dx * (y - y.mean())).sum() / (dx**2).sum())
    return slope, float(y.mean() - slope * x.mean())


def _from_overlap(evidence: Evidence, n: int) -> float:
    """ξ_n/γ = Σ E'_nn' f_nᵀ f_n' at the first time, as the theorem has it: 1/C₀."""
    f = evidence.f[0]
    overlap = f @ f.T  # I + E
    try:
        inverse = np.linalg.solve(overlap, np.eye(len(f))[n])  # a row of I − E'
    except np.linalg.LinAlgError:  # two classes with the same attention
        return math.inf
    others = np.arange(len(f)) != n
    return float(-(inverse * overlap[n])[others].sum())


# --- B_n = p_n/4 ln(1 + 4Γ/C₀) -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """B_n of Theorem 4 for one class: its C₀ and the share it has in what its query's common tokens lose."""

    n: int
    c0: float  # γ/ξ_n at the earliest recorded times
    share: float  # p_n/P
    p_query: float  # P: probability of the classes of its query, 1 where all share one

    def __call__(self, t: Array, evidence: Evidence) -> Array:
        """(p_n/P) · ¼ ln(1 + 4PΓ/C₀) at the times t; 0 for an infinite C₀, where there is no ξ_n at all."""
        if math.isinf(self.c0):
            return np.zeros(len(t))
        k, m = evidence.classes.n_classes, evidence.classes.vocab_size
        return np.asarray(
            closed_form(t, eta_y=evidence.eta_y, eta_z=evidence.eta_z, n_classes=k, vocab_size=m, c0=self.c0,
                        exponent=EXPONENT, p_class=self.share * self.p_query, p_query=self.p_query)
        )  # fmt: skip

    def reach(self, t: Array, evidence: Evidence) -> Array:
        """PΓ/C₀."""
        found: Array = self.p_query * _integral(t, evidence) / self.c0
        return found

    def with_exponent(self, reach: Array, q: float) -> Array:
        """(p_n/P) ln(1 + q PΓ/C₀)/q, for any q that leaves the logarithm an argument."""
        return self.share * (reach if q == 0 else np.log1p(q * reach) / q)


def _integral(t: Array, evidence: Evidence) -> Array:
    """Γ(t)."""
    k, m = evidence.classes.n_classes, evidence.classes.vocab_size
    return np.asarray(gamma_integral(t, eta_y=evidence.eta_y, eta_z=evidence.eta_z, n_classes=k, vocab_size=m))


@np.errstate(all="ignore")  # no ξ_n at all is an infinite C₀
def predict(evidence: Evidence, n: int) -> Prediction:
    """C₀ of class n from the recorded times up to t₀′/10, or the first one after it; not positive if B_n falls there.

    With g: C₀ = γ/ξ_n, γ the closed form, of which Γ is the integral. Without g, and where updates are sampled, so
    that ξ_n of the first steps is noise: C₀ = p_n Γ/B_n at the first time of the window, which is the same while
    attention has not moved.
    """
    p = evidence.classes.p_class
    p_query = min(float(p[evidence.class_query == evidence.class_query[n]].sum()), 1.0)  # rounding aside
    times = np.flatnonzero(evidence.t > 0)
    n_early = max(int((evidence.t[times] <= TRANSITION.first * evidence.t_scan).sum()), 1)
    if evidence.g is not None and not evidence.sampled:
        first = times[:n_early]
        k, m = evidence.classes.n_classes, evidence.classes.vocab_size
        expected = np.asarray(gamma(evidence.t[first], eta_y=evidence.eta_y, n_classes=k, vocab_size=m))
        c0 = float(expected.sum() / growing.coefficients(evidence, n)[1][first].sum())
    else:
        window = TRANSITION.times(
            evidence
        )  # its first time: late enough for B_n to be out of the rounding and the first steps
        at = window[0] if len(window) else times[-1]
        c0 = float(p[n] * _integral(evidence.t[at], evidence) / growing.growth(evidence)[at, n])
    return Prediction(n, c0, float(p[n]) / p_query, p_query)


def _growth(evidence: Evidence) -> Claim:
    assumed = setting(evidence)
    with_distinct = with_distinct_tokens(evidence.classes)
    if not with_distinct:
        return GROWTH.not_applicable("no class has distinct tokens", assumed)
    if evidence.t[0] != 0:
        return GROWTH.not_applicable(f"the record begins at t = {evidence.t[0]:.4g}, not at 0", assumed)
    window = TRANSITION.times(evidence)
    if len(window) < FEWEST:
        return GROWTH.not_applicable(f"fewer than {FEWEST} recorded times in {TRANSITION.words(evidence)}", assumed)
    measured = growing.growth(evidence)
    if np.abs(measured[window][:, with_distinct]).max() <= evidence.told:
        return GROWTH.not_applicable("the distinct tokens' logits do not move", assumed)
    t = evidence.t[window]
    found = [predict(evidence, n) for n in with_distinct]
    for prediction in found:
        if not prediction.c0 > 0:
            n = prediction.n
            return GROWTH.judge(
                quantity=f"1/C₀ = ξ_n/γ of class {n} at the earliest times, against the least it may be: no prediction",
                measured=1 / prediction.c0, predicted=0.0, deviation=math.inf,
                tolerance=GROWTH_TOLERANCE, assumptions=assumed,
                where=f"class {n}: 1/C₀ = ξ_n/γ is {1 / prediction.c0:.3g} at the earliest times, not positive",
            )  # fmt: skip
    errors = {p.n: np.abs(measured[window, p.n] / p(t, evidence) - 1) for p in found}
    worst = max(found, key=lambda p: nan_is_worst(errors[p.n].max()))
    n = worst.n
    at = int(np.argmax(errors[n]))
    b, expected = measured[window, n], worst(t, evidence)
    best = _best_exponent(worst, worst.reach(t, evidence), b)
    return GROWTH.judge(
        quantity=f"B_n of class {n} at t = {t[at]:.4g}, worst in {TRANSITION.words(evidence)} "
        f"(C₀ = {worst.c0:.3g}; the exponent that fits best is {best})",
        measured=float(b[at]),
        predicted=float(expected[at]),
        deviation=float(errors[n].max()),
        tolerance=GROWTH_TOLERANCE,
        assumptions=assumed,
        where=f"class {n}, t = {t[at]:.4g} ({t[at] / evidence.t_snap:.3g} t₀): B_n = {b[at]:.3g} against "
        f"{expected[at]:.3g} with C₀ = {worst.c0:.3g} from the earliest times (β = E' would give "
        f"{1 / _from_overlap(evidence, n):.3g}); the exponent that fits best is {best} instead of {EXPONENT:g}",
        curve=Curve("t", f"B_n of class {n}", evidence.t, measured[:, n], worst(evidence.t, evidence)),
    )


def _best_exponent(prediction: Prediction, reach: Array, b: Array) -> str:
    """The q with the least-squares error of ln B_n, in words. Negative: growth speeds up instead of slowing down."""
    if not (b > 0).all():
        return "none (B_n is not positive)"

    def exponent(x: float) -> float:
        return math.expm1(x) / float(reach.max())  # q·PΓ/C₀ > −1 at the end, where the logarithm needs it most

    def error(x: float) -> float:
        off = np.log(prediction.with_exponent(reach, exponent(x)) / b)
        return float(np.mean(off**2))

    fit = minimize_scalar(error, bounds=(-30.0, math.log(1e6)), method="bounded", options={"xatol": 1e-6})
    q, off = exponent(float(fit.x)), math.sqrt(float(fit.fun))
    return f"{q:.3g}" if off < GROWTH_TOLERANCE else f"none (at best {q:.3g}, off by {off:.2g} in ln B_n)"


# --- t₀ ----------------------------------------------------------------------------------------------------------


def _time(evidence: Evidence) -> Claim:
    """Where attention's mean speed is greatest (:func:`scansnap.measure.snap.snap_time`), against the same estimator
    on attention that obeys Eqs. 13 and 14, at the same times.

    Where a smooth curve changes its regime is a matter of definition: where the premise is true this one says 0.5 t₀ to
    0.85 t₀, depending on M and C₀. So like is compared with like, and t₀ itself is told in words.
    """
    assumed = setting(evidence)
    inside = np.flatnonzero(evidence.t <= LAST * evidence.t_snap)
    if int((evidence.t[inside] > 0).sum()) < _FEWEST_TO_SNAP:
        return TIME.not_applicable(f"fewer than {_FEWEST_TO_SNAP} recorded times up to {LAST:g} t₀", assumed)
    if evidence.t[0] != 0:
        return TIME.not_applicable(f"the record begins at t = {evidence.t[0]:.4g}, not at 0", assumed)
    with_distinct = with_distinct_tokens(evidence.classes)
    predictions = [predict(evidence, n) for n in with_distinct]
    bad = [p.n for p in predictions if not (p.c0 > 0 and math.isfinite(p.c0))]
    if bad or not predictions:
        why = f"class {bad[0]} has no C₀: its ξ_n begins at 0 or below" if bad else "no class has distinct tokens"
        return TIME.not_applicable(why, assumed)
    t = evidence.t[inside]
    seen = evidence.attention[None] if evidence.z_seeds is None else attention_at(evidence.z_seeds, evidence)
    found = _snap(t, seen[:, inside], evidence.classes)
    theirs = _snap(t, premised_attention(evidence, predictions, inside)[None], evidence.classes)
    if not bool(theirs.found):
        return TIME.not_applicable(f"by Eq. 14, {theirs.reason.item()}", assumed)
    expected, low, high = float(theirs.t_snap), float(found.t_snap_low), float(found.t_snap_high)
    if bool(found.found):
        measured, words = float(found.t_snap), f"68% interval {low:.4g} to {high:.4g}"
    elif math.isfinite(high) and high < expected / 2:
        measured, words = high, f"it is earlier than that: {found.reason.item()}"
    elif low > 2 * expected:
        measured, words = low, f"it is later than that: {found.reason.item()}"
    else:
        return TIME.not_applicable(str(found.reason.item()), assumed)
    speed = growing.growth(evidence)[inside[1:]][:, with_distinct].mean(-1) / t[1:]
    closed = np.mean([p(t[1:], evidence) for p in predictions], axis=0) / t[1:]
    return TIME.judge(
        quantity=f"when attention's mean speed since t = 0 is greatest, up to {LAST:g} t₀ ({words}), against when it "
        f"would be by Eq. 14; {measured / evidence.t_snap:.2g} and {expected / evidence.t_snap:.2g} t₀",
        measured=measured,
        predicted=expected,
        deviation=abs(math.log(measured / expected)),
        tolerance=TIME_TOLERANCE,
        assumptions=assumed,
        where=f"attention's mean speed is greatest at t = {measured:.4g} ({words}), {measured / expected:.2g} times "
        f"what it is by Eq. 14, and {measured / evidence.t_snap:.2g} t₀",
        curve=Curve(
            "t", "mean speed B_n/t over its maximum", t[1:], speed / speed.max(), closed / closed.max(),
        ),
        interval=_interval(found, expected) if evidence.sampled else None,
        to_decide=f"twice the 68% interval of {len(seen)} seeds reaches across the tolerance; more would tell",
    )  # fmt: skip


def _snap(t: Array, attention: Array, classes: SequenceClasses) -> xr.Dataset:
    """The snapping time of the runs (R, n, K, M) together."""
    runs, n_runs = ("run", "t", "class", "token"), len(attention)
    data = xr.Dataset({"attention": (runs, attention)}, coords={"t": t, "seed": ("run", np.arange(n_runs))})
    return snap_time(data, classes).isel(setting=0)


def _interval(found: xr.Dataset, expected: float) -> tuple[float, float] | None:
    """Of the deviation |ln(measured/expected)|: twice the 68% interval is about 95%."""
    if not bool(found.found):
        return None
    mid, low, high = (math.log(float(found[name]) / expected) for name in ("t_snap", "t_snap_low", "t_snap_high"))
    low, high = mid - 2 * (mid - low), mid + 2 * (high - mid)
    return (0.0 if low < 0 < high else min(abs(low), abs(high))), max(abs(low), abs(high))


def attention_at(z: Array, evidence: Evidence) -> Array:
    """(…, K, M) c_n ∝ P(l|n) e^{z} for logits (…, Q, M)."""
    logit = np.where(evidence.classes.p_context > 0, z[..., evidence.class_query, :], -np.inf)
    c = evidence.classes.p_context * np.exp(logit - logit.max(-1, keepdims=True))
    return np.asarray(c / c.sum(-1, keepdims=True))


def premised_attention(evidence: Evidence, predictions: list[Prediction], times: Array) -> Array:
    """(n, K, M) attention that obeys Eqs. 13 and 14 with the C₀ found, at some of the recorded times from 0 on.

    B_n is the closed form; the distinct tokens of a class rise as dz_l = f_l² dB_n (Theorem 2a), its query's common
    ones fall by Σ B_n over the query's classes, in equal parts where there are several. Heun steps along t.
    """
    classes = evidence.classes
    fine = np.interp(np.arange(_SUBSTEPS * (len(times) - 1) + 1) / _SUBSTEPS, np.arange(len(times)), evidence.t[times])
    gained = {p.n: p(fine, evidence) for p in predictions}
    distinct = {n: classes.distinct(n) for n in gained}
    z = np.zeros(evidence.z.shape[1:])  # (Q, M) of the distinct tokens
    falls, fallen = np.zeros_like(z), np.zeros((len(fine), len(z), 1))  # a common token's part, and of how much
    for row in range(len(z)):
        own = [n for n in gained if evidence.class_query[n] == row]
        for n in own:
            falls[row, classes.common_of(n)] = 1
            fallen[:, row, 0] -= gained[n]
    falls /= np.maximum(falls.sum(-1, keepdims=True), 1)

    def rise(z: Array) -> dict[int, Array]:
        """f_l² of each class's distinct tokens."""
        c = attention_at(z, evidence)
        return {n: c[n, ids] ** 2 / (c[n] ** 2).sum() for n, ids in distinct.items()}

    kept = [attention_at(z, evidence)]
    for i in range(len(fine) - 1):
        step = {n: b[i + 1] - b[i] for n, b in gained.items()}
        first = rise(z + fallen[i] * falls)
        ahead = z.copy()
        for n, ids in distinct.items():
            ahead[evidence.class_query[n], ids] += step[n] * first[n]
        second = rise(ahead + fallen[i + 1] * falls)
        for n, ids in distinct.items():
            z[evidence.class_query[n], ids] += step[n] * (first[n] + second[n]) / 2
        if (i + 1) % _SUBSTEPS == 0:
            kept.append(attention_at(z + fallen[i + 1] * falls, evidence))
    return np.array(kept)


# --- shared ------------------------------------------------------------------------------------------------------


def with_distinct_tokens(classes: SequenceClasses) -> list[int]:
    return [n for n in range(classes.n_classes) if len(classes.distinct(n))]


def nan_is_worst(value: float) -> float:
    return float(value) if math.isfinite(value) else math.inf
