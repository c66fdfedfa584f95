"""Insight (c): the closed form of its crossover, against the memory equation's differences and the exact flow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap import theory

FAMILY: dict[str, Any] = {"n_classes": 2, "vocab_size": 2000, "overlap": 0.24, "n_distinct": 5}


def snap(ratio: float, n_classes: int, vocab_size: float) -> float:
    """t₀ at η_Z = 1."""
    return float(theory.t_snap(eta_y=ratio, n_classes=n_classes, vocab_size=vocab_size))


def classes_of(family: dict[str, Any]) -> ss.SequenceClasses:
    """Classes of this overlap whose distinct tokens, and common tokens, are equally frequent."""
    queries, common, distinct = family.get("n_queries", 1), family.get("n_common", 1), family["n_distinct"]
    k, rho = family["n_classes"], family["overlap"]
    used = common + k * distinct + queries + k
    return ss.SequenceClasses.synthetic(
        queries, k // queries, common=common, distinct=distinct, common_weight=math.sqrt(rho / common),
        distinct_weights=[math.sqrt((1 - rho) / distinct)] * distinct, unused=family["vocab_size"] - used,
    )  # fmt: skip


def flow_slope(classes: ss.SequenceClasses, ratio: float, t: float, step: float = 0.02) -> float:
    """∂ln z/∂ln η_Y of the first distinct token on the flow at η_Z = 1."""
    token = int(classes.distinct(0)[0])
    low, high = (
        float(ss.flow(classes, ratio * math.exp(sign * step), 1.0, [t], rtol=1e-9, variables="z").z[0, 0, token])
        for sign in (-1, 1)
    )
    return math.log(high / low) / (2 * step)


@pytest.mark.parametrize("ratio", [0.05, 3.0, 1000.0])
@pytest.mark.parametrize("spans", [0.05, 3.0, 1e3])
def test_the_slope_is_the_derivative_of_the_memory_equation(ratio: float, spans: float) -> None:
    t, step, rho, n = spans * snap(ratio, 2, 2000), 1e-4, FAMILY["overlap"], FAMILY["n_distinct"]
    z = []
    for sign in (-1, 1):
        eta_y = ratio * math.exp(sign * step)
        u = theory.u(t / 2, eta_y=eta_y, vocab_size=2000)
        equal = np.full(n, math.sqrt((1 - rho) / n))
        z.append(theory.memory_tokens(u, eta_y=eta_y, eta_z=1.0, n_classes=2, vocab_size=2000, f_distinct=equal).z[0])
    slope = theory.decoder_slope(t, eta_y=ratio, eta_z=1.0, **FAMILY)
    assert slope == pytest.approx(math.log(z[1] / z[0]) / (2 * step), abs=2e-6)


def test_the_crossover_is_where_the_slope_turns() -> None:
    t = np.array([1.0, 10.0, 1000.0]) * snap(5, 2, 2000)
    ratio = theory.crossover(t, eta_z=0.3, **FAMILY)
    below, above = (theory.decoder_slope(t, eta_y=0.3 * ratio * side, eta_z=0.3, **FAMILY) for side in (0.98, 1.02))
    assert (below > 0).all()
    assert (above < 0).all()
    scaled = theory.crossover(3 * t, eta_z=0.1, **FAMILY)  # only η_Z t counts
    np.testing.assert_allclose(scaled, ratio, rtol=1e-9)


def test_limits_of_the_slope_and_of_the_crossover() -> None:
    """+1 before t₀, −(1 − ρ) for the drive alone, and ν* → λu/(1 − ρ) for ρu ≫ 1."""
    assert theory.decoder_slope(0.001 * snap(100, 2, 2000), eta_y=100.0, eta_z=1.0, **FAMILY) == pytest.approx(
        1, abs=0.01
    )
    excess, stiffness = [], 0.5 * 0.5 * (2 + 1 / 5)
    for vocab_size in (1e20, 1e80, 1e240):
        large = dict(FAMILY, vocab_size=vocab_size, overlap=0.5)
        t = 1e6 * snap(500, 2, vocab_size)
        u = theory.u(t / 2, eta_y=500.0, vocab_size=vocab_size)
        assert theory.decoder_slope(t, eta_y=1e12, eta_z=1.0, **large) == pytest.approx(-0.5, abs=3 / u)
        ratio = theory.crossover(t, eta_z=1.0, **large)
        excess.append(abs(ratio * 0.5 / (stiffness * theory.u(t / 2, eta_y=ratio, vocab_size=vocab_size)) - 1))
    assert excess == sorted(excess, reverse=True)
    assert excess[-1] < 0.02


def random_families(n: int, seed: int) -> list[tuple[dict[str, Any], float, float]]:
    """Families, ratios and times at random: K of 2 to 6, one or two queries, ρ from 0.05 to 0.5."""
    rng = np.random.default_rng(seed)
    drawn = []
    while len(drawn) < n:
        queries, per = int(rng.integers(1, 3)), int(rng.integers(2, 4))
        family = {"n_classes": queries * per, "n_queries": queries, "n_distinct": int(rng.integers(1, 8)),
                  "n_common": int(rng.integers(1, 4)), "overlap": float(rng.uniform(0.05, 0.5)),
                  "vocab_size": int(10 ** rng.uniform(4, 5.5))}  # fmt: skip
        ratio, spans = float(np.exp(rng.uniform(np.log(0.5), np.log(200)))), float(10 ** rng.uniform(-1, 3))
        t = spans * snap(ratio, family["n_classes"], family["vocab_size"])
        u = float(theory.u(t / family["n_classes"], eta_y=ratio, vocab_size=family["vocab_size"]))
        if math.exp(family["overlap"] * u) < 0.03 * family["vocab_size"]:  # leading order in 1/M
            drawn.append((family, ratio, t))
    return drawn


@pytest.mark.parametrize("n", [4, pytest.param(40, marks=pytest.mark.integration)])
def test_signs_on_random_families_are_those_of_the_flow(n: int) -> None:
    """The paper's B_n (Theorem 4, C₀ = 1) falls with η_Y in all of them after t₀: it fails where memory holds."""
    wrong, paper = [], 0
    for family, ratio, t in random_families(n, seed=20260911):
        measured = flow_slope(classes_of(family), ratio, t)
        predicted = theory.decoder_slope(t, eta_y=ratio, eta_z=1.0, **family)
        assert abs(measured - predicted) < 0.1, (family, ratio, t, measured, predicted)
        if (measured > 0) != (predicted > 0) and abs(measured) > 0.02:
            wrong.append((family, ratio, t))
        sizes = {"eta_z": 1.0, "n_classes": family["n_classes"], "vocab_size": family["vocab_size"]}
        low, high = (theory.growth(t, eta_y=ratio * side, **sizes) for side in (0.99, 1.01))
        paper += (measured > 0) != (high > low)
    assert not wrong
    assert n < 40 or paper >= 5


@pytest.mark.integration
@pytest.mark.parametrize("measure", ["dominant", "entropy"])
def test_unequal_tokens_turn_where_the_flow_does(measure: str) -> None:
    """textbook at 3 t₀ of ν = 5: the dominant token's z and the entropy, by the flow's own differences."""
    classes = ss.SequenceClasses.textbook()
    f = classes.p_context[0] / np.linalg.norm(classes.p_context[0])
    ids = classes.distinct(0)
    t = 3 * snap(5, 2, classes.vocab_size)
    predicted = theory.crossover_tokens(t, eta_z=1.0, n_classes=2, vocab_size=classes.vocab_size, f_distinct=f[ids],
                                        measure=measure)  # fmt: skip
    ratios = predicted * np.exp([-0.1, 0.0, 0.1])
    values = []
    for ratio in ratios:
        flow = ss.flow(classes, float(ratio), 1.0, [t], rtol=1e-11, variables=("z", "entropy"))
        top = float(flow.z[0, 0, ids[np.argmax(f[ids])]])
        values.append(top if measure == "dominant" else -float(flow.entropy[0, 0]))
    turn = np.polyfit(np.log(ratios), values, 2)
    assert turn[0] < 0
    assert -turn[1] / (2 * turn[0]) == pytest.approx(math.log(predicted), abs=0.06)


def test_equal_tokens_are_the_closed_form_and_have_no_least_entropy() -> None:
    t = np.array([1.0, 30.0]) * snap(5, 2, 2000)
    sizes = {"eta_z": 1.0, "n_classes": 2, "vocab_size": 2000}
    equal = np.full(5, math.sqrt(0.76 / 5))
    np.testing.assert_allclose(theory.crossover_tokens(t, **sizes, f_distinct=equal),
                               theory.crossover(t, **sizes, overlap=0.24, n_distinct=5), rtol=1e-9)  # fmt: skip
    assert np.isnan(theory.crossover_tokens(t, **sizes, f_distinct=equal, measure="entropy")).all()


def test_what_is_refused() -> None:
    with refused("t"):
        theory.crossover(0.0, eta_z=1.0, **FAMILY)
    with refused("overlap"):
        theory.crossover(1.0, eta_z=1.0, **dict(FAMILY, overlap=0.0))
    with refused("measure"):
        theory.crossover_tokens(1.0, eta_z=1.0, n_classes=2, vocab_size=9, f_distinct=[0.6], measure="sum")
    assert type(theory.crossover(100.0, eta_z=1.0, **FAMILY)) is float
