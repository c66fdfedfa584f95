"""A cache of finished pieces: what is put is what comes back, and nothing else ever does."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scansnap.checks import InputError
from scansnap.storage import WriteError, versions
from scansnap.storage.checksums import Damaged
from scansnap.storage.versions import decisive_versions
from scansnap.storage.work_cache import WorkCache, decode, encode

VALUES = {"text": "η_Z\n", "number": 0.1, "none": None, "list": [1, [2.5]]}
ARRAYS = {
    "float64": np.array([[0.1, np.nan], [-0.0, np.inf]]), "float32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "int64": np.array([-(2**62)]), "uint8": np.arange(3, dtype=np.uint8), "bool": np.array([True, False]),
    "scalar": np.array(2.5), "empty": np.empty((0, 3)), "big-endian": np.arange(3, dtype=">i4"),
    "text": np.array(["holds", "η"]), "not contiguous": np.arange(12).reshape(3, 4)[:, ::2],
}  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path) -> WorkCache:
    return WorkCache(tmp_path / "cache", "settings", {"scansnap": "1", "torch": "2"})


def test_a_piece_comes_back_bit_for_bit(cache: WorkCache) -> None:
    digest = cache.put("cells/a", VALUES, ARRAYS)
    piece = cache.get("cells/a")
    assert piece is not None
    assert (piece.values, piece.versions, piece.digest) == (VALUES, {"scansnap": "1", "torch": "2"}, digest)
    assert piece.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert piece.arrays[name].shape == array.shape
        assert piece.arrays[name].dtype == array.dtype.newbyteorder("<")
        np.testing.assert_array_equal(piece.arrays[name], array)
    assert np.signbit(piece.arrays["float64"][1, 0])
    assert piece.size == (cache.place.path / "cells/a").stat().st_size  # type: ignore[attr-defined]


def test_the_same_piece_is_the_same_file_and_replaces_it(cache: WorkCache) -> None:
    assert cache.put("a", VALUES, ARRAYS) == cache.put("a", VALUES, ARRAYS)
    assert cache.put("a", {}) != cache.put("a", {"x": 1})
    assert cache.names() == ["a"]
    assert [name for name, piece in cache.pieces(["b", "a"]) if piece is not None] == ["a"]
    cache.remove(["a", "b"])
    assert cache.get("a") is None
    assert cache.names() == []


def test_a_piece_of_other_work_is_missing(cache: WorkCache, tmp_path: Path) -> None:
    cache.put("a", VALUES)
    assert WorkCache(tmp_path / "cache", "other settings").get("a") is None
    newer = WorkCache(tmp_path / "cache", "settings", {"scansnap": "2"}).get("a")
    assert newer is not None
    assert newer.versions["scansnap"] == "1", "who reads decides what to do with it"
    (tmp_path / "cache" / "a").rename(tmp_path / "cache" / "b")
    assert cache.get("b") is None, "it is the piece a"


def test_only_numbers_and_text_are_taken(cache: WorkCache) -> None:
    for array in (np.array([{}], dtype=object), np.array([b"bytes"]), np.array([1], dtype="M8[s]")):
        with pytest.raises(TypeError):
            cache.put("a", {}, {"x": array})
    assert cache.names() == []


@pytest.mark.parametrize("kind", ["flip", "cut", "more"])
def test_every_byte_counts(cache: WorkCache, tmp_path: Path, kind: str) -> None:
    cache.put("a", {"x": 1}, {"y": np.arange(40.0)})
    file = tmp_path / "cache" / "a"
    before, chance = file.read_bytes(), random.Random(kind)
    lenient = WorkCache(tmp_path / "cache", "settings", damaged="missing")
    for at in range(0, len(before), 1 if kind == "cut" else 3):
        changed = before[at] ^ (1 << chance.randrange(8))
        file.write_bytes({"flip": before[:at] + bytes([changed]) + before[at + 1 :], "cut": before[:at],
                          "more": before + bytes(at + 1)}[kind])  # fmt: skip
        with pytest.raises(Damaged) as refusal:
            cache.get("a")
        assert refusal.value.part == "a"
        assert lenient.get("a") is None


@pytest.mark.parametrize(
    "change",
    [{"arrays": [["x", "|O", [1]]]}, {"arrays": [["x", "<f8", [-1]]]}, {"arrays": [["x", "<f8", [2**70, 2**70]]]},
     {"arrays": [["x", "<f8", [2**40]]]}, {"arrays": [["x", "<f8", 1]]}, {"arrays": [["x", "f8,i4", [1]]]},
     {"arrays": [["x", "|V8", [1]]]}, {"arrays": 5}, {"values": 5}, {"versions": []}, {"arrays": [["x"]]},
     {"arrays": [["x", "<f8", [[1]]]]}, {"arrays": [["x", ["a", "<f8"], [1]]]}],
    ids=str,
)  # fmt: skip
def test_a_hostile_header_under_a_sound_checksum_is_refused(change: dict[str, Any]) -> None:
    content = encode("key", "a", {}, {}, {"x": np.arange(2.0)})
    first, header, rest = content.split(b"\n", 2)
    body = json.dumps(json.loads(header) | change).encode() + b"\n" + rest
    digest = hashlib.sha256(body).hexdigest().encode()
    with pytest.raises(ValueError, match="header"):
        decode(first[:-64] + digest + b"\n" + body, "key", "a")


def test_no_name_leads_out_of_the_folder(cache: WorkCache, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(encode("settings", "../outside", {}, {}, {}))
    cache.put("a", {})
    for name in ("../outside", str(tmp_path / "outside"), "a/../../outside", ""):
        with pytest.raises(InputError):
            cache.get(name)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
def test_a_writer_that_is_killed_leaves_the_piece_as_it_was(
    cache: WorkCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the file has its name, and after."""
    before = cache.put("a", {"x": 1})
    replace = os.replace
    for moment in ("before", "after"):
        child = os.fork()
        if child == 0:

            def killed(source: Any, target: Any, moment: str = moment) -> None:
                if moment == "after":
                    replace(source, target)
                os.kill(os.getpid(), signal.SIGKILL)

            monkeypatch.setattr(os, "replace", killed)
            cache.put("a", {"x": 2})
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        piece = cache.get("a")
        assert piece is not None
        assert (piece.digest == before) == (moment == "before")
        assert piece.values == {"x": 1 if moment == "before" else 2}
        assert cache.names() == ["a"]


def test_only_the_same_work_by_the_same_versions_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, here = tmp_path / "cache", decisive_versions()
    cache = WorkCache(folder, "settings", here, damaged="missing", field="folder")
    cache.refuse_other_work("move it")
    assert not folder.exists()
    cache.put("a", {"x": 1})
    cache.put("b", {"x": 2})
    content = (folder / "b").read_bytes()
    (folder / "b").write_bytes(content[:-1])
    cache.refuse_other_work("move it")  # a damaged piece is computed again
    others = {"key": WorkCache(folder, "other", here, field="folder"),
              "foreign": WorkCache(tmp_path / "mine", "settings", here, field="folder"),
              "file": WorkCache(tmp_path / "file", "settings", here, field="folder")}  # fmt: skip
    (tmp_path / "mine").mkdir()
    for file in (tmp_path / "mine" / "note", tmp_path / "file"):
        file.write_text("mine")
    for other in others.values():
        with pytest.raises(InputError) as refusal:
            other.refuse_other_work("move it")
        assert refusal.value.field == "folder"
    monkeypatch.setattr(versions, "decisive_versions", lambda: here | {"torch": "9.8.7"})
    with pytest.raises(InputError) as refusal:
        cache.refuse_other_work("move it")
    assert "9.8.7" in str(refusal.value)
    cache.discard()
    assert not folder.exists()


def test_a_disk_that_takes_no_more_is_named(cache: WorkCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(WriteError) as refusal:
        cache.put("a", {})
    assert str(cache.path) in str(refusal.value)
    assert cache.names() == []
