"""What holds instead: beside a statement that fails one of ours, with its verdict and its curve for the same data."""

import json
from dataclasses import replace

import numpy as np
import pytest
from flows import flow

from refusals import refused
from scansnap.claims.claim import Alternative, Claim, Curve, Statement
from scansnap.claims.ours import drift, drive, exact_law, memory, response
from scansnap.claims.registry import CHECKS, select_checks, statements
from scansnap.claims.report import Report
from scansnap.claims.theorems import theorem2, theorem3, theorem4
from scansnap.claims.verify import add_alternatives, choose_alternative, curve_errors, judge_evidence
from scansnap.cli import verify as command

FAIL = {
    "textbook": {"theorem-1-xi-size", "theorem-2a-rate", "theorem-3-lower", "theorem-4-premise", "theorem-4-growth"},
    "syn-medium": {"theorem-1-span", "theorem-1-xi-size", "lemma-4", "lemma-4-run", "theorem-2a-rate",
                   "theorem-3-identity", "theorem-4-growth", "theorem-4-time"},
}  # fmt: skip
OURS = (drive, memory, response, exact_law, drift)
PAPER = ["theorem-1", "lemma-4", "theorem-2", "theorem-3", "theorem-4"]


@pytest.fixture(scope="module")
def reports():
    rates = {"textbook": 0.02, "syn-medium": 0.45}
    return {name: judge_evidence(flow(name, eta_z), checks=select_checks(PAPER)) for name, eta_z in rates.items()}


@pytest.mark.parametrize("name", FAIL)
def test_what_fails_has_one_of_ours_that_holds_for_the_same_data(reports, name: str) -> None:
    found = {claim.name: claim.alternative for claim in reports[name] if claim.alternative is not None}
    assert FAIL[name] <= set(found)
    for claim in reports[name]:
        assert (claim.alternative is not None) == (claim.observed == "fails" and bool(claim.alternatives)), claim.name
    ours = {"textbook": "memory", "syn-medium": "response"}[name]
    for instead in found.values():
        assert instead.claim.name == ours
        assert instead.claim.status == "holds"
        assert str(instead).startswith(f"instead: {ours} holds up to")


def test_on_the_axes_of_what_fails_ours_is_near_what_was_measured_and_the_papers_is_not(reports) -> None:
    for name in FAIL["textbook"]:
        instead = reports["textbook"][name].alternative
        assert instead.error < 0.03, name
        assert instead.paper_error > 5 * instead.error, name
        assert instead.until == "10 t₀"
    growth = reports["textbook"]["theorem-4-growth"]
    assert growth.alternative.paper_error > 0.8
    at = np.searchsorted(growth.curve.x, growth.alternative.x)
    np.testing.assert_allclose(growth.alternative.y, growth.curve.measured[at], rtol=0.006)
    spread = reports["syn-medium"]["theorem-4-growth"].alternative
    assert spread.error < 0.1 < spread.paper_error
    assert float(spread.until.split()[0]) < 2, "it ends where the response no longer trusts itself"


def test_what_does_not_fail_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scansnap.claims.ours.memory.predict_path", pytest.fail)
    evidence = flow("textbook", 0.02)
    for claim in add_alternatives([c for c in theorem3.check(evidence) if c.observed == "holds"], evidence):
        assert claim.alternative is None


def test_every_statement_that_names_one_names_a_check_and_has_a_curve_to_go_along() -> None:
    named = {statement.name: statement.alternatives for statement in statements() if statement.alternatives}
    assert {name for names in named.values() for name in names} <= {statement.name for statement in statements()}
    assert FAIL["textbook"] | FAIL["syn-medium"] <= set(named)
    for check in (theorem2, theorem3, theorem4):
        for claim in check.check(flow("textbook", 0.02)):
            assert claim.curve is None or claim.curve.along is not None or not claim.alternatives, claim.name


def test_of_several_the_first_that_holds_is_chosen() -> None:
    def claim(name: str, status: str) -> Claim:
        made = Statement(name, name, "a statement").not_applicable("why")
        return replace(made, status=status)

    cases = [(["fails", "holds"], "1"), (["holds", "holds"], "0"), (["not applicable", "fails"], "1"),
             (["undecided", "fails"], "0"), (["not applicable", "not applicable"], "1")]  # fmt: skip
    for given, chosen in cases:
        assert choose_alternative([claim(str(i), status) for i, status in enumerate(given)]).name == chosen


def test_in_short_sequences_the_fates_are_those_of_the_drift() -> None:
    """Theorem 2(a) fails in SGD where sampling makes rare tokens fall: it is not the memory that says so."""
    evidence = flow("textbook", 0.02)
    judged = {"quantity": "q", "measured": 0.0, "predicted": 1.0, "tolerance": 0.1}
    fall, fates = (s.judge(deviation=d, **judged) for s, d in ((theorem2.RISE, 1.0), (drift.FATES, 0.0)))
    found = add_alternatives([fall, fates], evidence)[0].alternative
    assert str(found) == "instead: finite-fates holds"
    assert add_alternatives([fall], evidence)[0].alternative.claim.name == "late-fates", "of the flow it does not speak"


def test_every_measured_statement_of_ours_is_counted_as_ours() -> None:
    kinds = {statement.name: statement.kind for module in OURS for statement in module.STATEMENTS}
    assert set(kinds.values()) <= {"ours", "identity"}, kinds


def test_curves_are_compared_where_both_are() -> None:
    x = np.linspace(1, 5, 5)
    curve = Curve("t", "y", x, 2 * x, np.ones(1))
    off, theirs = curve_errors(curve, np.array([0.5, 2.0, 4.0]), np.array([99.0, 4.4, 8.0]))
    assert off == pytest.approx(0.4 / 8)
    assert theirs == pytest.approx(7 / 8)
    assert curve_errors(replace(curve, log_y=True), x, 2.2 * x)[0] == pytest.approx(0.1)
    assert curve_errors(curve, np.array([9.0]), np.ones(1)) == (None, None)


def test_what_does_not_hold_either_is_not_said_to() -> None:
    claim = Statement("memory", "Memory", "a statement").not_applicable("why")
    assert str(Alternative(claim, "10 t₀")) == "memory is not applicable"
    assert str(Alternative(replace(claim, status="fails"), "10 t₀")) == "memory fails, too"
    assert str(Alternative(replace(claim, status="holds"))) == "instead: memory holds"


def test_a_statement_of_ones_own_may_name_one_too() -> None:
    evidence = flow("textbook", 0.02)
    own = Statement("still", "Own claim", "attention does not move", alternatives=("response-error",))
    moved = np.abs(evidence.z).max()
    still = own.judge(quantity="largest |z|", measured=moved, predicted=0.0, deviation=moved, tolerance=1e-9)
    (claim,) = add_alternatives([still], evidence)
    assert claim.alternative.claim.status == "holds"
    with refused("alternatives", "magic"):
        add_alternatives([replace(still, alternatives=("magic",))], evidence)


def test_the_command_line_tells_it_in_words_and_in_json(reports, capsys: pytest.CaptureFixture[str]) -> None:
    plain = json.loads(json.dumps(command.report_as_dict(reports["textbook"])))
    (growth,) = (claim for claim in plain["claims"] if claim["name"] == "theorem-4-growth")
    assert growth["alternative"]["name"] == "memory"
    assert growth["alternative"]["status"] == "holds"
    assert growth["alternative"]["error"] < 0.01 < growth["alternative"]["paper_error"]
    assert "alternatives" not in growth
    (holds,) = (claim for claim in plain["claims"] if claim["name"] == "theorem-2a")
    assert holds["alternative"] is None
    command.print_report(reports["textbook"])
    command.print_report(reports["syn-medium"])
    text = " ".join(capsys.readouterr().out.split())
    assert "instead: memory holds up to 10 t₀; its curve is off by 0.4" in text
    assert "fail where an assumption is not met: theorem-1-span" in text
    assert "instead: response holds up to" in text


def test_ours_are_counted_apart_from_the_papers(reports) -> None:
    report = Report("here", tuple(reports["textbook"].claims) + tuple(CHECKS["response"](flow("textbook", 0.02))))
    totals = command.totals(report)
    assert totals["ours"]["holds"] == 2
    assert sum(totals["measured"].values()) == sum(claim.kind == "measured" for claim in reports["textbook"])
