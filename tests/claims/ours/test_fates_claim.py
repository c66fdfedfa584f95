"""Late fates, and fates with a residual connection: each holds where it speaks, and fails in a control."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from flows import counterexample, evolve, flow

import scansnap as ss
from scansnap import theory
from scansnap.claims.evidence import Evidence
from scansnap.claims.ours import fates


@pytest.fixture(scope="module")
def leaning() -> Evidence:
    """Both distinct tokens of the second class fall from about 0.6 t₀ on."""
    return evolve(counterexample(), eta_z=0.09)


def test_late_fates_take_the_place_of_theorem_2a(leaning: Evidence) -> None:
    claim = fates.check(leaning)
    assert claim.status == "holds", claim
    assert re.search(r"2 of 5 .* token 4 from 0\.6\d t₀ on \(measured: 0\.6\d t₀\)", claim.quantity)
    report = ss.verify(counterexample(), eta_y=0.9, eta_z=0.09, checks=["theorem-2"])
    instead = report["theorem-2a"].alternative
    assert instead is not None
    assert instead.claim.name == "late-fates"
    assert instead.error is not None
    assert instead.error < 0.02 < instead.paper_error


@pytest.mark.parametrize("name", ["textbook", "three classes", "three common"])
def test_where_no_token_falls_none_is_predicted_to(name: str) -> None:
    claim = fates.check(flow(name))
    assert claim.status == "holds", claim
    assert "; 0 of " in claim.quantity


def test_without_the_memory_it_fails(leaning: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    def drive_alone(u: np.ndarray, *, eta_y: float, eta_z: float, **known: object) -> theory.TokenMemory:
        v = eta_z / eta_y * np.subtract(*theory.token_push(u, **known))[:, 0]
        return theory.TokenMemory(np.zeros_like(v), v)

    monkeypatch.setattr("scansnap.theory.memory_by_token", drive_alone)
    assert fates.check(leaning).status == "fails"


def test_on_the_classes_of_another_run_it_fails(leaning: Evidence) -> None:
    """The common token's share exchanged between the classes: the tokens of the other class should fall."""
    f = leaning.attention.copy()
    f[0, :, 0] = f[0, ::-1, 0]
    assert fates.check(replace(leaning, attention=f)).observed == "fails"


def test_where_late_fates_do_not_apply(leaning: Evidence) -> None:
    for evidence, reason in (
        (replace(leaning, sampled=True), "sampled"), (replace(leaning, g=None), "gradients"),
        (flow("two queries"), "2 queries"), (evolve(ss.SequenceClasses.synthetic(1, 2, common=0)), "does not move"),
    ):  # fmt: skip
        claim = fates.check(evidence)
        assert (claim.status, reason in claim.reason) == ("not applicable", True), claim


# --- with a residual connection ----------------------------------------------------------------------------------


def four(common: float, shared: float) -> ss.SequenceClasses:
    """Two queries of two classes; token 0 is common to all, token 1 to one class of each query."""
    p = np.zeros((4, 3000))
    p[:, 0], p[[0, 2], 1] = np.sqrt(common), np.sqrt(shared)
    for n, own in enumerate((2, 5, 8, 11)):
        p[n, own : own + 3] = np.sqrt((1 - common - shared * (n % 2 == 0)) / 3)
    return ss.SequenceClasses(p / p.sum(1, keepdims=True), query=[20, 20, 21, 21], next_token=[22, 23, 24, 25])


@pytest.mark.parametrize(("common", "rises", "at_the_end"), [(0.1, "0.28", "100%"), (0.0, "inf", "0%")])
def test_local_distinct_tokens_rise_late_or_never(common: float, rises: str, at_the_end: str) -> None:
    section_7, ours = fates.check_residual(evolve(four(common, 0.2), eta_z=9e-4))
    assert (section_7.status, ours.status) == ("fails", "holds"), ours
    assert section_7.quantity.endswith(f"at the end {at_the_end}")
    assert f"rises from {rises}" in ours.quantity


def test_section_7_holds_where_common_tokens_are_strong_and_ours_fails_without_residual() -> None:
    evidence = evolve(four(0.3, 0.1), eta_z=9e-4)
    pairs = np.array([[0, 1], [1, 1]])
    assert [claim.status for claim in fates.judge_residual(evidence, pairs)] == ["holds", "holds"]
    assert [claim.status for claim in fates.judge_residual(evidence, pairs, residual="none")] == ["fails", "fails"]


def test_where_section_7_says_nothing() -> None:
    assert "no token is distinct within its query" in fates.check_residual(flow("textbook"))[0].reason
    p = four(0.1, 0.2).p_context.copy()
    as_context = ss.SequenceClasses(p, query=[2, 2, 5, 5], next_token=[22, 23, 24, 25])
    assert "a query is a context token" in fates.check_residual(evolve(as_context, spans=1))[0].reason
