"""The report as text, as a table, and in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from scansnap.claims.claim import Claim, Statement
from scansnap.claims.report import Report


def claim(name: str, deviation: float | None, **options: object) -> Claim:
    statement = Statement(name, f"Lemma {name}", f"says {name} < 1 & more", **options)
    if deviation is None:
        return statement.not_applicable("no data")
    return statement.judge(
        quantity="q", measured=deviation, predicted=0.0, deviation=deviation, tolerance=1.0, failure="at t = 3"
    )


@pytest.fixture
def report() -> Report:
    claims = (claim("a", 0.5), claim("b", 2.0, kind="dependent", implied_by=("a",)), claim("c", None))
    return Report("2 classes", claims)


def test_one_row_for_each_claim(report: Report) -> None:
    table = report.to_dataframe()
    assert table.index.tolist() == ["a", "b", "c"]
    assert {"reference", "statement", "kind", "status", "measured", "predicted", "margin", "reason",
            "implied_by", "repeats"} <= set(table.columns)  # fmt: skip
    assert table.loc["a", ["reference", "status", "measured", "margin"]].tolist() == [
        "Lemma a", "holds", 0.5, 0.5,
    ]  # fmt: skip
    assert table.loc["b", ["status", "reason", "implied_by"]].tolist() == ["fails", "at t = 3", "a"]
    assert table.loc["c", ["measured", "predicted", "margin"]].isna().all()
    assert all(table[name].dtype == np.float64 for name in ("measured", "predicted", "margin"))
    assert isinstance(table[table.status == "holds"], pd.DataFrame)


def test_the_repr_is_short_and_the_text_is_whole(report: Report) -> None:
    lines = repr(report).splitlines()
    assert lines[0] == "<Report of 3 claims: 2 classes>"
    assert lines[1:] == ["  holds (1): a", "  fails (1): b", "  not applicable (1): c"]
    text = str(report)
    assert all(each.reference in text and each.reason in text for each in report)
    assert text.endswith(report.summary)


def test_the_table_of_a_notebook_is_well_formed(report: Report) -> None:
    class Cells(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open, self.rows, self.text = [], [], ""

        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "br":
                self.open.append(tag)
            if tag == "tr":
                self.rows.append(0)
            if tag in ("td", "th"):
                self.rows[-1] += 1

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

        def handle_data(self, data: str) -> None:
            self.text += data

    cells = Cells()
    cells.feed(report._repr_html_())
    assert cells.open == []
    assert cells.rows == [8] * 4
    assert "says a < 1 & more" in cells.text
    assert report.summary in cells.text
