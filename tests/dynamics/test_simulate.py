"""The training loop: what it returns, that its numbers are right, and that nothing else changes them.

Not a run's neighbours, their order, what is recorded, how the steps are cut into stretches, nor a run that fails
beside it. (Nor Ctrl-C or the end of the process: see test_checkpoint.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import scansnap as ss
from scansnap.dynamics import loop
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.kernels.cpu import library

EVERYTHING = ("attention", "loss", "entropy", "z", "y", "batch_loss")
ENGINES = [
    pytest.param("fused", marks=pytest.mark.skipif(not library.available(), reason="the kernels were not compiled")),
    "general",
]
SYN_SMALL = ss.SequenceClasses.syn_small()
# Two queries, one of them shared by two classes; uneven probabilities; 3 of the 12 tokens are in no context.
UNEVEN = ss.SequenceClasses.from_support(
    [[0, 1, 2, 3], [0, 1, 4, 5, 6], [0, 7, 8]],
    [[0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.2, 0.1, 0.2], [0.5, 0.25, 0.25]],
    vocab_size=12,
    query=[9, 9, 10],
    next_token=[11, 3, 10],
    p_class=[0.5, 0.3, 0.2],
)


def simulate(*args: Any, **options: Any) -> xr.Dataset:
    return ss.simulate(*args, **{"device": "cpu", **options})


def assert_same_numbers(a: xr.Dataset, b: xr.Dataset) -> None:
    """Bit for bit, NaN where NaN."""
    assert set(a.data_vars) == set(b.data_vars)
    for name in a.data_vars:
        assert a[name].dtype == b[name].dtype
        np.testing.assert_array_equal(a[name], b[name], err_msg=str(name))


# --- what comes back ------------------------------------------------------------------------------------------


def test_dimensions_coordinates_and_variables() -> None:
    runs = ss.grid(eta_z=[0.5, 1.0], ratio=[1, 2, 5], seed=[3, 4])
    data = simulate(UNEVEN, runs, steps=6, record=[0, 2, 6], momentum=0.9)
    assert dict(data.sizes) == {"run": 12, "step": 3, "seq_class": 3, "token": 12, "query": 2}
    assert set(data.data_vars) == {"attention", "loss", "entropy", "z"}
    assert data.attention.dims == ("run", "step", "seq_class", "token")
    assert data.loss.dims == ("run", "step")
    assert data.entropy.dims == ("run", "step", "seq_class")
    assert data.z.dims == ("run", "step", "query", "token")
    for name in ("eta_y", "eta_z", "ratio", "seed"):
        assert data[name].dims == ("run",)
        np.testing.assert_array_equal(data[name], getattr(runs, name))
    assert data.momentum.values.tolist() == [0.9] * 12
    assert data.step.values.tolist() == [0, 2, 6]
    assert data["query"].values.tolist() == [9, 10]
    assert data["token"].values.tolist() == list(range(12))
    assert data.class_query.values.tolist() == [9, 9, 10]
    assert data.next_token.values.tolist() == [11, 3, 10]
    assert data.p_class.values.tolist() == [0.5, 0.3, 0.2]
    assert data.status.values.tolist() == ["ok"] * 12
    assert data.failed_step.values.tolist() == [-1] * 12
    assert data.attrs["complete"] == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_step_0_is_the_state_before_the_first_update(dtype: str) -> None:
    data = simulate(UNEVEN, eta_y=1.0, eta_z=1.0, steps=3, record="all", dtype=dtype, variables=EVERYTHING)
    assert all(str(data[name].dtype) == dtype for name in EVERYTHING)
    first = data.isel(run=0, step=0)
    np.testing.assert_allclose(first.attention, UNEVEN.p_context, rtol=1e-6)
    assert first.loss.item() == pytest.approx(math.log(12), rel=1e-6)
    assert first.batch_loss.item() == pytest.approx(math.log(12), rel=1e-6)
    assert not first.y.values.any()
    assert not first.z.values.any()
    assert data.loss[0, 1].item() < math.log(12) - 0.01


def test_scalars_are_a_grid_of_one_run() -> None:
    options = {"steps": 5, "init": "uniform", "momentum": 0.5}
    scalars = simulate(UNEVEN, eta_z=0.5, ratio=4, seed=7, **options)
    assert scalars.identical(simulate(UNEVEN, ss.grid(eta_z=0.5, ratio=4, seed=7), **options))
    assert scalars.identical(simulate(UNEVEN, eta_z=0.5, eta_y=2.0, seed=7, **options))
    assert scalars.identical(simulate(UNEVEN, ss.grid(eta_z=[0.5], ratio=[4], seed=[7], momentum=[0.5]),
                                      steps=5, init="uniform"))  # fmt: skip


@pytest.mark.parametrize(
    ("record", "steps"),
    [
        ([20, 0, 4, 4], [0, 4, 20]),
        ([7], [7]),
        ("all", list(range(21))),
        ("linear:3", [0, 10, 20]),
        ("log:3", [0, 1, 20]),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_recorded_does_not_change_the_numbers(engine: str, record: Any, steps: list[int]) -> None:
    options = {"eta_y": 2.0, "eta_z": 1.0, "steps": 20, "batch_size": 8, "momentum": 0.9, "engine": engine}
    everything = simulate(UNEVEN, record="all", variables=EVERYTHING, **options)
    chosen = simulate(UNEVEN, record=record, variables=EVERYTHING, **options)
    assert chosen.step.values.tolist() == steps
    assert_same_numbers(chosen, everything.sel(step=steps))


@pytest.mark.parametrize("names", [["loss"], ["z", "batch_loss"], ["entropy"], ["attention"], ["y"]])
def test_only_what_is_asked_for_is_returned(names: list[str]) -> None:
    options = {"eta_y": 1.0, "eta_z": 1.0, "steps": 3, "init": "uniform"}
    data = simulate(UNEVEN, variables=names, **options)
    assert list(data.data_vars) == names
    dims = {dim for name in names for dim in data[name].dims}
    assert set(data.dims) == dims  # no coordinate of a dimension that nothing has
    assert_same_numbers(data, simulate(UNEVEN, variables=EVERYTHING, **options)[names])


@pytest.mark.parametrize("options", [{}, {"residual": "normed", "query_in_keys": True}, {"outputs": "next"}])
def test_the_variables_belong_together(options: dict[str, Any]) -> None:
    """Attention from z, loss from attention and y, entropy from attention, all by their formulas."""
    data = simulate(UNEVEN, eta_y=5.0, eta_z=2.0, steps=15, record=[0, 5, 15], variables=EVERYTHING,
                    dtype="float64", init="normal(0.5)", **options)  # fmt: skip
    entropy = ss.measure.distinct_entropy(data.attention, UNEVEN)
    np.testing.assert_allclose(data.entropy, entropy, rtol=1e-12)
    assert entropy.std() > 0.01
    if options.get("residual"):
        return
    for now in (data.isel(run=0, step=i) for i in range(3)):
        c = UNEVEN.p_context * np.exp(now.z.sel(query=UNEVEN.query).values)
        c /= c.sum(1, keepdims=True)
        np.testing.assert_allclose(now.attention, c, rtol=1e-12)
        f = c / np.linalg.norm(c, axis=1, keepdims=True)
        logits = np.nan_to_num(f @ np.nan_to_num(now.y.values), nan=-np.inf)
        logits[:, np.isnan(now.y.values[0])] = -np.inf  # outputs outside the objective
        right = logits[np.arange(3), UNEVEN.next_token] - np.log(np.exp(logits).sum(1))
        assert now.loss.item() == pytest.approx(-(UNEVEN.p_class * right).sum(), rel=1e-12)


def test_entropy_is_that_of_the_measure_in_single_precision_too() -> None:
    data = simulate(SYN_SMALL, eta_y=5.0, eta_z=1.0, steps=30)
    np.testing.assert_allclose(data.entropy, ss.measure.distinct_entropy(data.attention, SYN_SMALL), rtol=1e-5)


def test_outputs_restricted_to_the_next_tokens() -> None:
    data = simulate(UNEVEN, eta_y=1.0, eta_z=1.0, steps=2, outputs="next", variables=["loss", "y"], record=[0, 2])
    assert data.loss[0, 0].item() == pytest.approx(math.log(3), rel=1e-6)
    inside = np.isin(np.arange(12), UNEVEN.next_token)
    assert np.isnan(data.y.values[..., ~inside]).all()
    assert np.isfinite(data.y.values[..., inside]).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("init", ["zero", "uniform", "normal(0.3)"])
def test_y_is_the_whole_table(engine: str, init: str) -> None:
    """(M, M), though the loop keeps only the rows that move and, from zero, one column for all alike."""
    runs = ss.grid(eta_y=2.0, eta_z=1.0, seed=[0, 1])
    options = {"steps": 8, "init": init, "variables": ["y", "z"]}
    data = simulate(UNEVEN, runs, record=[0, 8], engine=engine, **options)
    assert data.y.dims == ("run", "step", "token", "output")
    assert data.y.shape == (2, 2, 12, 12)
    never = [9, 10, 11]  # tokens outside every context
    before, after = data.y[:, 0].values, data.y[:, 1].values
    np.testing.assert_array_equal(after[:, never], before[:, never])
    assert (after[:, :9] != before[:, :9]).all()
    np.testing.assert_allclose((after - before).sum(-1), 0, atol=1e-5)  # Σ_j dY[l, j] = 0
    # LayerNorm keeps every row and column, so its table shows the initial values themselves.
    full = simulate(UNEVEN, runs, record=[0], norm="layernorm", **options)
    np.testing.assert_array_equal(before, full.y[:, 0])
    np.testing.assert_array_equal(data.z[:, 0], full.z[:, 0])


def test_initial_values_have_their_distribution_and_the_seed_decides_them() -> None:
    runs = ss.grid(eta_y=[1.0, 2.0], eta_z=1.0, seed=range(20))
    options = {"steps": 0, "variables": ["y", "z"], "dtype": "float64"}
    m = SYN_SMALL.vocab_size
    uniform, normal = (simulate(SYN_SMALL, runs, init=init, **options) for init in ("uniform", "normal(0.3)"))
    for values in (uniform.y.values, uniform.z.values):
        assert np.abs(values).max() <= 1 / math.sqrt(m)
        assert np.abs(values).max() > 0.99 / math.sqrt(m)
        assert values.std() == pytest.approx(1 / math.sqrt(3 * m), rel=0.05)
    assert normal.y.values.std() == pytest.approx(0.3, rel=0.02)
    assert abs(normal.y.values.mean()) < 0.3 * 4 / math.sqrt(20 * m * m)
    for data in (uniform, normal):
        np.testing.assert_array_equal(data.y[:20], data.y[20:])  # the rates do not matter
        assert len(np.unique(data.y[:20])) == 20 * m * m  # nor does any value occur twice


def test_several_heads() -> None:
    data = simulate(UNEVEN, eta_y=2.0, eta_z=1.0, steps=6, heads=3, init="normal(0.5)", record=[0, 6], dtype="float64")
    assert data.z.dims == ("run", "step", "head", "query", "token")
    assert data.z.shape == (1, 2, 3, 2, 12)
    c = UNEVEN.p_context * np.exp(data.z.sel(query=UNEVEN.query).values)
    mean = (c / c.sum(-1, keepdims=True)).mean(2)
    np.testing.assert_allclose(data.attention, mean, rtol=1e-12)
    assert (data.z[0, 0, 0] != data.z[0, 0, 1]).all()


def test_no_steps_and_numbers_of_numpy() -> None:
    data = simulate(UNEVEN, eta_y=np.float64(1), eta_z=np.float32(1), seed=np.int64(0), steps=np.int64(0),
                    batch_size=np.int32(4))  # fmt: skip
    assert data.step.values.tolist() == [0]
    assert data.attrs["complete"] == 1


def test_progress_is_told_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_STRETCH_FLOATS", 1)
    seen: list[tuple[int, int]] = []
    simulate(UNEVEN, eta_y=1.0, eta_z=1.0, steps=5, progress=lambda *at: seen.append(at))
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


# --- the numbers are right ------------------------------------------------------------------------------------


def population_sgd(
    classes: ss.SequenceClasses, y: Any, z: Any, eta_y: float, eta_z: float, mu: float, steps: int
) -> Any:
    """The T → ∞ expectation of Lemma 1 with heavy-ball momentum, on full tables, one class after the other."""
    y, z = y.copy(), z.copy()
    v_y, v_z = np.zeros_like(y), np.zeros_like(z)
    yield y.copy(), z.copy()
    for _ in range(steps):
        d_y, d_z = np.zeros_like(y), np.zeros_like(z)
        for n in range(classes.n_classes):
            m = int(np.flatnonzero(classes.queries == classes.query[n])[0])
            c = classes.p_context[n] * np.exp(z[m])
            f = c / np.linalg.norm(c)
            alpha = np.exp(y.T @ f)
            alpha /= alpha.sum()
            error = np.eye(classes.vocab_size)[classes.next_token[n]] - alpha
            g = y @ error
            d_y += classes.p_class[n] * np.outer(f, error)
            d_z[m] += classes.p_class[n] * f * (g - f * (f @ g))
        v_y, v_z = mu * v_y + d_y, mu * v_z + d_z
        y, z = y + eta_y * v_y, z + eta_z * v_z
        yield y.copy(), z.copy()


@pytest.mark.parametrize("init", ["zero", "normal(0.5)"])
@pytest.mark.parametrize("mu", [0.0, 0.9])
def test_the_expectation_over_classes_is_population_sgd(init: str, mu: float) -> None:
    runs = ss.grid(eta_y=[3.0, 0.5], eta_z=[2.0], momentum=mu, seed=[0, 5])
    data = simulate(UNEVEN, runs, steps=40, context=math.inf, batch_size=None, init=init, dtype="float64",
                    record="all", variables=["y", "z"])  # fmt: skip
    for r in range(len(runs)):
        start = data.isel(run=r, step=0)
        plain = population_sgd(UNEVEN, start.y.values, start.z.values, runs.eta_y[r], runs.eta_z[r], mu, 40)
        for step, (y, z) in enumerate(plain):
            np.testing.assert_allclose(data.y[r, step], y, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(data.z[r, step], z, rtol=1e-10, atol=1e-12)
    assert np.abs(data.z[:, -1] - data.z[:, 0]).max() > 0.1


def test_the_expectation_has_no_chance_in_it() -> None:
    options = {"eta_y": 1.0, "eta_z": 1.0, "steps": 10, "context": math.inf}
    one, other = (simulate(UNEVEN, seed=seed, batch_size=None, **options) for seed in (0, 1))
    assert_same_numbers(one, other)
    sampled = [simulate(UNEVEN, seed=seed, batch_size=8, **options) for seed in (0, 1)]
    assert not np.array_equal(sampled[0].loss, sampled[1].loss)


def test_long_contexts_tend_to_the_infinite_one() -> None:
    """Lemma 2: deviations fall like 1/√T. The same classes are drawn whatever T is, so only the counts differ."""
    options = {"steps": 20, "batch_size": 8, "dtype": "float64", "record": [20], "variables": ["z", "y"]}
    runs = ss.grid(eta_y=2.0, eta_z=1.0, seed=range(4))
    limit = simulate(UNEVEN, runs, context=math.inf, **options)
    lengths = [10**2, 10**4, 10**6, 10**8]
    finite = [simulate(UNEVEN, runs, context=length, **options) for length in lengths]
    away = np.array([math.sqrt(float(((data.z - limit.z) ** 2).mean())) for data in finite])
    slope = np.polyfit(np.log(lengths), np.log(away), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.07), away
    assert away[-1] < 1e-4


# --- nothing else changes them --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "dtype", "context"),
    [("fused", "float32", 128), ("general", "float32", 128), ("general", "float64", 12), ("general", "float64", "inf")],
)
def test_a_run_among_160_is_the_run_alone(engine: str, dtype: str, context: int | str) -> None:
    if engine == "fused" and not library.available():
        pytest.skip("the kernels were not compiled")
    runs = ss.grid(eta_z=[0.5, 1, 2, 3], ratio=[1, 2, 5, 10], seed=range(5), momentum=[0.0, 0.9])
    options = {"steps": 6, "batch_size": 32, "init": "uniform", "engine": engine, "dtype": dtype, "context": context,
               "record": [0, 6], "variables": EVERYTHING}  # fmt: skip
    torch.set_num_threads(2)  # and the number of threads does not matter
    together = simulate(UNEVEN, runs, **options)
    torch.set_num_threads(1)
    rounding = 1e-5 if dtype == "float32" else 1e-12
    for i in (0, 1, 17, 80, 159):
        alone = simulate(UNEVEN, eta_y=runs.eta_y[i], eta_z=runs.eta_z[i], seed=runs.seed[i],
                         momentum=runs.momentum[i], **options)  # fmt: skip
        for name in EVERYTHING:
            np.testing.assert_allclose(together[name][i], alone[name][0], rtol=rounding, atol=rounding, err_msg=name)
    assert np.abs(together.z[:, 1] - together.z[:, 0]).max() > 0.1


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_seed_sees_the_same_data_whatever_the_rates(engine: str) -> None:
    options = {"batch_size": 8, "engine": engine, "variables": ["batch_loss"]}
    runs = ss.grid(eta_z=[0.1, 3.0], ratio=[1, 10], seed=[0, 1])
    first = simulate(UNEVEN, runs, steps=0, init="uniform", **options).batch_loss
    assert len(np.unique(first)) == 2  # one value for each seed
    np.testing.assert_array_equal(first[runs.seed == 0], np.broadcast_to(first[0], (4, 1)))
    np.testing.assert_array_equal(first[runs.seed == 1], np.broadcast_to(first[1], (4, 1)))
    zero = simulate(UNEVEN, runs, steps=0, **options).batch_loss
    np.testing.assert_allclose(zero, math.log(12), rtol=1e-6)
    # Without training the loss of a mini-batch shows the data alone, and every step brings new data.
    still = ss.grid(eta_z=0, eta_y=0, momentum=[0, 0.5], seed=[0, 1])
    later = simulate(UNEVEN, still, steps=10, record="all", init="normal(1)", **options).batch_loss
    np.testing.assert_array_equal(later[:2], later[2:])
    assert len(np.unique(later)) == 2 * 11


@pytest.mark.skipif(not library.available(), reason="the kernels were not compiled")
def test_auto_is_the_fused_engine_and_both_agree() -> None:
    options = {"steps": 15, "batch_size": 32, "init": "uniform", "momentum": 0.9, "variables": EVERYTHING}
    runs = ss.grid(eta_z=[0.5, 2.0], ratio=[1, 5], seed=[0, 1])
    auto, fused, general = (simulate(UNEVEN, runs, engine=e, **options) for e in ("auto", "fused", "general"))
    assert auto.identical(fused)
    assert not auto.identical(general)  # two ways to compute the same
    for name in EVERYTHING:
        np.testing.assert_allclose(auto[name], general[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("fused", {"momentum": 0.9}),
        ("general", {"momentum": 0.9}),
        ("general", {"optimizer": {"name": "adam", "schedule": "cosine"}}),
        ("general", {"optimizer": "muon", "context": math.inf}),
        ("general", {"position_bias": 0.05, "residual": "plain"}),
    ],
)
def test_how_steps_are_cut_into_stretches_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, engine: str, options: dict[str, Any]
) -> None:
    if engine == "fused" and not library.available():
        pytest.skip("the kernels were not compiled")
    runs = ss.grid(eta_z=[0.5, 2.0, 1e36], ratio=[1, 5], seed=[0, 1])  # some of them fail on the way
    stretches: list[int] = []
    advance = Engine.advance

    def counted(self: Engine, state: Any, stretch: Any) -> Any:
        stretches.append(len(stretch))
        return advance(self, state, stretch)

    monkeypatch.setattr(Engine, "advance", counted)

    def cut(name: str, value: float) -> xr.Dataset:
        with monkeypatch.context() as patch:
            patch.setattr(loop, name, value)
            stretches.clear()
            return simulate(UNEVEN, runs, steps=24, batch_size=16, record=[0, 11, 24], init="uniform",
                            engine=engine, variables=EVERYTHING, **options)  # fmt: skip

    whole = cut("_STRETCH_SECONDS", 1e6)
    assert stretches == [11, 13]
    single = cut("_STRETCH_FLOATS", 1)
    assert stretches == [1] * 24
    assert_same_numbers(whole, single)
    assert whole.identical(single)
    short = cut("_STRETCH_SECONDS", 1e-9)
    assert 2 < len(stretches) <= 24
    assert whole.identical(short)


# --- runs that fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["zero", "uniform"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_leaves_the_float_range_is_frozen_and_harms_no_other(engine: str, init: str) -> None:
    options = {"steps": 20, "batch_size": 16, "momentum": 0.9, "engine": engine, "init": init, "record": "all",
               "variables": EVERYTHING}  # fmt: skip
    wild = [1e30, 1e36, 1e38, 1e300]
    mixed = simulate(UNEVEN, ss.grid(eta_z=[0.5, *wild, 2.0], ratio=1, seed=[0, 1]), **options)
    healthy = simulate(UNEVEN, ss.grid(eta_z=[0.5, 2.0], ratio=1, seed=[0, 1]), **options)
    failed = mixed.failed_step.values
    normal = mixed.eta_z.values < 1e3
    assert (mixed.status.values[normal] == "ok").all()
    assert (failed[normal] == -1).all()
    assert_same_numbers(mixed.isel(run=normal), healthy)
    assert (failed[mixed.eta_z.values >= 1e38] == 0).all()  # before the first update, so at the initial values
    np.testing.assert_array_equal(mixed.status, np.where(failed >= 0, "non-finite", "ok"))
    for name in ("attention", "loss", "z", "y"):
        assert np.isfinite(mixed[name].values).all(), name
    for run in np.flatnonzero(failed >= 0):
        frozen = mixed.isel(run=run).sel(step=slice(failed[run], None))
        for name in ("attention", "loss", "entropy", "z", "y"):
            np.testing.assert_array_equal(
                frozen[name], frozen[name].isel(step=[0] * frozen.sizes["step"]), err_msg=name
            )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_may_fail_late(engine: str) -> None:
    runs = ss.grid(eta_y=[1.0, 1e36], eta_z=1.0, seed=[0, 1])
    data = simulate(SYN_SMALL, runs, steps=60, momentum=0.9, init="uniform", record="all",
                    variables=["loss", "y"], engine=engine)  # fmt: skip
    failed = data.failed_step.values
    assert (failed[:2] == -1).all()
    assert ((failed[2:] > 1) & (failed[2:] < 60)).all()
    assert np.isfinite(data.loss.values).all()
    for run in (2, 3):
        y = data.y[run].values
        assert (y[failed[run]] != y[failed[run] - 1]).any()  # it moved until then
        np.testing.assert_array_equal(y[failed[run]], y[-1])


def test_a_run_may_fail_in_double_precision_too() -> None:
    data = simulate(UNEVEN, ss.grid(eta_y=[1.0, 1e308], eta_z=1.0), steps=5, dtype="float64")
    assert data.status.values.tolist() == ["ok", "non-finite"]
    assert np.isfinite(data.z.values).all()
