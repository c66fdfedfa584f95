"""``scansnap survey`` as a person meets it."""

from __future__ import annotations

import csv
import json

import pytest

NAMES = ["decay-y", "decay-z"]


def test_a_table_with_verdicts_and_numbers(scansnap):
    code, out, _ = scansnap("survey", "decay", "joma-integral-late", "--quick")
    assert code == 0  # a statement that fails is a finding
    assert "3 statements of the survey" in out
    assert "2 holds, 1 fails" in out
    assert "although the correlation is 0.999" in out  # why
    assert "Tian et al. 2023" in out


def test_files_and_json_say_the_same(scansnap, tmp_path):
    code, out, _ = scansnap("survey", *NAMES, "--json", "--out", "new/survey")
    assert code == 0
    report = json.loads(out)
    assert report["totals"] == {"holds": 2, "fails": 0, "undecided": 0, "not applicable": 0}
    assert json.loads((tmp_path / "new/survey/survey.json").read_text()) == report
    rows = list(csv.DictReader((tmp_path / "new/survey/survey.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == NAMES
    table = (tmp_path / "new/survey/survey.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == [f"| `{name}`" for name in NAMES]
    for row, statement in zip(rows, report["statements"], strict=True):
        assert row["verdict"] == statement["verdict"] == "holds"
        assert float(row["measured"]) == statement["measured"]
        assert {"source", "setting", "predicted", "low", "high", "quantity"} <= statement.keys()


def test_intervals_over_seeds_are_in_the_json(scansnap):
    statement = json.loads(scansnap("survey", "factors-decay", "--quick", "--json")[1])["statements"][0]
    assert statement["low"] < statement["measured"] < statement["high"]
    assert statement["interval"] == [statement["low"], statement["high"]]
    assert statement["arxiv"] == "2410.23819"
    assert "as we read it" in statement["source"]


def test_earlier_results_are_not_replaced_unasked(scansnap, tmp_path):
    (tmp_path / "survey.csv").write_text("mine")
    code, _, err = scansnap("survey", "decay-z", "--out", ".")
    assert code == 2
    assert "survey.csv" in err
    assert (tmp_path / "survey.csv").read_text() == "mine"
    assert scansnap("survey", "decay-z", "--out", ".", "--overwrite")[0] == 0


@pytest.mark.parametrize("name", ["nonsense", "joma-", "JOMA"])
def test_an_unknown_name_is_one_sentence(refuses, name):
    refuses("NAME", "survey", "decay-z", name, value=name)
