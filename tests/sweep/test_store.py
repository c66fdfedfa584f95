"""The files of a store: which are whose, and that none can go or come unnoticed."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from sweeps import SMALL, contents, write

import scansnap as ss
from scansnap.storage import checksums
from scansnap.storage.checksums import Damaged
from scansnap.storage.chunks import group_chunks
from scansnap.storage.objects import Folder
from scansnap.sweep import template
from scansnap.sweep.config import read
from scansnap.sweep.plan import RunGroup
from scansnap.sweep.run import PreparedSweep, prepare, run
from scansnap.sweep.store import StoreError
from scansnap.sweep.work import SweepJob, run_group

TEXT = SMALL.replace("n_queries = [1, 2]", "n_queries = 1").replace("[0.5, 1]", "0.5")  # 3 groups, the last of 1 run


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> PreparedSweep:
    """A sweep that is done, with chunks so small that arrays are cut along every dimension."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template, "_CHUNK_BYTES", 64)
        prepared = prepare(read(write(folder, TEXT)), folder / "s.zarr", device="cpu")
        assert run(prepared).complete
    return prepared


@pytest.fixture
def copy(ready: PreparedSweep, tmp_path: Path) -> Path:
    write(tmp_path, TEXT)
    return Path(shutil.copytree(str(ready.store.place), tmp_path / "s.zarr"))


def resumed(path: Path) -> tuple[int, list[str]]:
    """How many runs were made again, and what was said to be damaged."""
    prepared = prepare(read(path.with_name("sweep.toml")), path, resume=True)
    outcome = run(prepared)
    assert outcome.complete
    return outcome.finished, prepared.store.recomputed


def chunk_files(folder: Path) -> list[str]:
    return [name for name in checksums.files_in(folder) if "/c/" in name]


def test_every_group_has_all_its_chunks(ready: PreparedSweep) -> None:
    """The chunks that the groups must have are the files that are there, each once, fill values included."""
    folder = Folder(Path(str(ready.store.place)) / "classes-0.zarr")
    arrays = [v.name for v in ready.store.template.filled(0)]
    chunks = group_chunks(folder, "", arrays, range(3))
    assert sorted(chunks) == [name for name in chunk_files(folder.path) if name.split("/")[0] in arrays]
    assert {name: int(name.split("/")[2]) for name in chunks} == chunks
    several = [name for name in chunks if name.startswith("z/c/")]
    assert len(several) > 3, "z is in one piece: nothing was tested"


def test_a_deleted_chunk_is_noticed_though_zarr_reads_on(copy: Path) -> None:
    """Zarr reads fill values where a chunk file is missing; our tables know every one of them by name."""
    loss = copy / "classes-0.zarr/loss/c/1/0"
    before = loss.read_bytes()
    loss.unlink()
    with xr.open_zarr(copy / "classes-0.zarr") as data:
        assert data.done.all()
        assert np.isnan(data.loss.values).any()  # silently
    loss.write_bytes(before)
    checksums.check("the store", copy)
    names = chunk_files(copy)
    assert len(names) > 100
    for name in names:
        away = (copy / name).rename(copy.parent / "away")
        with pytest.raises(Damaged) as prepared:
            checksums.check("the store", copy)
        assert (prepared.value.part, prepared.value.problem) == (name, "is missing")
        away.rename(copy / name)


@pytest.mark.parametrize("name", ["loss/c/1/0", "z/c/2/1/0/1", "status/c/0", "failed_step/c/2"])
@pytest.mark.parametrize("change", ["delete", "damage"])
def test_a_group_with_a_bad_chunk_is_computed_again(copy: Path, ready: PreparedSweep, name: str, change: str) -> None:
    whole, path = contents(copy), copy / "classes-0.zarr" / name
    before = path.read_bytes()
    path.unlink()
    if change == "damage":
        path.write_bytes(before[:-1])
    group = ready.plan.groups()[int(name.split("/")[2])]
    problem = "is missing" if change == "delete" else "does not match its checksum"
    assert resumed(copy) == (len(group), [f"{group}: classes-0.zarr/{name} {problem}"])
    assert contents(copy) == whole


def test_a_deleted_marker_makes_its_group_missing(copy: Path, ready: PreparedSweep) -> None:
    whole = contents(copy)
    (copy / "classes-0.zarr/done/c/1").unlink()
    assert resumed(copy) == (len(ready.plan.groups()[1]), [])
    assert contents(copy) == whole


def test_a_bad_summary_is_computed_again_and_costs_no_run(copy: Path) -> None:
    whole = contents(copy)
    for name in ("loss/c/0/0", "done/c/0"):
        (copy / name).unlink()
        assert resumed(copy) == (0, [])
        assert contents(copy) == whole


def test_what_is_no_chunk_changes_nothing(copy: Path) -> None:
    with xr.open_zarr(copy / "classes-0.zarr") as data:
        before = data.load()
    for name in ("classes-0.zarr/loss/c/0/0.0f0f.partial", "classes-0.zarr/loss/c/9/0", "classes-0.zarr/done/c/9"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("what a killed process, or somebody, left")
    assert resumed(copy) == (0, [])
    with xr.open_zarr(copy / "classes-0.zarr") as data:
        xr.testing.assert_identical(data.load(), before)
    (copy / "classes-0.zarr/seed/c/7").write_text("")
    with pytest.raises(Damaged):
        checksums.check("the store", copy)


def test_a_group_that_is_written_twice_is_the_same(copy: Path) -> None:
    """By a worker that was thought dead, say: nothing is locked, as nothing can go wrong."""
    whole = contents(copy)
    prepared = prepare(read(copy.with_name("sweep.toml")), copy, resume=True)
    job = SweepJob(prepared.sweep.axes, prepared.sweep.options, prepared.sweep.stored, prepared.sweep.measures, "cpu")
    group = prepared.plan.groups()[1]
    built = run_group(job, prepared.sweep.class_sets[0].classes, group.start, group.stop)
    prepared.store.writer().write(group, built)
    prepared.store.place.tidy()
    assert contents(copy) == whole


def test_a_machine_that_does_not_see_the_store_says_so_and_writes_nothing(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy.parent)
    writer = prepare(read(copy.with_name("sweep.toml")), "s.zarr", resume=True).store.writer()
    assert str(writer.place) == str(copy)  # whatever folder a worker is in
    elsewhere = replace(writer, place=Folder(tmp_path / "not mounted" / "s.zarr"))
    with pytest.raises(StoreError, match=r"all machines must see it, by a shared folder or s3://"):
        elsewhere.write(RunGroup(0, 0, 0, 3), {})
    other = replace(writer, table=[1, "another"])
    before = contents(copy)
    with pytest.raises(StoreError, match="another sweep has taken its place"):
        other.write(RunGroup(0, 0, 0, 3), {})
    assert contents(copy) == before
    assert not (tmp_path / "not mounted").exists()


def test_a_finished_store_of_version_0_2_loads(tmp_path: Path) -> None:
    """It was written by ``scansnap sweep`` of version 0.2.0: textbook, η_Z 0.5 and 1, ratio 2, context 8, 2 steps."""
    path = tmp_path / "classes-0.zarr"
    zipfile.ZipFile(Path(__file__).with_name("classes-0.2.0.zip")).extractall(path)
    data = ss.load(path)
    assert data.attrs["complete"] == 1
    runs = ss.grid(eta_z=[0.5, 1], ratio=2)
    same = ss.simulate(ss.SequenceClasses.preset("textbook"), runs, steps=2, record=[0, 2], context=8, device="cpu")
    xr.testing.assert_allclose(data.loss.drop_vars(data.loss.coords), same.loss.drop_vars(same.loss.coords), rtol=1e-5)
    chunk = path / "loss/c/0/0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    with pytest.raises(Damaged):
        ss.load(path)
