"""On CUDA, under deterministic algorithms: the same weights with and without the probe, whatever computes attention."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

EAGER = (
    [f"{name}, {how}" for name in ("gpt2", "llama", "plain", "encoder") for how in ("float32", "TF32")]
    + [f"{name}, bf16, {how}" for name in ("gpt2", "plain") for how in ("flash", "efficient")]
    + ["llama, bf16, flash"]
    + [f"{name}, replayed" for name in ("gpt2", "llama", "plain")]
)
COMPILED = ["plain, compiled", "plain, CUDA graphs", "gpt2, CUDA graphs"]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    """All trainings in one process of its own: cuBLAS reads its workspace's size when CUDA starts."""
    pytest.importorskip("transformers")
    program = Path(__file__).with_name("on_one_device.py")
    env = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(program), "cuda"]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=560, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", EAGER + COMPILED)
def test_weights_are_those_without_the_probe(case: str, outcomes: dict[str, Any]) -> None:
    found = outcomes[case]
    assert "error" not in found, found
    assert found.get("again", []) == []
    assert found["probed"] == []
    assert found["warned"] == []
    assert found["steps"] == list(range(7 if "graphs" in case or "replayed" in case else 4))
    assert found["layers"] == 2


@pytest.mark.parametrize("case", EAGER)
def test_a_naive_look_is_noticed(case: str, outcomes: dict[str, Any]) -> None:
    assert len(outcomes[case]["control"]) > outcomes[case]["tensors"] / 2
