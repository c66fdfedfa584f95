"""The report as a whole: every statement has a verdict, nothing is forced, and the command line says so."""

import json

import numpy as np
import pytest

import scansnap as ss
from scansnap.checks import InputError
from scansnap.claims.assumptions import Assumption
from scansnap.claims.claim import Statement
from scansnap.claims.report import Report
from scansnap.claims.verify import verify
from scansnap.cli import verify as command
from scansnap.cli.verify import print_report, report_as_dict

STATEMENT = Statement("a", "Lemma 0", "nothing in particular")
MET = Assumption("met", "", 1.0, 2.0, True, "")
UNMET = Assumption("unmet", "", 3.0, 2.0, False, "")


def judged(deviation, assumptions=()):
    return STATEMENT.judge(
        quantity="q", measured=1.0, predicted=1.0, deviation=deviation, tolerance=0.5, assumptions=assumptions,
        failure="somewhere",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("deviation", "status", "margin"),
    [
        (0.0, "holds", 1),
        (0.5, "holds", 0),
        (0.51, "fails", -0.02),
        (np.nan, "fails", -np.inf),
        (np.inf, "fails", -np.inf),
    ],
)
def test_the_rule_of_judgement(deviation, status, margin):
    claim = judged(deviation, [MET])
    assert claim.status == claim.observed == status
    assert claim.margin == pytest.approx(margin)
    assert claim.reason == ("somewhere" if status == "fails" else "")


def test_an_unmet_assumption_makes_a_claim_not_applicable_but_keeps_what_was_measured():
    claim = judged(0.9, [MET, UNMET])
    assert claim.status == "not applicable"
    assert claim.observed == "fails"
    assert "unmet: 3 against 2" in claim.reason


def test_reports_find_claims_by_name():
    report = Report("here", (judged(0.0), judged(0.9)))
    assert report["a"].status == "holds"
    assert len(report.failures) == 1
    assert "Lemma 0" in str(report)
    with pytest.raises(KeyError, match="no claim 'b'"):
        report["b"]


@pytest.fixture(scope="module")
def textbook():
    return verify(ss.SequenceClasses.textbook(), eta_y=0.9, eta_z=0.02)


def test_every_statement_is_judged_on_the_textbook_case(textbook):
    references = " ".join(claim.reference for claim in textbook)
    for statement in (
        "Lemma 1",
        "Lemma 2",
        "Lemma 3",
        "Lemma 4",
        "Theorem 1",
        "Theorem 2",
        "Theorem 3",
        "Theorem 4",
    ):
        assert statement in references
    assert all(a.met for claim in textbook for a in claim.assumptions if claim.kind != "ours")
    statuses = {claim.name: claim.status for claim in textbook}
    assert statuses["lemma-1"] == "holds"
    assert statuses["theorem-2a"] == "holds"


CLASSES = {
    "one class": ss.SequenceClasses.synthetic(n_queries=1, next_per_query=1),
    "no distinct": ss.SequenceClasses([[0.5, 0.5, 0, 0], [0.2, 0.8, 0, 0]], query=[2, 2], next_token=[2, 3]),
    "no common": ss.SequenceClasses.synthetic(n_queries=1, next_per_query=2, common=0, distinct=3),
    "one token": ss.SequenceClasses([[1, 0, 0, 0], [0, 1, 0, 0]], query=[2, 2], next_token=[2, 3]),
    "every token is a next token": ss.SequenceClasses([[0.5, 0.5], [0.2, 0.8]], query=[0, 1], next_token=[0, 1]),
}


@pytest.mark.parametrize("classes", CLASSES.values(), ids=CLASSES.keys())
def test_degenerate_classes_get_reasons_instead_of_nan(classes):
    for claim in verify(classes, eta_y=0.5, eta_z=0.05, t_end=50.0):
        for value in (claim.measured, claim.predicted, claim.tolerance):
            assert value is None or np.isfinite(value), claim
        if claim.status == "not applicable":
            assert claim.reason, claim


def test_a_finite_length_and_a_saved_trajectory_are_judged_alike(tmp_path):
    classes = ss.SequenceClasses.syn_small()
    report = verify(classes, eta_y=0.5, eta_z=0.05, context=64, t_end=60)
    assert "SGD" in report.setting
    assert "T = 64" in report.setting
    data = ss.simulate(classes, ss.grid(eta_y=0.5, eta_z=0.05, seed=range(8)), context=64, steps=60, record="log:80",
                       variables=["attention", "z", "y"], dtype="float64")  # fmt: skip
    ss.save(data, tmp_path / "x.zarr")
    again = verify(data=ss.load(tmp_path / "x.zarr"))
    for ours, theirs in zip(report, again, strict=True):
        assert (ours.name, ours.status, ours.measured) == (theirs.name, theirs.status, theirs.measured)


def test_a_trajectory_without_y_leaves_the_gradients_open():
    data = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=0.1, steps=20)
    report = verify(data=data)
    assert report["lemma-1"].status == "not applicable"
    assert "y" in report["lemma-1"].reason


def test_kinds_say_what_a_verdict_rests_on(textbook):
    kinds = {claim.name: claim.kind for claim in textbook if claim.name.startswith(("theorem", "corollary"))}
    others = {name: kind for name, kind in kinds.items() if kind != "measured"}
    assert others == {"theorem-1-beta": "proof step", "theorem-1-xi": "dependent", "theorem-2b": "dependent",
                      "theorem-3-reverse": "dependent",
                      "theorem-3-upper": "identity", "theorem-4-rates": "formula"}  # fmt: skip
    assert (kinds["theorem-3-upper"], kinds["theorem-4-rates"]) == ("identity", "formula")


def test_every_window_is_stated(textbook):
    """In the quantity of each statement of Theorems 1 to 4 that was measured in one."""
    for claim in textbook:
        if claim.name.startswith("theorem") and claim.name != "theorem-4-rates":
            assert "10 t₀" in claim.quantity, claim.name


@pytest.mark.parametrize("rates", [{"eta_y": 0.0}, {"eta_z": 0.0}, {"eta_y": np.nan}, {"t_end": -1.0}], ids=str)
def test_bad_rates(rates):
    with pytest.raises(InputError):
        verify(ss.SequenceClasses.syn_small(), **rates)


@pytest.fixture
def verify_command(scansnap):
    return lambda *words: scansnap("verify", *words)


def test_the_command_prints_a_table_and_exits_by_the_verdicts(verify_command, tmp_path, textbook):
    code, out, _ = verify_command(
        "--preset", "textbook", "--eta-y", 0.9, "--eta-z", 0.02, "--json", "r.json", "--figure", "c.png"
    )
    assert code == (1 if textbook.failures else 0)
    for claim in textbook:
        assert claim.reference in out
    report = json.loads((tmp_path / "r.json").read_text())
    assert [c["status"] for c in report["claims"]] == [c.status for c in textbook]
    assert (tmp_path / "c.png").stat().st_size > 10_000


def test_kinds_and_undecided_claims_are_shown_and_counted_apart(monkeypatch, capsys):
    def claim(name, kind, deviation, interval=None):
        return Statement(name, name.title(), "a statement", kind).judge(
            quantity="q", measured=1.0, predicted=1.0, deviation=deviation, tolerance=0.5, interval=interval,
            remedy="9 seeds [of any kind] would decide",
        )  # fmt: skip

    report = Report("here", (claim("sure", "measured", 0.0), claim("open", "measured", 0.4, (0.1, np.inf)),
                             claim("law", "identity", 0.0), claim("same", "formula", 0.0)))  # fmt: skip
    command.print_report(report)
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "identity" in rows["law"]
    assert "formula" in rows["same"]
    assert "measured" in rows["sure"]
    assert "open undecided: 9 seeds [of any kind] would decide" in out
    assert "measured: 1 holds, 0 fails, 1 undecided, 0 not applicable" in out
    assert "identity: 1 holds" in out
    plain = command.report_as_dict(report)
    assert plain["totals"]["measured"] == {"holds": 1, "fails": 0, "undecided": 1, "not applicable": 0}
    assert plain["claims"][1]["interval"] == [0.1, None]
    json.dumps(plain, allow_nan=False)
    assert plain["failures"] == 0  # and the command then ends with 0


def test_nothing_fails_where_nothing_applies(verify_command):
    code, out, _ = verify_command("--preset", "synthetic", "--set", "next_per_query=1", "--t-end", 20)
    assert code == 0, out
    assert "not applicable" in out


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--eta-y", "0"], "eta_y"),
        (["--finite-T", "1"], "context"),
        (["--map", "theorem-7"], ("the theorem", "theorem-7")),
        (["--map", "theorem-1", "--x", "ratio"], "the axis ratio"),
        (["--map", "theorem-1", "--points", "2", "--out", "m.txt"], "--out"),
        (["nowhere.zarr"], ("the result path", "nowhere.zarr")),
    ],
)
def test_bad_input(refuses, tmp_path, words, field):
    refuses(field, "verify", *words)
    assert list(tmp_path.iterdir()) == []


def test_a_saved_flow_is_judged_like_the_flow_itself(tmp_path):
    classes = ss.SequenceClasses.syn_medium(1)
    t = np.concatenate([[0.0], np.geomspace(0.01, 300, 60)])
    data = ss.flow(classes, eta_y=0.9, eta_z=0.05, t=t, variables=("z", "attention", "g", "gap", "y"))
    ss.save(data, tmp_path / "flow.zarr")
    report = verify(data=ss.load(tmp_path / "flow.zarr"))
    assert "exact flow" in report.setting
    assert report["lemma-1"].status == "holds"
    assert report["theorem-2a"].observed == "holds"


FULL = ("z", "attention", "g", "gap", "y")


@pytest.mark.parametrize("variables", [FULL, ("z", "attention", "g"), ("attention", "loss", "entropy", "z")], ids=len)
def test_the_command_judges_a_saved_flow(verify_command, refuses, tmp_path, variables):
    """With everything, without Y, and with what a flow holds by default; the record begins after t = 0 here."""
    classes = ss.SequenceClasses.synthetic(1, 2, common=1, distinct=3, unused=60)
    data = ss.flow(classes, eta_y=0.9, eta_z=0.05, t=np.geomspace(0.01, 300, 60), variables=variables)
    ss.save(data, tmp_path / "flow.zarr")
    code, out, err = verify_command(tmp_path / "flow.zarr", "--json", "r.json")
    assert (code, err) == (0, "")
    assert "exact flow" in out
    claims = {c["name"]: c for c in json.loads((tmp_path / "r.json").read_text())["claims"]}
    assert claims["conservation-z"]["status"] == "holds"
    assert claims["theorem-3-monotone"]["observed"] == "holds"
    assert claims["theorem-4-growth"]["observed"] == "fails"  # the start is known: 0
    gradients = claims["theorem-2a"]["observed"], claims["theorem-1-gamma"]["observed"]
    assert gradients == (("holds", "holds") if "g" in variables else ("not applicable", "not applicable"))
    assert claims["lemma-1"]["observed"] == ("holds" if "y" in variables else "not applicable")
    refuses("--run", "verify", tmp_path / "flow.zarr", "--run", 1)


def test_the_command_shows_what_depends_on_what(textbook, capsys):
    """On the screen and as JSON: five statements follow from others or repeat them, and do not count as their own."""
    told = report_as_dict(textbook)
    assert told["summary"] == textbook.summary
    assert told["totals"]["measured"] == {"holds": 8, "fails": 5, "undecided": 0, "not applicable": 1}
    assert told["totals"]["dependent"]["holds"] == 4
    depends = {claim["name"]: [*claim["implied_by"], *claim["repeats"]] for claim in told["claims"]}
    assert {name: on for name, on in depends.items() if on} == {
        "theorem-1-xi": ["theorem-2a"], "theorem-2b": ["theorem-2a"], "lemma-4": ["theorem-1-span"],
        "lemma-4-run": ["theorem-1-span", "lemma-4"], "theorem-3-reverse": ["theorem-2a-rate"]}  # fmt: skip
    print_report(textbook)
    shown = " ".join(capsys.readouterr().out.split())
    assert textbook.summary in shown
    assert shown.count("follows from") == 2
