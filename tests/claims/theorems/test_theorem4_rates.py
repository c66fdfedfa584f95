"""Theorem 4: the time over seeds, and what the growth at the transition depends on."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
from flows import NAMES, as_premised, flow_of, judge, snap, strong_sgd

import scansnap as ss
from scansnap.claims.evidence import from_trajectory
from scansnap.claims.theorems import theorem4, theorem4_time
from scansnap.claims.theorems.theorem4 import growth_at_snap
from scansnap.classes import SequenceClasses
from scansnap.measure.snap import snap_time

PREMISE, GROWTH, TIME, RATES = EVERY = NAMES["theorem-4"]
judged = partial(judge, "theorem-4")
pytestmark = pytest.mark.usefixtures("each_run_once")


def test_the_flow_depends_on_the_ratio_of_the_rates_alone():
    classes = SequenceClasses.syn_small()
    once, twice = (growth_at_snap(classes, eta_y=c, eta_z=0.1 * c) for c in (0.5, 1.0))
    np.testing.assert_allclose(once, twice, rtol=1e-6)
    other = growth_at_snap(classes, eta_y=1.0, eta_z=0.2)
    assert (other > 1.5 * once).all()
    # so the claim is algebra there, and a measurement in SGD
    assert judged(flow_of("textbook", 0.9, 0.02))[RATES].kind == "formula"
    assert judged(strong_sgd(context=math.inf, batch_size=None))[RATES].kind == "measured"


@pytest.mark.parametrize(("half", "status"), [(0.05, "holds"), (0.2, "undecided"), (None, "holds")])
def test_a_time_whose_interval_reaches_across_the_tolerance_is_undecided(half, status, monkeypatch):
    """Later by a factor of 1.6, with a 68% interval of so much in ln t on either side; the flow has none."""
    evidence = dataclasses.replace(as_premised(4.0, 1e3, 0.02), sampled=half is not None)

    def measured(data, classes):
        found = snap_time(data, classes)
        calls.append(data)
        if len(calls) == 1:  # the run; then comes what Eq. 14 reads
            found["t_fastest"] *= 1.6
            found["t_snap_low"] = found["t_fastest"] * math.exp(-(half or 0.2))
            found["t_snap_high"] = found["t_fastest"] * math.exp(half or 0.2)
        return found

    calls = []
    monkeypatch.setattr(theorem4_time, "snap_time", measured)
    claim = theorem4.check(evidence)[2]
    assert claim.observed == status, claim
    assert (claim.interval is None) == (half is None)


def test_the_time_is_pooled_over_seeds():
    """Eight seeds together: one curve, with an interval over them."""
    classes = SequenceClasses.synthetic(common=1, distinct=5, common_weight=2.0)
    data = ss.simulate(
        classes, ss.grid(eta_y=0.9, eta_z=0.2, seed=range(8)), steps=math.floor(10 * snap(classes, 0.9)),
        record="log:40", variables=["z", "attention"], dtype="float64", device="cpu",
    )  # fmt: skip
    one, eight = (theorem4.check(from_trajectory(d, classes))[2] for d in (data.isel(run=[0]), data))
    assert eight.measured == pytest.approx(one.measured, rel=0.15)
    assert eight.measured != one.measured
    low, high = eight.interval
    assert low < abs(math.log(eight.measured / eight.predicted)) < high


def test_sgd_shows_its_step_size():
    """At η_Y = 0.9 less than a tenth, at η_Y = 4 a fifth: t₀ is then 3 steps."""
    classes = SequenceClasses.synthetic(common=1, distinct=5, common_weight=2.0)
    exact = growth_at_snap(classes, eta_y=0.9, eta_z=0.09)[0]
    off = [growth_at_snap(classes, eta_y=c, eta_z=0.1 * c, source="sgd")[0] / exact - 1 for c in (0.225, 0.9, 4.0)]
    np.testing.assert_allclose(off, [-0.016, -0.06, -0.266], atol=0.005)
