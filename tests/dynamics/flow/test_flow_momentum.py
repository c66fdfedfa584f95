"""The flow with momentum: against expected SGD, its equation, and with weight decay."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scansnap as ss
from refusals import refused

MOMENTUM, STEPS = 0.9, [50, 100]


@pytest.mark.parametrize(
    ("n_queries", "eta_y", "eta_z", "off", "off_without_inertia"),
    [(1, 0.5, 0.5, 0.001, 0.3), (1, 4.0, 2.0, 0.022, 0.3), (3, 2.0, 1.0, 0.001, 0.3), (3, 30.0, 3.0, 0.02, 0.2)],
)
def test_momentum_follows_expected_steps_where_larger_rates_fail(
    n_queries: int, eta_y: float, eta_z: float, off: float, off_without_inertia: float
) -> None:
    """z to 2% of its largest entry and mean entropy to 0.3%; the rates η/(1 − μ) are off by 20% and more."""
    classes = ss.SequenceClasses.syn_medium(n_queries)
    run = ss.simulate(classes, eta_y=eta_y, eta_z=eta_z, steps=STEPS[-1], context=math.inf, batch_size=None,
                      momentum=MOMENTUM, dtype="float64", record=STEPS)  # fmt: skip
    flow = ss.flow(classes, eta_y, eta_z, STEPS, momentum=MOMENTUM)
    control = ss.flow(classes, eta_y / (1 - MOMENTUM), eta_z / (1 - MOMENTUM), STEPS)
    z = run.z[0].values
    scale = np.abs(z).max((1, 2))
    assert (np.abs(flow.z.values - z).max((1, 2)) < off * scale).all()
    assert (np.abs(control.z.values - z).max((1, 2)) > off_without_inertia * scale).all()
    entropy = run.entropy[0].mean("seq_class").values
    np.testing.assert_allclose(flow.entropy.mean("seq_class"), entropy, rtol=0.003)


def test_velocity_obeys_the_heavy_ball_equation() -> None:
    """(1 − μ) ż + ½(1 + μ) z̈ = η_Z F, with F from the plain flow's own rate at the same state."""
    classes, h = ss.SequenceClasses.syn_medium(1), 1e-3
    t = np.array([3.0 - h, 3.0, 3.0 + h])
    flow = ss.flow(classes, 4.0, 2.0, t, momentum=0.6, rtol=1e-12, variables=("z", "z_rate", "y"))
    velocity = flow.z_rate.values
    np.testing.assert_allclose(velocity[1], (flow.z[2] - flow.z[0]) / (2 * h), atol=1e-6 * np.abs(velocity).max())
    force = ss.flow(classes, 4.0, 2.0, [0.0], z0=flow.z[1], y0=flow.y[1], variables=("z_rate",)).z_rate[0].values
    left = 0.4 * velocity[1] + 0.8 * (velocity[2] - velocity[0]) / (2 * h)
    np.testing.assert_allclose(left, force, atol=1e-5 * np.abs(force).max())
    assert np.abs(0.4 * velocity[1] - force).max() > 0.1 * np.abs(force).max()  # inertia matters here


def test_momentum_late_is_the_larger_rates_and_goes_with_weight_decay() -> None:
    classes = ss.SequenceClasses.synthetic(n_queries=1, next_per_query=2, common=1, distinct=2, unused=10)
    slow = {"eta_y": 0.004, "eta_z": 0.002}
    heavy = ss.flow(classes, **slow, t=[2000.0], momentum=0.8)
    plain = ss.flow(classes, 0.02, 0.01, [2000.0])
    np.testing.assert_allclose(heavy.z, plain.z, rtol=0.02)
    explicit, implicit = (
        ss.flow(classes, 1.0, 0.5, [20.0], momentum=0.8, norm="none", weight_decay_z=decay) for decay in (0.0, 1e-30)
    )
    assert (explicit.method, implicit.method) == ("dop853", "radau")
    np.testing.assert_allclose(implicit.z, explicit.z, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, math.nan])
def test_momentum_outside_its_range_is_refused(momentum: float) -> None:
    with refused("momentum", momentum):
        ss.flow(ss.SequenceClasses.syn_small(), momentum=momentum)
