"""Theorem 4: the phase transition from scanning to snapping (Section 6, Eqs. 13 and 14; Appendix F).

The theorem starts from an estimate for one common token and one shared query, ξ_n = γ e^{4z}/C₀ and
ż = −η_Z γ e^{4z}/C₀ with z the common token's logit, and concludes B = ¼ ln(1 + 4Γ/C₀). A class gains its share of
what the common token loses, so B_n = (p_n/P) ¼ ln(1 + 4PΓ/C₀) is what is predicted here, P the probability of the
query's classes (see `scansnap.theory.growth`).

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

Appendix F adds that B_n(t₀) is a function of K, M, η_Y/η_Z and C₀ alone (``theorem-4-rates``). Unlike the others, this
claim makes runs of its own. For the flow it is algebra, whatever B_n is: both rates times c is time times c, and t₀ is
divided by c. In SGD it is measured, since steps have a size.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.interpolate import CubicSpline

from scansnap.claims.assumptions import MUCH
from scansnap.claims.claim import Claim, Curve, Statement, nan_to_inf
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems import theorem4_time
from scansnap.claims.theorems.theorem4_growth import FEWEST, GROWTH, PREMISE, assumptions, check_growth, check_premise
from scansnap.classes import SequenceClasses
from scansnap.theory import t_snap

STATEMENTS = (PREMISE, GROWTH, theorem4_time.TIME)

RATES = Statement(
    "theorem-4-rates", "Theorem 4 (Appendix F)",
    "B_n(t₀) does not change when both rates are changed by the same factor.",
)  # fmt: skip

LATE_GROWTH = Statement(
    "theorem-4-late-growth", "Theorem 4", "Long after t₀, B_n = O(ln ln t): its slope in ln ln t no longer rises."
)
LATE_CHI = Statement(
    "theorem-4-late-chi", "Theorem 4", "Long after t₀, χ = O(ln t): ln χ rises with ln ln t at a slope of at most 1."
)
LATE = (LATE_GROWTH, LATE_CHI)

LATE_END = 1e15  # in t₀: earliest end of a record. On textbook the slope of B_n rises up to 10¹⁰ t₀
_WINDOWS = 8  # equal in ln ln t, from 10 t₀ on
LATE_TOLERANCE = 0.05  # relative to the largest slope, and to 1: what windows of this width cannot tell

RATES_TOLERANCE = 0.1  # as for Theorem 1: what can be told apart in a plot

_FACTORS = (0.5, 2.0)  # on both rates

_SMALL_FACTORS = (0.25, 0.5)  # for SGD whose η_Y must not be doubled past 1

_MOST_STEPS = 20_000  # SGD with smaller rates than that takes is the flow to 1e-3

_FEWEST_STEPS = 4  # before t₀, for B_n(t₀) to mean anything


@np.errstate(all="ignore")  # Statement.judge judges what is not a number a failure
def check(evidence: Evidence) -> list[Claim]:
    """The premise, the growth that it implies and the time of the transition."""
    return [check_premise(evidence), check_growth(evidence), theorem4_time.check(evidence)]


@np.errstate(all="ignore")
def check_late(evidence: Evidence) -> list[Claim]:
    """The slopes of B_n and ln χ in ln ln(Mη_Y t/K), window by window; the worst class decides."""
    assumed = assumptions(evidence)
    if evidence.source != "flow" or evidence.t[0] != 0 or evidence.t[-1] < LATE_END * evidence.t_snap:
        reason = f"late times are those of a flow from 0 to {LATE_END:.0e} t₀ and more"
        return [statement.not_applicable(reason, assumed) for statement in LATE]
    if not evidence.classes_with_distinct:
        return [statement.not_applicable("no class has distinct tokens", assumed) for statement in LATE]
    after = evidence.t >= MUCH * evidence.t_snap
    clock = np.log(np.log(evidence.classes.vocab_size * evidence.eta_y * evidence.t / evidence.classes.n_classes))
    edges = np.linspace(clock[after][0], clock[-1], _WINDOWS + 1)
    slopes = []
    for n in evidence.classes_with_distinct:
        tokens = evidence.classes.distinct(n)
        z = evidence.z[:, evidence.class_query[n], tokens[np.argmax(evidence.attention[0, n, tokens])]]
        b, log_chi = (np.diff(np.interp(edges, clock[after], x[after])) / np.diff(edges)
                      for x in (evidence.measured_growth[:, n], 2 * (z - z[0])))  # fmt: skip
        slopes.append((n, b, log_chi))
    n, b, _ = max(slopes, key=lambda of_class: nan_to_inf(of_class[1][-1] / of_class[1].max()))
    chi_class, _, chi = max(slopes, key=lambda of_class: nan_to_inf(of_class[2].max()))
    times = np.exp(np.exp((edges[1:] + edges[:-1]) / 2)) * evidence.classes.n_classes
    times /= evidence.classes.vocab_size * evidence.eta_y
    rising = float(max(b[-1] / b[-2] - 1, 0))
    return [
        LATE_GROWTH.judge(
            quantity=f"slope of B_n of class {n} in ln ln(Mη_Y t/K) at the end, against that in the window before "
            f"(largest {b.max():.3g}; by Eq. 132 it tends to ½ of the class's share)",
            measured=float(b[-1]), predicted=float(b[-2]), deviation=rising, tolerance=LATE_TOLERANCE,
            assumptions=assumed, failure=f"it is still rising, by {rising:.2g} from one window to the next",
            curve=Curve("t", f"slope of B_n of class {n} in ln ln t", times, b, np.full(len(b), b.max())),
        ),
        LATE_CHI.judge(
            quantity=f"largest slope of ln χ of the dominant token of class {chi_class} in ln ln(Mη_Y t/K)",
            measured=float(chi.max()), predicted=1.0, deviation=float(max(chi.max() - 1, 0)),
            tolerance=LATE_TOLERANCE, assumptions=assumed, failure="χ grows faster than ln t",
            curve=Curve("t", f"slope of ln χ of class {chi_class} in ln ln t", times, chi, np.ones(len(chi))),
        ),
    ]  # fmt: skip


@np.errstate(all="ignore")  # what is not a number is judged a failure, in Statement.judge
def check_rates(evidence: Evidence) -> Claim:
    """Against runs of its own with both rates multiplied."""
    # algebra needs no assumption
    statement, assumed = (
        (RATES, assumptions(evidence)) if evidence.source == "sgd" else (replace(RATES, kind="formula"), [])
    )
    classes, snap = evidence.classes, evidence.t_snap
    classes_with_distinct = evidence.classes_with_distinct
    if not classes_with_distinct:
        return statement.not_applicable("no class has distinct tokens", assumed)
    sgd = evidence.source != "flow"
    factors = _SMALL_FACTORS if sgd and max(_FACTORS) * evidence.eta_y >= 1 else _FACTORS
    if sgd:
        if snap / max(1.0, *factors) < _FEWEST_STEPS:
            return statement.not_applicable(f"t₀ = {snap:.3g} is too few steps", assumed)
        own = growth_at_snap(classes, eta_y=evidence.eta_y, eta_z=evidence.eta_z, source="sgd")
    else:
        after = evidence.t > 0
        if evidence.t[0] != 0 or not evidence.t[-1] >= snap or after.sum() < FEWEST:
            return statement.not_applicable("the record does not go from 0 to t₀", assumed)
        own = np.full(classes.n_classes, np.nan)
        for n in classes_with_distinct:
            b = evidence.measured_growth[after, n]
            if np.isfinite(b).all():
                own[n] = CubicSpline(np.log(evidence.t[after]), b)(np.log(snap))
    if np.abs(own[classes_with_distinct]).max() <= evidence.resolution:
        return statement.not_applicable("the distinct tokens' logits do not move", assumed)
    runs = {
        c: growth_at_snap(classes, eta_y=c * evidence.eta_y, eta_z=c * evidence.eta_z, source=evidence.source)
        for c in factors
    }
    off = {(c, n): abs(float(b[n] / own[n]) - 1) for c, b in runs.items() for n in classes_with_distinct}
    c, n = max(off, key=lambda key: nan_to_inf(off[key]))
    by = sorted([1.0, *factors])
    return statement.judge(
        quantity=f"B_n(t₀) of class {n} with both rates times {c:g}, against that with the rates as they are"
        + (" (SGD without noise)" if sgd else ""),
        measured=float(runs[c][n]),
        predicted=float(own[n]),
        deviation=off[c, n],
        tolerance=RATES_TOLERANCE,
        assumptions=assumed,
        failure=f"class {n}, rates times {c:g}: B_n(t₀) = {runs[c][n]:.4g} against {own[n]:.4g}",
        curve=Curve(
            "factor on both rates", f"B_n(t₀) of class {n}", np.array(by),
            np.array([float(own[n]) if x == 1 else float(runs[x][n]) for x in by]), np.full(len(by), own[n]),
        ),
    )  # fmt: skip


def growth_at_snap(classes: SequenceClasses, *, eta_y: float, eta_z: float, source: str = "flow") -> Array:
    """(K,) B_n(t₀) of a run of its own: the flow, or ``source="sgd"`` without noise (T = ∞, expected gradients).

    NaN for classes without distinct tokens. In the flow only η_Y t and η_Y/η_Z count, so equal ratios give equal
    results; SGD adds its step size.
    """
    snap = float(t_snap(eta_y=eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    if source == "flow" or snap > _MOST_STEPS:
        from scansnap.dynamics.flow.integrate import flow

        t = np.concatenate([[0.0], np.geomspace(1e-3 * snap, snap, 60)])
        data = flow(classes, eta_y=eta_y, eta_z=eta_z, t=t, rtol=1e-7, variables=("z", "attention"))
    else:
        from scansnap.dynamics.simulate import simulate

        last = math.ceil(snap)
        steps = np.unique(np.rint(np.geomspace(1, last, 60)).astype(int)).tolist()
        run = simulate(
            classes, eta_y=eta_y, eta_z=eta_z, seed=0, steps=last, batch_size=None, context=math.inf,
            record=sorted({0, *steps, max(last - 1, 0)}), variables=("z", "attention"), dtype="float64",
            device="cpu",
        )  # fmt: skip
        data = run.isel(run=0).rename(step="t")
    times = data["t"].values.astype(np.float64)
    evidence = Evidence(
        classes, eta_y, eta_z, source, math.inf, times, data["z"].values, data["attention"].values, None, None
    )
    return np.array([np.interp(snap, times, b) for b in evidence.measured_growth.T])
