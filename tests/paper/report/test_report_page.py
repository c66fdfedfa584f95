"""The report: one file that fetches nothing, shows what was counted, and escapes whatever it is told."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest

from scansnap.cli.reproduce import STYLE
from scansnap.paper.figure import VERDICTS, Computed, Effort, Finding
from scansnap.paper.report import make, page
from scansnap.paper.report.targets import TARGETS, find, label

QUICK = Effort(quick=True, device="cpu")


class Page(HTMLParser):
    """Open elements, and everything a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.depth, self.fetched, self.ids = [], [], set()

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.fetched += [named["src"]] if "src" in named else []
        self.fetched += [named["href"]] if tag == "link" else []
        self.ids |= {named["id"]} if "id" in named else set()
        if tag not in ("meta", "img", "link", "br"):
            self.depth.append(tag)

    def handle_endtag(self, tag):
        assert self.depth.pop() == tag


def test_the_report_is_one_well_formed_file_that_fetches_nothing(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    parsed = Page()
    parsed.feed(text)
    assert parsed.depth == []
    assert all(source.startswith("data:image/svg+xml;base64,") for source in parsed.fetched)
    assert len(parsed.fetched) == 3
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert "@import" not in text
    assert {"fig3", "fig6", "table1"} <= parsed.ids


def test_the_report_names_what_is_not_in_it(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    missing = [name for name in TARGETS if name not in ("fig3", "fig6", "table1")]
    assert f"scansnap reproduce {' '.join(missing)}" in text
    assert label("fig7") in text


def test_the_report_shows_the_verdict_that_was_counted(tmp_path, monkeypatch):
    figure = find("fig3")
    wrong = Finding("It <falls>", "Figure 3", 0, 4, "curves", "0 ± 1.")
    monkeypatch.setattr(figure, "findings", lambda table: (wrong,))
    made = make.make("fig3", QUICK, tmp_path)
    text = page.page([made], QUICK)
    assert "It &lt;falls&gt;" in text
    assert '<td class="n disagrees">disagrees</td>' in text
    assert "Figure 3 is drawn" not in text  # it was made to claim a measurement
    assert "<b>1 measured statement:</b>" in text


def test_whatever_a_figure_says_is_text_and_no_markup(tmp_path, monkeypatch):
    """Titles, captions, notes, files and settings reach the page by way of the template alone."""
    bad = '<script>alert("x")</script>'
    made = make.make("fig3", QUICK, tmp_path)
    computed = replace(made.computed, note=bad, settings={bad: [bad]},
                       findings=(Finding(bad, bad, 1, 1, bad, detail=bad),))  # fmt: skip
    made = replace(made, title=bad, caption=bad, command=bad, files=(bad,), computed=computed)
    text = page.page([made], Effort(quick=True, device="cpu", data=bad))
    assert "<script>" not in text
    assert text.count("&lt;script&gt;") >= 11
    parsed = Page()
    parsed.feed(text)
    assert parsed.depth == []


def test_the_report_says_what_is_measured_and_what_is_not(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    assert "Every figure" not in text
    assert (
        "Figure 3 is drawn from formulas, without runs; Table 1 is true by definition; the rest comes from new" in text
    )
    assert "<b>3 measured statements:</b>" in text
    assert "4 formulas (4 agree)" in text
    assert '<span class="kind">formula</span>' in text
    assert re.search(r'<b class="undecided">[1-9]</b>undecided', text)  # three seeds leave some of Figure 6 open
    assert re.search(r'<td class="n undecided">undecided</td>', text)


def test_every_verdict_has_a_colour(folder):
    css = (folder[0] / "report.html").read_text(encoding="utf-8").partition("</style>")[0]
    for verdict in VERDICTS:
        assert f".{verdict.replace(' ', '-')} {{" in css
        assert verdict in STYLE


def test_an_undecided_claim_is_shown_as_such():
    row = {"claim": "a", "reference": "Lemma 0", "kind": "identity", "setting": "x", "status": "undecided",
           "observed": "undecided", "instead": "", "instead_status": "", "instead_words": ""}  # fmt: skip
    ours = {"instead": "memory", "instead_status": "holds", "instead_words": "instead: memory holds up to 10 t₀"}
    computed = Computed(
        pd.DataFrame([row, {**row, "setting": "y", "status": "not applicable", "observed": "fails"},
                      {**row, "setting": "z", "status": "fails", "observed": "fails", **ours}]), {}
    )  # fmt: skip
    text = page.page([make.Made("claims", "Claims", "All.", computed, "scansnap", 1.0, ("claims.csv",), b"")], QUICK)
    assert '<td class="undecided">undecided</td>' in text
    assert '<td class="not-applicable">not applicable <small>(fails all the same)</small></td>' in text
    assert 'Lemma 0 <span class="kind">identity</span>' in text
    assert "<th>x</th><th>y</th><th>z</th>" in text
    beside = '<br><small class="agrees">instead: memory holds up to 10 t₀</small></td>'
    assert f'<td class="disagrees">fails{beside}' in text, "what holds instead stands beside what fails"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("η_Y < 1", "η<sub>Y</sub> &lt; 1"),
        ("e^{2 B_n}", "e<sup>2 B<sub>n</sub></sup>"),
        ("E'_nn and β_nn'", "E'<sub>nn</sub> and β<sub>nn'</sub>"),
        ("n_queries of a t_end", "n_queries of a t_end"),
    ],
)
def test_indices_become_subscripts_and_names_do_not(text, html):
    assert page.prose(text) == html
