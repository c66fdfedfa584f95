"""Files and folders appear whole or not at all, and a failure leaves what was there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from refusals import refused
from scansnap import storage
from scansnap.storage import WriteError, check_writable, discard, put, remove, remove_leftovers, replacing, write_lock


def fill(path: Path, kind: str, content: str) -> None:
    if kind == "folder":
        (path / "inner").mkdir(parents=True)
        path = path / "inner" / "part"
    path.write_text(content)


def content(path: Path) -> str:
    return (path / "inner" / "part" if path.is_dir() else path).read_text()


@pytest.mark.parametrize("new", ["file", "folder"])
@pytest.mark.parametrize("old", [None, "file", "folder"])
def test_the_new_thing_takes_the_place_of_the_old(tmp_path: Path, old: str | None, new: str) -> None:
    target = tmp_path / "made" / "on the way" / "thing"
    if old:
        target.parent.mkdir(parents=True)
        fill(target, old, "old")
    with replacing(target) as scratch:
        fill(scratch, new, "new")
        assert target.exists() == bool(old)  # until the end nobody sees anything
        assert not old or content(target) == "old"
    assert content(target) == "new"
    assert target.is_dir() == (new == "folder")
    assert [p.name for p in target.parent.iterdir()] == ["thing"]


@pytest.mark.parametrize(
    "error", [OSError("disk full"), KeyboardInterrupt(), MemoryError()], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("new", ["file", "folder"])
@pytest.mark.parametrize("old", [None, "file", "folder"])
def test_a_failing_write_changes_nothing(tmp_path: Path, old: str | None, new: str, error: BaseException) -> None:
    target = tmp_path / "thing"
    if old:
        fill(target, old, "old")

    def write() -> None:
        with replacing(target) as scratch:
            fill(scratch, new, "half of the n")
            raise error

    with pytest.raises(type(error)):
        write()
    assert [p.name for p in tmp_path.iterdir()] == (["thing"] if old else [])
    assert not old or content(target) == "old"


@pytest.mark.parametrize("error", [OSError("no"), KeyboardInterrupt()], ids=lambda e: type(e).__name__)
def test_a_swap_that_fails_half_way_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target = tmp_path / "thing"
    fill(target, "folder", "old")
    rename = Path.rename

    def failing(self: Path, to: Path) -> Path:
        if self.parent.suffix == ".tmp":
            raise error
        return rename(self, to)

    monkeypatch.setattr("scansnap.storage.writing._swap", lambda one, other: False)  # systems without renameat2
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(type(error)), replacing(target) as scratch:  # the swap is what raises
        fill(scratch, "folder", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["thing"]
    assert content(target) == "old"


def test_a_writer_that_makes_nothing_is_an_error_and_the_old_thing_stays(tmp_path: Path) -> None:
    target = tmp_path / "thing"
    fill(target, "file", "old")
    with pytest.raises(WriteError), replacing(target):
        pass
    assert content(target) == "old"


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "thing"
    with replacing(target) as first, replacing(target) as second:
        assert first != second
        assert first.parent.parent == second.parent.parent == tmp_path  # a rename must not leave the file system
        first.write_text("first")
        second.write_text("second")
    assert content(target) == "first"  # the outer one ends last


def test_a_link_to_a_folder_is_replaced_and_its_folder_left_alone(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    fill(real, "folder", "elsewhere")
    link.symlink_to(real)
    with replacing(link) as scratch:
        fill(scratch, "folder", "new")
    assert content(real) == "elsewhere"
    assert content(link) == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_remove_takes_files_folders_links_and_nothing(tmp_path: Path) -> None:
    target = tmp_path / "kept"
    fill(target, "folder", "kept")
    (tmp_path / "link").symlink_to(target)
    fill(tmp_path / "file", "file", "")
    fill(tmp_path / "folder", "folder", "")
    for name in ("link", "file", "folder", "nothing"):
        remove(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert content(target) == "kept"


def test_a_folder_is_discarded_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "thing", "folder", "old")

    def seen(path: Path) -> None:
        assert not (tmp_path / "thing").exists()  # gone under its name before the first of its files is
        remove(path)

    monkeypatch.setattr("scansnap.storage.scratch.remove", seen)
    discard(tmp_path / "thing")
    discard(tmp_path / "thing")  # nothing there: nothing to do
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys
from pathlib import Path
from unittest.mock import patch
from scansnap import storage
target = Path(sys.argv[1])
if sys.argv[2] == "between renames":
    patch.object(storage.writing, "_swap", lambda one, other: False).start()
    rename = Path.rename
    def dying(self, to):
        if self.parent.suffix == ".tmp":
            os.kill(os.getpid(), 9)
        return rename(self, to)
    patch.object(Path, "rename", dying).start()
with storage.write_lock("--out", target), storage.replacing(target) as scratch:
    scratch.mkdir()
    (scratch / "part").write_text("half")
    if sys.argv[2] == "while writing":
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("moment", ["while writing", "between renames"])
def test_what_a_killed_writer_left_is_swept_up_and_what_it_moved_away_is_put_back(tmp_path: Path, moment: str) -> None:
    target = tmp_path / "thing"
    fill(target, "folder", "old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(target), moment], check=False)
    assert done.returncode == -9
    assert len(list(tmp_path.iterdir())) > 1 or not target.exists()
    storage.scratch._cleaned_folders.clear()  # as in a new process
    remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thing"]
    assert content(target) == "old"


def test_scratch_folders_in_use_are_left_alone(tmp_path: Path) -> None:
    with replacing(tmp_path / "thing") as scratch:
        scratch.write_text("mine")
        storage.scratch._cleaned_folders.clear()
        remove_leftovers(tmp_path)
        assert scratch.read_text() == "mine"
    assert (tmp_path / "thing").read_text() == "mine"


def test_only_one_works_towards_a_target_and_nothing_stays_of_the_claim(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250)
    with write_lock("--out", target):
        with refused("--out"), write_lock("--out", tmp_path / "." / target.name):
            pass
        with write_lock("--out", tmp_path / "another"):
            pass
    with write_lock("--out", target):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_does_not_take_it_is_one_sentence(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 300)
    with pytest.raises(WriteError) as error:
        put(target, "content")
    assert str(error.value) == f"{target} could not be written (File name too long)."


@pytest.mark.parametrize(
    "name", ["", "/", "..", "file/thing", "file/deep/thing", "n" * 300, "new/" + "n" * 300, "/dev/null/thing",
             "/proc/thing", "folder", "nul\0"]
)  # fmt: skip
def test_a_place_that_cannot_be_written_is_refused_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    put(Path("file"), "x")
    Path("folder").mkdir()
    with refused("--out"):
        check_writable("--out", Path(name))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    assert check_writable("--out", tmp_path / "new" / "thing") == tmp_path / "new" / "thing"
    assert check_writable("--out", tmp_path, folder=True) == tmp_path
    assert list(tmp_path.iterdir()) == []
