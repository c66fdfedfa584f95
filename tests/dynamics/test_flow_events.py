"""Events: where they are located, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from plain_flow import ragged

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.events import EntropyBelow, Event, FateFlip
from scansnap.dynamics.flow.integrate import flow


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
    found = flow(classes, 1.0, 2.0, [3e3], events=events).event_t
    for (row, token), times in zip(pairs, found.values, strict=True):
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
    ("event", "message"),
    [
        (EntropyBelow(1.0, 7), "the class of an event is 7"),
        (EntropyBelow(math.nan, 0), "the level of an event is nan"),
        (FateFlip(30, 33), "about a token in the context"),
        ("snap", "an event is 'snap'"),
    ],
)
def test_bad_events_are_named(event: Event, message: str) -> None:
    with pytest.raises(InputError) as error:
        flow(SequenceClasses.syn_small(), t=[1.0], events=[event])
    assert message in str(error.value)


def test_entropy_event_needs_distinct_tokens() -> None:
    with pytest.raises(InputError) as error:
        flow(ragged(0), t=[1.0], events=[EntropyBelow(1.0, 0)])
    assert str(error.value) == "the class of an event is 0; it must be a class with distinct tokens."
