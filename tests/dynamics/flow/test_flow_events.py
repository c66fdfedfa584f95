"""Events: where they are located, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from gap_reference import ragged

from refusals import refused
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.events import Crossing, EntropyBelow, Event, FateFlip
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.flow.state import FlowState


def test_entropy_event_is_where_the_entropy_is() -> None:
    classes, level = SequenceClasses.syn_small(), 2.1
    events = [EntropyBelow(level, 1), EntropyBelow(0.1, 0), EntropyBelow(5.0, 0)]
    data = flow(classes, 1.0, 1.0, [1e4], events=events)
    when = float(data.event_t[0, 0])
    assert 1 < when < 1e4
    assert float(flow(classes, 1.0, 1.0, [when]).entropy[0, 1]) == pytest.approx(level, abs=1e-8)
    assert np.isnan(data.event_t[1]).all()
    assert float(data.event_t[2, 0]) == 0
    assert data.event.values[0] == "entropy of class 1 below 2.1"


def flips(data: xr.Dataset, row: int, token: int) -> int:
    rate = data.z_rate.values[:, row, token]
    if np.abs(rate).max() < 1e-10:  # the token of a class without common ones: no rate, no sign
        return 0
    return int((rate[1:] * rate[:-1] < 0).sum())


def test_fate_flips_are_where_the_rate_changes_sign() -> None:
    classes = ragged(1)
    t = np.geomspace(0.1, 3e3, 400)
    seen = flow(classes, 1.0, 2.0, t, variables=("z_rate",))
    pairs = [(row, token) for row in range(2) for token in range(30) if flips(seen, row, token)]
    assert pairs, "these classes are known to have flips"
    events = [FateFlip(int(classes.queries[row]), token) for row, token in pairs]
    data = flow(classes, 1.0, 2.0, [3e3], events=events).event_t
    for (row, token), times in zip(pairs, data.values, strict=True):
        times = times[~np.isnan(times)]
        assert len(times) == flips(seen, row, token)
        for when in times:
            rate = flow(classes, 1.0, 2.0, when * np.array([0.999, 1, 1.001]), variables=("z_rate",)).z_rate
            before, at, after = rate.values[:, row, token]
            assert before * after < 0
            assert abs(at) < 1e-4 * abs(after)  # 1e-7 of the time


def test_a_steady_fate_does_not_flip() -> None:
    classes = SequenceClasses.synthetic(1, 4, common=1)
    query = int(classes.queries[0])
    events = [FateFlip(query, 0), FateFlip(query, int(classes.distinct(2)[3]))]
    assert np.isnan(flow(classes, t=[1e4], events=events).event_t).all()


def test_rounding_does_not_flip_a_fate() -> None:
    """Without common tokens Y stays along f, and the projection I − f fᵀ leaves exactly nothing of it."""
    classes = SequenceClasses.synthetic(2, 2, common=0)
    events = [FateFlip(int(classes.query[n]), int(classes.distinct(n)[4])) for n in range(4)]
    assert np.isnan(flow(classes, t=[1e5], events=events).event_t).all()


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (EntropyBelow(1.0, 7), "the class of an event"),
        (EntropyBelow(math.nan, 0), "the level of an event"),
        (FateFlip(30, 33), "an event"),
        ("snap", "an event"),
    ],
)
def test_bad_events_are_named(event: Event, field: str) -> None:
    with refused(field):
        flow(SequenceClasses.syn_small(), t=[1.0], events=[event])


def test_entropy_event_needs_distinct_tokens() -> None:
    with refused("the class of an event"):
        flow(ragged(0), t=[1.0], events=[EntropyBelow(1.0, 0)])


# --- functions of the state --------------------------------------------------------------------------------------


def test_a_function_is_located_as_exactly_as_the_flow_is() -> None:
    """The gap of Lemma 3 in closed form: orthonormal f and frozen attention, so e^u + (M − 1)u = Mη_Y t/K + 1."""
    k, m, level = 3, 9, 2.5
    p = np.zeros((k, m))
    p[np.arange(k), np.arange(k)] = 1
    classes = SequenceClasses(p, [8] * k, [3, 4, 5])
    exact = k / m * (math.expm1(level) + (m - 1) * level)
    data = flow(classes, 1.0, 0.0, [100.0], rtol=1e-11, events=[lambda state: state["gap"][1] - level])
    assert float(data.event_t[0, 0]) == pytest.approx(exact, rel=1e-10)


def test_named_events_are_functions_of_the_state() -> None:
    classes, level = ragged(1), 1.15
    seen = flow(classes, 1.0, 2.0, np.geomspace(0.1, 3e3, 100), variables=("z_rate",))
    row, token = next((row, token) for row in range(2) for token in range(30) if flips(seen, row, token))
    named = [EntropyBelow(level, 3), FateFlip(int(classes.queries[row]), token)]
    own = [Crossing(lambda state: state["entropy"][3] - level, direction=-1), lambda state: state["z_rate"][row, token]]
    data = flow(classes, 1.0, 2.0, [3e3], events=[*named, *own]).event_t.values
    assert np.isfinite(data[0, 0])
    assert np.isfinite(data[1, 0])
    np.testing.assert_allclose(data[2:], data[:2], rtol=1e-9)


@pytest.mark.parametrize("residual", ["none", "plain"])
def test_named_events_of_other_models(residual: str) -> None:
    """The dense field: an entropy where it is, a fate where the rate changes its sign."""
    classes, options = ragged(1), {"norm": "none", "residual": residual}
    t = np.geomspace(0.1, 300, 200)
    seen = flow(classes, 1.0, 2.0, t, variables=("z_rate", "entropy"), **options)
    pairs = [(row, token) for row in range(2) for token in range(30) if flips(seen, row, token)]
    assert pairs
    level = float(seen.entropy[150, 2])
    events = [EntropyBelow(level, 2), *(FateFlip(int(classes.queries[row]), token) for row, token in pairs)]
    data = flow(classes, 1.0, 2.0, [300.0], events=events, **options).event_t.values
    assert data[0, 0] == pytest.approx(t[150], rel=1e-5)
    for (row, token), times in zip(pairs, data[1:], strict=True):
        signs = np.sign(seen.z_rate.values[:, row, token])
        at = np.flatnonzero(signs[1:] * signs[:-1] < 0)
        times = times[~np.isnan(times)]
        assert len(times) == len(at)
        assert ((t[at] <= times) & (times <= t[at + 1])).all()


def test_rounding_does_not_flip_a_fate_in_the_plain_field() -> None:
    classes = SequenceClasses.synthetic(2, 2, common=0)
    events = [FateFlip(int(classes.query[n]), int(classes.distinct(n)[4])) for n in range(4)]
    assert np.isnan(flow(classes, t=[1e5], events=events, field="dense").event_t).all()


def test_direction() -> None:
    """g of a token rises and falls again; each direction finds its own crossing."""

    def speed(state: FlowState) -> float:
        return float(state["z_rate"].max()) - 1e-4

    directions = {1: [], -1: [], 0: []}
    events = [Crossing(speed, direction, name=str(direction)) for direction in directions]
    data = flow(SequenceClasses.syn_small(), 1.0, 0.02, np.geomspace(0.01, 1e5, 400), events=events,
                variables=("z_rate",))  # fmt: skip
    rising, falling, both = (row[~np.isnan(row)] for row in data.event_t.values)
    assert len(rising) == len(falling) == 1
    np.testing.assert_array_equal(both, np.sort([*rising, *falling]))
    rate = data.z_rate.max(("query", "token"))
    inside = (data.t > rising[0]) & (data.t < falling[0])
    np.testing.assert_array_equal(rate > 1e-4, inside)
    assert data.event.values.tolist() == ["1", "-1", "0"]


def test_attributes_of_a_function_count_as_with_scipy() -> None:
    def half(state: FlowState) -> float:
        return float(state["loss"]) - 0.5 * math.log(34)

    half.terminal, half.direction = True, 1.0
    assert flow(SequenceClasses.syn_small(), t=[100.0], events=[half]).attrs["stopped"] == "complete"
    half.direction = -1.0
    data = flow(SequenceClasses.syn_small(), t=[100.0], events=[half])
    assert data.attrs["stopped"] == "event: half"
    assert float(data.loss[-1]) == pytest.approx(0.5 * math.log(34), rel=1e-8)


@pytest.mark.parametrize("field", ["auto", "dense"])
def test_a_terminal_event_ends_the_flow_and_is_its_last_reading(field: str) -> None:
    classes, t = SequenceClasses.syn_small(), np.geomspace(1, 1e4, 30)
    end = EntropyBelow(2.1, 1, terminal=True)
    later = EntropyBelow(2.07, 1)
    whole = flow(classes, 1.0, 1.0, t, events=[EntropyBelow(2.1, 1), later], field=field)
    data = flow(classes, 1.0, 1.0, t, events=[end, later], field=field)
    when = float(whole.event_t[0, 0])
    n = int((t <= when).sum())
    assert 5 < n < 25
    assert np.isfinite(whole.event_t[1, 0])
    assert data.attrs["stopped"] == "event: entropy of class 1 below 2.1"
    np.testing.assert_array_equal(data.t, [*t[:n], when])
    np.testing.assert_array_equal(data.attention[:n], whole.attention[:n])
    assert float(data.entropy[-1, 1]) == pytest.approx(2.1, abs=1e-9)
    assert np.isnan(data.event_t[1]).all()
    assert data.attrs["n_steps"] < whole.attrs["n_steps"]


def test_the_first_of_several_terminal_events_ends_it() -> None:
    """Both fall into one long step; what comes after the end is forgotten."""
    times = (30.0, 30.01, 30.02)
    events = [Crossing(lambda state, time=time: state.t - time, terminal=time != 30.0, name=f"{time:g}")
              for time in reversed(times)]  # fmt: skip
    data = flow(SequenceClasses.syn_small(), t=[1.0, 100.0], events=events)
    assert data.attrs["stopped"] == "event: 30.01"
    np.testing.assert_allclose(data.event_t[:, 0], [np.nan, 30.01, 30.0], rtol=1e-11)
    np.testing.assert_allclose(data.t, [1.0, 30.01], rtol=1e-11)


def test_a_terminal_event_at_the_start() -> None:
    data = flow(SequenceClasses.syn_small(), t=[1.0], events=[EntropyBelow(5.0, 0, terminal=True)])
    assert (data.attrs["stopped"], data.attrs["n_steps"]) == ("event: entropy of class 0 below 5", 0)
    np.testing.assert_array_equal(data.t, [0.0])


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (lambda state: "soon", "the event '<lambda>' at t = 0"),
        (lambda state: state["entropy"], "the event '<lambda>' at t = 0"),
        (Crossing(lambda state: math.nan, name="nothing"), "the event 'nothing' at t = 0"),
        (lambda state: state["entropie"], "the variable"),
        (Crossing(len, terminal=2), "terminal of the event 'len'"),
        (Crossing(len, direction="up"), "direction of the event 'len'"),
        (Crossing("gap"), "an event"),
    ],
)
def test_bad_functions_are_named(event: Event, field: str) -> None:
    with refused(field):
        flow(SequenceClasses.syn_small(), t=[1.0], events=[event])
