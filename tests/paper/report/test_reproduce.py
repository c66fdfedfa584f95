"""``scansnap reproduce``: the files of the contract, the manifest, the report, and what happens when things fail."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from scansnap import checks
from scansnap.cli.reproduce import STYLE
from scansnap.paper import figures
from scansnap.paper.figure import VERDICTS, Computed, Effort, Finding
from scansnap.paper.report import make, page
from scansnap.paper.report.targets import STUDIES, SYNTHETIC, TARGETS, TEXT, chosen, find, label

QUICK = Effort(quick=True, device="cpu")


def scansnap(*arguments, **options):
    command = [sys.executable, "-m", "scansnap", "reproduce", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two cheap targets and the contract's figure, made by the command."""
    out = tmp_path_factory.mktemp("reproduced")
    done = scansnap("fig6", "fig3", "table1", "--quick", "--device", "cpu", "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done


def test_each_target_writes_its_files(folder):
    out, _ = folder
    for name in ("fig3", "fig6", "table1"):
        for kind in ("csv", "png", "pdf"):
            assert (out / f"{name}.{kind}").stat().st_size > 500
    assert (out / "fig3.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "fig3.pdf").read_bytes().startswith(b"%PDF")
    assert {path.name for path in out.iterdir() if path.name.startswith(".")} == set()


def test_fig6_has_the_columns_of_the_contract(folder):
    table = pd.read_csv(folder[0] / "fig6.csv")
    assert list(table.columns) == ["n_query", "n_next", "eta_z", "ratio", "seed", "entropy"]


def test_the_manifest_says_how_each_was_made(folder):
    manifest = json.loads((folder[0] / "manifest.json").read_text(encoding="utf-8"))
    assert set(manifest["targets"]) == {"fig3", "fig6", "table1"}
    entry = manifest["targets"]["fig6"]
    assert entry["command"] == "scansnap reproduce fig6 --quick --device cpu"
    assert entry["quick"]
    assert entry["seconds"] > 0
    assert entry["settings"]
    assert entry["note"]
    assert {"scansnap", "torch", "numpy", "matplotlib"} <= set(entry["versions"])
    assert all({"says", "agree", "of", "verdict"} <= set(finding) for finding in entry["findings"])
    assert {finding["kind"] for finding in entry["findings"]} == {"measured"}
    assert all(f["agree"] + f["undecided"] <= f["of"] for f in entry["findings"])
    assert {finding["kind"] for finding in manifest["targets"]["fig3"]["findings"]} == {"formula"}


def test_the_command_ends_with_the_verdicts_and_the_report(folder):
    out, done = folder
    lines = done.stdout.splitlines()
    assert lines[-1] == f"report {out / 'report.html'}"
    assert any("agrees" in line and "Figure 3" in line and "formula" in line for line in lines)
    (measured,) = [line for line in lines if line.startswith("measured: ")]
    assert measured.endswith("of 3 statements")  # Figure 6's; Figure 3 and Table 1 are no measurements
    assert "undecided" in measured  # three seeds
    assert any("4 formulas (4 agree)" in line and "2 by definition" in line for line in lines)


def test_the_json_counts_each_kind_apart(tmp_path):
    done = scansnap("fig3", "table1", "--json", "--quick", "--device", "cpu", "--out", tmp_path)
    said = json.loads(done.stdout)
    assert said["totals"] == {"by definition": {"agrees": 1, "mostly agrees": 1}, "formula": {"agrees": 4}}
    found = said["targets"]["fig3"]["findings"][0]
    assert (found["kind"], found["undecided"], found["agree"], found["of"]) == ("formula", 0, 3, 3)


def test_a_second_command_adds_to_the_manifest_and_replaces_its_target(folder):
    out, _ = folder
    before = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    make.make("fig3", Effort(device="cpu"), out)
    after = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert after["targets"]["fig6"] == before["targets"]["fig6"]
    assert not after["targets"]["fig3"]["quick"]


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
           "observed": "undecided"}  # fmt: skip
    computed = Computed(
        pd.DataFrame([row, {**row, "setting": "y", "status": "not applicable", "observed": "fails"}]), {}
    )
    text = page.page([make.Made("claims", "Claims", "All.", computed, "scansnap", 1.0, ("claims.csv",), b"")], QUICK)
    assert '<td class="undecided">undecided</td>' in text
    assert '<td class="not-applicable">not applicable <small>(fails all the same)</small></td>' in text
    assert 'Lemma 0 <span class="kind">identity</span>' in text
    assert "<th>x</th><th>y</th>" in text


def test_targets_come_in_the_papers_order_and_once():
    assert chosen([]) == chosen(["all"]) == list(TARGETS)
    assert chosen(["table1", "fig2", "fig2"]) == ["fig2", "table1"]
    assert chosen(["fig7", "synthetic"]) == [*SYNTHETIC, "fig7"]
    assert chosen(["text"]) == list(TEXT)
    for name in TARGETS:
        assert find(name).TITLE


def test_figures_holds_the_papers_figures_and_nothing_else():
    names = {path.stem for path in Path(figures.__file__).parent.glob("*.py")} - {"__init__"}
    assert names == set(TARGETS) - set(STUDIES)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fig13"], "TARGET is 'fig13'; it must be one of fig1, fig2"),
        (["fig3", "--device", "tpu"], "device is 'tpu'"),
        (["fig3", "--out", "{file}"], "the name of a folder, and that is a file"),
        (["fig3", "--out", "{folder}"], "manifest.json of some other program"),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(tmp_path, arguments, sentence):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "manifest.json").write_text('{"name": "a web app"}')
    places = {"file": tmp_path / "file", "folder": tmp_path / "folder"}
    done = scansnap(*(a.format(**places) for a in arguments), cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder", "manifest.json"]


PRESSED = """
import os, signal
from scansnap.cli.app import main
from scansnap.paper.report.targets import find

claims = find("claims")
compute = claims.compute

def pressed(effort, progress):
    def press(done, total):
        signal.raise_signal(signal.SIGINT)
    return compute(effort, press)

claims.compute = pressed
main()
"""


def test_an_interrupted_command_keeps_what_is_finished(tmp_path):
    """Ctrl-C comes in the middle of the claims, however fast the machine is: the process sends it to itself."""
    command = [sys.executable, "-c", PRESSED, "reproduce", "fig3", "table1", "claims", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    err = done.stderr
    assert done.returncode == 130
    assert "scansnap reproduce claims --out" in err
    assert "Traceback" not in err
    assert (tmp_path / "fig3.csv").exists()
    assert (tmp_path / "report.html").exists()
    assert not list(tmp_path.glob("claims.*"))
    assert not list(tmp_path.glob(".*"))


def test_a_target_that_fails_leaves_no_files(tmp_path, monkeypatch):
    figure = find("fig3")

    def broken(computed):
        raise RuntimeError("out of paint")

    monkeypatch.setattr(figure, "draw", broken)
    with pytest.raises(RuntimeError, match="out of paint"):
        make.make("fig3", QUICK, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_json_lacks_become_words():
    assert make.plain({"t": float("inf"), "x": [float("nan"), 1.5]}) == {"t": "inf", "x": ["nan", 1.5]}


def test_a_folder_in_place_of_the_manifest_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(checks.InputError, match="other program"):
        make.prepare(tmp_path, ["fig3"])


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
