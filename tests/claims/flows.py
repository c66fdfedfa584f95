"""What several claims are tested on. Every assumption is met on the first four of CLASSES."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.integrate import solve_ivp

import scansnap as ss
from scansnap import SequenceClasses, theory
from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence, from_flow, from_trajectory
from scansnap.claims.theorems import theorem1, theorem2, theorem3, theorem4

NAMES = {
    "theorem-1": ["theorem-1-span", "theorem-1-beta", "theorem-1-xi", "theorem-1-xi-size", "theorem-1-gamma"],
    "theorem-2": ["theorem-2a", "theorem-2a-rate", "theorem-2b", "corollary-2"],
    "theorem-3": ["theorem-3-identity", "theorem-3-lower", "theorem-3-upper", "theorem-3-monotone"],
    "theorem-4": ["theorem-4-premise", "theorem-4-growth", "theorem-4-time", "theorem-4-rates"],
}

CLASSES = {
    "textbook": SequenceClasses.textbook(),
    "two queries": SequenceClasses.synthetic(2, 1, common=1, distinct=5, common_weight=0.8, unused=2000),
    "three classes": SequenceClasses.synthetic(1, 3, common=1, distinct=3, common_weight=0.5, unused=6000),
    "three common": SequenceClasses.synthetic(1, 2, common=3, distinct=5, common_weight=0.4, unused=2000),
    "syn-small": SequenceClasses.syn_small(),
    "syn-medium": SequenceClasses.syn_medium(3),
    "zipf": SequenceClasses.zipf(),
}


def evolve(classes: SequenceClasses, eta_z: float = 0.02, spans: float = 10) -> Evidence:
    """At η_Y = 0.9, for so many t₀; without the table Y."""
    return from_flow(
        classes, eta_y=0.9, eta_z=eta_z, t_end=spans * snap(classes, 0.9), n_times=40, rtol=1e-8, with_y=False
    )


@cache
def flow(name: str, eta_z: float = 0.02) -> Evidence:
    """The flow of one of CLASSES, made once."""
    return evolve(CLASSES[name], eta_z)


def snap(classes: SequenceClasses, eta_y: float) -> float:
    return float(theory.t_snap(eta_y=eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))


@cache
def flow_of(preset: str, eta_y: float, eta_z: float, n_times: int = 60) -> Evidence:
    made = {"strong": lambda: SequenceClasses.synthetic(common=1, distinct=5, common_weight=2.0)}
    classes = made[preset]() if preset in made else SequenceClasses.preset(preset)
    t_end = 12 * snap(classes, eta_y)
    return from_flow(classes, eta_y=eta_y, eta_z=eta_z, t_end=t_end, n_times=n_times, rtol=1e-7)


CHECKS = {
    "theorem-1": theorem1.check,
    "theorem-2": theorem2.check,
    "theorem-3": theorem3.check,
    "theorem-4": lambda evidence: [*theorem4.check(evidence), theorem4.check_rates(evidence)],
}


def judge(theorem: str, evidence: Evidence) -> dict[str, Claim]:
    """All of the theorem's claims on the evidence by name, in their order."""
    claims = {claim.name: claim for claim in CHECKS[theorem](evidence)}
    assert list(claims) == NAMES[theorem]
    return claims


def assert_has_curve_and_numbers(claim: Claim) -> None:
    assert claim.curve is not None
    assert claim.curve.x.shape == claim.curve.measured.shape == claim.curve.predicted.shape
    assert np.isfinite([claim.curve.measured, claim.curve.predicted]).all()
    assert np.isfinite([claim.measured, claim.predicted]).all()
    assert claim.quantity


def deviation(claim: Claim) -> float:
    assert claim.margin is not None
    assert claim.tolerance is not None
    return (1 - claim.margin) * claim.tolerance


# --- classes ------------------------------------------------------------------------------------------------------


def chain(weak: float, strong: float) -> SequenceClasses:
    """Three classes; neighbours overlap strongly, the first and the last weakly."""
    p = np.zeros((3, 3000))
    p[0, [0, 2]], p[1, [0, 1]], p[2, [1, 2]] = [strong, weak], strong, [strong, weak]
    for n in range(3):
        p[n, 3 + 3 * n : 6 + 3 * n] = [0.3, 0.2, 0.1]
    return SequenceClasses(p / p.sum(1, keepdims=True), query=[20] * 3, next_token=[21, 22, 23])


def counterexample() -> SequenceClasses:
    """Every assumption is met, and the distinct tokens of the second class fall."""
    p = np.zeros((2, 3000))
    p[0, :4], p[1, [0, 4, 5]] = [0.126, 0.112, 0.386, 0.376], [0.5, 0.357, 0.143]
    return SequenceClasses(p, query=[10, 10], next_token=[11, 12])


def tokens(*rows: list[int]) -> SequenceClasses:
    p = [[1 / len(row)] * len(row) for row in rows]
    k = len(rows)
    return SequenceClasses.from_support(rows, p, vocab_size=20, query=[10] * k, next_token=11 + np.arange(k))


# --- tables made by hand ------------------------------------------------------------------------------------------


def composed(evidence: Evidence, gamma_iota: np.ndarray, gamma_beta: np.ndarray) -> Evidence:
    """The evidence with g_n = γι_n f_n − Σ γβ_nn' f_n' on the context of n; γι (n, K), γβ (n, K, K)."""
    g = gamma_iota[..., None] * evidence.f - gamma_beta @ evidence.f
    return replace(evidence, g=np.where(evidence.classes.p_context > 0, g, 0.0))


def with_logits(evidence: Evidence, z: np.ndarray) -> Evidence:
    weight = evidence.classes.p_context * np.exp(z[:, evidence.class_query])
    return replace(evidence, z=z, attention=weight / weight.sum(-1, keepdims=True))


def by_one_clock(tokens: int = 4) -> Evidence:
    """Logits that rise exactly as Theorem 3 says: 1 − 1/χ_l = w(t) f_l(0)² with one clock w for all of a class."""
    classes = SequenceClasses.synthetic(common=1, distinct=tokens, common_weight=0.8, unused=2000)
    t = np.concatenate([[0.0], np.geomspace(0.01, 10 * snap(classes, 0.9), 120)])
    start = classes.p_context / np.linalg.norm(classes.p_context, axis=1, keepdims=True)
    clock = 2.0 * t**2 / (t**2 + 20**2) / (start.max() ** 2 * 2.1)
    z = np.zeros((len(t), 1, classes.vocab_size))
    for n in range(2):
        own = classes.distinct(n)
        z[:, 0, own] = -0.5 * np.log1p(-clock[:, None] * start[n, own] ** 2)
    z[:, 0, classes.common] = -clock[:, None]
    weight = classes.p_context * np.exp(z)
    attention = weight / weight.sum(-1, keepdims=True)
    return Evidence(classes, 0.9, 0.02, "flow", math.inf, t, z, attention, None, None)


@cache
def as_premised(exponent: float = 4.0, c0: float = 10.0, eta_z: float = 0.09) -> Evidence:
    """Tables that obey Eq. 13 with the given exponent: ξ = γ e^{qz}/C₀, ż = −η_Z ξ, and ż_l = η_Z p_n f_l² ξ."""
    classes = SequenceClasses.synthetic(common=1, distinct=3, common_weight=0.3, unused=10_000)
    eta_y, k, m = 0.9, classes.n_classes, classes.vocab_size
    t = np.concatenate([[0.0], np.geomspace(1e-2, 12 * snap(classes, eta_y), 120)])
    setting = {"eta_y": eta_y, "n_classes": k, "vocab_size": m}
    total = theory.growth(t, eta_z=eta_z, c0=c0, exponent=exponent, **setting)  # −z of the common token
    p = classes.p_context[0, classes.support(0)[0]]  # the common token first

    def rise(b: float, z: np.ndarray) -> np.ndarray:
        weight = (p * np.exp(np.concatenate([[-k * b], z]))) ** 2
        return weight[1:] / weight.sum()

    path = solve_ivp(rise, (0, total[-1] / k), np.zeros(3), t_eval=total / k, rtol=1e-11, atol=1e-13).y.T
    z = np.zeros((len(t), 1, m))
    z[:, 0, classes.common] = -total[:, None]
    for n in range(k):
        z[:, 0, classes.distinct(n)] = path
    weight = classes.p_context * np.exp(z)
    attention = weight / weight.sum(-1, keepdims=True)
    f = attention / np.linalg.norm(attention, axis=-1, keepdims=True)
    gamma = theory.gamma(t, **setting)
    xi = gamma * np.exp(-exponent * total) / c0
    g = gamma[:, None, None] * f
    common = classes.common[0]
    g[:, :, common] -= xi[:, None] / f[:, :, common]  # so that f·g = γ − ξ
    return Evidence(classes, eta_y, eta_z, "flow", math.inf, t, z, attention, g, None)


# --- runs of SGD --------------------------------------------------------------------------------------------------


def trained(classes: SequenceClasses, **settings) -> Evidence:
    """SGD in double precision with all that claims need."""
    defaults = {"eta_y": 0.9, "eta_z": 0.02, "seed": 0, "dtype": "float64", "device": "cpu"}
    return from_trajectory(ss.simulate(classes, variables=["z", "attention", "y"], **defaults | settings), classes)


def strong_sgd(eta_y: float = 0.9, eta_z: float = 0.2, t_end: float = 10, **settings) -> Evidence:
    """Strong overlap, a small vocabulary."""
    classes = SequenceClasses.synthetic(common=1, distinct=5, common_weight=2.0)
    return trained(
        classes, eta_y=eta_y, eta_z=eta_z, steps=math.ceil(t_end * snap(classes, eta_y)), record="log:40", **settings
    )
