"""What Ray costs on one machine: the driver's processor time for many small tasks, and a sweep with and without Ray.

python benchmarks/ray_overhead.py tasks [--tasks 10000]    # small tasks that do nothing, on two workers
python benchmarks/ray_overhead.py sweep [--seeds 360]      # the same sweep of about a minute, locally and on two cores

Tasks: the processor time of this process alone (all its threads) for each task handed out, waited for and taken back by
``scansnap.cluster.spread``, beside that of the least one can ask of Ray: all tasks at once and one ``ray.get`` for all.

Sweep: both in this process and into stores on the same disk, which must come out the same to the bit. Locally the
engine uses two threads inside a group; with Ray two workers of one thread each have a group of their own. Ray's time
holds everything a user waits for: starting the cluster (also shown by itself), starting workers that import torch, and
writing. The target is an overhead below 15% with the cluster's start left out.
"""

from __future__ import annotations

import argparse
import filecmp
import logging
import os
import tempfile
from pathlib import Path

import torch

from scansnap.cluster import Cluster, spread
from scansnap.paper.shared.medium_runs import SYN_MEDIUM
from scansnap.sweep.config import Sweep, from_table
from scansnap.sweep.run import prepare, run
from timing import timed

CORES = 2


def fig6(seeds: int) -> Sweep:
    """Figure 6 with more seeds: 64 runs for each."""
    it = SYN_MEDIUM
    return from_table({
        "classes": {"preset": "syn-medium", "n_queries": list(it.n_queries)},
        "grid": {"eta_z": list(it.eta_z), "ratio": list(it.ratio), "seed": f"0:{seeds}"},
        "run": {"steps": it.steps, "momentum": it.momentum, "init": it.init, "record": [0, it.steps]},
        "measure": {"recall": {}},
    })  # fmt: skip


def seconds_of(sweep: Sweep, store: Path, cluster: Cluster | None) -> float:
    """Seconds from the parsed file to the finished store."""
    call = timed(lambda: run(prepare(sweep, store, device="cpu", cluster=cluster), cluster=cluster))
    assert call.result.complete, call.result.failures
    return call.wall


def same(a: Path, b: Path) -> bool:
    """Whether two folders hold the same files."""
    names = [{p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} for folder in (a, b)]
    return names[0] == names[1] and all(filecmp.cmp(a / name, b / name, shallow=False) for name in names[0])


def start() -> float:
    """A cluster of this machine; seconds until it is there."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    return timed(ray.init, address="local", num_cpus=CORES, include_dashboard=False, log_to_driver=False,
                 logging_level=logging.ERROR).wall  # fmt: skip


def same_number(shared: None, task: int) -> int:
    """The smallest task."""
    return task


def tasks(n: int) -> None:
    """Many small ones: what a driver's processor has to do for each."""
    import ray

    start()
    plain = ray.remote(same_number)
    list(spread(same_number, None, range(100), Cluster()))  # workers are there, torch is imported
    ways = {
        "ray.get of all": lambda: ray.get([plain.remote(None, i) for i in range(n)]),
        "spread": lambda: sum(1 for _ in spread(same_number, None, iter(range(n)), Cluster())),
    }
    for name, work in ways.items():
        calls = [timed(work) for _ in range(3)]
        seconds, busy = min((call.wall, call.processor) for call in calls)
        print(f"{n} tasks by {name}: {seconds:.1f} s, driver {busy:.2f} s of processor, {1e6 * busy / n:.0f} µs a task",
              flush=True)  # fmt: skip
    ray.shutdown()


def sweeps(seeds: int) -> None:
    """One sweep, with and without Ray."""
    import ray

    torch.set_num_threads(CORES)
    sweep = fig6(seeds)
    with tempfile.TemporaryDirectory() as folder:
        seconds_of(fig6(1), Path(folder) / "warm.zarr", None)
        local = seconds_of(sweep, Path(folder) / "local.zarr", None)
        print(
            f"{len(sweep)} runs locally, {CORES} threads: {local:.1f} s ({len(sweep) / local:.0f} runs/s)", flush=True
        )
        begun = start()
        on_ray = seconds_of(sweep, Path(folder) / "ray.zarr", Cluster())
        ray.shutdown()
        print(f"the same with Ray, {CORES} workers: {on_ray:.1f} s ({len(sweep) / on_ray:.0f} runs/s)")
        print(f"starting the cluster: {begun:.1f} s")
        print(f"overhead {on_ray / local - 1:+.1%}, with the cluster's start {(on_ray + begun) / local - 1:+.1%}")
        print(
            "the two stores are",
            "the same" if same(Path(folder) / "local.zarr", Path(folder) / "ray.zarr") else "NOT the same",
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["tasks", "sweep"], nargs="?")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=360)
    given = parser.parse_args()
    if given.part != "sweep":
        tasks(given.tasks)
    if given.part != "tasks":
        sweeps(given.seeds)
