"""The frozen-attention decoder flow and the integrator, against an exact solution."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import torch
from scipy.integrate import DOP853
from scipy.optimize import brentq

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.dynamics import decoder_flow as decoder_module
from scansnap.dynamics.decoder_flow import DecoderFlow, decoder_flow
from scansnap.dynamics.flow import flow
from scansnap.dynamics.integrators import END, INSIDE, Stacked, Step, dop853


def exact_gap(s: float, eta_y: float, m: int) -> float:
    """u with e^u + (M − 1)u = Mη_Y s + 1 (Lemma 3), by bisection."""
    right = m * eta_y * s
    return float(brentq(lambda u: np.expm1(u) + (m - 1) * u - right, 0, 50, xtol=1e-15, rtol=1e-15))


@pytest.mark.parametrize(("k", "m", "eta_y"), [(2, 50, 0.1), (10, 1000, 1.0), (5, 5, 2.0)])
def test_orthonormal_gap_solves_the_implicit_equation(k: int, m: int, eta_y: float) -> None:
    t = np.geomspace(1e-3, 1e6, 60)
    data = decoder_flow(np.eye(k), None, eta_y, t, m)
    exact = np.array([exact_gap(time / k, eta_y, m) for time in t])
    if m > k:
        gap = data.gap
    else:  # no output is never right: measure against another class's
        assert np.isnan(data.gap).all()
        gap = data.logits.isel({"class": 0, "output": 0}) - data.logits.isel({"class": 0, "output": 1})
        gap = gap.expand_dims("class", 1)
    np.testing.assert_allclose(gap, np.broadcast_to(exact[:, None], gap.shape), rtol=2e-8)


def test_theorem_1_coefficients_in_the_orthonormal_limit() -> None:
    """g_n = γ(f_n − Σ f_n'/(M − 1)) with γ = (M − 1)u/(M − 1 + e^u), exactly."""
    k, m = 6, 80
    t = np.geomspace(0.1, 1e4, 20)
    data = decoder_flow(np.eye(k), None, 1.0, t, m)
    u = np.array([exact_gap(time / k, 1.0, m) for time in t])
    gamma = (m - 1) * u / (m - 1 + np.exp(u))
    np.testing.assert_allclose(data.g.values[:, 2, 2], gamma, rtol=2e-8)
    np.testing.assert_allclose(data.g.values[:, 2, 4], -gamma / (m - 1), rtol=2e-8)


@pytest.mark.parametrize("p_class", [None, [0.5, 0.2, 0.1, 0.1, 0.1]])
def test_is_the_flow_with_frozen_attention(p_class: list[float] | None) -> None:
    rng = np.random.default_rng(0)
    p_context = np.zeros((5, 25))
    p_context[:, :20] = rng.dirichlet(np.full(20, 0.3), 5) * (rng.random((5, 20)) < 0.6)
    p_context /= p_context.sum(1, keepdims=True)
    classes = SequenceClasses(p_context, np.full(5, 20), [3, 21, 22, 23, 24], p_class)
    t = np.append(0, np.geomspace(0.1, 1e5, 30))
    full = flow(classes, 1.3, 0.0, t, variables=("f", "y", "g", "gap", "loss"))
    data = decoder_flow(full.f.values[0].T, p_class, 1.3, t, 25)
    np.testing.assert_allclose(data.loss, full.loss, rtol=1e-8)
    np.testing.assert_allclose(data.gap, full.gap, rtol=1e-8, atol=1e-13)
    f = full.f.values[0]  # (K, M)
    y = np.einsum("nl,tnj->tlj", f, data.a)
    never_next = 0
    np.testing.assert_allclose(y[..., :-1], full.y.values[..., classes.next_token], atol=1e-8)
    np.testing.assert_allclose(y[..., -1], full.y.values[..., never_next], atol=1e-8)
    g = np.einsum("tnk,kl->tnl", data.g, f)
    np.testing.assert_allclose(np.where(p_context > 0, g, np.nan), full.g, atol=1e-8)


def test_only_overlaps_matter() -> None:
    f = np.linalg.qr(np.random.default_rng(1).normal(size=(40, 40)))[0] @ np.random.default_rng(2).random((40, 3))
    t = [1.0, 100.0]
    data = decoder_flow(f, None, 1.0, t, 50)
    same = decoder_flow(np.linalg.cholesky(f.T @ f).T, None, 1.0, t, 50)
    np.testing.assert_allclose(same.logits, data.logits, rtol=1e-10)


def test_dataset_layout() -> None:
    data = decoder_flow(np.eye(3), None, 1.0, [0, 1, 2], 7)
    assert data.a.dims == data.logits.dims == ("t", "class", "output")
    assert data.g.dims == ("t", "class", "along")
    assert data.gap.dims == ("t", "class")
    assert data.loss.dims == ("t",)
    np.testing.assert_array_equal(data.output, [0, 1, 2, -1])
    assert float(data.loss[0]) == pytest.approx(np.log(7))
    assert not data.a[0].any()
    assert data.attrs["stopped"] == "reached t = 2"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"f": np.ones(3)}, "f is 'of shape (3,)'"),
        ({"f": [[np.nan]]}, "finite"),
        ({"f": "identity"}, "numbers"),
        ({"p_class": [0.5, 0.6]}, "2 probabilities with sum 1"),
        ({"p_class": [1.0]}, "2 probabilities with sum 1"),
        ({"eta_y": -1.0}, "eta_y is -1.0"),
        ({"t": [1.0, 0.5]}, "ascending"),
        ({"vocab_size": 1}, "vocab_size is 1; it must be a whole number of at least 2"),
        ({"rtol": 0.0}, "rtol is 0.0"),
    ],
)
def test_bad_input_is_named(wrong: dict, message: str) -> None:
    right = {"f": np.eye(2), "p_class": None, "eta_y": 1.0, "t": [1.0], "vocab_size": 5}
    with pytest.raises(InputError) as error:
        decoder_flow(**(right | wrong))
    assert message in str(error.value)


def test_examples_in_the_docs() -> None:
    result = doctest.testmod(decoder_module, extraglobs={"np": np})
    assert result.attempted > 0
    assert result.failed == 0


# --- the integrator ----------------------------------------------------------------------------------------------


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
        field.advance(h * DOP853.B)
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
    np.testing.assert_allclose(step.weights(step.end)[:END], step.h * DOP853.B, atol=1e-15)


def test_errors_shrink_with_the_tolerance() -> None:
    k, m, t = 4, 200, np.geomspace(1, 1e5, 40)
    exact = np.array([exact_gap(time / k, 1.0, m) for time in t])
    for rtol in (1e-4, 1e-6, 1e-8, 1e-10):
        gap = decoder_flow(np.eye(k), None, 1.0, t, m, rtol=rtol, atol=1e-14).gap.values[:, 0]
        assert np.abs(gap / exact - 1).max() < 3 * rtol


class _Bad(Stacked):
    def rates(self, stage: int, weights: np.ndarray) -> None:
        self.rate[stage] = torch.sqrt(0.5 - self.at(weights))  # real only up to 0.5, reached at a finite time


def test_rates_that_stop_being_finite_end_the_flow_with_a_reason() -> None:
    with pytest.raises(RuntimeError, match="cannot be continued at t = "):
        for _ in dop853(_Bad(torch.zeros(1, 1, dtype=torch.float64)), 10.0, 0.1, 1e-8, 1e-12):
            pass
