"""``reproduce --against``: which verdicts and numbers changed, and whether beyond their error."""

import json
import math
import shutil
from copy import deepcopy
from pathlib import Path

import pytest

from refusals import refused
from scansnap.cli.reproduce import reproduce as command
from scansnap.paper.figure import Computed, Effort, Finding, Points
from scansnap.paper.report import changes, manifest, page
from scansnap.storage.json_text import to_json

QUICK = Effort(quick=True, device="cpu")


def finding(says="It rises", agree=3, of=3, points=None, **more):
    return Finding(says, "Figure 3", agree, of, "curves", points=points, **more)


def saved(*findings, settings=None):
    """A manifest with Figure 3, as JSON gives it back."""
    entry = {"files": [], "settings": settings or {}, "findings": [manifest.finding_entry(f) for f in findings]}
    return json.loads(to_json({"format": manifest.FORMAT, "files": [], "targets": {"fig3": entry}}))


def compared(old, new):
    return changes.compare(old, new, ["fig3"], Path("old/manifest.json"))


def seeds(*values):
    return Points((values,))


def test_no_change_says_so():
    both = saved(finding(points=seeds(1.0, 2.0)), finding("It falls", 0, 3, points=Points.without_noise([math.nan])))
    result = compared(both, deepcopy(both))
    assert result.changed == ()
    assert result.compared == 2
    assert result.summary == "No verdict and no number of 2 statements changed."


def test_a_verdict_a_number_and_a_count_that_changed():
    old = saved(finding("a", 3, 3), finding("b", points=seeds(1.0, 1.1, 0.9)), finding("c", 13, 16), finding("d"))
    new = saved(finding("a", 0, 3), finding("b", points=seeds(5.0, 5.1, 4.9)), finding("c", 14, 16), finding("d"))
    a, b, c = compared(old, new).changed
    assert (a.what, a.verdict, a.counted) == ("verdict", ("agrees", "disagrees"), ("3 of 3", "0 of 3"))
    assert (b.what, b.beyond) == ("number", True)
    assert str(b.shifts[0]) == "+1.00 ± 0.25 → +5.00 ± 0.25"
    assert (c.what, c.verdict[0], c.counted) == ("count", c.verdict[1], ("13 of 16", "14 of 16"))
    assert c.beyond is None
    assert compared(old, new).summary == (
        "Of 4 statements changed: 1 verdict and numbers of 1, of 1 beyond their error."
    )


def test_a_number_within_its_error_has_its_shift_and_one_seed_decides_nothing():
    (within,) = compared(
        saved(finding(points=seeds(1.0, 2.0, 3.0))), saved(finding(points=seeds(1.5, 2.5, 3.5)))
    ).changed
    assert within.beyond is False
    (unknown,) = compared(saved(finding(points=seeds(1.0))), saved(finding(points=seeds(9.0)))).changed
    assert unknown.beyond is None
    assert unknown.shifts[0].beyond is None


def test_numbers_without_noise_are_compared_case_by_case():
    old, new = (saved(finding(points=Points.without_noise([1.0, x], ("textbook", "syn-small")))) for x in (2.0, 2.1))
    (change,) = compared(old, new).changed
    (shift,) = change.shifts
    assert (shift.case, shift.beyond) == ("syn-small", True)
    assert str(shift) == "syn-small: 2 → 2.1"


def test_statements_that_came_and_went_and_other_settings():
    result = compared(saved(finding("old"), settings={"seeds": 3}), saved(finding("new"), settings={"seeds": 10}))
    assert [(change.says, change.what) for change in result.changed] == [("new", "new"), ("old", "gone")]
    assert result.other_settings == ("fig3",)
    assert result.compared == 0


def test_a_finding_of_a_folder_begun_by_an_earlier_version_has_no_numbers_to_compare():
    old = saved(finding(points=seeds(1.0, 2.0)))
    del old["targets"]["fig3"]["findings"][0]["numbers"]
    assert compared(old, saved(finding(points=seeds(5.0, 6.0)))).changed == ()


def test_the_report_has_a_section_on_it_that_escapes_and_a_later_comparison_replaces_it():
    bad = "<script>alert(1)</script>"
    result = compared(saved(finding(bad, 3, 3)), saved(finding(bad, 0, 3)))
    target = manifest.TargetResult(
        "fig3", "Three", "Lines.", Computed(None, {}, (finding(bad, 0, 3),)), "scansnap", 1.0, (), b""
    )
    text = page.page([target], QUICK, result)
    assert "<script>alert" not in text
    assert "agrees → disagrees" in text
    assert 'href="#changes"' in text
    none = compared(saved(finding()), saved(finding()))
    later = page.changed(text, none)
    assert "agrees → disagrees" not in later
    assert none.summary in later
    assert later.count('id="changes"') == 1
    assert "Since an earlier" not in page.page([target], QUICK)
    told_now = page.changed(page.page([target], QUICK), none)
    assert told_now.count('id="changes"') == told_now.count('href="#changes"') == later.count('href="#changes"') == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, "manifest.json"),
        ("no JSON", "manifest.json"),
        ('{"format": "a web app", "targets": []}', "manifest.json"),
        ('{"format": "scansnap reproduction 1", "targets": {}}', "scansnap reproduction 1"),
        (json.dumps({"format": manifest.FORMAT, "targets": {"fig8": {"files": []}}}), ("fig3", "fig4", "fig8")),
    ],
)
def test_a_manifest_that_cannot_be_compared_is_refused(tmp_path, text, names):
    if text is not None:
        (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    for place in (tmp_path / "manifest.json", tmp_path):
        with refused("--against", names=names):
            changes.earlier(place, ["fig3", "fig4"])


@pytest.fixture(scope="module")
def two(reproduce, tmp_path_factory):
    """Two equal folders; then the manifest of the earlier one says otherwise about a statement of Figure 8."""
    old, new = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("both") / "new"
    done = reproduce("fig3", "fig8", "--device", "cpu", "--out", old)
    assert done.returncode == 0, done.stderr
    shutil.copytree(old, new)
    file = old / "manifest.json"
    entry = json.loads(file.read_text(encoding="utf-8"))
    entry["targets"]["fig8"]["findings"][0] |= {"verdict": "disagrees", "agree": 0}
    file.write_text(json.dumps(entry), encoding="utf-8")
    return old, new


def count(folder, *names):
    """Statements of these targets."""
    targets = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["targets"]
    return sum(len(targets[name]["findings"]) for name in names)


def test_the_command_compares_what_it_makes(two, reproduce):
    old, new = two
    done = reproduce("fig8", "table1", "--device", "cpu", "--out", new, "--against", old / "manifest.json")
    assert done.returncode == 0, done.stderr
    assert "disagrees → agrees" in " ".join(done.stdout.split())
    assert f"Of {count(new, 'fig8')} statements changed: 1 verdict and numbers of 0" in done.stdout
    written = json.loads((new / "changes.json").read_text(encoding="utf-8"))
    assert written["targets"] == ["fig8"]
    assert [one["verdict"] for one in written["changes"]] == [["disagrees", "agrees"]]
    assert "changes.json" in json.loads((new / "manifest.json").read_text(encoding="utf-8"))["files"]
    assert "disagrees → agrees" in (new / "report.html").read_text(encoding="utf-8")


def test_without_targets_what_is_there_is_compared_and_nothing_is_made(two, capsys):
    old, new = two
    before = (new / "fig3.csv").stat().st_mtime_ns
    assert command(target=new, against=old, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["compared"] == count(new, "fig3", "fig8")
    assert (new / "fig3.csv").stat().st_mtime_ns == before
    assert command(target=new, against=old / "manifest.json") == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "disagrees → agrees" in output
    assert f"Of {count(new, 'fig3', 'fig8')} statements changed: 1 verdict and numbers of 0, of 0 beyond" in output


def test_a_refusal_is_one_sentence_before_any_work(two, reproduce, tmp_path):
    old, _ = two
    done = reproduce("table1", "--out", tmp_path / "out", "--against", old / "manifest.json")
    assert done.returncode == 2
    assert "--against" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    with refused("--against", str(old / "nothing.json")):
        command(["fig3"], target=tmp_path / "out", against=old / "nothing.json")
    with refused("--against", str(old), names="--out"):
        command(target=old, against=old)
    assert not (tmp_path / "out").exists()


def test_a_changes_file_of_someone_else_is_not_replaced(two, tmp_path):
    (tmp_path / "changes.json").write_text("mine")
    with refused("--out", names="changes.json"):
        command(["fig3"], target=tmp_path, against=two[0])
    assert (tmp_path / "changes.json").read_text() == "mine"
