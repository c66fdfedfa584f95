"""What follows from another statement never fails where that one holds, and is free where it fails."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flows import counterexample, evolve, flow, snap

import scansnap as ss
from scansnap import SequenceClasses
from scansnap.claims.claim import Claim, Statement
from scansnap.claims.evidence import Evidence, from_flow
from scansnap.claims.lemmas.lemma4 import predicted_rate
from scansnap.claims.registry import select_checks, statements
from scansnap.claims.report import Report
from scansnap.claims.theorems.gradient_decomposition import decompose, thinned_window
from scansnap.claims.verify import judge_evidence
from scansnap.measure.comparison import sure_signs

STATEMENTS = {statement.name: statement for statement in statements()}
IMPLIED = [(name, premise) for name, one in STATEMENTS.items() for premise in one.implied_by]


def some_classes(seed: int) -> SequenceClasses:
    """Two or three classes of a few distinct tokens and one common token (every fourth: two), of any probabilities."""
    rng = np.random.default_rng(seed)
    k, common, m = int(rng.integers(2, 4)), 1 + (seed % 4 == 3), int(rng.choice([40, 400]))
    p, at = np.zeros((k, m)), common
    for n in range(k):
        own = int(rng.integers(1, 4))
        p[n, :common] = rng.uniform(0.05, 0.6) * rng.dirichlet(np.ones(common))
        p[n, at : at + own] = (1 - p[n].sum()) * rng.dirichlet(np.ones(own))
        at += own
    queries = at + np.arange(k) % (1 + seed % 2)
    return SequenceClasses(p, query=queries, next_token=at + 2 + np.arange(k))


def judged(evidence: Evidence) -> dict[str, Claim]:
    return {claim.name: claim for claim in judge_evidence(evidence, checks=select_checks(["theorem-1", "theorem-2"]))}


def sample() -> list[Evidence]:
    found = [flow("textbook"), flow("two queries"), flow("syn-small"), evolve(counterexample(), eta_z=0.09)]
    for seed in range(8):
        classes, ratio = some_classes(seed), (2, 10, 50, 300)[seed % 4]
        t_end = 10 * snap(classes, 0.9)
        found.append(from_flow(classes, eta_y=0.9, eta_z=0.9 / ratio, t_end=t_end, n_times=30, with_y=False))
    return found


def test_what_is_implied_does_not_fail_where_its_premise_holds() -> None:
    """On the flow in a dozen settings, most of them outside the assumptions: what is measured counts."""
    seen = {pair: {"holds": 0, "fails": 0} for pair in IMPLIED}
    for evidence in sample():
        claims = judged(evidence)
        for name, premise in IMPLIED:
            claim, given = claims[name], claims[premise]
            if given.observed in ("holds", "fails") and claim.observed != "not applicable" and claim.implied_by:
                seen[name, premise][given.observed] += 1
                if given.observed == "holds":
                    assert claim.observed == "holds", (evidence.classes, claim)
    assert set(IMPLIED) == {("theorem-1-xi", "theorem-2a"), ("theorem-2b", "theorem-2a")}
    assert all(count["holds"] > 3 and count["fails"] for count in seen.values()), seen


def test_where_the_premise_fails_what_it_implies_is_free() -> None:
    """ξ may be negative, and a common token may rise: neither is true by construction."""
    claims = judged(evolve(counterexample(), eta_z=0.09))
    assert {name: claims[name].observed for name in ("theorem-2a", "theorem-1-xi", "theorem-2b")} == {
        "theorem-2a": "fails", "theorem-1-xi": "fails", "theorem-2b": "holds"}  # fmt: skip
    evidence = flow("textbook")
    g = evidence.g.copy()
    g[30:, :, evidence.classes.common[0]] *= 1.1
    claims = judged(replace(evidence, g=g))
    assert claims["theorem-2a"].observed == claims["theorem-2b"].observed == "fails"


def test_a_sum_of_sure_rises_surely_rises() -> None:
    """Why Theorem 2(b) follows in SGD: in every run the common token falls by what the distinct ones gain."""
    rng, sure = np.random.default_rng(0), 0
    for _ in range(2000):
        runs, tokens = rng.integers(2, 9), rng.integers(1, 6)
        moved = rng.normal(rng.uniform(0, 3), 1, (runs, tokens)) @ rng.normal(0.5, 0.5, (tokens, tokens))
        if sure_signs(moved)[0].all():
            sure += 1
            assert sure_signs(moved.sum(1, keepdims=True))[0].all()
    assert 50 < sure < 1500


def test_in_sgd_the_sign_of_xi_is_evidence_of_its_own() -> None:
    """It is of single states of a run, Theorem 2(a) of its net changes."""
    classes = SequenceClasses.textbook()
    found = ss.verify(classes, context=500, seeds=2, t_end=40, checks=["theorem-1", "theorem-2"])
    assert (found["theorem-1-xi"].kind, found["theorem-1-xi"].implied_by) == ("measured", ())
    assert (found["theorem-2b"].kind, found["theorem-2b"].implied_by) == ("dependent", ("theorem-2a",))


@pytest.mark.parametrize("name", ["textbook", "syn-small", "three classes"])
def test_lemma_4_leaves_out_what_theorem_1_does(name: str) -> None:
    """ż − Lemma 4 = η_Z Σ p_n diag(f_n) rest_n with the rest of g_n outside the span of the f's."""
    evidence = flow(name)
    times = thinned_window(evidence)
    fit, f, g = decompose(evidence, times), evidence.f[times], evidence.g[times]
    inside = (evidence.classes.p_context > 0)[None]
    moving = (g - f * (f * g).sum(-1, keepdims=True)) * inside
    pull = (fit.gamma_beta @ f) * inside
    rest = moving + pull - f * (f * pull).sum(-1, keepdims=True)
    np.testing.assert_allclose(np.linalg.norm(rest, axis=-1), fit.rest, rtol=1e-3, atol=1e-9 * fit.across.max())
    left = evidence.sum_by_query(evidence.eta_z * evidence.classes.p_class[:, None] * f * rest)
    difference = evidence.z_rate[times] - predicted_rate(evidence, times, fit)
    np.testing.assert_allclose(difference, left, atol=1e-9 * np.abs(evidence.z_rate[times]).max())


def test_relations_name_statements_and_decide_the_kind() -> None:
    for statement in STATEMENTS.values():
        names = (*statement.implied_by, *statement.repeats)
        assert set(names) <= set(STATEMENTS)
        assert statement.name not in names
        assert (statement.kind == "dependent") == bool(names)
    assert not STATEMENTS["theorem-1-beta"].is_from_paper
    assert STATEMENTS["theorem-2b"].is_from_paper
    for wrong in ({"kind": "dependent"}, {"implied_by": ("theorem-2a",)}, {"kind": "ours", "repeats": ("lemma-4",)}):
        with pytest.raises(ss.InputError) as error:
            Statement("mine", "Mine", "says something", **wrong)
        assert error.value.field == "the kind of the statement mine"


def test_a_report_counts_independent_statements_apart() -> None:
    own, other = Statement("a", "A", "a"), Statement("b", "B", "b", kind="dependent", implied_by=("a",))
    claims = [one.judge(quantity="", measured=0, predicted=0, deviation=off, tolerance=1)
              for one, off in ((own, 0), (own, 2), (own, 0), (other, 0), (other, 2), (other, 0))]  # fmt: skip
    report = Report("here", (*claims, own.not_applicable("why")))
    assert report.counts() == {"holds": 2, "fails": 1, "undecided": 0, "not applicable": 1}
    assert report.counts("dependent")["holds"] == 2
    assert report.summary.startswith("2 of 4 independent statements hold, 1 fail, 1 do not apply; ")
    assert "of 3 " in report.summary
    assert str(report).endswith(report.summary)
    assert claims[3].relation == "follows from a"
    assert (claims[3].as_independent().kind, claims[3].as_independent().relation) == ("measured", "")


def test_the_page_lists_what_depends_on_what() -> None:
    page = (Path(__file__).parents[2] / "docs" / "claims.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (proof step|(?:follows from|repeats) [^|]+) \|", page, flags=re.M)
    of = {name: "proof step" if one.kind == "proof step" else one.not_applicable("").relation
          for name, one in STATEMENTS.items() if one.kind in ("dependent", "proof step")}  # fmt: skip
    assert {name: relation.replace("`", "") for name, relation in rows} == of


def test_the_counterexample_of_the_page_is_one() -> None:
    """The snippet as it stands, and the numbers beside it."""
    page = (Path(__file__).parents[2] / "docs" / "claims.md").read_text(encoding="utf-8")
    (snippet,) = (one for one in re.findall(r"^```python\n(.*?)^```$", page, flags=re.M | re.S) if "3000" in one)
    given: dict = {"print": lambda *words: None}
    exec(snippet, given)
    report, classes = given["report"], given["classes"]
    assert classes == counterexample()
    assert all(a.met for name in ("theorem-2a", "theorem-1-xi") for a in report[name].assumptions)
    assert [report[name].status for name in ("theorem-2a", "theorem-1-xi", "theorem-2b")] == ["fails", "fails", "holds"]
    t = snap(classes, 0.9) * np.append(np.linspace(0, 1, 101), 10)
    z = ss.flow(classes, eta_y=0.9, eta_z=0.09, t=t).z.values[:, 0][:, [4, 5]]
    turned = [float(t[np.argmax(z[:-1, j])] / snap(classes, 0.9)) for j in (0, 1)]
    assert turned == pytest.approx([0.56, 0.64], abs=0.015)
    np.testing.assert_allclose(z[-1], [-1.8e-4, -3.6e-5], rtol=0.02)
    for said in ("0.56 t₀ (P = 0.357)", "0.64 t₀ (P = 0.143)", "−1.8·10⁻⁴", "−3.6·10⁻⁵"):
        assert said in page
