"""Files and folders appear whole or not at all, and a failure leaves what was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from scansnap.storage import remove, replacing


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
        if self.suffix == ".tmp":
            raise error
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(type(error)), replacing(target) as scratch:  # the swap is what raises
        fill(scratch, "folder", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["thing"]
    assert content(target) == "old"


def test_a_writer_that_makes_nothing_is_an_error_and_the_old_thing_stays(tmp_path: Path) -> None:
    target = tmp_path / "thing"
    fill(target, "file", "old")
    with pytest.raises(FileNotFoundError), replacing(target):
        pass
    assert content(target) == "old"


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "thing"
    with replacing(target) as first, replacing(target) as second:
        assert first != second
        assert first.parent == second.parent == tmp_path  # a rename must not leave the file system
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
    kept = tmp_path / "kept"
    fill(kept, "folder", "kept")
    (tmp_path / "link").symlink_to(kept)
    fill(tmp_path / "file", "file", "")
    fill(tmp_path / "folder", "folder", "")
    for name in ("link", "file", "folder", "nothing"):
        remove(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert content(kept) == "kept"
