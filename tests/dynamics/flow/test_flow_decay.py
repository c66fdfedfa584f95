"""The flow with weight decay, and from another decoder: against SGD, its own continuation, and far into late times."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scansnap as ss
from refusals import bad_values, refused
from scansnap.dynamics.flow.events import Crossing
from scansnap.theory.applicability import why_flow_not_applicable

CLASSES = ss.SequenceClasses.synthetic(n_queries=1, next_per_query=2, common=1, distinct=2, unused=10)
T0 = float(ss.theory.t_snap(eta_y=1.0, n_classes=2, vocab_size=CLASSES.vocab_size))


@pytest.mark.parametrize("norm", ["l2", "none"])
@pytest.mark.parametrize(("decay_y", "decay_z"), [(0.05, 0.0), (0.0, 0.3), (0.02, 0.1)])
def test_expected_sgd_tends_to_the_flow_with_slope_one_in_the_rate(norm: str, decay_y: float, decay_z: float) -> None:
    """Small steps of full-expectation SGD, whose own weight decay it is; without it the end is far elsewhere."""
    end, rates = 30.0, np.array([0.2, 0.1, 0.05])
    options = {"weight_decay_y": decay_y, "weight_decay_z": decay_z}
    exact = ss.flow(CLASSES, 1.0, 0.5, [end], norm=norm, **options)
    errors = []
    for rate in rates:
        steps = round(end / rate)
        run = ss.simulate(CLASSES, eta_y=rate, eta_z=0.5 * rate, steps=steps, context=math.inf, batch_size=None,
                          dtype="float64", record=[steps], model=ss.ModelConfig(norm=norm), **options)  # fmt: skip
        errors.append(np.abs(run.z[0, 0].values - exact.z[0].values).max())
    slope = np.polyfit(np.log(rates), np.log(errors), 1)[0]
    assert abs(slope - 1) < 0.1, f"slope {slope:.3f} of errors {errors}"
    without = ss.flow(CLASSES, 1.0, 0.5, [end], norm=norm)
    assert np.abs(without.z - exact.z).max() > 10 * errors[-1]


def test_implicit_steps_find_what_explicit_ones_do() -> None:
    t = T0 * np.geomspace(0.1, 100, 7)
    one, other = (ss.flow(CLASSES, 1.0, 0.5, t, norm="none", weight_decay_z=decay) for decay in (0.0, 1e-30))
    assert (one.method, other.method) == ("dop853", "radau")
    for name in ("z", "attention", "loss"):
        np.testing.assert_allclose(other[name], one[name], rtol=1e-5, atol=1e-7)


def test_events_are_found_in_implicit_steps() -> None:
    event = Crossing(lambda state: float(state["gap"].min()) - 3, direction=1, terminal=True, name="gap of 3")
    data = ss.flow(CLASSES, 1.0, 0.5, [100 * T0], weight_decay_y=1e-3, events=[event], variables=("gap", "y"))
    assert data.stopped == "event: gap of 3"
    assert float(data.gap[-1].min()) == pytest.approx(3, abs=1e-8)
    again = ss.flow(CLASSES, 1.0, 0.5, [float(data.t[-1])], weight_decay_y=1e-3, variables=("gap", "y"))
    np.testing.assert_allclose(again.y[-1], data.y[-1], atol=1e-6)


@pytest.mark.parametrize("norm", ["l2", "none"])
def test_a_flow_goes_on_from_where_it_was(norm: str) -> None:
    whole = ss.flow(CLASSES, 1.0, 0.5, [T0, 3 * T0], norm=norm, variables=("z", "y"))
    rest = ss.flow(CLASSES, 1.0, 0.5, [2 * T0], norm=norm, z0=whole.z[0], y0=whole.y[0], variables=("z", "y"))
    for name in ("z", "y"):
        np.testing.assert_allclose(rest[name][-1], whole[name][-1], rtol=1e-6, atol=1e-9)


def test_a_decoder_that_stands_still_gives_ln_t() -> None:
    """To 10¹² t₀ in a hundred steps or so: the logit gap of attention grows as ln t, and Y does not change."""
    y = ss.flow(CLASSES, 1.0, 0.5, [T0], variables=("y",)).y[0]
    t = T0 * np.array([1e6, 1e12])
    data = ss.flow(CLASSES, 0.0, 0.5, t, norm="none", y0=y, variables=("z", "y"))
    np.testing.assert_array_equal(data.y[-1], y)
    assert data.n_steps < 1000
    first, last = data.z.values[:, 0]  # token 0 is common, 2 the dominant distinct one of the first class
    assert (last[2] - last[0] - first[2] + first[0]) / math.log(1e6) == pytest.approx(1, abs=0.02)


def test_decay_of_y_to_very_late_times() -> None:
    """Held votes do not grow: with the l2 norm ż falls as e^{−2 gap}, and the gap grows as ½ ln t."""
    classes = ss.SequenceClasses.synthetic(n_queries=1, next_per_query=2, common=1, distinct=1, unused=10)
    t = T0 * np.array([1e6, 1e9])
    data = ss.flow(classes, 1.0, 0.5, t, weight_decay_y=1e-3, rtol=1e-5, variables=("z",))
    first, last = data.z.values[:, 0]
    assert (last[1] - last[0] - first[1] + first[0]) / math.log(1e3) == pytest.approx(0.5, abs=0.02)


def test_the_theory_is_told_of_it() -> None:
    y = ss.flow(CLASSES, 1.0, 0.5, [1.0], variables=("y",)).y[0]
    assert why_flow_not_applicable(ss.flow(CLASSES, t=[1.0], weight_decay_z=0.1).attrs) == "there is weight decay"
    assert why_flow_not_applicable(ss.flow(CLASSES, t=[1.0], y0=y).attrs) == "the flow does not start from Y = 0"
    assert why_flow_not_applicable(ss.flow(CLASSES, t=[1.0]).attrs) == ""


@pytest.mark.parametrize(
    ("options", "field"),
    [
        *bad_values(
            weight_decay_y=[-1], weight_decay_z=[math.nan], eta_y=[0.0],
            y0=[np.arange(324.0).reshape(18, 18), np.full((18, 18), math.inf)],
        ),
        ({"eta_y": 0.0, "eta_z": 0.0, "y0": np.zeros((18, 18))}, "eta_y"), ({"y0": np.zeros(3)}, ("y0", "shape (3,)")),
    ],
)  # fmt: skip
def test_bad_input_is_named(options: dict, field: str) -> None:
    with refused(field):
        ss.flow(CLASSES, t=[1.0], **options)


def test_large_stiff_flows_are_refused_in_words() -> None:
    with refused("the number of entries of Y and Z that move", 6510, names="2000"):
        ss.flow(ss.SequenceClasses.syn_medium(10), t=[1.0], weight_decay_y=0.1)
