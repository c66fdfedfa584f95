"""The CUDA kernel of whole runs, run on the CPU by an emulation of thread blocks, against the general path.

Data bit for bit; results within what rounding allows (test_kernels.py says how much that is).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from emulation import COMPILER, MACHINE
from numpy.testing import assert_array_equal
from test_kernels import Case, random_classes, within_rounding

import scansnap as ss
from scansnap.dynamics.engines import cuda_engine
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.cuda_engine import CudaEngine
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import settings
from scansnap.kernels.cuda.runs import KernelData, Program

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


@pytest.fixture
def on_blocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Engines take the emulated kernel where they are fused; what is put into the dict overrules its shape."""
    chosen: dict[str, Any] = {}
    make = Engine.__init__

    def init(engine: Engine, *given: Any, **named: Any) -> None:
        make(engine, *given, **named)
        if engine.fused:
            engine.blocks = CudaEngine(engine.layout, engine.settings, engine.runs, MACHINE)
            expected = engine.layout.expected_counts(engine.settings.context, engine.settings.model.query_in_keys)
            engine.blocks.program = Program(engine.layout, MACHINE, expected, **chosen)
            assert engine.blocks.why_not() is None

    monkeypatch.setattr(Engine, "__init__", init)
    return chosen


# --- data ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [2, 128, 500, 70_000])
def test_the_same_data_is_drawn(context: int) -> None:
    """Counts of one, two and four bytes; one by one and by rejection; sorted by class, slots in the kernel's order."""
    classes = random_classes(7, 30, 5, 12)
    plan = settings({"steps": 3, "batch_size": 37, "context": context, "query_in_keys": context == 128})
    layout = make_layout(classes, plan.model, decays=False)
    seeds = np.array([3, 2**45])
    stretch = Batches(layout, plan, seeds, torch.device("cpu")).take(4, 7)
    program = Program(layout, MACHINE, layout.slot_p)
    own = layout.slot_query if plan.model.query_in_keys else None
    drawn = program.draw(seeds, 4, 3, 37, context - 1, own)
    expected = KernelData.of(stretch.cls, stretch.counts, stretch.weight, program.tables["order"])
    assert_array_equal(drawn.start, expected.start)
    assert_array_equal(drawn.rank, expected.rank)
    assert_array_equal(drawn.counts.to(torch.float32), expected.counts)
    sizes = np.diff(expected.start.numpy())
    ranked = np.take_along_axis(sizes, expected.rank.numpy().astype(int), -1)
    assert (np.diff(ranked) <= 0).all(), "the largest class does not come first"
    for g, i in np.ndindex(2, 3):  # nothing lost on the way: the counts of every class, in whatever order
        for n in range(classes.n_classes):
            there = stretch.counts[g, i][stretch.cls[g, i] == n][:, program.index["order"][n]]
            begin, end = expected.start[g, i, n : n + 2]
            assert_array_equal(drawn.counts[g, i, begin:end].to(torch.float32), there)


# --- whole runs ----------------------------------------------------------------------------------------------

SHAPES: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {
    "four groups": ((16, 5, 12), {"warps": 2}),
    "two groups": ((40, 3, 7), {"groups": 2, "warps": 3}),
    "held": ((53, 4, 9), {"groups": 1, "warps": 2}),
    "streamed": (
        (45, 4, 9),
        {"groups": 1, "held": False, "warps": 3, "tile": 4, "small": 2, "shared_chunk": 2, "v_shared": False},
    ),
    "slots of several lanes": (
        (60, 3, 41), {"groups": 1, "held": False, "warps": 1, "y_shared": False, "v_shared": False}
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_runs_are_those_of_the_general_path(shape: str, on_blocks: dict[str, Any]) -> None:
    """Shared queries, uneven supports and classes, both momenta and several rates in one call."""
    size, chosen = SHAPES[shape]
    on_blocks |= chosen | {"tensor": False}
    case = Case(*size, 9, 20, (("init", "uniform"),), steps=4)
    exact = case.simulate("general", "float64", record=[0, 2, 4])
    assert np.nanmax(np.abs(exact.y[:, -1] - exact.y[:, 0])) > 0.1, "hardly moved: nothing to compare"
    within_rounding(case.simulate("fused", record=[0, 2, 4]), exact, 4, shape)


def paper(q: int, **options: Any) -> tuple[xr.Dataset, xr.Dataset]:
    """Runs on Syn-Medium(q), recorded without states in between, by the kernel and by the general path."""
    arguments = {
        "steps": 3,
        "batch_size": 21,
        "context": 30,
        "record": [0, 3],
        "momentum": 0.9,
        "device": "cpu",
    } | options
    runs = ss.grid(eta_z=[0.5, 1.0], ratio=2.0, seed=[5, 0])
    classes = ss.SequenceClasses.syn_medium(q)
    return ss.simulate(classes, runs, engine="fused", **arguments), ss.simulate(
        classes, runs, engine="general", **arguments
    )


@pytest.mark.integration
@pytest.mark.parametrize(
    "options",
    [
        {}, {"init": "uniform", "query_in_keys": True, "outputs": "next"}, {"init": "normal(0.3)"},
        {"context": math.inf}, {"context": math.inf, "batch_size": None}, {"position_bias": 0.05},
        {"init": "uniform", "optimizer": {"y": {"schedule": "cosine(0.1)"}}}, {"sampling": "tokens", "init": "uniform"},
    ],
    ids=lambda options: " ".join(map(str, options.values())) or "lumped",
)  # fmt: skip
@pytest.mark.parametrize("kernel", [{"tensor": True}, {"tensor": False, "warps": 1}], ids=["strips", "lanes"])
def test_what_leaves_is_that_of_the_general_path(
    kernel: dict[str, Any], options: dict[str, Any], on_blocks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention, entropy, loss and z of runs that are done at once, with every option the kernel takes."""
    on_blocks |= kernel
    monkeypatch.setattr(CudaEngine, "advance", lambda *_, **__: pytest.fail("it was not done at once"))
    result, expected = paper(1, **options)
    assert set(result.data_vars) == {"attention", "entropy", "loss", "z"}
    assert np.abs(expected.z[:, -1] - expected.z[:, 0]).max() > 1e-3, "hardly moved: nothing to compare"
    for name in result.data_vars:
        assert result[name].dims == expected[name].dims
        assert result[name].dtype == expected[name].dtype
        np.testing.assert_allclose(result[name], expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.integration
def test_rows_that_all_classes_share_wait_for_the_end_of_a_step(on_blocks: dict[str, Any]) -> None:
    """As Syn-Medium(10) is done: gradients of common rows stay in registers, velocities outside shared memory."""
    on_blocks |= {
        "groups": 1,
        "held": False,
        "late": True,
        "shared_chunk": 10,
        "v_shared": False,
        "warps": 2,
        "tensor": False,
    }
    result, expected = paper(2, init="uniform", variables=("y", "z", "loss"))
    for name in result.data_vars:
        np.testing.assert_allclose(result[name], expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.integration
def test_companions_and_warps_change_nothing(on_blocks: dict[str, Any]) -> None:
    """A run has the same bits alone and among others."""
    on_blocks |= {"warps": 2, "tensor": False}
    together, _ = paper(1, init="uniform")
    for r in (0, 3):
        own = together.isel(run=r)
        alone = ss.simulate(
            ss.SequenceClasses.syn_medium(1), eta_y=float(own.eta_y), eta_z=float(own.eta_z), seed=int(own.seed),
            steps=3, batch_size=21, context=30, record=[0, 3], momentum=0.9, init="uniform", engine="fused",
            device="cpu",
        )  # fmt: skip
        for name in together.data_vars:
            assert_array_equal(alone[name][0], own[name], f"run {r}: {name}")


@pytest.mark.integration
def test_runs_may_be_done_in_several_launches(on_blocks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut between data streams and inside them, where memory asks for it: the same bits, in the order of the runs."""
    options: dict[str, Any] = {"steps": 2, "batch_size": 5, "context": 9, "record": [2], "init": "uniform",
                               "engine": "fused", "device": "cpu"}  # fmt: skip
    runs = ss.grid(eta_z=[1.0, 2.0, 3.0], ratio=1.0, seed=range(5))
    classes = ss.SequenceClasses.syn_medium(1)
    once = ss.simulate(classes, runs, **options)
    sizes = []
    whole = Program.train
    monkeypatch.setattr(Program, "train", lambda *a, **k: sizes.append(len(a[2])) or whole(*a, **k))
    monkeypatch.setattr(cuda_engine, "_DATA_BYTES", 2 * 2 * 5 * 20)  # two streams
    monkeypatch.setattr(cuda_engine, "_RECORD_FLOATS", 4 * (4 * 40 + 3 * 33))  # four runs
    parts = ss.simulate(classes, runs, **options)
    assert sizes == [4, 4, 4, 3]
    for name in once.data_vars:
        assert_array_equal(parts[name], once[name], name)


def test_a_favourite_key_that_is_not_there(on_blocks: dict[str, Any]) -> None:
    """Weights of all keys of a sample may be tiny beside the class's largest: squares must not vanish."""
    on_blocks |= {"warps": 1, "tensor": False}
    result, expected = paper(1, init="normal(30)", batch_size=40, context=2, steps=1, record=[1])
    assert np.isfinite(result.z).all()
    for name in result.data_vars:
        np.testing.assert_allclose(result[name], expected[name], rtol=1e-4, atol=1e-4, err_msg=name)


def test_runs_whose_rates_are_too_large_take_the_general_path(on_blocks: dict[str, Any]) -> None:
    runs = ss.grid(eta_y=[0.5, 3e37], eta_z=1.0)
    options: dict[str, Any] = {"steps": 5, "batch_size": 5, "context": 12, "record": [5], "variables": ("y",),
                               "device": "cpu"}  # fmt: skip
    pair = [ss.simulate(random_classes(1, 20, 4, 9), runs, engine=engine, **options) for engine in ("fused", "general")]
    assert pair[1].failed_step.values.tolist()[1] >= 0, "the rate was not large enough to fail"
    assert_array_equal(pair[0].failed_step, pair[1].failed_step)
    assert_array_equal(pair[0].y[1], pair[1].y[1])


def test_what_is_too_large_is_refused_in_words() -> None:
    layout = make_layout(ss.SequenceClasses.zipf(vocab=1200, classes=2), ss.ModelConfig(init="uniform"), decays=False)
    result = CudaEngine(layout, settings({"init": "uniform"}), ss.grid(eta_y=1.0, eta_z=1.0), MACHINE)
    assert result.why_not() == "there are more than 1024 outputs"
