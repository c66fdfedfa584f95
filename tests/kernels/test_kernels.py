"""The fused CPU path against the general one, and both against float64.

What rounding allows: a float32 run accumulates errors of one unit in the last place (ε = 1.2e-7) of its largest
entry, and of the size of a gradient in every step. Gradients of Y are at most of size 1, those of z at most of
size max |Y| (they are differences of such terms, in the fused path even more so), momentum adds up 1/(1 − μ) of
them, and errors of N steps grow like √N:

    limit of Y = 10 ε (max |Y| + √N η_Y/(1 − μ)),      limit of z = 10 ε (max |z| + √N η_Z/(1 − μ) max |Y|).

Over hundreds of random settings both paths stayed below 4 ε times these brackets; 10 leaves room for other
processors. A wrong index, a missing factor or a lost sample is orders of magnitude above.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from numpy.testing import assert_array_equal

import scansnap as ss
from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.batches import Batches, Stretch
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import ModelConfig, Settings
from scansnap.dynamics.state import State, start
from scansnap.kernels.cpu import fused, library
from scansnap.runs import Runs

pytestmark = pytest.mark.skipif(not library.available(), reason="the kernels were not compiled")

CPU = torch.device("cpu")
EPS = float(np.finfo(np.float32).eps)
LEVELS = ("default", "avx2", "avx512")  # each includes the ones before


@pytest.fixture(params=LEVELS)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each build of the fused kernel that this processor can run, in the place of the one chosen by itself."""
    path = library.find("fused", request.param)
    if path is None:
        pytest.skip(f"the fused kernel was not built for {request.param}")
    capability = torch.backends.cpu.get_cpu_capability().lower()
    best = LEVELS.index(capability) if capability in LEVELS else 0
    if LEVELS.index(request.param) > best:
        pytest.skip(f"this processor has no {request.param}")
    build, chosen = ctypes.CDLL(str(path)), library.load
    build.advance_runs.restype = ctypes.c_int
    monkeypatch.setattr(library, "load", lambda name: build if name == "fused" else chosen(name))
    return str(request.param)


@pytest.fixture
def no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel gives up on a run the engine silently takes the general path; not here."""

    def refuse(engine: Engine, state: State, stretch: Stretch, which: np.ndarray) -> State:
        assert not engine.fused, f"the fused kernel gave up on runs {which} after step {state.step}"
        return general(engine, state, stretch, which)

    general = Engine._advance_general
    monkeypatch.setattr(Engine, "_advance_general", refuse)


def random_classes(seed: int, m: int, k: int, widest: int) -> SequenceClasses:
    """Supports of 1 to ``widest`` tokens, few queries for many classes, uneven probabilities everywhere."""
    rng = np.random.default_rng(seed)
    p = np.zeros((k, m))
    for n, size in enumerate(rng.integers(1, widest + 1, size=k)):
        p[n, rng.choice(m, size=size, replace=False)] = rng.dirichlet(np.full(size, 0.7))
    p[0, rng.choice(m, size=widest, replace=False)] = 1
    p /= p.sum(1, keepdims=True)
    query = rng.integers(0, max(1, k // 2), size=k)
    return SequenceClasses(p, query, next_token=rng.permutation(m)[:k], p_class=rng.dirichlet(np.ones(k)))


def within_rounding(found: xr.Dataset, exact: xr.Dataset, steps: int, what: str) -> None:
    """The limits at the head of this file, run by run."""
    tops = {name: np.nanmax(np.abs(exact[name].values), axis=(1, 2, 3)) for name in ("y", "z")}
    gradient = {"y": 1.0, "z": tops["y"]}
    for name in ("y", "z"):
        rate = exact[f"eta_{name}"].values / (1 - exact.momentum.values)
        limit = 10 * EPS * (tops[name] + math.sqrt(steps) * rate * gradient[name])
        difference = np.abs(found[name].values - exact[name].values)
        assert_array_equal(np.isnan(difference), np.isnan(exact[name].values), f"{what}: NaN in {name}")
        error = np.nanmax(difference, axis=(1, 2, 3))
        worst = int(np.argmax(error - limit))
        assert (error <= limit).all(), (
            f"{what}: {name} of run {worst} is off by {error[worst]:.1e} where rounding allows "
            f"{limit[worst]:.1e}; its largest entry is {tops[name][worst]:.1e}"
        )


# --- whole runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One set of classes and one kind of data; ``options`` go to simulate as they are."""

    m: int
    k: int
    widest: int
    batch_size: int | None
    context: float
    options: tuple[tuple[str, Any], ...] = ()
    steps: int = 20

    def simulate(self, engine: str, dtype: str = "float32", **changes: Any) -> xr.Dataset:
        classes = random_classes(self.m + 100 * self.k, self.m, self.k, self.widest)
        runs = ss.grid(eta_y=[0.3, 2.0], eta_z=0.8, seed=[1, 2**45], momentum=[0.0, 0.9])
        given = dict(self.options) | {
            "steps": self.steps, "batch_size": self.batch_size, "context": self.context, "engine": engine,
            "dtype": dtype, "record": [0, 7, self.steps], "variables": ("y", "z"), "device": "cpu",
        } | changes  # fmt: skip
        return ss.simulate(classes, runs, **given)


@cache
def exact(case: Case) -> xr.Dataset:
    return case.simulate("general", "float64")


DATA = {
    "one token": (5, 2),
    "short": (7, 12),
    "paper": (128, 128),
    "classes drawn": (6, math.inf),
    "flow": (None, math.inf),
}
OPTIONS = {
    "zero": {},
    "zero, next": {"outputs": "next"},
    "uniform, query in keys": {"init": "uniform", "query_in_keys": True},
    "uniform, next, query in keys": {"init": "uniform", "outputs": "next", "query_in_keys": True},
}
SIZES = {  # columns from 1 to 7 vectors of 16, supports from one vector to three; whole vectors and not
    "5 tokens": (5, 2, 4),
    "16 tokens": (16, 5, 16),
    "17 tokens": (17, 16, 9),
    "53 tokens": (53, 7, 37),
    "100 tokens": (100, 9, 41),
}
CASES = {
    f"{size}, {data}, {name}": Case(*SIZES[size], *DATA[data], tuple(options.items()))
    for size in SIZES for data in DATA for name, options in OPTIONS.items()
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_fused_and_general_runs_are_equal_within_rounding(case: str, no_fallback: None) -> None:
    """Shared queries, uneven supports and classes, both momenta and several rates in one call."""
    right = exact(CASES[case])
    assert np.nanmax(np.abs(right.y[:, -1] - right.y[:, 0])) > 0.1, "hardly moved: nothing to compare"
    within_rounding(CASES[case].simulate("general"), right, 20, "general path")
    within_rounding(CASES[case].simulate("fused"), right, 20, "fused path")


@pytest.mark.parametrize("case", list(CASES)[:: len(CASES) // 12])
def test_every_compiled_variant_agrees(case: str, variant: str, no_fallback: None) -> None:
    within_rounding(CASES[case].simulate("fused"), exact(CASES[case]), 20, f"fused path for {variant}")


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 5, 6, 7, 8, 9, 128])
def test_batch_sizes(batch_size: int, variant: str, no_fallback: None) -> None:
    """Samples go through in tiles of four; with one class a batch is one tile and what is left over."""
    for k in (1, 4):
        case = Case(21, k, 11, batch_size, 10, (("init", "uniform"),), steps=6)
        within_rounding(case.simulate("fused", record=[6]), case.simulate("general", "float64", record=[6]), 6, f"{k}")


@pytest.mark.parametrize("widest", [1, 2, 3, 4, 5, 7, 16, 17, 33])
def test_support_sizes(widest: int, variant: str, no_fallback: None) -> None:
    """Slots go through in tiles of four and vectors of sixteen."""
    case = Case(40, 3, widest, 6, 30, (("init", "uniform"),), steps=6)
    within_rounding(case.simulate("fused", record=[6]), case.simulate("general", "float64", record=[6]), 6, variant)


def test_schedules(no_fallback: None) -> None:
    optimizer = {"y": {"schedule": "cosine(0.1)"}, "z": {"schedule": "step(3, 0.5)"}}
    case = Case(20, 4, 9, 5, 12)
    changed = case.simulate("fused", optimizer=optimizer)
    within_rounding(changed, case.simulate("general", "float64", optimizer=optimizer), 20, "scheduled")
    assert np.abs(changed.z - exact(case).z).max() > 1e-2, "the schedule made no difference"


def test_the_paper_runs(no_fallback: None) -> None:
    """Syn-Medium from a random start, batch 128, T = 128, momentum 0.9, a hundred steps: fused against general.

    Such runs amplify rounding: errors reach a few hundred ε of the largest entry in either path, so it is their
    order of magnitude that is compared.
    """
    classes = SequenceClasses.syn_medium(3)
    runs = ss.grid(eta_z=[0.5, 1.0], ratio=[1, 2], seed=[0, 1])
    options: dict[str, Any] = {
        "steps": 100, "momentum": 0.9, "init": "uniform", "record": [100], "device": "cpu",
        "variables": ("attention", "entropy", "loss", "z"),
    }  # fmt: skip
    fused, general = (ss.simulate(classes, runs, engine=engine, **options) for engine in ("fused", "general"))
    right = ss.simulate(classes, runs, dtype="float64", **options)
    for name in options["variables"]:
        size = np.abs(right[name].values).max()
        errors = [np.abs(data[name].values - right[name].values).max() / size / EPS for data in (fused, general)]
        assert errors[0] < 10 * max(errors[1], 30), f"{name}: fused {errors[0]:.0f} ε, general {errors[1]:.0f} ε"
        assert errors[0] < 3000, f"{name}: fused {errors[0]:.0f} ε"


# --- single steps from any state -------------------------------------------------------------------------


@dataclass(frozen=True)
class Situation:
    """An engine, data and a state that training would take long to reach."""

    engine: Engine
    stretch: Stretch
    state: State

    def counts_left(self) -> np.ndarray:
        """For each sample (R, B): largest k e^{z − max z}, where the maximum is over the class's whole support."""
        layout = self.engine.layout
        largest = []
        for r, stream in enumerate(self.engine.stream):
            cls, counts = self.stretch.cls[stream, 0].numpy(), self.stretch.counts[stream, 0].double().numpy()
            row = []
            for n, k in zip(cls, counts, strict=True):
                size = layout.n_slots[n]
                z = self.state.tables["z"][r, 0, layout.class_query[n], layout.slots[n, :size]].double().numpy()
                row.append((k[:size] * np.exp(z - z.max())).max())
            largest.append(row)
        return np.array(largest)


def situation(
    dtype: str, engine: str, z_size: float, y_size: float, favourite: float = 0.0, steps: int = 1, momentum: float = 0.0
) -> Situation:
    """Random tables of the given sizes, and ``favourite`` added to z for each class's least likely token.

    All is rounded to float32, whatever the dtype.
    """
    classes = random_classes(5, 30, 6, 20)
    model = ModelConfig(init="uniform")
    plan = Settings(steps=steps, batch_size=9, context=5, model=model, record=(0,), dtype=dtype)
    runs = ss.grid(eta_y=1.0, eta_z=1.0, seed=range(5), momentum=momentum)
    layout = make_layout(classes, model, decays=False)
    rng = np.random.default_rng(6)
    state = start(layout, plan, runs.seed, CPU)
    y, z = (
        rng.normal(size=table.shape) * size
        for table, size in ((state.tables["y"], y_size), (state.tables["z"], z_size))
    )
    for n in range(classes.n_classes):
        tokens, p = classes.support(n)
        z[:, :, layout.class_query[n], tokens[p.argmin()]] += favourite
    tables = {
        name: torch.from_numpy(table.astype(np.float32)).to(state.tables["y"].dtype)
        for name, table in (("y", y), ("z", z))
    }
    stretch = Batches(layout, plan, runs.seed, CPU).take(0, steps)
    return Situation(Engine(layout, plan, runs, CPU, engine), stretch, replace(state, tables=tables))


@pytest.mark.parametrize("y_size", [0.1, 3.0, 30.0])
@pytest.mark.parametrize(
    ("z_size", "favourite"), [(0, 0), (1, 0), (1, 26), (1, 29), (1, 50), (1, 200), (60, 0), (300, 0)]
)
def test_a_step_from_any_state(y_size: float, z_size: float, favourite: float, variant: str, no_fallback: None) -> None:
    """Also where the favourite key of a class is absent from a sample, so that all its weights underflow.

    The velocity after one step is the gradient. Its exponentials have relative errors of ε times their arguments:
    Yᵀf, of the size of y, and z − max z, of which only what is above −20 or so matters.
    """
    fused = situation("float32", "fused", z_size, y_size, favourite)
    right = situation("float64", "general", z_size, y_size, favourite)
    assert fused.engine.fused
    if z_size + favourite >= 50:
        left = fused.counts_left()
        assert (left < 1e-20).mean() > 0.1, "no sample whose weights underflow"
        assert (left > 0.5).mean() > 0.1, "no sample whose weights do not"
    after, expected = (s.engine.advance(s.state, s.stretch).arrays() for s in (fused, right))
    for name, size in (("y", 1.0), ("z", 4 * y_size)):
        result, gradient = (arrays[f"moments_{name}.velocity"].double() for arrays in (after, expected))
        error, largest = float((result - gradient).abs().max()), float(gradient.abs().max())
        limit = EPS / 2 * size * (1 + min(4 * z_size, 20) + 4 * y_size)
        assert error <= limit, f"{variant}: d{name} is off by {error:.1e} where rounding allows {limit:.1e}"
        assert largest > 50 * limit, f"d{name} is at most {largest:.1e}: too little to compare within {limit:.1e}"
        moved = after[name].double() - right.state.tables[name]
        most = EPS * float(expected[name].abs().max())  # η = 1: what is left is the rounding of the sum
        assert float((moved - result).abs().max()) <= most, f"{variant}: {name} did not move by its velocity"


def test_stretches_may_be_cut_anywhere(variant: str) -> None:
    """Ten steps at once, or three and seven: the same bits, velocity included."""
    at = situation("float32", "fused", 1.0, 1.0, steps=10, momentum=0.9)
    once = at.engine.advance(at.state, at.stretch)
    batches = Batches(at.engine.layout, at.engine.settings, at.engine.runs.seed, CPU)
    twice = at.engine.advance(at.engine.advance(at.state, batches.take(0, 3)), batches.take(3, 10))
    assert twice.step == once.step == 10
    for name, table in once.arrays().items():
        assert_array_equal(twice.arrays()[name], table, name)


def test_the_velocity_is_that_of_the_general_path(variant: str) -> None:
    """Velocities are handed on between stretches and to checkpoints, so they must mean the same."""
    fused, general = (situation("float32", engine, 1.0, 1.0, steps=4, momentum=0.9) for engine in ("fused", "general"))
    result, expected = (s.engine.advance(s.state, s.stretch).arrays() for s in (fused, general))
    assert result.keys() == expected.keys()
    for name, table in expected.items():
        error = float((result[name] - table).abs().max())
        assert error <= 1e-5 * max(1.0, float(table.abs().max())), f"{name} differs by {error:.1e}"


# --- threads, runs, failures -----------------------------------------------------------------------------


def test_threads_and_companions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has the same bits alone and among others, on one thread or many."""
    case = Case(20, 4, 9, 5, 12)
    together = case.simulate("fused")
    for threads in (2, 5, 16):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert_array_equal(case.simulate("fused").y, together.y, f"{threads} threads")
    classes = random_classes(20 + 400, 20, 4, 9)
    for r in (0, 3, 6):
        own = together.isel(run=r)
        alone = ss.simulate(
            classes, ss.grid(eta_y=float(own.eta_y), eta_z=float(own.eta_z), seed=int(own.seed)),
            momentum=float(own.momentum), steps=20, batch_size=5, context=12, record=[0, 7, 20],
            variables=("y", "z"), engine="fused", device="cpu",
        )  # fmt: skip
        assert_array_equal(alone.y[0], own.y, f"run {r}")
        assert_array_equal(alone.z[0], own.z, f"run {r}")


def test_a_run_that_fails_stops_where_the_general_path_stops_it() -> None:
    """And leaves the others alone."""
    classes = random_classes(1, 20, 4, 9)
    runs = ss.grid(eta_y=[0.5, 3e37], eta_z=1.0, seed=[0, 1], momentum=[0.0, 0.9])
    options: dict[str, Any] = {
        "steps": 30, "batch_size": 5, "context": 12, "record": [30], "variables": ("y", "z"), "device": "cpu",
    }  # fmt: skip
    fused, general = (ss.simulate(classes, runs, engine=engine, **options) for engine in ("fused", "general"))
    bad = runs.eta_y > 1
    assert (general.failed_step.values[bad] >= 0).all(), "the rate was not large enough to fail"
    assert_array_equal(fused.failed_step, general.failed_step)
    assert list(fused.status.values) == ["non-finite" if item else "ok" for item in bad]
    assert_array_equal(fused.y[bad], general.y[bad])
    assert np.isfinite(fused.y.values).all()
    good = Runs(
        *(
            getattr(runs, name)[~bad]
            for name in ("eta_y", "eta_z", "seed", "momentum", "weight_decay_y", "weight_decay_z")
        )
    )
    assert_array_equal(ss.simulate(classes, good, engine="fused", **options).y, fused.y[~bad])


def test_what_the_kernel_gives_up_on_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs it calls non-finite come from the general path, the others as they are."""
    at = situation("float32", "fused", 1.0, 1.0, steps=5, momentum=0.9)
    expected = at.engine.advance(at.state, at.stretch).arrays()
    advance = fused.advance

    def gives_up(*given: Any, **named: Any) -> Any:
        tables, finite = advance(*given, **named)
        for table in tables:
            table[[1, 4]] = np.nan
        finite[[1, 4]] = False
        return tables, finite

    monkeypatch.setattr(fused, "advance", gives_up)
    result = at.engine.advance(at.state, at.stretch).arrays()
    for name, table in expected.items():
        assert_array_equal(result[name][[0, 2, 3]], table[[0, 2, 3]], name)
        error = float((result[name] - table).abs().max())
        assert error <= 1e-4 * max(1.0, float(table.abs().max())), f"{name} differs by {error:.1e}"
        assert name == "failed_step" or error > 0, "rounding tells the two paths apart: was the general one taken?"


def test_without_the_kernels_the_numbers_are_those_of_the_general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sequences and the same steps, to the last bit."""
    case = Case(20, 4, 9, 5, 12)
    with_kernels = case.simulate("general")
    monkeypatch.setattr(library, "available", lambda: False)
    monkeypatch.setattr(library, "load", lambda name: pytest.fail(f"the kernel {name} was used"))
    without = case.simulate("auto")
    for name in ("y", "z"):
        assert_array_equal(without[name], with_kernels[name])


def test_the_fused_path_is_taken_where_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    advance = fused.advance
    monkeypatch.setattr(fused, "advance", lambda *a, **k: calls.append(1) or advance(*a, **k))
    case = Case(8, 2, 3, 3, 5, steps=8)
    for engine, changes, used in [
        ("auto", {}, True), ("fused", {}, True), ("general", {}, False), ("auto", {"norm": "none"}, False),
        ("auto", {"residual": "plain"}, False), ("auto", {"heads": 2}, False),
        ("auto", {"optimizer": {"z": "adam"}}, False),
        ("auto", {"optimizer": {"z": "nesterov"}}, False), ("auto", {"optimizer": {"y": {"clip": 1.0}}}, False),
        ("auto", {"dtype": "float64"}, False), ("auto", {"weight_decay": 0.1}, False),
        ("auto", {"position_bias": 0.5}, True), ("auto", {"query_in_keys": True, "init": "normal(1)"}, True),
    ]:  # fmt: skip
        calls.clear()
        case.simulate(engine, **changes)
        assert bool(calls) == used, f"engine {engine} with {changes}: the kernel was{' not' * used} called"
