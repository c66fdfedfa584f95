"""The Runge–Kutta steps: order, interpolant and tolerance, against an exact solution."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from gap_reference import exact_gap

from refusals import refused
from scansnap.dynamics.flow.decoder import DecoderFlow, decoder_flow
from scansnap.dynamics.flow.integrators import E3, E5, END, INSIDE, A, B, D, Stacked, Step, dop853


def errors_at_fixed_steps(n_steps: int) -> tuple[float, float]:
    """Error of the gap at the end of the flow and within its last step, against the exact solution."""
    k, m, t_end = 2, 20, 60.0
    field = DecoderFlow(torch.eye(k, dtype=torch.float64), torch.full((k,), 1 / k, dtype=torch.float64), m - k)

    def gap(weights: np.ndarray) -> float:
        logits = field.point(weights)[1]
        return float(logits[0, 0] - logits[0, -1])

    h = t_end / n_steps
    field.rates(0, np.zeros(0))
    inside = 0.0
    for i in range(n_steps):
        step = Step(field, i * h, h, (i + 1) * h)
        step.add_interpolant()
        if i == n_steps // 2:
            times = step.t + h * np.linspace(0.1, 0.9, 9)
            inside = max(abs(gap(step.weights(time)) - exact_gap(time / k, 1.0, m)) for time in times)
        field.advance(h * B)
    return abs(gap(np.zeros(0)) - exact_gap(t_end / k, 1.0, m)), inside


def test_order_of_convergence() -> None:
    n_steps = np.array([12, 16, 20, 25, 32])
    end, inside = np.array([errors_at_fixed_steps(n) for n in n_steps]).T
    order_end = -np.polyfit(np.log(n_steps), np.log(end), 1)[0]
    order_inside = -np.polyfit(np.log(n_steps), np.log(inside), 1)[0]
    assert order_end > 7.5, f"errors {end} at {n_steps} steps"
    assert order_inside > 6.8, f"errors {inside} at {n_steps} steps"


def test_interpolant_meets_the_ends_of_a_step() -> None:
    field = DecoderFlow(torch.eye(3, dtype=torch.float64), torch.full((3,), 0.3, dtype=torch.float64), 5)
    step = next(dop853(field, 10.0, 1.0, 1e-8, 1e-12))
    np.testing.assert_allclose(step.weights(step.t), np.zeros(INSIDE), atol=1e-16)
    np.testing.assert_allclose(step.weights(step.end)[:END], step.h * B, atol=1e-15)


def test_errors_shrink_with_the_tolerance() -> None:
    k, m, t = 4, 200, np.geomspace(1, 1e5, 40)
    exact = np.array([exact_gap(time / k, 1.0, m) for time in t])
    for rtol in (1e-4, 1e-6, 1e-8, 1e-10):
        gap = decoder_flow(np.eye(k), None, 1.0, t, m, rtol=rtol, atol=1e-14).gap.values[:, 0]
        assert np.abs(gap / exact - 1).max() < 3 * rtol


def test_scipy_has_the_coefficients_that_our_numbers_come_from() -> None:
    """To the last bit, whatever its version: they are attributes that SciPy does not document."""
    assert [table.shape for table in (A, B, E3, E5, D)] == [(16, 16), (12,), (12,), (12,), (4, 16)]
    content = b"".join(np.ascontiguousarray(table).tobytes() for table in (A, B, E3, E5, D))
    assert hashlib.sha256(content).hexdigest()[:16] == "34f1b317b875b234"
    times = [0, 1 / 3, 1 / 4, 4 / 13, 127 / 195, 3 / 5, 6 / 7, 1, 1, 1 / 10, 1 / 5, 7 / 9]
    np.testing.assert_allclose(A.sum(1)[[0, *range(5, 16)]], times, atol=2e-15)


class _Bad(Stacked):
    def rates(self, stage: int, weights: np.ndarray) -> None:
        self.rate[stage] = 1 + self.at(weights) ** 2  # tan t: leaves for infinity at π/2


def test_rates_that_stop_being_finite_end_the_flow_with_a_reason() -> None:
    with refused("the flow", names="t = 1.57"):
        for _ in dop853(_Bad(torch.zeros(1, 1, dtype=torch.float64)), 10.0, 0.1, 1e-8, 1e-12):
            pass
