"""Two processes, each with the whole model (DDP) or with shards (FSDP2, FSDP1): weights are those without a probe."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import two_processes
from tiny_models import differing

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo"),
]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], list[str]]]:
    """What each rank found: by case its state and the steps of its probes, and what was warned of."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    mp.spawn(two_processes.run, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize(
    ("base", "look", "measured"),
    [
        ("ddp", "all ranks", [0, 1, 2, 3]),
        ("ddp", "rank 0", [0, 1, 2, 3]),
        ("ddp", "inside", [0, 1, 2, 3]),
        ("fsdp", "all ranks", [0, 1, 2, 3]),
        ("fsdp, gathered", "all ranks", [0, 1, 2, 100, 102]),
        ("fsdp, bf16", "all ranks", [0, 1, 2, 3]),
        ("fsdp 1", "all ranks", [0, 1, 2, 3]),
    ],
)
def test_weights_are_those_without_the_probe(ranks, base, look, measured) -> None:
    for rank, (found, _) in enumerate(ranks):
        plain, _ = found[f"{base}: none"]
        probed, steps = found[f"{base}: {look}"]
        assert differing(plain, probed) == []
        assert sorted(steps[0]) == (measured if rank == 0 else [])  # the first one keeps
    control, _ = ranks[0][0][f"{base}: naive"]
    here = [
        name for name, value in control.items() if value.ndim and len(value)
    ]  # others are whole in the other process
    assert len(set(here) & set(differing(ranks[0][0][f"{base}: none"][0], control))) > len(here) / 2


@pytest.mark.integration
@pytest.mark.parametrize("base", ["fsdp", "fsdp 1"])
def test_a_look_that_fails_inside_a_sharded_model_leaves_it_ready(ranks, base) -> None:
    for found, said in ranks:
        assert differing(found[f"{base}: none"][0], found[f"{base}: failing"][0]) == []
        assert found[f"{base}: failing"][1] == [[]]
        assert sum("could not measure" in one and "division by zero" in one for one in said) == 2 * 4


@pytest.mark.integration
@pytest.mark.parametrize("base", ["fsdp", "fsdp 1"])
def test_weights_gathered_for_a_look_are_not_those_of_the_next_step(ranks, base) -> None:
    """With the look between gradients and update, weights left gathered would be used again, one update too old."""
    for found, _ in ranks:
        assert differing(found[f"{base}: none"][0], found[f"{base}: before the update"][0]) == []


def test_an_alert_of_the_first_process_stops_all_at_one_step(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    spawned = mp.spawn(two_processes.stop, (str(tmp_path),), nprocs=2, join=False)
    try:
        deadline = time.monotonic() + 1200  # for hangs only: a busy machine takes minutes to start both
        while not spawned.join(timeout=5):
            assert time.monotonic() < deadline, "a process waits for the other"
    finally:
        for process in spawned.processes:
            process.kill()
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for i, (step, name) in enumerate([(2, "stopped"), (6, "the control: only warned")]):
        assert [(n, last) for n, last, *_ in (first[i], second[i])] == [(2, step)] * 2, name
        assert [fired for *_, fired, _ in (first[i], second[i])] == [1, 0], "the second process measures nothing"
        assert torch.equal(first[i][-1], second[i][-1])
