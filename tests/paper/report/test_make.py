"""``scansnap reproduce``: the files of the contract, the manifest, and what happens when things fail."""

import json
import signal

import pandas as pd
import pytest

from refusals import refused
from scansnap.paper.figure import Effort
from scansnap.paper.report import make, manifest
from scansnap.paper.report.svg import size_of
from scansnap.paper.report.targets import find
from scansnap.plots.style import FILES_ONLY, HEADLINE, render, settle, styled

QUICK = Effort(quick=True, device="cpu")


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
    content = json.loads((folder[0] / "manifest.json").read_text(encoding="utf-8"))
    assert set(content["targets"]) == {"fig3", "fig6", "table1"}
    entry = content["targets"]["fig6"]
    assert entry["command"] == "scansnap reproduce fig6 --quick --device cpu"
    assert entry["quick"]
    assert entry["seconds"] > 0
    assert entry["settings"]
    assert entry["note"]
    assert {"scansnap", "torch", "numpy", "matplotlib"} <= set(entry["versions"])
    assert all({"says", "agree", "of", "verdict", "numbers"} <= set(finding) for finding in entry["findings"])
    assert entry["findings"][0]["headline"] == 2
    (number,) = entry["findings"][0]["numbers"]  # 16 curves and three seeds: their mean, and its interval
    assert number["case"] == ""
    assert 0 < number["half_width"] < 1
    assert "points" not in entry["findings"][0]
    assert {finding["kind"] for finding in entry["findings"]} == {"measured"}
    assert all(f["agree"] + f["undecided"] <= f["of"] for f in entry["findings"])
    assert {finding["kind"] for finding in content["targets"]["fig3"]["findings"]} == {"formula"}


def test_the_command_ends_with_the_verdicts_and_the_report(folder):
    out, done = folder
    lines = done.stdout.splitlines()
    assert lines[-1] == f"report {out / 'report.html'}"
    assert any("agrees" in line and "Figure 3" in line and "formula" in line for line in lines)
    (measured,) = [line for line in lines if line.startswith("measured: ")]
    findings = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["targets"]["fig6"]["findings"]
    assert measured.endswith(f"of {len(findings)} statements")  # Figure 3 and Table 1 are no measurements
    assert "undecided" in measured  # three seeds
    assert any("4 formulas (4 agree)" in line and "2 by definition" in line for line in lines)


def test_the_json_counts_each_kind_apart(reproduce, tmp_path):
    done = reproduce("fig3", "table1", "--json", "--quick", "--device", "cpu", "--out", tmp_path)
    output = json.loads(done.stdout)
    assert output["totals"] == {"by definition": {"agrees": 1, "mostly agrees": 1}, "formula": {"agrees": 4}}
    found = output["targets"]["fig3"]["findings"][0]
    assert (found["kind"], found["undecided"], found["agree"], found["of"]) == ("formula", 0, 3, 3)


def test_a_second_command_adds_to_the_manifest_and_replaces_its_target(folder):
    out, _ = folder
    before = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    make.make("fig3", Effort(device="cpu"), out)
    after = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert after["targets"]["fig6"] == before["targets"]["fig6"]
    assert not after["targets"]["fig3"]["quick"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["fig13"], "TARGET"),
        (["fig3", "--device", "tpu"], "device"),
        (["fig3", "--out", "{file}"], "--out"),
        (["fig3", "--out", "{folder}"], "manifest.json"),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(reproduce, tmp_path, arguments, name):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "manifest.json").write_text('{"name": "a web app"}')
    places = {"file": tmp_path / "file", "folder": tmp_path / "folder"}
    done = reproduce(*(a.format(**places) for a in arguments), cwd=tmp_path)
    assert done.returncode == 2
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder", "manifest.json"]


def test_an_interrupted_command_keeps_what_is_finished(tmp_path, reproduce, monkeypatch):
    """Ctrl-C comes in the middle of the claims, however fast the machine is: the process sends it to itself."""
    claims = find("claims")
    compute = claims.compute

    def pressed(effort, progress):
        return compute(effort, lambda done, total: signal.raise_signal(signal.SIGINT))

    monkeypatch.setattr(claims, "compute", pressed)
    done = reproduce("fig3", "table1", "claims", "--out", tmp_path)
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


def test_a_manifest_of_the_first_version_is_added_to_and_becomes_one_of_this(tmp_path):
    """What it says of other targets stays; its findings have no numbers."""
    old = {"format": "scansnap reproduction 1", "files": ["fig8.csv"],
           "targets": {"fig8": {"files": ["fig8.csv"], "findings": [], "settings": {}}}}  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps(old), encoding="utf-8")
    make.prepare(tmp_path, ["fig3"])
    make.make("fig3", QUICK, tmp_path)
    content = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert content["format"] == manifest.FORMAT == "scansnap reproduction 2"
    assert content["targets"]["fig8"] == old["targets"]["fig8"]
    assert set(content["targets"]) == {"fig3", "fig8"}


def test_what_is_told_by_a_table_has_no_drawing_on_the_page(tmp_path):
    assert set(make.draw_target("table1", QUICK, tmp_path).pictures) == {"png", "pdf"}
    assert set(make.draw_target("fig3", QUICK, tmp_path).pictures) == {"png", "pdf", "svg"}


def test_the_page_leaves_out_what_only_the_files_have():
    """The crop is what lies above it, and the headline's box is in the coordinates of the crop."""
    with styled(4.0, 6.0) as figure:
        above, below = figure.subfigures(2, 1, height_ratios=(1, 2))
        above.subplots().set_gid(HEADLINE)
        below.set_gid(FILES_ONLY)
        below.subplots().plot([0, 1], color="#123456")
    settle(figure)
    whole = render(figure, "svg")
    shown = make.on_page(figure)
    assert b"#123456" in whole
    assert b"#123456" not in shown
    assert size_of(whole) == (0, 0, 288, 432)
    *_, edge = size_of(shown)
    assert size_of(shown)[:3] == (0, 0, 288)
    assert edge == pytest.approx(144, abs=5)  # the layout leaves some space between the two
    left, top, width, height = make.focus(figure)
    assert 0 <= left < left + width <= 288
    assert 0 <= top < top + height <= edge


def test_the_headlines_axes_have_the_labels_that_they_share():
    with styled(6.0, 4.0) as figure:
        grid = figure.subplots(2, 2, sharex="col", sharey="row")
        grid[0, 0].set_ylabel("entropy")
        grid[0, 1].set_gid(HEADLINE)
    make.label_headline(figure)
    settle(figure)
    assert grid[0, 1].get_ylabel() == "entropy"
    assert all(label.get_visible() for label in (*grid[0, 1].get_xticklabels(), *grid[0, 1].get_yticklabels()))


def test_a_folder_in_place_of_the_manifest_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("[]")
    with refused("--out", names="manifest.json"):
        make.prepare(tmp_path, ["fig3"])
