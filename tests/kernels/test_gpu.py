"""The same numbers on a CUDA device as on the CPU; skips itself where there is none."""

import json
import math

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dynamics.engines.layout import make_layout
from scansnap.sampling.counts import sample_classes, sample_counts, sample_tokens

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("length", [1, 127, 999_999])
def test_the_same_data_is_drawn_on_both_devices(length):
    table = make_layout(ss.SequenceClasses.syn_medium(3), ss.ModelConfig(), decays=False).table
    drawn = {}
    for device in ("cpu", "cuda"):
        seeds, steps = torch.arange(3, device=device), torch.arange(5, device=device)
        cls = sample_classes(table, seeds, steps, 64)
        counts = sample_counts(table, cls, seeds, steps, length)
        if device == "cuda":
            sampling_triton = pytest.importorskip("scansnap.kernels.cuda.sampling")
            one_launch = sampling_triton.sample_counts(table, cls, seeds, steps, length)
            assert torch.equal(one_launch.double(), counts)
        tokens = sample_tokens(table, cls, seeds, steps, min(length, 200))
        drawn[device] = [t.cpu().numpy() for t in (cls, counts, tokens)]
    for on_cpu, on_gpu in zip(drawn["cpu"], drawn["cuda"], strict=True):
        np.testing.assert_array_equal(on_cpu, on_gpu)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"init": "uniform", "optimizer": "adam"}, {"init": "normal(0.3)", "optimizer": "muon", "heads": 2},
        {"residual": "normed", "query_in_keys": True, "outputs": "next"},
        {"norm": "layernorm", "residual": "plain", "optimizer": "adamw"},
        {"norm": "none", "position_bias": 0.05, "optimizer": "nesterov"},
        {"context": math.inf, "batch_size": None, "optimizer": "sign"}, {"context": math.inf},
    ],
    ids=lambda options: " ".join(map(str, options.values())) or "plain",
)  # fmt: skip
def test_a_run_gives_the_same_numbers_on_both_devices(options):
    classes = ss.SequenceClasses.syn_medium(2)
    momentum = 0.0 if str(options.get("optimizer")).startswith("adam") else 0.5
    runs = ss.grid(eta_z=[0.05, 0.1], ratio=[1, 5], seed=[0, 1], momentum=momentum)
    pair = [
        ss.simulate(classes, runs, steps=20, record=[0, 5, 20], dtype="float64", device=device, **options)
        for device in ("cpu", "cuda")
    ]
    for name in pair[0].data_vars:
        np.testing.assert_allclose(pair[1][name], pair[0][name], rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("length", [1, 127, 999])
def test_blocks_draw_the_same_data(length):
    from scansnap.kernels.cuda.runs import KernelData, Machine, Program

    layout = make_layout(ss.SequenceClasses.syn_medium(3), ss.ModelConfig(), decays=False)
    program = Program(layout, Machine.cuda(torch.device("cuda")), layout.slot_p)
    drawn = program.draw(np.arange(3), 2, 5, 64, length, None)
    seeds, steps = torch.arange(3, device="cuda"), torch.arange(2, 7, device="cuda")
    cls = sample_classes(layout.table, seeds, steps, 64)
    counts = sample_counts(layout.table, cls, seeds, steps, length)
    expected = KernelData.of(cls, counts, torch.ones_like(cls), program.tables["order"])
    assert torch.equal(drawn.start, expected.start)
    assert torch.equal(drawn.rank, expected.rank)
    assert torch.equal(drawn.counts.to(torch.float32), expected.counts)


@pytest.mark.parametrize("q", [1, 3, 5, 10])
@pytest.mark.parametrize(
    "variables", [("attention", "loss", "entropy", "z"), ("y", "z")], ids=["at once", "in stretches"]
)
def test_a_block_for_each_run_gives_the_numbers_of_the_general_path(q, variables):
    """The paper's runs, few steps of them: many more amplify rounding in either path."""
    classes = ss.SequenceClasses.syn_medium(q)
    runs = ss.grid(eta_z=[0.5, 3.0], ratio=[1, 10], seed=range(3), momentum=0.9)
    options = {"steps": 10, "init": "uniform", "record": [0, 4, 10], "variables": variables, "device": "cuda"}
    fused, general, again = (ss.simulate(classes, runs, engine=e, **options) for e in ("auto", "general", "fused"))
    assert json.loads(fused.settings)["engine"] == "fused"
    for name in fused.data_vars:
        np.testing.assert_allclose(fused[name], general[name], rtol=1e-4, atol=1e-5, err_msg=name)
        np.testing.assert_array_equal(fused[name], again[name], err_msg=f"{name} is not the same a second time")


@pytest.mark.parametrize(
    "options",
    [
        {}, {"init": "normal(0.3)", "query_in_keys": True, "outputs": "next"}, {"position_bias": 0.05},
        {"context": math.inf}, {"context": math.inf, "batch_size": None},
        {"context": 2000, "optimizer": {"z": {"schedule": "step(3, 0.5)"}}},
    ],
    ids=lambda options: " ".join(map(str, options.values())) or "plain",
)  # fmt: skip
def test_a_block_for_each_run_takes_the_options_of_the_fused_path(options):
    runs = ss.grid(eta_z=[0.5, 1.0], ratio=2.0, seed=[0, 7], momentum=0.5)
    arguments = {"steps": 8, "record": [0, 8], "device": "cuda"} | options
    classes = ss.SequenceClasses.syn_medium(2)
    fused, general = (ss.simulate(classes, runs, engine=engine, **arguments) for engine in ("fused", "general"))
    for name in fused.data_vars:
        np.testing.assert_allclose(fused[name], general[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_run_that_fails_leaves_the_others_alone():
    classes = ss.SequenceClasses.syn_small()
    runs = ss.grid(eta_z=[0.5, 1e39], eta_y=1.0)  # the second rate is infinite in float32
    data = ss.simulate(classes, runs, steps=10, device="cuda")
    alone = ss.simulate(classes, ss.grid(eta_z=0.5, eta_y=1.0), steps=10, device="cuda")
    assert data.status.values.tolist() == ["ok", "non-finite"]
    assert data.failed_step.values.tolist() == [-1, 0]
    assert np.isfinite(data.z.values).all()
    np.testing.assert_allclose(data.z[0], alone.z[0], rtol=1e-4, atol=1e-6)


def test_the_flow_is_the_same_on_both_devices():
    classes = ss.SequenceClasses.syn_medium(3)
    t = np.geomspace(0.1, 3000, 30)
    pair = [ss.flow(classes, eta_y=1.0, eta_z=0.1, t=t, device=device) for device in ("cpu", "cuda")]
    for name in pair[0].data_vars:
        np.testing.assert_allclose(pair[1][name], pair[0][name], rtol=1e-6, atol=1e-9, err_msg=name)
