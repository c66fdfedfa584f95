"""What Ray costs on one machine: the same sweep of about a minute, locally and on a Ray cluster of two cores.

python benchmarks/ray_overhead.py [--seeds 360]

Both in this process and into stores on the same disk, which must come out the same to the bit. Locally the engine
uses two threads inside a group; with Ray two workers of one thread each have a group of their own. Ray's time holds
everything a user waits for: starting the cluster (also shown by itself), starting workers that import torch,
shipping results and writing them. The target is an overhead below 15% with the cluster's start left out.
"""

from __future__ import annotations

import argparse
import filecmp
import logging
import os
import tempfile
import time
from pathlib import Path

import torch

from scansnap.cluster import Cluster
from scansnap.paper.experiment import SYN_MEDIUM
from scansnap.sweep.config import Sweep, from_table
from scansnap.sweep.run import prepare, run

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


def timed(sweep: Sweep, store: Path, cluster: Cluster | None) -> float:
    """Seconds from the parsed file to the finished store."""
    began = time.perf_counter()
    outcome = run(prepare(sweep, store, device="cpu", cluster=cluster), cluster=cluster)
    assert outcome.complete, outcome.failures
    return time.perf_counter() - began


def same(a: Path, b: Path) -> bool:
    """Whether two folders hold the same files."""
    names = [{p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} for folder in (a, b)]
    return names[0] == names[1] and all(filecmp.cmp(a / name, b / name, shallow=False) for name in names[0])


def main(seeds: int) -> None:
    """Measure and print."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    torch.set_num_threads(CORES)
    sweep = fig6(seeds)
    with tempfile.TemporaryDirectory() as folder:
        timed(fig6(1), Path(folder) / "warm.zarr", None)
        local = timed(sweep, Path(folder) / "local.zarr", None)
        print(
            f"{len(sweep)} runs locally, {CORES} threads: {local:.1f} s ({len(sweep) / local:.0f} runs/s)", flush=True
        )
        began = time.perf_counter()
        ray.init(
            address="local", num_cpus=CORES, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
        )
        start = time.perf_counter() - began
        on_ray = timed(sweep, Path(folder) / "ray.zarr", Cluster())
        ray.shutdown()
        print(f"the same with Ray, {CORES} workers: {on_ray:.1f} s ({len(sweep) / on_ray:.0f} runs/s)")
        print(f"starting the cluster: {start:.1f} s")
        print(f"overhead {on_ray / local - 1:+.1%}, with the cluster's start {(on_ray + start) / local - 1:+.1%}")
        print(
            "the two stores are",
            "the same" if same(Path(folder) / "local.zarr", Path(folder) / "ray.zarr") else "NOT the same",
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=360)
    main(parser.parse_args().seeds)
