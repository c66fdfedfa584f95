"""Objects of a folder: each whole or not at all, whoever puts them at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refusals import refused
from scansnap.storage.objects import Folder, entry_of_bytes, place_of


@pytest.fixture
def place(tmp_path: Path) -> Folder:
    result = Folder(tmp_path / "s.zarr")
    result.begin({"zarr.json": b"{}", "a/c/0": b"zero"}, "zarr.json", replaces=False)
    return result


def test_put_get_list_and_remove(place: Folder) -> None:
    place.put({"a/c/1": b"one", "b/c/0/0": b"two", "a/c/0": b"another"})
    (place.path / ".hidden").write_text("the system's")
    assert place.sizes() == {"a/c/0": 7, "a/c/1": 3, "b/c/0/0": 3, "zarr.json": 2}
    assert dict(place.contents(["a/c/0", "nowhere", "a"])) == {
        "a/c/0": b"another", "nowhere": "is missing", "a": "cannot be read (Is a directory)"
    }  # fmt: skip
    assert dict(place.digests(["a/c/1", "nowhere"])) == {"a/c/1": entry_of_bytes(b"one"), "nowhere": "is missing"}
    place.remove(["b/c/0/0", "nowhere", "a/c/0"])
    assert place.sizes() == {"a/c/1": 3, "zarr.json": 2}
    assert not (place.path / "b").exists()
    with pytest.raises(FileExistsError):
        place.begin({"zarr.json": b""}, "zarr.json", replaces=False)
    place.begin({"zarr.json": b"new"}, "zarr.json", replaces=True)
    assert place.sizes() == {"zarr.json": 3}


def test_a_put_that_fails_leaves_what_was_there(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="No space"):
        place.put({"a/c/0": b"half of"})
    monkeypatch.undo()
    assert place.get("a/c/0") == b"zero"
    assert [name.name for name in place.path.iterdir() if any(name.iterdir() if name.is_dir() else [1])] == [
        name.name for name in place.path.iterdir() if name.name != ".scansnap-writing"
    ]
    place.tidy()
    assert sorted(os.listdir(place.path)) == ["a", "zarr.json"]


def test_what_a_killed_writer_left_goes(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed amid a file, or as it began the store: beside it lies the folder in which that was made."""
    for left in (place.path / ".scansnap-writing" / "0f0f", place.path.parent / ".scansnap-0f0f.tmp" / "s.zarr"):
        left.parent.mkdir()
        left.write_text("half")
    monkeypatch.setattr("scansnap.storage.scratch._cleaned_folders", set())  # as in a new process
    place.tidy()
    assert os.listdir(place.path.parent) == ["s.zarr"]
    assert sorted(os.listdir(place.path)) == ["a", "zarr.json"]


def test_a_put_survives_that_others_tidy_up(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver that ends removes the scratch folder under our hands."""
    place.put({"a/c/1": b"1"})
    replace, times = os.replace, []

    def tidied(source: Path, target: Path) -> None:
        if not times:
            times.append(1)
            place.tidy()
        replace(source, target)

    monkeypatch.setattr(os, "replace", tidied)
    place.put({"a/c/2": b"2"})
    assert times
    assert place.get("a/c/2") == b"2"


_WRITER = """
import sys
from pathlib import Path
from scansnap.storage.objects import Folder
place = Folder(Path(sys.argv[1]))
for i in range(200):
    place.put({"a/c/0": bytes([int(sys.argv[2])]) * 100_000})
"""


def test_whoever_reads_while_many_write_sees_one_of_them_whole(place: Folder) -> None:
    place.put({"a/c/0": bytes(100_000)})
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(place), str(n)]) for n in (1, 2)]
    observed = set()
    while any(writer.poll() is None for writer in writers):
        content = place.get("a/c/0")
        assert len(content) == 100_000
        assert len(set(content)) == 1
        observed.add(content[0])
    assert [writer.returncode for writer in writers] == [0, 0]
    assert place.get("a/c/0")[0] in (1, 2)
    assert observed <= {0, 1, 2}


@pytest.mark.parametrize("address", ["s3://", "s3://bucket", "s3://bucket/x//y", "gs://bucket/x", "http://host/x"])
def test_what_is_no_place_is_refused(address: str) -> None:
    with refused("--out", names="s3://bucket/prefix"):
        place_of(address, "--out")


def test_an_endpoint_needs_a_bucket(tmp_path: Path) -> None:
    with refused("--endpoint"):
        place_of(tmp_path / "s.zarr", "--out", "http://127.0.0.1:9")
