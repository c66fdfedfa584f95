"""A Ray cluster of several nodes, each with processes of its own: nodes die and come, the store is the same."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path

import pytest
from sweeps import SMALL, contents, marks, write

from ray_cluster import LEFT_OPEN
from scansnap.cluster import Cluster
from scansnap.sweep.config import read
from scansnap.sweep.run import prepare, run

ray = pytest.importorskip("ray")
pytestmark = LEFT_OPEN

# 12 groups of a tenth of a second
TEXT = SMALL.replace("steps = 6", 'steps = 60\noptimizer = "adam"').replace("momentum = 0.9\n", "").replace(
    "3, 6]", "60]"
).replace("runs = 4", "runs = 3")  # fmt: skip
_STORE = 80 * 2**20  # bytes of a node's object store


@pytest.mark.integration
@pytest.mark.skipif(not Path("/dev/shm").exists(), reason="Ray's nodes share memory there")
def test_a_cluster_that_starts_empty_loses_a_node_and_gets_another(tmp_path, monkeypatch):
    """The head has no CPU: tasks queue until the first node is there. One of three is killed with a group on it."""
    from ray.cluster_utils import Cluster as Nodes

    assert run(prepare(read(write(tmp_path, TEXT)), tmp_path / "local.zarr", memory="200MB", device="cpu")).complete
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setattr("scansnap.cluster.tasks._SILENCE", 0.2)
    folder = tempfile.mkdtemp(prefix="ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = Nodes(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": _STORE, "include_dashboard": False,
                            "temp_dir": folder},
        )  # fmt: skip
        try:
            workers, messages, n_done = [], [], []

            def grow(words: str) -> None:
                """What an autoscaler does when it sees the queue: here, when the driver says that it waits."""
                messages.append(words)
                if not workers:
                    workers.extend(nodes.add_node(num_cpus=1, object_store_memory=_STORE) for _ in range(2))

            def change(done: int, total: int) -> None:
                if done and not n_done:
                    n_done.append(marks(tmp_path / "s.zarr"))
                    nodes.remove_node(workers[0], allow_graceful=False)
                    workers.append(nodes.add_node(num_cpus=1, object_store_memory=_STORE))

            cluster = Cluster(nodes.address)
            ready = prepare(read(tmp_path / "sweep.toml"), tmp_path / "s.zarr", memory="200MB", cluster=cluster)
            outcome = run(ready, cluster=cluster, progress=change, note=grow)
        finally:
            ray.shutdown()
            nodes.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
    assert messages[0].startswith("no node of the cluster has 1 CPU")
    assert n_done
    assert n_done[0] < 12, "all was done before the node was killed"
    assert (outcome.failures, outcome.complete) == ([], True)
    assert len(workers) == 3
    assert contents(tmp_path / "s.zarr") == contents(tmp_path / "local.zarr")
