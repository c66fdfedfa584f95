"""How a finding is counted and what its verdict says."""

import pytest

from scansnap.measure.comparison import compare
from scansnap.paper.figure import VERDICTS, Finding, describe_totals, totals


def finding(agree, of, undecided=0, **more):
    return Finding("Entropy rises", "Figure 6", agree, of, "curves", undecided=undecided, **more)


@pytest.mark.parametrize(
    ("agree", "of", "undecided", "verdict"),
    [
        (16, 16, 0, "agrees"), (47, 48, 0, "mostly agrees"), (12, 16, 0, "mostly agrees"), (11, 16, 0, "mixed"),
        (5, 16, 0, "mixed"), (5, 20, 0, "mostly disagrees"), (0, 16, 0, "disagrees"), (0, 0, 0, "not applicable"),
        (15, 16, 1, "mostly agrees"),  # not plainly: one case may still go the other way
        (0, 16, 1, "mostly disagrees"), (4, 16, 8, "mixed"), (8, 16, 8, "mostly agrees"),
        (7, 16, 9, "undecided"), (0, 16, 9, "undecided"), (0, 3, 3, "undecided"), (0, 1, 1, "undecided"),
    ],
)  # fmt: skip
def test_verdict(agree, of, undecided, verdict):
    result = finding(agree, of, undecided)
    assert result.verdict == verdict
    assert result.verdict in VERDICTS
    assert result.disagree == of - agree - undecided


def test_the_count_is_always_said():
    assert finding(16, 16).counted == "16 of 16 curves"
    assert finding(14, 16, 2).counted == "14 of 16 curves, 2 undecided"
    assert str(finding(5, 20)) == "Entropy rises: mostly disagrees, 5 of 20 curves."


@pytest.mark.parametrize(("agree", "of", "undecided"), [(3, 2, 0), (1, 2, 2), (-1, 2, 0), (0, 2, -1)])
def test_counts_must_add_up(agree, of, undecided):
    with pytest.raises(ValueError):
        finding(agree, of, undecided)


def test_a_comparison_is_counted_with_what_would_decide_it():
    result = compare([[1.0, 1.1, 0.9], [1.0, -1.0, 1.5], [1.0, 1.1, float("nan")], [-1.0, -1.1, -0.9]])
    rises = Finding.compared("It rises", "Figure 6", result, "rises", "curves", "Some.")
    assert (rises.agree, rises.of, rises.undecided, rises.disagree, rises.kind) == (1, 4, 1, 2, "measured")
    assert rises.detail.startswith("Some. About ")
    one_seed = Finding.compared("It rises", "Figure 6", compare([[1.0], [2.0]]), "rises", "curves")
    assert one_seed.verdict == "undecided"
    assert "one seed" in one_seed.detail


def test_totals_keep_what_is_no_evidence_apart():
    result = [finding(3, 3), finding(3, 3), finding(0, 3, 3), finding(2, 2, kind="formula"),
             finding(0, 2, kind="formula"), finding(1, 1, kind="identity")]  # fmt: skip
    counted = totals(result)
    assert counted == {
        "formula": {"agrees": 1, "disagrees": 1},
        "identity": {"agrees": 1},
        "measured": {"agrees": 2, "undecided": 1},
    }
    measured, apart = describe_totals(counted)
    assert measured == "measured: 2 agree, 1 undecided, of 3 statements"
    assert apart.endswith("2 formulas (1 agrees, 1 disagrees); 1 identity (1 agrees)")
    assert describe_totals(totals(result[:3])) == [measured]
    followers = [finding(3, 3, kind="dependent"), finding(1, 1, kind="proof step")]
    lines = describe_totals(totals([*result[:3], *followers]))
    assert lines[0] == measured  # what follows from a statement does not count as another one
    assert [line[-15:] for line in lines[1:]] == ["of 1 statements", " 1 agrees, of 1"]
    assert describe_totals(totals([])) == []
