"""Cells on a GPU: the numbers of the CPU, launched or replayed, for every component and optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scansnap.dial.cells import OPTIMIZERS, Cell, run_cell
from scansnap.dial.components import Flags, flags_of, plan
from scansnap.dial.data import Task
from scansnap.dial.rate_matching import StudySettings
from scansnap.dial.study import run_dial
from scansnap.dial.training import EAGER, CellRuns
from scansnap.dial.verdicts import judge

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
TINY = StudySettings((1.0, 10.0), seeds=2, context=24, end=12)
EVERY = {str(cell.flags): cell.flags for cell in (Cell(*one) for one in plan())}


def runs_of(flags: Flags, optimizer: str, device: str, dtype: torch.dtype = torch.float64) -> CellRuns:
    task = Task(flags, "syn-medium", torch.device(device), dtype, 24)
    eta = {"y": torch.tensor([1e-2, 2e-2]), "z": torch.tensor([2e-3, 1e-2])}
    return CellRuns(flags, task, optimizer, np.array([0, 1]), eta, 100)


@pytest.mark.parametrize("flags", EVERY.values(), ids=range(len(EVERY)))
def test_the_gpu_moves_as_the_cpu_does(flags: Flags) -> None:
    here, there = (runs_of(flags, "sgd", device) for device in ("cpu", "cuda"))
    for runs in (here, there):
        runs.advance(EAGER + 4)
    for name in ("loss", "attention", "z"):
        np.testing.assert_allclose(getattr(there.read(), name), getattr(here.read(), name), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_replayed_step_is_the_launched_one(optimizer: str, monkeypatch) -> None:
    flags = flags_of("layers", "cumulative")
    replayed = runs_of(flags, optimizer, "cuda")
    replayed.advance(EAGER + 6)
    assert replayed._graphed is not None
    monkeypatch.setattr("scansnap.dial.training.EAGER", 100)
    launched = runs_of(flags, optimizer, "cuda")
    launched.advance(EAGER + 6)
    assert launched._graphed is None
    for name, table in launched.descent.tables.items():
        np.testing.assert_allclose(replayed.descent.tables[name].cpu(), table.cpu(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_verdicts_are_those_of_the_cpu(optimizer: str) -> None:
    cell = Cell("finite", "single", optimizer)
    here, there = (judge([run_cell(cell, TINY, device=device, dtype="float64")])[0] for device in ("cpu", "cuda"))
    for one, other in zip(here["observables"], there["observables"], strict=True):
        assert one["verdict"] == other["verdict"]
        np.testing.assert_allclose(other["value"], one["value"], rtol=1e-3, atol=1e-6)


def test_processes_share_a_gpu() -> None:
    asked = {"seeds": 2, "ratios": [10.0], "quick": True, "device": "cuda"}
    one, two = (run_dial(["yz", "heads"], "single", "sgd", jobs=jobs, **asked).table for jobs in (1, 2))
    assert one.verdict.tolist() == two.verdict.tolist()
