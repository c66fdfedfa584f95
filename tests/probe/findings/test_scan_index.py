"""Which heads scan: known answers, and the controls in which none may."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from scansnap.measure.comparison import LEVEL
from scansnap.probe.findings.scan import LEAST, scan_findings, t_interval, why_scanning_is_unknown

STEPS = [0, 1, 10, 100]


def distinctness(change: np.ndarray, noise: float, n: int, seed: int = 0) -> np.ndarray:
    """(step, sequence, 1, head): sequences that differ, each of which changes by about ``change`` (head,)."""
    rng = np.random.default_rng(seed)
    start = rng.normal(0.5, 0.05, (n, len(change)))
    end = start + change + noise * rng.standard_normal((n, len(change)))
    return np.stack([start + (end - start) * done for done in (0, 0.1, 0.5, 1)])[:, :, None]


def test_the_index_and_its_interval(record) -> None:
    d = distinctness(np.array([0.1, 0.0]), 0.03, 16)
    found = scan_findings(record(STEPS, heads=2, distinctness=d, scan_chance=0.001))
    change = d[:, :, 0] - d[0, :, 0]
    np.testing.assert_allclose(found.scan_index[:, 0], change.mean(1))
    low, high = ttest_1samp(change[-1, :, 0], 0).confidence_interval(1 - 0.05 / 2)
    assert [float(found.scan_low[-1, 0, 0]), float(found.scan_high[-1, 0, 0])] == pytest.approx([low, high])
    assert found.scans[0, 0] == 1


@pytest.mark.parametrize(
    ("change", "noise", "chance", "scans"),
    [
        (0.1, 0.03, 0.01, 1),
        (-0.1, 0.03, 0.01, 0),  # from distinct to common
        (0.0, 0.003, 0.001, 0),
        (LEAST / 2, 1e-4, 1e-4, 0),  # sure, and nothing to speak of
        (0.03, 0.1, 0.001, np.nan),  # too much noise for 16 sequences
        (0.1, 0.03, 0.08, np.nan),  # as much would come of any tokens that are left
        (0.1, 0.03, np.nan, np.nan),
    ],
)
def test_known_answers(record, change: float, noise: float, chance: float, scans: float) -> None:
    found = scan_findings(record(STEPS, distinctness=distinctness(np.array([change]), noise, 16), scan_chance=chance))
    np.testing.assert_equal(float(found.scans[0, 0]), scans)


def test_of_heads_that_do_not_scan_few_are_said_to(record) -> None:
    """At 5 % for a model as a whole, however many heads it has; without the adjustment nearly every model has one."""
    wrong, careless = 0, 0
    for seed in range(200):
        d = distinctness(np.full(72, LEAST), 0.05, 16, seed)
        found = scan_findings(record(STEPS, heads=72, distinctness=d, scan_chance=1e-4))
        wrong += bool((found.scans == 1).any())
        careless += bool((t_interval((d - d[0])[-1, :, 0], LEVEL)[1] > LEAST).any())
    assert wrong <= 13  # one-sided 2.5 % of 200 models: 5 expected, 13 or fewer with probability 0.999
    assert careless > 100


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sequences": 1}, "a single sequence"),
        ({"sequences": 0}, "no token ids"),
        ({"corpus": "the batch itself"}, "no corpus"),
        ({"steps": [0]}, "a single measurement"),
    ],
)
def test_where_nothing_can_be_said_that_is_said(record, given: dict, why: str) -> None:
    data = record(given.pop("steps", STEPS), **given)
    assert why_scanning_is_unknown(data) == why
    assert np.isnan(scan_findings(data).scans).all()


def test_copies_of_one_sequence_are_no_sample(record) -> None:
    d = np.repeat(distinctness(np.array([0.1]), 0.0, 1), 16, axis=1)
    found = scan_findings(record(STEPS, distinctness=d, scan_chance=0.001))
    assert float(found.scan_index[-1, 0, 0]) == pytest.approx(0.1)
    assert np.isnan(found.scans).all()
    assert np.isinf(found.scan_high[-1]).all()


def test_what_never_moved_does_not_scan(record) -> None:
    found = scan_findings(record(STEPS, distinctness=0.4))
    assert (found.scans == 0).all()
    assert (found.scan_low[-1] == 0).all()


def test_a_layer_with_fewer_heads_leaves_places_empty(record) -> None:
    d = np.repeat(distinctness(np.array([0.1, 0.1]), 0.03, 16), 2, axis=2)
    d[:, :, 1, 1] = np.nan
    found = scan_findings(record(STEPS, heads=2, layers=2, distinctness=d, scan_chance=0.001))
    np.testing.assert_equal(found.scans.values, [[1, 1], [1, np.nan]])
    assert "3 heads" in found.scan_low.long_name


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20), st.floats(-1, 1), st.sampled_from([0.05, 0.001]))
def test_intervals_move_with_the_values_and_grow_with_the_level(values, shift, level) -> None:
    values = np.array(values)
    mean, low, high = t_interval(values, level)
    assert low <= mean <= high
    np.testing.assert_allclose(t_interval(-values, level), (-mean, -high, -low), atol=1e-12)
    moved = t_interval(values + shift, level)
    if np.ptp(values) > 1e-3:
        np.testing.assert_allclose(moved, (mean + shift, low + shift, high + shift), atol=1e-9)
        _, lower, higher = t_interval(values, level / 10)
        assert lower < low
        assert higher > high
