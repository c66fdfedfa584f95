"""Cells that are on the disk already: damaged ones, those of other versions, and files that are not the dial's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import scansnap
from scansnap.checks import InputError
from scansnap.dial import study
from scansnap.dial.cells import Cell
from scansnap.dial.rate_matching import StudySettings
from scansnap.dial.study import FILES, run_dial

TINY = StudySettings((1.0, 10.0), seeds=2, context=24, end=12)
ASKED: Any = {"components": ["yz", "norm"], "modes": "single", "optimizers": "sgd", "quick": True, "device": "cpu"}
COMMAND = ("dial", "--component", "yz", "--mode", "single", "--optimizer", "sgd", "--quick", "--device", "cpu")


@pytest.fixture(scope="module")
def measured() -> dict[Cell, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "QUICK", TINY)
        study_result = run_dial(**ASKED)
    return {study._cell(cell): cell for cell in study_result.cells}


@pytest.fixture
def computed(monkeypatch, measured) -> list[Cell]:
    """The cells that are computed; each gives what it gave before."""
    done = list[Cell]()

    def run_cells(cells: list[Cell], *_: Any) -> Iterator[tuple[Cell, dict[str, Any]]]:
        for cell in cells:
            done.append(cell)
            yield cell, measured[cell]

    monkeypatch.setattr(study, "QUICK", TINY)
    monkeypatch.setattr(study, "run_cells", run_cells)
    return done


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def damages(content: bytes, other: bytes) -> Iterator[tuple[str, bytes]]:
    """What a disk, an editor or a mistaken copy makes of a cell's file."""
    digits = [i for i, sign in enumerate(content) if 48 <= sign < 58]
    for share in range(12):
        i = digits[len(digits) * share // 12]
        yield f"another digit at {i}", content[:i] + b"%d" % ((content[i] - 47) % 10) + content[i + 1 :]
    yield "cut", content[: len(content) // 2]
    yield "empty", b""
    yield "of another cell", other
    for name, verdict in ((b"holds", b"fails"), (b"fails", b"holds"), (b"undecided", b"holds")):
        if b'"%s"' % name in content:
            yield f"{verdict!r} for {name!r}", content.replace(b'"%s"' % name, b'"%s"' % verdict, 1)


def test_a_damaged_cell_is_computed_again(tmp_path, computed) -> None:
    whole = run_dial(**ASKED, out=tmp_path).table
    one, two = sorted((tmp_path / "cells").iterdir())
    before = one.read_bytes()
    for damage, content in damages(before, two.read_bytes()):
        one.write_bytes(content)
        computed.clear()
        assert run_dial(**ASKED, out=tmp_path).table.equals(whole), damage
        assert [cell.name for cell in computed] == [one.stem], damage
        assert one.read_bytes() == before, damage
    computed.clear()
    assert run_dial(**ASKED, out=tmp_path).table.equals(whole)
    assert not computed


def test_a_folder_in_the_place_of_a_cell_is_refused(tmp_path, computed) -> None:
    run_dial(**ASKED, out=tmp_path)
    one = min((tmp_path / "cells").iterdir())
    one.unlink()
    one.mkdir()
    (one / "mine").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(InputError) as refused:
        run_dial(**ASKED, out=tmp_path)
    assert refused.value.field == "out"
    assert tree(tmp_path) == before


def test_cells_of_other_versions_are_not_mixed_with_new_ones(tmp_path, monkeypatch, computed) -> None:
    whole = run_dial(**ASKED, out=tmp_path).table
    monkeypatch.setattr(scansnap, "__version__", "9.8.7")
    computed.clear()
    assert run_dial(**ASKED, out=tmp_path).table.equals(whole)  # what is finished is read
    assert not computed
    min((tmp_path / "cells").iterdir()).unlink()
    before = tree(tmp_path)
    with pytest.raises(InputError) as refused:
        run_dial(**ASKED, out=tmp_path)
    assert refused.value.field == "out"
    assert "9.8.7" in str(refused.value)
    assert not computed
    assert tree(tmp_path) == before
    run_dial(**ASKED, out=tmp_path, overwrite=True)
    assert len(computed) == 2
    run_dial(**ASKED, out=tmp_path)
    assert len(computed) == 2


def test_two_versions_are_not_put_into_one_table(tmp_path, monkeypatch, computed) -> None:
    run_dial(**ASKED | {"components": "yz"}, out=tmp_path)
    monkeypatch.setattr(scansnap, "__version__", "9.8.7")
    run_dial(**ASKED | {"components": "norm"}, out=tmp_path)
    assert len(computed) == 2
    with pytest.raises(InputError) as refused:
        run_dial(**ASKED, out=tmp_path)
    assert refused.value.field == "out"


# a folder cells is where cells are put, and a link may lead to one
OTHERS = [*product([*FILES, "checksums.json"], ["file", "folder", "link"]), ("cells", "file")]


@pytest.mark.parametrize(("name", "kind"), OTHERS)
def test_files_of_others_are_refused_before_the_work(scansnap, tmp_path, computed, name, kind) -> None:
    (tmp_path / "dial").mkdir()
    path = tmp_path / "dial" / name
    if kind == "folder":
        path.mkdir()
        (path / "mine").write_text("mine")
    elif kind == "link":
        (tmp_path / "mine").write_text("mine")
        path.symlink_to(tmp_path / "mine")
    else:
        path.write_text("mine")
    before = tree(tmp_path)
    code, out, err = scansnap(*COMMAND, "--out", "dial")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert name in err
    assert not computed
    assert tree(tmp_path) == before


def test_own_files_are_renewed_and_changed_ones_refused(scansnap, tmp_path, computed) -> None:
    assert scansnap(*COMMAND, "--out", "dial")[0] == 0
    first = tree(tmp_path)
    assert {f"dial/{name}" for name in FILES} <= first.keys()
    assert scansnap(*COMMAND, "--out", "dial")[0] == 0
    assert tree(tmp_path) == first
    other = [word if word != "yz" else "norm" for word in COMMAND]
    assert scansnap(*other, "--out", "dial")[0] == 0
    assert tree(tmp_path)["dial/dial.md"] != first["dial/dial.md"]
    with (tmp_path / "dial" / "dial.md").open("a") as file:
        file.write("A remark of mine.\n")
    before = tree(tmp_path)
    assert scansnap(*COMMAND, "--out", "dial")[0] == 2
    assert tree(tmp_path) == before
    assert scansnap(*COMMAND, "--out", "dial", "--overwrite")[0] == 0
    assert {name: content for name, content in tree(tmp_path).items() if name in first} == first


def test_one_stopped_between_two_files_goes_on(scansnap, tmp_path, monkeypatch, computed) -> None:
    """The table knows of files before they are there, and of those that they replace."""
    from scansnap.storage import tracked

    other = [word if word != "yz" else "norm" for word in COMMAND]
    assert scansnap(*other, "--out", "dial")[0] == 0
    put, times = tracked.put, []

    def stops(target: Path, content: Any) -> None:
        if target.name.startswith("dial."):
            times.append(target)
            if len(times) == 2:
                raise KeyboardInterrupt
        put(target, content)

    with monkeypatch.context() as patch:
        patch.setattr(tracked, "put", stops)
        assert scansnap(*COMMAND, "--out", "dial")[0] == 130
    assert scansnap(*COMMAND, "--out", "dial")[0] == 0
    assert scansnap(*COMMAND, "--out", "whole")[0] == 0
    assert tree(tmp_path / "dial")["dial.md"] == tree(tmp_path / "whole")["dial.md"]
