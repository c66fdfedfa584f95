"""The population flow against plain implementations, exact invariants and its own tolerances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import xarray as xr
from gap_reference import Plain, ragged

from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow import compact, decoder_rows
from scansnap.dynamics.flow.events import EntropyBelow
from scansnap.dynamics.flow.integrate import flow
from scansnap.results.variables import FLOWING

EVERYTHING = FLOWING


def assert_follows(data: xr.Dataset, plain: Plain, states: list, tolerance: float) -> None:
    for i, (y, z) in enumerate(states):
        at = data.isel(t=i)
        assert np.abs(at.y.values - y).max() <= tolerance * np.abs(y).max()
        assert np.abs(at.z.values - z).max() <= tolerance * max(1e-3, np.abs(z).max())
        rate = plain.rates(y, z)[1]  # a small difference of larger terms
        assert np.abs(at.z_rate.values - rate).max() <= 10 * tolerance * max(1e-3, np.abs(rate).max())


# --- against other solvers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "eta_z"), [("LSODA", 0.02), ("DOP853", 2.0)])
@pytest.mark.parametrize("seed", [0, 1])
def test_follows_an_independent_solver(method: str, eta_z: float, seed: int) -> None:
    classes, t = ragged(seed), np.geomspace(0.1, 3e3, 12)
    plain = Plain(classes, 1.0, eta_z)
    states = plain.solve(t, method, rtol=1e-10 if method == "DOP853" else 1e-9)
    data = flow(classes, 1.0, eta_z, t, variables=EVERYTHING)
    assert_follows(data, plain, states, 5e-8)


def test_follows_an_independent_solver_from_a_prior() -> None:
    classes, t = ragged(2), np.geomspace(0.1, 300, 5)
    z0 = np.random.default_rng(0).normal(0, 1.5, (len(classes.queries), classes.vocab_size))
    plain = Plain(classes, 2.0, 0.5)
    data = flow(classes, 2.0, 0.5, t, z0=z0, variables=EVERYTHING)
    assert_follows(data, plain, plain.solve(t, "DOP853", 1e-10, z0), 5e-8)


def test_sparse_common_rows_give_the_same_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    classes, t = ragged(3, n_classes=9), np.geomspace(1, 1e3, 6)
    dense = flow(classes, 1.0, 0.5, t, rtol=1e-10, variables=EVERYTHING)
    monkeypatch.setattr(compact, "SMALL", 0)
    monkeypatch.setattr(decoder_rows, "_DENSE", 2.0)
    monkeypatch.setitem(decoder_rows._CHUNK, "cpu", 100)  # several chunks
    sparse = flow(classes, 1.0, 0.5, t, rtol=1e-10, variables=EVERYTHING)
    for name in EVERYTHING:
        np.testing.assert_allclose(sparse[name], dense[name], rtol=1e-8, atol=1e-12, err_msg=name)


def test_small_steps_of_sgd_converge_to_the_flow_at_first_order() -> None:
    classes, end = ragged(4), 40.0  # in units of η t
    exact = flow(classes, 1.0, 0.3, [end], variables=("y", "z")).isel(t=0)
    etas = np.array([0.4, 0.2, 0.1, 0.05])
    errors = []
    for eta in etas:
        plain = Plain(classes, eta, 0.3 * eta)
        y, z = plain.unpack(np.zeros(30 * 30 + 2 * 30))
        for _ in range(round(end / eta)):
            dy, dz = plain.rates(y, z)
            y, z = y + dy, z + dz
        errors.append(max(np.abs(y - exact.y.values).max(), np.abs(z - exact.z.values).max()))
    slope = np.polyfit(np.log(etas), np.log(errors), 1)[0]
    assert slope == pytest.approx(1, abs=0.05), f"errors {errors} at η = {etas}"


def test_rates_scale_time() -> None:
    """Only η_Y t and η_Z/η_Y matter."""
    classes = SequenceClasses.syn_small()
    data = flow(classes, 1.0, 0.5, [3.0, 50.0])
    four = flow(classes, 4.0, 2.0, [0.75, 12.5])
    np.testing.assert_allclose(four.attention, data.attention, rtol=1e-8)


# --- its own tolerances ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [SequenceClasses.syn_medium(3), SequenceClasses.zipf(200, 8, overlap=0.8)])
@pytest.mark.parametrize("eta_z", [0.02, 2.0])
def test_error_keeps_to_rtol_also_between_steps(classes: SequenceClasses, eta_z: float) -> None:
    t = np.geomspace(0.01, 2e3, 150)
    exact = flow(classes, 1.0, eta_z, t, rtol=1e-11, atol=1e-15)
    for rtol in (1e-5, 1e-8):
        data = flow(classes, 1.0, eta_z, t, rtol=rtol)
        np.testing.assert_allclose(data.attention, exact.attention, rtol=3 * rtol)
        np.testing.assert_allclose(data.entropy, exact.entropy, rtol=3 * rtol)
        np.testing.assert_allclose(data.loss, exact.loss, rtol=10 * rtol)  # e^{−logit}: absolute error of the logit
        scale = np.abs(exact.z).max("token")
        assert (np.abs(data.z - exact.z) <= 3 * rtol * scale + 1e-12).all()


def test_readings_do_not_depend_on_each_other() -> None:
    classes, t = ragged(5), np.geomspace(0.1, 1e3, 20)
    together = flow(classes, t=t)
    alone = flow(classes, t=[t[7], t[-1]])
    assert float(abs(together.attention.isel(t=7) - alone.attention.isel(t=0)).max()) < 1e-13
    assert float(abs(together.z.isel(t=-1) - alone.z.isel(t=-1)).max()) < 1e-13


def test_goes_on_for_a_very_long_time() -> None:
    """Rates decay like 1/t, so steps grow like t: about ten for a decade."""
    classes = SequenceClasses.syn_small()
    t = np.geomspace(1e3, 1e15, 13)
    data = flow(classes, t=t, variables=("loss", "gap", "z"))
    assert data.attrs["n_steps"] < 250
    np.testing.assert_allclose(data.loss[6:] * t[6:], (data.loss * t)[-1], rtol=0.1)  # 1 − α ~ 1/t
    assert np.all(np.diff(data.loss) < 0)
    assert float(data.loss[-1]) > 0
    assert np.all(np.diff(data.gap.mean("seq_class")) > 0)


# --- what must hold exactly (test_flow_norms.py has what is conserved) -------------------------------------------


def test_variables_agree_with_each_other() -> None:
    classes = ragged(6)
    data = flow(classes, 1.0, 0.5, [0.0, 5.0, 200.0], variables=EVERYTHING)
    c = classes.p_context * np.exp(data.z.values[:, np.searchsorted(classes.queries, classes.query)])
    np.testing.assert_allclose(data.attention, c / c.sum(-1, keepdims=True), rtol=1e-13)
    np.testing.assert_allclose(data.f, c / np.sqrt((c**2).sum(-1, keepdims=True)), rtol=1e-13)
    logits = np.einsum("tnl,tlj->tnj", data.f, data.y)
    alpha = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    right = alpha[:, np.arange(6), classes.next_token]
    np.testing.assert_allclose(data.loss, -(np.log(right) @ classes.p_class), rtol=1e-12)
    e = np.eye(classes.vocab_size)[classes.next_token] - alpha
    g = np.einsum("tlj,tnj->tnl", data.y, e)
    np.testing.assert_allclose(data.g, np.where(classes.p_context > 0, g, np.nan), atol=1e-13)
    never_next = np.setdiff1d(np.arange(classes.vocab_size), classes.next_token)[0]
    gap = logits[:, np.arange(6), classes.next_token] - logits[:, :, never_next]
    np.testing.assert_allclose(data.gap, gap, atol=1e-13)
    for n in range(6):
        q = data.attention.values[:, n, classes.distinct(n)]
        q = q / q.sum(-1, keepdims=True) if q.size else np.full((3, 1), np.nan)
        np.testing.assert_allclose(data.entropy[:, n], -(q * np.log(q)).sum(-1), rtol=1e-12)


def test_start() -> None:
    classes = SequenceClasses.syn_small()
    data = flow(classes, t=0.0, variables=EVERYTHING).isel(t=0)
    np.testing.assert_allclose(data.attention, classes.p_context, rtol=1e-14)
    assert float(data.loss) == pytest.approx(math.log(34), rel=1e-14)
    assert not data.y.any()
    assert not data.z.any()
    assert not data.z_rate.any()


def test_frozen_attention_at_eta_z_zero() -> None:
    data = flow(ragged(0), eta_z=0.0, t=[1.0, 1e3], variables=("z", "loss", "attention"))
    assert not data.z.any()
    assert data.loss[1] < data.loss[0]


@pytest.mark.parametrize(
    "classes",
    [
        SequenceClasses([[1.0, 0, 0]], [1], [2]),  # one class, one token: nothing to attend to
        SequenceClasses([[0.3, 0.7], [0.6, 0.4]], [0, 0], [1, 0]),  # every token is a next token, none is distinct
        SequenceClasses.synthetic(1, 3, common=0),
        SequenceClasses([[0.5, 0.5, 0], [0.5, 0, 0.5]], [0, 0], [0, 1], [1.0, 0.0]),  # a class that never occurs
        SequenceClasses([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0.4, 0.6]], [0, 0, 0], [0, 1, 2]),  # never told apart
    ],
)
def test_edge_cases_follow_the_plain_flow(classes: SequenceClasses) -> None:
    plain, t = Plain(classes, 1.0, 1.0), np.array([1.0, 100.0])
    data = flow(classes, 1.0, 1.0, t, variables=EVERYTHING)
    assert_follows(data, plain, plain.solve(t, "DOP853", 1e-10), 1e-7)
    assert np.isnan(data.gap).all() == (classes.vocab_size == classes.n_classes)
    for n in range(classes.n_classes):
        assert np.isnan(data.entropy[:, n]).all() == (len(classes.distinct(n)) == 0)


def test_extreme_probabilities_stay_finite() -> None:
    classes = SequenceClasses([[1.0, 1e-250, 0], [1e-200, 0, 1.0]], [0, 0], [1, 2])
    data = flow(classes, eta_z=1.0, t=[1e3], z0=[[-900.0, 0.0, 800.0]])
    assert np.isfinite(data.attention).all()
    assert np.isfinite(data.loss).all()


# --- elsewhere --------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("norm", ["l2", "layernorm"])
def test_cuda_gives_the_same_flow(sparse: bool, norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if sparse:
        monkeypatch.setattr(decoder_rows, "_DENSE", 2.0)
    classes, t = ragged(3, n_classes=9), np.geomspace(1, 1e3, 6)
    events = [EntropyBelow(0.5, n) for n in range(3, 9)]
    cpu = flow(classes, 1.0, 0.5, t, norm=norm, variables=EVERYTHING, device="cpu", events=events)
    cuda = flow(classes, 1.0, 0.5, t, norm=norm, variables=EVERYTHING, device="cuda", events=events)
    assert cuda.attrs["device"] == "cuda"
    for name in (*EVERYTHING, "event_t"):
        np.testing.assert_allclose(cuda[name], cpu[name], rtol=1e-7, atol=1e-11, err_msg=name)
