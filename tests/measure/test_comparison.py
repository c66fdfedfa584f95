"""Paired comparisons: against SciPy, against numbers worked out by hand, and on noise, where nothing may be found."""

import ast
import inspect
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t, ttest_1samp

from refusals import refused
from scansnap.measure import comparison
from scansnap.measure.comparison import LEVEL, MOST_SEEDS, POWER, compare, holm, interval, plus_minus


def test_mean_interval_and_p_are_those_of_the_paired_t_test():
    differences = np.random.default_rng(0).normal(0.5, 1.0, size=7)
    one, reference = compare(differences), ttest_1samp(differences, 0.0)
    interval = reference.confidence_interval(1 - LEVEL)
    np.testing.assert_allclose([one.mean[0], one.p[0]], [differences.mean(), reference.pvalue])
    np.testing.assert_allclose([one.low[0], one.high[0]], [interval.low, interval.high])


def test_holm_by_hand():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.5])), [0.04, 0.09, 0.09, 0.5])
    np.testing.assert_allclose(holm(np.array([0.9, 0.8])), [1.0, 1.0])


def share_of_rises(rule, n, cases, trials=2000):
    """Of ``trials`` families of pure noise, the share in which the rule sees a rise somewhere."""
    noise = np.random.default_rng(n).normal(size=(trials, cases, n))
    return np.mean([np.any(rule(family)) for family in noise])


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("cases", [1, 16])
def test_noise_is_called_a_rise_no_more_often_than_the_level_allows(n, cases):
    allowed = LEVEL / 2  # a rise is one of two sides
    chance = 3 * np.sqrt(allowed * (1 - allowed) / 2000)
    assert share_of_rises(lambda d: compare(d).agree("rises"), n, cases) <= allowed + chance

    def two_standard_errors(d):
        return d.mean(axis=1) > 2 * d.std(axis=1, ddof=1) / np.sqrt(d.shape[1])

    assert share_of_rises(two_standard_errors, n, cases) > allowed + chance  # this test can fail


@pytest.mark.integration
@pytest.mark.parametrize("n", [2, 3, 10])
def test_a_change_beyond_the_margin_is_called_level_no_more_often_than_the_level_allows(n):
    rng, trials = np.random.default_rng(n), 2000
    found = [compare(rng.normal(1.0, 0.7, size=(4, n)), margin=1.0).count("level").agree > 0 for _ in range(trials)]
    assert np.mean(found) <= LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / trials)


def test_equivalence_needs_more_data_not_less():
    rng = np.random.default_rng(1)
    noise = rng.normal(0.0, 1.0, size=(200, 40))
    shares = []
    for n in (2, 5, 10, 40):
        families = [compare(case[:n], margin=0.7) for case in noise]
        shares.append(np.mean([one.agree("level")[0] for one in families]))
    assert shares == sorted(shares)
    assert shares[0] < 0.1
    assert shares[-1] > 0.95


def test_the_three_verdicts_by_hand():
    # two seeds d ± 0.01: standard error 0.01, t of one degree of freedom is 12.7 at 95% two-sided, 6.3 at 90%
    near = np.array([-0.01, 0.01])
    family = [near + 1.0, near - 1.0, near, near + 0.5]
    assert [compare(d, margin=0.5).verdict[0] for d in family] == ["rises", "falls", "level", "undecided"]
    assert [compare(d).verdict[0] for d in family] == ["rises", "falls", "undecided", "rises"]
    crossing = near - 0.5  # a fall or level, but certainly no rise
    one = compare(crossing, margin=0.5)
    assert one.verdict == ["undecided"]
    assert one.agree("does not rise").tolist() == [True]
    assert one.agree("does not fall").tolist() == [False]
    assert one.count("does not rise").undecided == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_run_that_failed_neither_agrees_nor_is_undecided(bad):
    differences = np.array([[1.0, 1.1, 0.9], [1.0, bad, 0.9]])
    for exact in (False, True):
        found = compare(differences, margin=0.01, exact=exact)
        assert found.verdict == ["rises", "failed"]
        for statement in ("rises", "falls", "level", "does not rise", "does not fall"):
            assert not found.agree(statement)[1]
            assert not found.undecided(statement)[1]
    assert compare(differences).count("rises") == compare(-differences).count("falls")
    assert (compare(differences).count("rises").agree, compare(differences).count("rises").undecided) == (1, 0)


@given(st.floats(-1e6, 1e6), st.floats(0, 10))
def test_one_seed_decides_nothing(value, margin):
    found = compare([[value], [2 * value]], margin=margin)
    assert found.verdict == ["undecided", "undecided"]
    for statement in ("rises", "falls", "level", "does not rise", "does not fall"):
        assert found.count(statement).agree == 0
        assert found.count(statement).undecided == 2
        assert "one seed" in found.to_decide(statement)


def test_equal_differences_are_decided_when_exact_and_by_signs_when_not():
    assert compare([[2.0], [-2.0], [0.0]], exact=True).verdict == ["rises", "falls", "level"]
    assert compare([[0.3]], margin=0.5, exact=True).verdict == ["level"]
    # the signs of a fair coin: two alike half of the time, so that they must not decide
    assert compare([1.0, 1.0]).verdict == ["undecided"]
    assert compare([1.0] * 5).verdict == ["undecided"]  # 2^−4
    assert compare([1.0] * 6).verdict == ["rises"]  # 2^−5
    assert compare([0.0] * 4).verdict == ["undecided"]
    assert compare([0.0] * 5).verdict == ["level"]
    assert compare([0.1 + 0.2, 0.3] * 2).verdict == ["undecided"]  # equal but for rounding: no t of 10^16
    assert compare([1.0, 1.0]).seeds_needed[0] == 6
    with np.errstate(all="raise"):
        assert compare(np.zeros((3, 4))).p.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("effect", "margin"), [(0.5, 0.0), (0.2, 1.0), (1.6, 1.0)], ids=["rises", "level", "beyond"])
def test_the_number_of_seeds_that_would_decide_decides_with_the_stated_power(effect, margin):
    pilot = effect + np.array([-1.0, 1.0]) / np.sqrt(2)  # mean ``effect`` and standard deviation 1
    seeds = int(compare(pilot, margin=margin).seeds_needed[0])
    rng = np.random.default_rng(2)
    decided = {}
    for n in (seeds, seeds // 2):
        runs = rng.normal(effect, 1.0, size=(1000, n))
        wanted = "level" if effect < margin else "rises"
        decided[n] = np.mean([compare(one, margin=margin).verdict[0] == wanted for one in runs])
    assert decided[seeds] == pytest.approx(POWER, abs=0.06)
    assert decided[seeds // 2] < POWER - 0.1


def test_words_for_what_would_decide():
    wide = np.array([-1.0, 1.0, -1.0, 1.0])
    assert compare(wide + 1.0).to_decide("rises").startswith("About ")
    assert f"no number of seeds up to {MOST_SEEDS}" in compare(wide).to_decide("rises").lower()
    assert "0 within" in compare(wide).to_decide("rises")
    assert compare(wide / 1000 + 1).to_decide("rises") == ""
    many = compare(np.stack([wide + 1.0, wide + 1.5, wide]))
    assert many.to_decide("rises").count("seeds") == 2


def test_a_family_is_stricter_than_its_case():
    case = np.array([0.7, 1.0, 1.5, 0.6])
    assert compare(case).verdict == ["rises"]
    noise = np.random.default_rng(3).normal(size=(15, 4))
    family = compare(np.vstack([case, noise]))
    assert family.verdict[0] == "undecided"
    assert family.low[0] == compare(case).low[0]  # intervals are for reading and not corrected


def test_bad_input_is_said():
    with refused("margin", -1.0):
        compare([1.0, 2.0], margin=-1.0)
    with refused("differences", "of shape (2, 2, 2)"):
        compare(np.zeros((2, 2, 2)))


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [(0.08512, 0.0149, "+0.085 ± 0.015"), (-0.5, 0.2, "−0.50 ± 0.20"), (1.0, 1e-17, "+1.000 ± 0.000"),
     (1.0, np.inf, "+1.000 (no interval)"), (np.nan, 1.0, "no number (a run failed)")],
)  # fmt: skip
def test_digits_follow_the_interval(mean, half, text):
    assert plus_minus(mean, half) == text


def test_an_interval_says_when_there_is_none():
    assert interval([0.5, 0.5, 0.5]) == "+0.500 in every seed"
    assert interval([0.5], signed=False) == "0.500 (no interval)"
    assert interval([1.0, 2.0]) == "+1.50 ± 6.35"  # t of one degree of freedom, 12.706, times a half


def test_the_widths_in_the_docstring():
    for n, times in ((2, 6.4), (3, 2.2)):
        assert t.isf(LEVEL / 2, n - 1) / 2 == pytest.approx(times, abs=0.06)


def test_it_knows_only_numpy_and_scipy():
    tree = ast.parse(inspect.getsource(comparison))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    others = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert others == {"numpy", "scipy", "scansnap"}
    assert {name for name in names if name.startswith("scansnap")} == {"scansnap.checks", "scansnap.checks.arrays"}
