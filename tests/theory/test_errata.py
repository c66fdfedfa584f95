"""docs/errata.md: on the same numbers the corrected formula is right and the printed one is not."""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "errata_numbers.py"))
ROUNDING = 1e-11  # a few hundred steps of sums over 200 tokens


@cache
def numbers(part: str) -> dict[str, float]:
    return {name: float(number) for name, number in SCRIPT["PARTS"][part]().items()}


@pytest.mark.parametrize(
    ("part", "least"), [("e-prime", 0.4), ("equation-71", 0.02), ("lemma-12", 10), ("equation-88", 0.1)]
)
def test_exact_on_the_dynamics_of_the_proof(part: str, least: float) -> None:
    assert numbers(part)["corrected"] < ROUNDING
    assert numbers(part)["printed"] > least


def test_equation_88_turns_the_force() -> None:
    assert numbers("equation-88")["ξ/γ"] > 0 > numbers("equation-88")["ξ/γ, printed"]


@pytest.mark.parametrize("spans", ["t₀", "10 t₀"])
def test_remark_1(spans: str) -> None:
    """K = M: the smaller rate, exactly. K < M: to nobody's token the full rate. The printed factor in neither."""
    for size, rate, tolerance in (("K = M", "rate (1−ρ)η_Y", 1e-9), ("K = 2", "rate η_Y", 1e-3)):
        value = {
            name.rpartition(", ")[2]: x
            for name, x in numbers("remark-1").items()
            if name.startswith(f"{size}, {spans}")
        }
        assert value[rate] == pytest.approx(value["flow"], rel=tolerance)
        other = {"rate (1−ρ)η_Y", "rate η_Y"} - {rate}
        assert abs(value[other.pop()] / value["flow"] - 1) > 0.02
        assert value["printed"] < 0.9 * value["flow"]


def test_remark_2_has_no_constant() -> None:
    lead, half = (
        [x for name, x in numbers("remark-2").items() if name.endswith(kind)] for kind in ("lead", "logarithm")
    )
    np.testing.assert_allclose(lead, half, atol=0.03)
    np.testing.assert_allclose(np.diff(lead), np.log(10) / 2, atol=0.01)  # per decade of s: no bound
    assert lead[-1] > numbers("remark-2")["ln M"] > lead[0]


def test_the_late_times_of_remark_2() -> None:
    assert numbers("remark-2-start")["printed, ratio"] < 0.01
    assert numbers("remark-2-start")["corrected, ratio"] == pytest.approx(1, abs=0.01)


def test_theorem_1b() -> None:
    """A constant that grows with M is none; with M in the logarithm one constant is enough."""
    printed, lemma_9 = (
        [x for name, x in numbers("theorem-1b").items() if name.endswith(kind)] for kind in ("printed", "Lemma 9")
    )
    assert printed[-1] > 2.5 * printed[0]
    assert max(lemma_9) < 2 > 1.5 * lemma_9[-1] / lemma_9[0]


def test_corollary_1() -> None:
    for epsilon in (0.1, 0.01, 0.001):
        visits, total, product = (
            numbers("corollary-1")[f"ε = {epsilon}, {name}"] for name in ("visits", "sum", "printed")
        )
        assert visits < total < 1.1 * visits
        assert product > 5 * visits


def test_assumption_2_needs_no_lower_bound() -> None:
    counts = numbers("assumption-2")
    assert counts["ξ ≤ 0"] == 0
    assert counts["classes"] > 5000
    assert counts["below 6/√M"] > 0.9 * counts["matrices"]
    assert min(counts["printed ξ ≤ 0"], counts["some β < 0"]) > 500  # the control, and what remains untrue


def test_many_steps() -> None:
    """Far below K² all classes are drawn alike; Hoeffding's inequality cannot see it."""
    value = numbers("many-steps")
    assert value["t/K²"] < 0.1
    assert value["largest"] < value["Chernoff"] < 1 < value["Hoeffding"]


def test_equation_93() -> None:
    assert numbers("equation-93")["corrected"] < numbers("equation-93")["value"] < numbers("equation-93")["printed"]


def test_lemma_17() -> None:
    assert numbers("lemma-17")["left"] > 0 > numbers("lemma-17")["right"]


def test_equation_10() -> None:
    assert numbers("equation-10")["printed over measured"] == pytest.approx(2, rel=1e-9)


def test_equation_124() -> None:
    value = numbers("equation-124")
    assert value["0, corrected"] == 0
    for at in ("0", "t₀"):
        assert value[f"{at}, printed"] - value[f"{at}, corrected"] == pytest.approx(np.log(0.1) / 4, rel=1e-9)


def test_insight_c() -> None:
    """The flow has the sign of the closed form, and below the crossover not that of Theorem 4."""
    for ratio in (1000, 50, 5, 1):
        flow, ours, paper = (
            numbers("insight-c")[f"ν = {ratio}, {name}"] for name in ("flow", "closed form", "Theorem 4")
        )
        assert flow == pytest.approx(ours, abs=0.01)
        assert (flow < 0) == (ratio > numbers("insight-c")["crossover"])
        assert paper < 0


def test_section_7() -> None:
    for shares in ("0.1, 0.2", "0.05, 0.3", "0.02, 0.1", "0.3, 0.1", "0, 0.2"):
        flow, formula = (numbers("section-7")[f"{shares}, {name}"] for name in ("flow", "formula"))
        assert flow == pytest.approx(formula, rel=0.02)
    assert numbers("section-7")["0.3, 0.1, flow"] == 0
    assert numbers("section-7")["0, 0.2, flow"] == np.inf
