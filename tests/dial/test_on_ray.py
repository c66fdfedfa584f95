"""The dial on a Ray cluster of this machine: the same files as without it, also when a worker is killed."""

from __future__ import annotations

import pytest

from ray_cluster import LEFT_OPEN, killing_one, local_cluster
from scansnap.cluster import Cluster, Failure
from scansnap.dial import study
from scansnap.dial.cells import TASK, CellsFailed
from scansnap.dial.rate_matching import StudySettings
from scansnap.dial.study import run_dial
from scansnap.storage.work_cache import WorkCache

pytestmark = LEFT_OPEN
pytest.importorskip("ray")
TIMES = ("seconds", "cpu_seconds")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch) -> None:
    monkeypatch.setattr(study, "QUICK", StudySettings((10.0,), seeds=2, context=24, end=20))


@pytest.fixture(scope="module")
def cluster():
    with local_cluster() as found:
        yield found


@pytest.mark.integration
def test_the_same_cells_though_a_worker_is_killed(cluster, tmp_path) -> None:
    asked = (["yz", "heads", "masked"], "single", "sgd")
    with killing_one(TASK) as killed:
        there = run_dial(*asked, quick=True, device="cpu", out=tmp_path / "ray", cluster=cluster)
    here = run_dial(*asked, quick=True, device="cpu", out=tmp_path / "here")
    assert killed
    assert there.table.equals(here.table)
    caches = [WorkCache(tmp_path / name / "cells", None) for name in ("here", "ray")]
    for name in caches[0].names():
        one, other = (cache.get(name) for cache in caches)
        assert one is not None
        assert other is not None
        assert (one.key, one.versions) == (other.key, other.versions)
        for values in (one.values, other.values):
            for time in TIMES:
                values.pop(time)
        assert repr(one.values) == repr(other.values)
    again = run_dial(*asked, quick=True, device="cpu", out=tmp_path / "ray", cluster=Cluster("nowhere:1"))
    assert again.table.equals(here.table)  # all are there: nobody is asked


@pytest.mark.integration
def test_a_cell_that_fails_is_told_when_the_others_are_done(tmp_path, monkeypatch) -> None:
    def spread(work, shared, tasks, on, **options):
        for i, task in enumerate(tasks):
            yield task, Failure("its node is gone") if i == 0 else work(shared, task)

    monkeypatch.setattr("scansnap.dial.cells.spread", spread)
    with pytest.raises(CellsFailed, match="1 of 2 cells failed: yz-single-sgd-syn-medium: its node is gone"):
        run_dial(["yz", "heads"], "single", "sgd", quick=True, device="cpu", out=tmp_path, cluster=Cluster())
    assert [file.stem for file in (tmp_path / "cells").iterdir()] == ["heads-single-sgd-syn-medium"]
