"""The report: one file that fetches nothing, shows what was counted, and escapes whatever it is told."""

import json
import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from scansnap.claims.claim import Curve, Statement
from scansnap.claims.report import Report
from scansnap.cli.reproduce import STYLE
from scansnap.paper.figure import VERDICTS, Computed, Effort, Finding, Points
from scansnap.paper.figures import claims, fig6
from scansnap.paper.report import make, page
from scansnap.paper.report.manifest import TargetResult
from scansnap.paper.report.targets import TARGETS, find, label
from scansnap.plots.sparkline import Sparkline

QUICK = Effort(quick=True, device="cpu")


class Page(HTMLParser):
    """Open elements, and everything a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.depth, self.fetched, self.ids = [], [], set()
        self.names, self.anchors, self.headings, self.unscoped, self.silent = [], [], [], 0, 0

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.fetched += [named["src"]] if "src" in named else []
        self.fetched += [named["href"]] if tag == "link" and not named["href"].startswith("data:") else []
        self.ids |= {named["id"]} if "id" in named else set()
        self.names += [named["id"]] if "id" in named else []
        self.anchors += [named["href"][1:]] if tag == "a" and named["href"].startswith("#") else []
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        self.unscoped += tag == "th" and "scope" not in named
        self.silent += tag == "svg" and not (named.get("aria-label") or named.get("aria-hidden"))
        if tag not in ("meta", "img", "link", "br"):
            self.depth.append(tag)

    def handle_startendtag(self, tag, attrs):
        """<path/> of an SVG is open and shut."""
        depth = [*self.depth]
        self.handle_starttag(tag, attrs)
        self.depth = depth

    def handle_endtag(self, tag):
        assert self.depth.pop() == tag


def test_the_report_is_one_well_formed_file_that_fetches_nothing(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    parsed = Page()
    parsed.feed(text)
    assert parsed.depth == []
    assert parsed.fetched == []
    paper = "https://arxiv.org/abs/2305.16380"
    assert set(re.findall(r"https?://[^\s\"<]+", text)) == {paper, "http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert {"fig3", "fig6", "table1"} <= parsed.ids
    assert len(text) < 6_000_000


def test_headings_come_in_order_names_are_unique_and_tables_and_drawings_are_named(folder):
    parsed = Page()
    parsed.feed((folder[0] / "report.html").read_text(encoding="utf-8"))
    assert parsed.headings[0] == 1
    assert parsed.headings.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(parsed.headings))
    assert len(parsed.names) == len(set(parsed.names))
    assert set(parsed.anchors) <= set(parsed.names)
    assert (parsed.unscoped, parsed.silent) == (0, 0)


def test_headlines_are_the_first_of_those_declared_that_were_made(folder):
    """Each target has at most one, no place is given twice, and of the synthetic ones there are five."""
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    assert text.count('class="headline') == 1  # Figure 6's; neither Figure 3 nor Table 1 declares one
    assert (
        text.index("Findings first</h2>")
        < text.index('id="fig3"')
        < text.index('id="fig6"')
        < text.index("All statements</h2>")
    )
    assert '<use href="#fig6-body"/>' in text

    def made(name, *places):
        findings = tuple(Finding(f"{name} {place}", "here", 1, 1, "cases", headline=place) for place in places)
        return TargetResult(name, name, name, Computed(pd.DataFrame(), {}, findings), "scansnap", 1.0, (), b"")

    some = [made("fig1", 0, 7), made("fig2", 3), made("fig4", 0), made("fig5", 1), made("fig6", 9, 2), made("fig8", 5)]
    assert [finding.headline for _, finding in page.headlines(some)] == [1, 2, 3, 5, 7]
    assert page.headlines([made("fig1", 0)]) == []
    assert "Findings first" not in page.page([made("fig1", 0)], QUICK)


def test_figures_come_by_their_numbers_then_the_table_then_what_is_beyond(folder):
    names = ["fig2", "fig11", "table1", "claims", "timescales", "fig7", "words"]
    some = [TargetResult(name, name, name, Computed(pd.DataFrame(), {}), "scansnap", 1.0, (), b"") for name in names]
    assert [target.name for target in page.in_order(some)] == ["fig2", "fig7", "fig11", "table1"]


def test_what_is_counted_is_drawn_and_its_points_are_in_the_page(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    assert set(re.findall(r'data-points="([^"]+)"', text)) == set(data)
    targets = json.loads((folder[0] / "manifest.json").read_text(encoding="utf-8"))["targets"]
    named = {f"{name}-{i}" for name in ("fig3", "fig6") for i in range(len(targets[name]["findings"]))}
    assert set(data) == named, "a table is told by words"
    assert len(data["fig6-0"]["v"]) == len(data["fig6-0"]["h"]) == len(data["fig6-0"]["c"]) == 16
    assert all(len(row) == 3 for row in data["fig6-0"]["v"])
    assert data["fig6-0"]["c"][0] == "queries = 1, η_Z = 0.5"
    assert [len(row) for row in data["fig3-0"]["v"]] == [1] * len(data["fig3-0"]["c"]), "no noise"
    assert (data["fig6-1"]["w"], data["fig6-3"]["w"], data["fig6-3"]["m"]) == ("does not rise", "level", fig6.NEAR)
    counts = targets["fig6"]["findings"][0]
    assert f'<i class="yes" style="width:{100 * counts["agree"] / 16:.1f}%">' in text


def test_points_keep_what_is_no_number_out_and_many_cases_in_one_row():
    assert page.points(Points(((1.0, math.nan), (2.0, 3.0)), wanted="rises"))["v"] == [[1.0, None], [2.0, 3.0]]
    many = page.points(Points.without_noise(range(1500)))
    assert len(many["v"]) == 1
    assert 500 <= len(many["v"][0]) <= 600


def test_table_1_is_a_table_with_mathematics(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    for symbol in ("η<sub>Y</sub>", "β<sub>nn′</sub>(t)", "Z = U W<sub>Q</sub> W<sub>K</sub>ᵀ Uᵀ/√d", "t₀′"):
        assert f'<th scope="row">{symbol}</th>' in text
    assert "<code>eta_y</code>" in text
    assert 'id="table1-body"' not in text


def test_a_figure_is_opened_in_the_explorer_where_an_address_can_say_it(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    assert text.count('href="explorer.html#classes=syn-medium&amp;') == 2  # its headline and its figure
    page = (folder[0] / "explorer.html").read_text(encoding="utf-8")
    assert 'id="data-catalogue"' in page, "the links open beside the report, offline"


def test_the_report_names_what_is_not_in_it(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    missing = [name for name in TARGETS if name not in ("fig3", "fig6", "table1")]
    assert f"scansnap reproduce {' '.join(missing)}" in text
    assert label("fig7") in text


def test_the_report_shows_the_verdict_that_was_counted(tmp_path, monkeypatch):
    figure = find("fig3")
    wrong = Finding("It <falls>", "Figure 3", 0, 4, "curves", "0 ± 1.")
    monkeypatch.setattr(figure, "findings", lambda table: (wrong,))
    target = make.make("fig3", QUICK, tmp_path)
    text = page.page([target], QUICK)
    assert "It &lt;falls&gt;" in text
    assert '<td><span class="tag disagrees">disagrees</span></td>' in text
    assert "Figure 3 is drawn" not in text  # it was made to claim a measurement
    assert "<b>1</b> measured statement:" in text


def test_whatever_a_figure_says_is_text_and_no_markup(tmp_path, monkeypatch):
    """Titles, captions, notes, files and settings reach the page by way of the template alone."""
    bad = '<script>alert("x")</script>'
    made = make.make("fig3", QUICK, tmp_path)
    computed = replace(made.computed, note=bad, settings={bad: [bad]},
                       findings=(Finding(bad, bad, 1, 1, bad, detail=bad, headline=1,
                                         points=Points.without_noise([1.0], (bad,))),))  # fmt: skip
    made = replace(made, title=bad, caption=bad, command=bad, files=(bad,), computed=computed)
    text = page.page([made], Effort(quick=True, device="cpu", data=bad))
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert") >= 11
    assert r"\u003cscript\u003ealert" in text  # the cases of its points
    parsed = Page()
    parsed.feed(text)
    assert parsed.depth == []


def test_the_report_says_what_is_measured_and_what_is_not(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    assert "Every figure" not in text
    assert (
        "Figure 3 is drawn from formulas, without runs; Table 1 is true by definition; the rest comes from new" in text
    )
    manifest = json.loads((folder[0] / "manifest.json").read_text(encoding="utf-8"))
    assert f"<b>{len(manifest['targets']['fig6']['findings'])}</b> measured statements:" in text
    assert '<span class="kind">formula</span>' in text
    assert re.search(r'data-filter="measured:undecided"[^>]*><b>[1-9]</b> undecided', text)  # three seeds are few
    assert '<td><span class="tag undecided">undecided</span></td>' in text
    kinds = [text.index(f'<h3 id="kind-{kind}">') for kind in ("measured", "by-definition", "formula")]
    assert kinds == sorted(kinds)


def test_each_count_filters_the_rows_that_it_counts(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    rows = re.findall(r'<tr data-tags="([^"]+)">', text)
    counts = dict(re.findall(r'data-filter="([^"]+)"[^>]*><b>(\d+)</b>', text))
    assert counts["formula:agrees"] == "4"
    assert {name: int(n) for name, n in counts.items()} == Counter(rows)


def test_the_report_begins_with_the_paper_and_says_which_experiments_are_smaller(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    assert text.index("Yuandong Tian") < text.index("measured statements")
    for term in ("Drive", "Memory", "Response"):
        assert f"<dt>{term}</dt>" in text
    assert "scaled down" not in text
    settings = {"corpus": "docstrings", "steps": 180, "vocab_size": 1000, "device": "cpu"}
    of_text = TargetResult("words", "Words", "W.", Computed(pd.DataFrame(), settings), "scansnap", 1.0, (), b"")
    assert "Text experiments are scaled down: docstrings, 180 steps, 1,000 words." in page.page([of_text], QUICK)


def test_every_verdict_has_a_colour(folder):
    css = (folder[0] / "report.html").read_text(encoding="utf-8").partition("</style>")[0]
    for verdict in VERDICTS:
        assert re.search(rf"\.{verdict.replace(' ', '-')}[^{{]* {{ --c: ", css)
        assert verdict in STYLE


def claimed(**more):
    row = {"claim": "a", "reference": "Lemma 0", "kind": "identity", "setting": "x", "status": "undecided",
           "observed": "undecided", "instead": "", "instead_status": "", "instead_words": "", "statement": "It is so.",
           "relation": "follows from c" if more.get("kind") == "dependent" else "",
           "measured": 1.0, "why": "", "instead_off": None, "off": None}  # fmt: skip
    return {**row, **more}


def test_one_row_for_each_claim_with_its_curve_its_verdict_and_what_holds_instead():
    ours = {"instead": "memory", "instead_status": "holds", "instead_words": "instead: memory holds up to 10 t₀"}
    table = pd.DataFrame([
        claimed(), claimed(setting="y", status="not applicable", observed="fails"),
        claimed(setting="z", status="fails", observed="fails", **ours),
        *(claimed(claim="b", kind="measured", reference="Theorem 9", setting=x, status="fails", observed="fails")
          for x in "vwxyz"),
        claimed(claim="b", kind="measured", reference="Theorem 9", setting="u", status="holds", observed="holds"),
        claimed(claim="d", kind="dependent", status="holds", observed="holds"),
    ])  # fmt: skip
    line = Sparkline("z", ((0, 0), (1, 1)), ((0, 0), (1, 0)), ((0, 0), (0.5, 1)))
    computed = Computed(table, {}, claims.findings(table), sparklines={"a": line})
    text = page.page([TargetResult("claims", "Claims", "All.", computed, "scansnap", 1.0, ("claims.csv",), b"")], QUICK)
    parts = re.search('<table class="claims">(.*?)</table>', text, re.DOTALL)[1].split("<tbody data-group>")[1:]
    first, dependent, second = parts
    assert "Dependent:" in dependent
    assert "(follows from c)" in dependent
    assert "follows from" not in first + second
    assert "<b>1</b> measured statement" in text  # what follows from another one is not counted with it
    assert "Measured:" in first
    assert "Identities:" in second
    assert first.count("<tr data-tags") == second.count("<tr data-tags") == 1
    assert '<span class="tag mostly-disagrees">mostly disagrees</span>' in first
    assert "1 of 6 settings" in first
    assert "<polyline" not in first
    assert '<polyline class="measured" points="2.0,30.0 98.0,2.0"/>' in second
    assert '<polyline class="predicted" points="2.0,30.0 98.0,30.0"/>' in second
    assert '<polyline class="instead" points="2.0,30.0 50.0,2.0"/>' in second
    plain = " ".join(re.sub("<[^>]*>", "", second).split())
    assert "? undecided x" in plain
    assert "– not applicable y (✗ fails)" in plain, "an assumption is not met; measured it fails all the same"
    assert "✗ fails z" in plain
    assert plain.endswith("✓ holds memory holds up to 10 t₀ (z)"), "what holds instead stands beside what fails"
    assert "All statements" not in text  # there are none but the claims


def test_the_curve_of_a_claim_is_from_where_it_fails():
    def report(name, *status):
        return Report(name, tuple(claim(f"c{i}", word) for i, word in enumerate(status)))

    def claim(name, status):
        curve = Curve("t", "y", np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([1.0, 2.0]))
        deviation = 0.0 if status == "holds" else 2.0
        return Statement(name, name, name).judge(quantity="", measured=1, predicted=1, deviation=deviation, tolerance=1,
                                                 curve=curve)  # fmt: skip

    lines = claims.curves({"a": report("a", "holds", "holds"), "b": report("b", "holds", "fails"),
                           "c": report("c", "fails", "fails")})  # fmt: skip
    assert {name: line.setting for name, line in lines.items()} == {"c0": "c", "c1": "b"}


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("η_Y < 1", "η<sub>Y</sub> &lt; 1"),
        ("e^{2 B_n}", "e<sup>2 B<sub>n</sub></sup>"),
        ("E'_nn and β_nn'", "E'<sub>nn</sub> and β<sub>nn'</sub>"),
        ("n_queries of a t_end", "n_queries of a t_end"),
        ("C₀ = 7.34e+03, off by 2.8e-10.", "C₀ = 7.34·10<sup>3</sup>, off by 2.8·10<sup>−10</sup>."),
        ("b476cd497e-12f1", "b476cd497e-12f1"),
    ],
)
def test_indices_become_subscripts_and_names_do_not(text, html):
    assert page.prose(text) == html
