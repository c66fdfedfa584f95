"""The frozen-attention decoder flow, against an exact solution and the full flow."""

from __future__ import annotations

import numpy as np
import pytest
from gap_reference import exact_gap

from refusals import bad_values, refused
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.decoder import decoder_flow
from scansnap.dynamics.flow.integrate import flow


@pytest.mark.parametrize(("k", "m", "eta_y"), [(2, 50, 0.1), (10, 1000, 1.0), (5, 5, 2.0)])
def test_orthonormal_gap_solves_the_implicit_equation(k: int, m: int, eta_y: float) -> None:
    t = np.geomspace(1e-3, 1e6, 60)
    data = decoder_flow(np.eye(k), None, eta_y, t, m)
    exact = np.array([exact_gap(time / k, eta_y, m) for time in t])
    if m > k:
        gap = data.gap
    else:  # no output is never right: measure against another class's
        assert np.isnan(data.gap).all()
        gap = data.logits.isel(seq_class=0, output=0) - data.logits.isel(seq_class=0, output=1)
        gap = gap.expand_dims("seq_class", 1)
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
    np.testing.assert_allclose(same.logits, data.logits, rtol=1e-8)


def test_dataset_layout() -> None:
    data = decoder_flow(np.eye(3), None, 1.0, [0, 1, 2], 7)
    assert data.a.dims == data.logits.dims == ("t", "seq_class", "output")
    assert data.g.dims == ("t", "seq_class", "along")
    assert data.gap.dims == ("t", "seq_class")
    assert data.loss.dims == ("t",)
    np.testing.assert_array_equal(data.output, [0, 1, 2, -1])
    assert float(data.loss[0]) == pytest.approx(np.log(7))
    assert not data.a[0].any()
    assert data.attrs["stopped"] == "complete"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        *bad_values(
            f=[np.ones(3), [[np.nan]], "identity"], p_class=[[0.5, 0.6], [1.0]], eta_y=[-1.0], t=[[1.0, 0.5]],
            vocab_size=[1], rtol=[0.0],
        ),
    ],
)  # fmt: skip
def test_bad_input_is_named(wrong: dict, field: str) -> None:
    right = {"f": np.eye(2), "p_class": None, "eta_y": 1.0, "t": [1.0], "vocab_size": 5}
    with refused(field):
        decoder_flow(**(right | wrong))
