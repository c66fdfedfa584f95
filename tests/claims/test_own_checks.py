"""The door for claims of one's own: beside ours or instead of them, and bad ones refused in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap.claims.registry import select_checks
from scansnap.claims.report import Report
from scansnap.claims.verify import verify

SMALL = ss.SequenceClasses.syn_small()
MINE = ss.Statement("mine", "Own claim", "attention has not moved by more than this")
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_claim.py"


def moved(evidence: ss.Evidence) -> ss.Claim:
    far = np.abs(evidence.attention - evidence.attention[0]).max()
    return MINE.judge(quantity="|Δc|", measured=far, predicted=0, deviation=far, tolerance=0.01, failure="everywhere")


def judged(**values: object) -> ss.Claim:
    return MINE.judge(**({"quantity": "", "measured": 0, "predicted": 0, "deviation": 0, "tolerance": 1} | values))


def look(*checks: object, t_end: float = 1.0, **more: object) -> Report:
    return verify(SMALL, eta_y=1.0, eta_z=0.1, t_end=t_end, checks=list(checks), **more)


def test_instead_of_ours_and_beside_them() -> None:
    assert [claim.name for claim in look(moved)] == ["mine"]
    assert [claim.name for claim in look("lemma-3", moved)] == ["lemma-3", "lemma-3-rows", "mine"]
    assert [claim.name for claim in look(moved, "lemma-3")] == ["mine", "lemma-3", "lemma-3-rows"]
    every = [claim.name for claim in look(*(check.name for check in select_checks(None)), moved)]
    assert every == [claim.name for claim in verify(SMALL, eta_y=1.0, eta_z=0.1, t_end=1.0)] + ["mine"]


def test_the_verdict_is_by_the_same_rule() -> None:
    early, late = look(moved)["mine"], look(moved, t_end=500.0)["mine"]
    assert (early.status, early.reason, early.kind) == ("holds", "", "measured")
    assert (late.status, late.reason) == ("fails", "everywhere")
    assert late.margin == pytest.approx(1 - late.measured / 0.01)


def test_several_claims_and_progress() -> None:
    other = ss.Statement("other", "Own claim", "nothing")
    seen: list[tuple[int, int]] = []
    found = look(lambda evidence: (moved(evidence), other.not_applicable("so")), "lemma-2",
                 progress=lambda done, total: seen.append((done, total)))  # fmt: skip
    assert [claim.name for claim in found] == ["mine", "other", "lemma-2", "lemma-2-size"]
    assert seen == [(1, 2), (2, 2)]


def test_outside_the_theory_ours_do_not_apply_and_ones_own_does() -> None:
    data = ss.simulate(SMALL, eta_y=1.0, eta_z=0.1, steps=5, init="uniform")
    found = verify(data=data, checks=["lemma-3", moved])
    assert [claim.status for claim in found] == ["not applicable", "not applicable", "holds"]
    assert "Y = Z = 0" in found.setting
    residual = ss.simulate(SMALL, eta_y=1.0, eta_z=0.1, steps=5, residual="normed")
    assert [claim.status for claim in verify(data=residual, checks=["lemma-3"])] == ["not applicable"] * 2
    with refused("the model of the trajectory", "there is a residual connection"):
        verify(data=residual, checks=["lemma-3", moved])


def test_evidence_has_the_loss() -> None:
    losses = []

    def keep(evidence: ss.Evidence) -> ss.Claim:
        losses.append(evidence.loss)
        return MINE.not_applicable("only looks")

    look(keep)
    look(keep, context=16, seeds=1, t_end=4)
    verify(data=ss.flow(SMALL, eta_y=1.0, eta_z=0.1, t=[1.0, 2.0]), checks=[keep])
    for loss in losses:
        assert loss[0] == pytest.approx(np.log(34))  # nothing is known at first
        assert loss[-1] < loss[0]
    assert len(losses[2]) == 3


@pytest.mark.parametrize(
    ("checks", "field"),
    [
        (moved, "checks"),
        ("lemma-3", "checks"),
        ([], "checks"),
        (["lemma-5"], "checks"),
        ([3], "checks"),
        ([moved, moved], ("the name of a claim", "mine")),
        (["lemma-3", "lemma-3"], "the name of a claim"),
        ([lambda evidence: None], "what the check <lambda> returned"),
        ([lambda evidence: True], "what the check <lambda> returned"),
        ([lambda evidence: []], "what the check <lambda> returned"),
        ([lambda evidence: [moved(evidence), "x"]], "what the check <lambda> returned"),
    ],
)
def test_bad_checks_are_refused_in_words(checks: object, field: str) -> None:
    with refused(field):
        verify(SMALL, eta_y=1.0, eta_z=0.1, t_end=1.0, checks=checks)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ss.Statement("", "a", "b"), "the name of a statement"),
        (lambda: ss.Statement("a", "b", 3), "the text of a statement"),
        (lambda: ss.Statement("a", "b", "c", kind="guessed"), "the kind of the statement a"),
        (lambda: judged(tolerance=0), "the tolerance of mine"),
        (lambda: judged(deviation=-1), "the deviation of mine"),
        (lambda: judged(measured=[1, 2]), "the measured of mine"),
        (lambda: ss.Claim("a", "b", "c", "true", "", *[None] * 4, ""), "the status of the claim a"),
    ],
)  # fmt: skip
def test_bad_claims_are_refused_in_words(make: Callable[[], object], field: str) -> None:
    with refused(field):
        make()


def test_a_deviation_that_is_not_a_number_is_still_a_failure() -> None:
    assert judged(measured=np.nan, deviation=np.nan).status == "fails"


def test_the_example_runs_and_its_control_fails() -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(ss.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, env=environment, check=True)
    lines = done.stdout.splitlines()
    assert lines[:4] == ["conservation-y: holds", "conservation-z: holds", "common-sum: holds", "downhill: holds"]
    assert lines[4].startswith("downhill: fails the loss is up by ")
    assert len(lines) == 5
