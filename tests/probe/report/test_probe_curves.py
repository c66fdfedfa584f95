"""The axis of ln t, and curves on it."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.probe.report.curves import FINE, LogStepAxis, bounds, path, speed


def test_steps_stand_by_their_logarithm_and_zero_apart() -> None:
    axis = LogStepAxis(np.array([0, 1, 10, 100, 1000]))
    places = [axis.place(step) for step in axis.steps]
    assert places[0] == 0
    assert places[-1] == FINE
    assert places[1] > 0
    np.testing.assert_allclose(np.diff(places[1:]), (FINE - places[1]) / 3, atol=1)
    assert axis.place(31.6) == pytest.approx((places[2] + places[3]) / 2, abs=1)


@pytest.mark.parametrize("steps", [[0], [7], [0, 5], [5, 9], [0, 1, 2, 3], [1000, 200_000], [1]])
def test_every_axis_has_labels_inside_of_it(steps: list[int]) -> None:
    axis = LogStepAxis(np.array(steps))
    ticks = axis.ticks()
    assert ticks
    places = [place for place, _ in ticks]
    assert all(0 <= place <= FINE for place in places)
    assert len(set(places)) == len(places)
    assert [axis.place(step) for step in steps] == sorted({axis.place(step) for step in steps})


def test_movement_that_goes_as_ln_t_has_one_speed() -> None:
    steps = np.unique(np.geomspace(1, 1000, 60).round()).astype(int)
    moved = 0.3 * np.diff(np.log(steps), prepend=np.nan)
    found = speed(moved[:, None, None], steps)[:, 0, 0]
    np.testing.assert_allclose(found, 0.3, rtol=1e-12)
    with_zero = speed(np.r_[np.nan, 0.5, moved[1:]][:, None, None], np.r_[0, steps])[:, 0, 0]
    assert np.isnan(with_zero[0]), "from step 0 there is no way to go in ln t"
    np.testing.assert_allclose(with_zero[1:], 0.3, rtol=1e-12)


def test_speed_is_greatest_where_attention_moves_at_once() -> None:
    steps = np.unique(np.geomspace(1, 10_000, 120).round()).astype(int)
    moved = np.full(len(steps), 1e-4)
    jump = len(steps) // 2
    moved[jump] = 0.5
    found = speed(moved[:, None, None], steps)[:, 0, 0]
    near = np.abs(np.log(steps / steps[jump])) < 0.6
    assert found[~near].max() < 0.1 * found[near].max()


def test_a_curve_has_gaps_where_values_are_missing() -> None:
    assert path([0, 5, 10, 15], [0, 1000, None, 500]) == "M0 1000L5 0M15 500h0"
    assert path([], []) == ""


@pytest.mark.parametrize("pair", [(0.0, 0.0), (0.3, 0.3), (-2.0, 5.1), (1e-6, 1e-5), (0.44, 0.66), (3.0, 3e5)])
def test_bounds_hold_the_values_and_are_no_point(pair: tuple[float, float]) -> None:
    low, high = bounds(*pair)
    assert low - 1e-12 <= pair[0] <= pair[1] <= high + 1e-12
    assert low < high
