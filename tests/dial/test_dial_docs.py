"""docs/dial.md lists the source's components, docs/dial_results.md describes each and has the command's tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from repository_scripts import load_script
from scansnap.dial.components import BUILT_IN, COMPONENTS, MODES, plan
from scansnap.dial.observables import OBSERVABLES
from scansnap.dial.study import MARKS, AblationStudy
from scansnap.dial.verdicts import judge

ROOT = Path(__file__).parents[2]
PAGE, RESULTS = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("dial.md", "dial_results.md"))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> dict[str, list[list[str]]]:
    """Way to rows, the header first, of the tables that the command writes."""
    found = {}
    for mode, table in re.findall(r"\*\*(\w+)\*\*\n\n((?:\|.*\n)+)", text):
        found[mode] = [cells(line) for line in table.splitlines() if not line.startswith("| ---")]
    return found


def made(mode: str, component: str, optimizer: str) -> dict:
    rows = [
        {"observable": observable.name, "value": 0.5, "low": 0.4, "high": 0.6, "verdict": "holds"}
        for observable in OBSERVABLES
    ]
    for row in rows:
        if row["observable"] == "sink":  # there is no first token on this page
            row.update(value=float("nan"), verdict="not applicable")
    return {"component": component, "mode": mode, "optimizer": optimizer, "observables": rows}


def test_the_tables_have_the_columns_and_rows_of_the_command() -> None:
    quick = "--quick" in RESULTS.split("## What came out")[1].split("**single**")[0]
    planned = list(plan(quick))
    written = tables(
        AblationStudy(tuple(made(mode, component, optimizer) for component, mode, optimizer in planned), quick).markdown
    )
    ours = tables(RESULTS)
    assert list(ours) == list(written) == list(MODES)
    for mode in MODES:
        assert ours[mode][0] == written[mode][0]
        assert [row[:2] for row in ours[mode]] == [row[:2] for row in written[mode]]


def test_every_cell_of_the_tables_is_a_number_and_a_mark() -> None:
    marks = {mark for mark in MARKS.values() if mark}
    for rows in tables(RESULTS).values():
        for row in rows[1:]:
            for cell in row[2:]:
                value, _, mark = cell.partition(" ")
                assert value == "–" or float(value.replace("−", "-")) is not None
                assert not mark or mark in marks


def test_the_page_counts_the_verdicts_of_its_tables() -> None:
    shown = tables(RESULTS)
    marks = [cell.partition(" ")[2] for rows in shown.values() for row in rows[1:] for cell in row[2:]]
    count = r"Of (\d+) entries with a threshold (\d+) hold, (\d+) fail and (\d+) are undecided"
    judged, holds, fails, undecided = (int(n) for n in re.search(count, RESULTS).groups())
    assert [marks.count(MARKS[word]) for word in ("holds", "fails", "undecided")] == [holds, fails, undecided]
    assert judged == holds + fails + undecided
    control = [cell for row in shown["control"][1:] for cell in row if cell.endswith(MARKS["holds"])]
    said = re.search(r"In the (\d+) control\s+cells (\w+) holds", RESULTS)
    assert int(said[1]) == len(shown["control"]) - 1
    assert said[2] == (str(len(control)) if control else "nothing")


def test_the_script_writes_the_section_and_nothing_else() -> None:
    script = load_script("docs/scripts/dial.py")
    cells = [
        made(mode, component, optimizer) | {"ratios": [1.0, 10.0], "seeds": 3} for component, mode, optimizer in plan()
    ]
    for cell in cells:
        for row in cell["observables"]:
            row["by_seed"] = [0.5, 0.6, 0.7] if row["verdict"] == "holds" else [float("nan")] * 3
    study_result = AblationStudy(judge(cells), quick=False)
    page = script.written(RESULTS, study_result)
    assert page.split(script.HEAD)[0] == RESULTS.split(script.HEAD)[0]
    assert page.split(script.NEXT)[1] == RESULTS.split(script.NEXT)[1]
    assert study_result.summary in page
    assert {mode: len(rows) for mode, rows in tables(page).items()} == {
        mode: len(t) for mode, t in tables(RESULTS).items()
    }
    assert script.written(page, study_result) == page


def test_the_components_are_those_of_the_source_and_each_has_its_paragraph() -> None:
    listed = [cells(line) for line in PAGE.split("| changes |")[1].split("\n\n")[0].splitlines()[2:]]
    assert [row[1] for row in listed] == list(BUILT_IN)
    for row in listed:
        assert row[2] == COMPONENTS[row[1]].title
        assert row[3] == ", ".join(filter(None, COMPONENTS[row[1]].choices))
    names = re.findall(r"^\* \*\*([\w-]+)\.\*\*", RESULTS.split("## Component by component")[1], flags=re.M)
    assert names == list(BUILT_IN)


@pytest.mark.parametrize("name", [observable.name for observable in OBSERVABLES])
def test_every_observable_is_explained(name: str) -> None:
    assert name.replace("_", " ") in PAGE
