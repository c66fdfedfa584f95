"""The files of a store: which are whose, and that none can go or come unnoticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from sweeps import SMALL, contents, write

from scansnap.storage import checksums
from scansnap.storage.checksums import Damaged
from scansnap.sweep.config import read
from scansnap.sweep.run import Prepared, prepare, run
from scansnap.sweep.store import arrays

TEXT = SMALL.replace("n_queries = [1, 2]", "n_queries = 1").replace("[0.5, 1]", "0.5")  # 3 groups, the last of 1 run


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A sweep that is done, with chunks so small that arrays are cut along every dimension."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_CHUNK_BYTES", 64)
        found = prepare(read(write(folder, TEXT)), folder / "s.zarr", device="cpu")
        assert run(found).complete
    return found


@pytest.fixture
def copy(ready: Prepared, tmp_path: Path) -> Path:
    write(tmp_path, TEXT)
    return Path(shutil.copytree(ready.store.path, tmp_path / "s.zarr"))


def resumed(path: Path) -> tuple[int, list[str]]:
    """How many runs were made again, and what was said to be damaged."""
    found = prepare(read(path.with_name("sweep.toml")), path, resume=True)
    outcome = run(found)
    assert outcome.complete
    return outcome.finished, found.store.mended


def chunk_files(folder: Path) -> list[str]:
    return [name for name in checksums.files_in(folder) if "/c/" in name]


def test_every_chunk_belongs_to_one_group(ready: Prepared) -> None:
    """Zarr's own names of a group's chunks are the files that are there, each once."""
    folder = ready.store.path / "classes-0.zarr"
    schema = ready.layouts.schemas[0]
    members = arrays.SetArrays(folder, [v.name for v in schema.variables], "done")
    groups = list(ready.plan.groups())
    found = [name for group in groups for name in (*members.files(group), members.mark(group)[0])]
    grown = {v.name for v in schema.variables} | {"done"}
    assert sorted(found) == [name for name in chunk_files(folder) if name.split("/")[0] in grown]
    several = [name for name in members.files(groups[0]) if name.startswith("z/c/")]
    assert len(several) > len(groups), "z is in one piece: nothing was tested"


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
        with pytest.raises(Damaged) as found:
            checksums.check("the store", copy)
        assert (found.value.part, found.value.problem) == (name, "is missing")
        away.rename(copy / name)


@pytest.mark.parametrize("name", ["loss/c/1/0", "z/c/2/1/0/1", "status/c/0", "done/c/2"])
def test_a_deleted_chunk_is_made_again(copy: Path, ready: Prepared, name: str) -> None:
    whole = contents(copy)
    (copy / "classes-0.zarr" / name).unlink()
    chunk = int(name.split("/")[2])
    group = list(ready.plan.groups())[chunk]
    assert resumed(copy) == (len(group), [f"{group}: classes-0.zarr/{name} is missing"])
    assert contents(copy) == whole


def test_a_chunk_that_was_not_there_is_noticed_and_its_group_made_again(copy: Path, ready: Prepared) -> None:
    """No run failed, so Zarr wrote no chunk of failed_step; one that appears would be read."""
    whole, name = contents(copy), "failed_step/c/1"
    assert not (copy / "classes-0.zarr" / name).exists()
    (copy / "classes-0.zarr/failed_step/c").mkdir(exist_ok=True)
    (copy / "classes-0.zarr" / name).write_bytes((copy / "classes-0.zarr/seed/c/0").read_bytes())
    with pytest.raises(Damaged, match=f"{name} is not one of its files"):
        checksums.check("the store", copy)
    group = list(ready.plan.groups())[1]
    assert resumed(copy) == (len(group), [f"{group}: classes-0.zarr/{name} is not one of its files"])
    assert contents(copy) == whole


def test_what_is_no_chunk_is_removed_and_costs_no_run(copy: Path) -> None:
    whole = contents(copy)
    for name in ("classes-0.zarr/loss/c/0/0.0f0f.partial", "classes-0.zarr/loss/c/9/0", "loss/c/note", "note"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("what a killed process, or somebody, left")
    assert resumed(copy) == (0, [])
    (copy / "note").unlink()  # beside the arrays it stays, and no table knows it
    assert contents(copy) == whole
    assert not (copy / "classes-0.zarr/loss/c/9").exists()
