"""The front door of the flow: what it takes, refuses and returns."""

from __future__ import annotations

import math
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from refusals import bad_values, refused
from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.events import EntropyBelow
from scansnap.dynamics.flow.integrate import flow
from scansnap.interrupt import Interrupted
from scansnap.results.trajectory import load, save


def test_dataset_layout() -> None:
    classes = SequenceClasses.syn_medium(3)
    data = flow(classes, t=[1.0, 2.0])
    assert set(data.data_vars) == {"attention", "loss", "entropy", "z"}
    assert data.attention.dims == ("t", "seq_class", "token")
    assert data.loss.dims == ("t",)
    assert data.entropy.dims == ("t", "seq_class")
    assert data.z.dims == ("t", "query", "token")
    assert dict(data.sizes) == {"t": 2, "seq_class": 6, "token": 79, "query": 3}
    np.testing.assert_array_equal(data["query"], classes.queries)
    assert (data.attrs["eta_y"], data.attrs["eta_z"], data.attrs["stopped"]) == (1.0, 0.02, "complete")
    assert {"format", "classes", "versions", "rtol", "device"} <= set(data.attrs)
    full = flow(classes, t=[1.0], variables="y")
    assert full.y.dims == ("t", "token", "output")
    assert full.y.shape == (1, 79, 79)


def test_default_times() -> None:
    t = flow(SequenceClasses.syn_small()).t
    np.testing.assert_allclose(t, np.geomspace(0.1, 1e5, 200))


def test_progress_rises_to_one() -> None:
    done: list[tuple[int, int]] = []
    flow(SequenceClasses.syn_small(), t=[1e3], progress=lambda *told: done.append(told))
    assert done == sorted(done)
    assert done[0][0] > 0
    assert {total for _, total in done} == {done[-1][0]}


def test_leaves_the_number_of_threads_alone() -> None:
    before = torch.get_num_threads()
    flow(SequenceClasses.syn_small(), t=[1.0])
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        *bad_values(
            t=[[-1.0, 2.0], [2.0, 1.0], [1.0, 1.0], [], [[1.0]], [1.0, math.inf], "soon"], eta_y=[0.0, math.nan],
            eta_z=[-1.0, math.inf], rtol=[1e-16], atol=[0.0], variables=[("attention", "entropie")],
            z0=[np.zeros((1, 3)), np.full((2, 34), math.nan), "prior"], device=["tpu0", "mps"],
        ),
    ],
)  # fmt: skip
def test_bad_input_is_named(wrong: dict, field: str) -> None:
    with refused(field):
        flow(SequenceClasses.syn_small(), **{"t": [1.0], **wrong})


def test_results_beyond_memory_are_refused_before_the_work() -> None:
    with pytest.raises(InputError) as error:
        flow(SequenceClasses.synthetic(1, 1000), t=np.arange(1.0, 10001.0))
    assert "leave out 'attention'" in str(error.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_missing_cuda_is_named() -> None:
    with pytest.raises(InputError) as error:
        flow(SequenceClasses.syn_small(), t=[1.0], device="cuda")
    assert "no CUDA device is present" in str(error.value)


# --- how it ended ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, None])
def test_ctrl_c_keeps_what_is_done(number: int | None) -> None:
    """By a signal, or from a callback: the step under way is finished, and its end is the last reading."""
    classes, t = SequenceClasses.syn_small(), np.geomspace(0.1, 1e4, 40)
    whole, steps = flow(classes, t=t), []

    def progress(done: int, total: int) -> None:
        steps.append(done)
        if len(steps) == 12:
            if number is None:
                raise KeyboardInterrupt
            signal.raise_signal(number)

    with pytest.raises(Interrupted) as interrupted:
        flow(classes, t=t, progress=progress)
    data = interrupted.value.partial
    assert len(steps) == data.attrs["n_steps"] == 12
    assert data.attrs["stopped"] == "interrupted"
    n = data.sizes["t"] - 1
    assert 0 < n < 40
    np.testing.assert_array_equal(data.t[:n], t[:n])
    assert t[n - 1] < float(data.t[n]) < t[n]
    np.testing.assert_array_equal(data.attention[:n], whole.attention[:n])
    again = flow(classes, t=[float(data.t[n])])
    np.testing.assert_allclose(data.attention[n], again.attention[0], rtol=1e-8)


def test_ctrl_c_in_the_last_step_leaves_a_complete_flow() -> None:
    def progress(done: int, total: int) -> None:
        if done == total:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as interrupted:
        flow(SequenceClasses.syn_small(), t=[10.0], progress=progress)
    assert interrupted.value.partial.attrs["stopped"] == "complete"


def test_what_stopped_it_is_kept_in_files(tmp_path: Path) -> None:
    data = flow(SequenceClasses.syn_small(), t=[1.0], norm="none", events=[EntropyBelow(5.0, 0, terminal=True)])
    save(data, tmp_path / "flow.nc")
    loaded = load(tmp_path / "flow.nc")
    assert loaded.attrs["stopped"] == "event: entropy of class 0 below 5"
    assert (loaded.attrs["norm"], loaded.attrs["residual"], loaded.attrs["field"]) == ("none", "none", "dense")
    loaded.close()


def test_the_page_about_the_flow_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "flow.md").read_text(encoding="utf-8")
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert names["other"].attrs["norm"] == "layernorm"
    assert names["data"].attrs["stopped"] == "event: learned"
    assert np.isfinite(names["data"].event_t[[0, 2, 3], 0]).all()
