"""Which heads snap: trajectories whose answer is known, on both clocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scansnap.measure.snap_curves import EARLIER, FROZEN, MOVED, NOT_YET, SHORT, UNMOVED, in_t
from scansnap.probe.findings.snap import GAPS, HeadSnap, e_folds, measure_snap, snap_findings

STEPS = np.unique(np.rint(np.append(0, np.geomspace(1, 10_000, 80)))).astype(int)


def along(gone: np.ndarray, steps: np.ndarray = STEPS, jitter: float = 0.0, known: bool = True) -> HeadSnap:
    """Movement in one direction, ``gone`` from the start, and noise to and fro; what was a fold ago is known or not."""
    moved = np.append(np.nan, np.abs(np.diff(gone)) + jitter)
    fold = np.full(len(steps), np.nan)
    if known:
        start, end = e_folds(steps)
        fold[end] = gone[end] - gone[start] + jitter
    return measure_snap(steps, moved, np.append(np.nan, gone[1:]), fold)


def hill(t: np.ndarray, at: float) -> np.ndarray:
    """Fast after t = ``at``, then frozen: ∝ t² before, all of it gone after."""
    return 0.5 * -np.expm1(-((t / at) ** 2))


def test_what_freezes_snaps() -> None:
    found = along(hill(STEPS, 100))
    assert found.snaps == 1
    assert found.frozenness_ln > 0.99
    assert found.reason == found.reason_ln == ""
    # (1 − e^{−x²})/x is largest at x = 1.12; its slope in ln x, 2x²e^{−x²}, at x = 1
    assert found.t_snap == pytest.approx(112, rel=0.1)
    gone = hill(STEPS[1:], 100)
    assert found.t_snap == STEPS[1:][np.argmax(gone / STEPS[1:])]  # the definition that our own models have
    assert math.log(found.t_snap) == pytest.approx(float(in_t(np.log(STEPS[1:]), gone, between=False)[0]))
    assert found.t_snap_ln == pytest.approx(100, rel=0.3)


def test_what_goes_on_in_ln_t_does_not() -> None:
    """It slows down in t for ever, may have a t_snap there, and is as fast as ever in ln t."""
    found = along(0.05 * np.log1p(STEPS / 10))
    assert found.snaps == 0
    assert found.frozenness > 0.95
    assert found.frozenness_ln < 0.1
    gone = 0.4 * np.where(STEPS < 10, (STEPS / 10.0) ** 2 / 2, 0.5 + np.log(np.maximum(STEPS, 10) / 10) / 8)
    assert along(gone).t_snap == pytest.approx(10, rel=0.3)


def test_what_speeds_up_has_not_yet() -> None:
    found = along(0.5 * (STEPS / STEPS[-1]) ** 2)
    assert found.snaps == 0
    assert (found.reason, found.reason_ln) == (NOT_YET, NOT_YET)
    assert math.isnan(found.t_snap)
    assert math.isnan(found.t_snap_ln)
    assert found.t_fastest_ln == math.inf


def test_being_fastest_is_not_yet_having_snapped() -> None:
    """Fastest in the middle of the record, and still at two thirds of that in the end: a time, but no snap in ln t."""
    t = np.maximum(STEPS, 1)
    slope = np.where(t < 100, t / 100, np.maximum((100 / t) ** 0.08, 2 / 3))
    gone = 0.1 * np.append(0.0, np.cumsum(slope[1:] * np.diff(np.log(t))))
    found = along(gone)
    assert math.isfinite(found.t_fastest_ln)
    assert 0 < found.t_fastest_ln < STEPS[-1]
    assert (found.reason_ln, found.snaps) == (NOT_YET, 0)
    assert math.isnan(found.t_snap_ln)


def test_what_slows_down_from_the_start_has_no_time() -> None:
    found = along(0.5 * STEPS / (STEPS + 0.1))
    assert (found.reason, found.reason_ln) == (EARLIER, EARLIER)
    assert found.t_fastest_ln == 0
    assert found.snaps == 1


def test_what_does_not_move_does_not_snap() -> None:
    found = along(hill(STEPS, 100) * MOVED)
    assert (found.reason, found.reason_ln, found.snaps) == (UNMOVED, UNMOVED, 0)


def test_noise_that_goes_on_is_movement() -> None:
    """As far from where it was an e-fold ago as ever; little noise beside what was, and it has snapped."""
    assert along(0.02 * hill(STEPS, 0.1), jitter=0.2).snaps == 0
    assert along(hill(STEPS, 100), jitter=0.02).snaps == 1


def test_without_a_fold_ago_noise_is_undecided() -> None:
    """The path goes on while the distance from the start does not: either may be true."""
    assert along(hill(STEPS, 100), known=False).snaps == 1
    assert along(0.05 * np.log1p(STEPS / 10), known=False).snaps == 0
    found = along(hill(STEPS, 100), jitter=0.02, known=False)
    assert found.low < FROZEN <= found.high
    assert math.isnan(found.snaps)


def test_short_records_and_gaps_are_undecided() -> None:
    short = np.arange(100, 600, 25)
    assert along(hill(short, 200), short).reason_ln == SHORT
    assert math.isnan(along(hill(short, 200), short).snaps)
    assert along(np.zeros(1), np.zeros(1, int)).reason == SHORT
    moved = np.full(len(STEPS), 0.01)
    moved[5] = np.nan
    assert measure_snap(STEPS, moved, hill(STEPS, 100), moved).reason == GAPS


def test_time_in_t_counts_from_the_first_measurement() -> None:
    later = STEPS + 5000
    assert along(hill(STEPS, 100), later).t_snap == along(hill(STEPS, 100)).t_snap


def test_windows_span_an_e_fold_and_little_more() -> None:
    start, end = e_folds(np.array([0, 1, 2, 3, 5, 8, 20]))
    assert list(zip(start.tolist(), end.tolist(), strict=True)) == [(1, 3), (1, 4), (2, 5), (4, 6)]
    start, end = e_folds(STEPS)
    late = STEPS[start] > 20  # where steps are dense
    span = np.log(STEPS[end] / STEPS[start])
    assert span.min() >= 1 - 1e-6
    assert span[late].max() < 1.5 + np.diff(np.log(STEPS[1:]))[-1] + 0.05
    assert len(e_folds(np.array([0, 1, 2]))[0]) == 0


def test_sparse_measurements_find_the_same() -> None:
    steps = np.array([0, 1, 10, 50, 100, 200, 1000, 10_000])
    assert along(hill(steps, 100), steps).snaps == 1
    assert along(0.05 * np.log1p(steps / 10), steps).snaps == 0


@given(st.floats(5, 500), st.floats(0.05, 1), st.floats(0.3, 4))
def test_scale_does_not_matter_and_bounds_hold(at: float, scale: float, power: float) -> None:
    gone = scale * -np.expm1(-((STEPS / at) ** power))
    found, double = along(gone), along(gone / 2)
    assert found.low <= found.frozenness_ln + 1e-12
    assert found.frozenness_ln <= found.high + 1e-12
    if gone.max() / 2 >= MOVED:
        np.testing.assert_allclose(found[5:], double[5:], atol=1e-9)
        np.testing.assert_equal((found.t_snap, found.reason), (double.t_snap, double.reason))


def test_every_head_has_its_own(record) -> None:
    gone = np.stack([hill(STEPS, 100), 0.05 * np.log1p(STEPS / 10), 0 * STEPS], -1)
    moved = np.abs(np.diff(gone, axis=0, prepend=0))
    data = record(STEPS, heads=3, moved=moved[:, None], moved_from_start=gone[:, None])
    found = snap_findings(data)
    assert found.snaps.values.tolist() == [[1, 0, 0]]
    assert found.t_snap_reason.values.tolist() == [["", EARLIER, UNMOVED]]
    assert float(found.t_snap[0, 0]) == along(hill(STEPS, 100)).t_snap
