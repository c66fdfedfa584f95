"""Finished parts of a map on the disk: damaged ones do not count, and an empty folder is nobody's work."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from scansnap.checks import InputError
from scansnap.claims.kept import Kept
from scansnap.storage.scratch import MARK

WORK = {"theorem": "theorem-3", "points": [1, 2]}
PART = [[{"claim": {"low": math.nan, "margin": 0.25}}, True]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kept = Kept(tmp_path / "m.unfinished", WORK)
    for i in range(2):
        kept[i] = PART
    return kept.folder


def test_parts_are_read_as_they_were_written(folder) -> None:
    kept = Kept(folder, WORK)
    assert [json.dumps(kept[i]) for i in range(3)] == [json.dumps(PART), json.dumps(PART), "null"]


@pytest.mark.parametrize(
    ("old", "new"), [("0.25", "0.26"), ("true", "false"), ("NaN", "1.0"), ("margin", "low"), ("}", "")]
)
def test_a_damaged_part_does_not_count(folder, old, new) -> None:
    text = (folder / "part-1.json").read_text()
    assert old in text
    (folder / "part-1.json").write_text(text.replace(old, new, 1))
    kept = Kept(folder, WORK)
    assert kept[0] is not None
    assert kept[1] is None


@pytest.mark.parametrize("content", [None, "", "{}", '{"theorem": "theorem-3", "points": [1, 2]}', "[]"])
def test_parts_whose_work_is_not_known_are_refused(folder, content) -> None:
    if content is None:
        (folder / "work.json").unlink()
    else:
        (folder / "work.json").write_text(content)
    with pytest.raises(InputError) as refused:
        Kept(folder, WORK)
    assert refused.value.field == "the folder with unfinished work"
    Kept(folder, WORK, overwrite=True)
    assert not folder.exists()


@pytest.mark.parametrize("left", [None, f"{MARK}abc.tmp"])
def test_an_empty_folder_is_used(tmp_path, left) -> None:
    """As one that was killed before its first part leaves it, with what it was about to write."""
    folder = tmp_path / "m.unfinished"
    folder.mkdir()
    if left is not None:
        (folder / left).mkdir()
        (folder / left / "work.json").write_text("{")
    kept = Kept(folder, WORK)
    kept[0] = PART
    assert json.dumps(Kept(folder, WORK)[0]) == json.dumps(PART)


def test_a_file_in_its_place_is_refused(tmp_path) -> None:
    (tmp_path / "m.unfinished").write_text("mine")
    with pytest.raises(InputError) as refused:
        Kept(tmp_path / "m.unfinished", WORK)
    assert refused.value.field == "the folder with unfinished work"
    assert (tmp_path / "m.unfinished").read_text() == "mine"
