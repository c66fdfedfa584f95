"""Lemma 4 where it holds, where memory breaks it, and on evidence made to break it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from flows import CLASSES, evolve, flow, trained

from scansnap import SequenceClasses
from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence
from scansnap.claims.lemmas import lemma4
from scansnap.claims.theorems import gradient_decomposition as decomposition
from scansnap.claims.theorems import theorem1


def check(evidence: Evidence) -> tuple[Claim, Claim]:
    rate, run = lemma4.check(evidence)
    assert (rate.name, run.name) == ("lemma-4", "lemma-4-run")
    return rate, run


@pytest.mark.parametrize("name", ["textbook", "two queries", "three classes", "three common"])
def test_holds_on_the_exact_flow_where_every_assumption_is_met(name: str) -> None:
    for claim in check(flow(name)):
        assert (claim.status, claim.observed, claim.reason) == ("holds", "holds", ""), claim
        assert claim.measured == pytest.approx(claim.predicted, rel=0.1)
        assert claim.curve is not None
        assert len(claim.curve.x) == len(claim.curve.measured) == len(claim.curve.predicted)
        assert (claim.curve.x > 0).all()


def test_the_formula_is_equation_10() -> None:
    """Written out in loops, with b = γβ."""
    evidence = flow("syn-medium")
    times = decomposition.thinned_window(evidence)[20:21]
    fit = decomposition.decompose(evidence, times)
    f, b = evidence.f[times[0]], fit.gamma_beta[0]
    rate = np.zeros_like(evidence.z[0])
    for n, row in enumerate(evidence.class_query):
        for other in range(evidence.classes.n_classes):
            if other != n:
                turned = (np.outer(f[n], f[n]) - np.eye(f.shape[1])) @ f[other]
                rate[row] += evidence.eta_z * evidence.classes.p_class[n] * f[n] * b[n, other] * turned
    np.testing.assert_allclose(lemma4.predicted_rate(evidence, times, fit)[0], rate, atol=1e-15)
    np.testing.assert_allclose(rate, evidence.z_rate[times[0]], atol=0.02 * np.abs(rate).max())


def test_exact_while_attention_has_not_moved() -> None:
    """With frozen attention g_n is in the span, so the deviation vanishes with η_Z."""
    deviations = []
    for eta_z in (0.02, 0.002):
        rate, _ = check(flow("textbook", eta_z))
        deviations.append((1 - rate.margin) * rate.tolerance)
    assert deviations[0] / deviations[1] == pytest.approx(10, rel=0.2)


def test_what_is_seen_on_the_presets() -> None:
    for name in ("syn-small", "syn-medium", "zipf"):
        rate, run = check(flow(name))
        assert rate.status == run.status == "not applicable"
        assert "weak overlap" in rate.reason
        # ξ_n/γ is small on zipf, so that what Y remembers of earlier f weighs more.
        assert rate.observed == run.observed == ("fails" if name == "zipf" else "holds"), (rate, run)


def sgd(context: float, batch_size: int | None, record: object = "log:40") -> Evidence:
    classes = CLASSES["syn-small"]
    return trained(classes, steps=150, batch_size=batch_size, context=context, record=record)


def test_sgd_moves_as_the_lemma_adds_up_to() -> None:
    for context, batch_size, within in ((math.inf, None, 0.02), (128, 128, 0.2)):
        rate, run = check(sgd(context, batch_size))
        assert (rate.observed, run.observed) == ("holds", "holds"), (rate, run)
        assert run.measured == pytest.approx(run.predicted, rel=within)
    rate, run = check(sgd(16, 1))
    assert (rate.observed, run.observed) == ("fails", "fails")
    assert "long sequences" in run.reason


def test_sparse_records_are_not_integrated() -> None:
    _, run = check(sgd(math.inf, None, record=[0, 10, 150]))
    assert (run.status, run.margin) == ("not applicable", None)
    assert "too far apart" in run.reason
    _, run = check(sgd(math.inf, None, record=[10, 20, 40, 80, 150]))
    assert run.reason == "needs the start and at least two later times"


# --- it can fail -------------------------------------------------------------------------------------------------


def test_gradients_out_of_the_span_fail() -> None:
    """A distinct token that pulls for itself by a thousandth of g_n: nothing beside g_n, much beside ż."""
    evidence = flow("textbook")
    token = evidence.classes.distinct(1)[-1]
    g = evidence.g.copy()
    g[30, 1, token] *= 1.002
    rate, run = check(replace(evidence, g=g))
    assert (rate.status, rate.observed) == ("fails", "fails")
    assert f"t = {evidence.t[30]:.4g}" in rate.reason
    assert f"token {token} of query {evidence.classes.query[0]}" in rate.reason
    assert run.status == "holds"  # one state among forty
    assert theorem1.check(replace(evidence, g=g))[0].status == "fails"  # asked of the same part of g_n


def test_logits_that_went_another_way_fail() -> None:
    evidence = flow("textbook")
    common = evidence.classes.common[0]
    z = evidence.z.copy()
    z[:, 0, common] *= -1
    rate, run = check(replace(evidence, z=z))
    assert rate.status == "holds"  # it does not look at z
    assert (run.status, run.observed) == ("fails", "fails")
    assert f"token {common}" in run.reason


def test_logits_that_were_elsewhere_on_the_way_fail() -> None:
    """Right in the end, and twice where they should be early on."""
    evidence = flow("textbook")
    z = evidence.z.copy()
    z[3] *= 2
    _, run = check(replace(evidence, z=z))
    assert (run.status, run.measured / run.predicted) == ("fails", pytest.approx(2, rel=0.01))
    assert f"t = {evidence.t[3]:.4g}" in run.reason


def test_a_tenth_too_far_is_too_far_without_noise() -> None:
    evidence = flow("textbook")
    assert check(replace(evidence, z=1.15 * evidence.z))[1].status == "fails"


def test_what_is_not_a_number_never_passes() -> None:
    evidence = flow("textbook")
    g = evidence.g.copy()
    g[12, 0, evidence.classes.common[0]] = np.nan
    for claim in check(replace(evidence, g=g)):
        assert (claim.status, claim.observed) == ("fails", "fails"), claim


def test_a_slow_decoder_is_outside_the_lemma() -> None:
    rate, run = check(evolve(SequenceClasses.zipf(vocab=60, classes=3), eta_z=0.9))
    assert "fast decoder: 1 against 10" in rate.reason
    assert (rate.observed, run.observed) == ("fails", "fails")


# --- nothing to speak about --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "why"),
    [
        (SequenceClasses.synthetic(1, 1), "attention does not move"),
        (SequenceClasses.synthetic(1, 2, common=0), "attention does not move"),
        (SequenceClasses.synthetic(1, 2, distinct=0), "attention stands still"),
        (SequenceClasses([[1.0, 0, 0, 0], [1.0, 0, 0, 0]], query=[1, 1], next_token=[2, 3]), "stands still"),
        (SequenceClasses([[1.0, 0, 0, 0], [0, 1.0, 0, 0]], query=[1, 1], next_token=[2, 3]), "does not move"),
    ],
    ids=repr,
)
def test_degenerate_classes(classes: SequenceClasses, why: str) -> None:
    for claim in check(evolve(classes, spans=1)):
        assert (claim.status, claim.margin, claim.measured) == ("not applicable", None, None)
        assert why in claim.reason


def test_no_token_is_distinct() -> None:
    for claim in check(evolve(SequenceClasses.zipf(vocab=60, classes=3, overlap=1), spans=1)):
        assert claim.status == "not applicable"
        assert all(math.isfinite(number) for number in (claim.measured, claim.predicted, claim.margin))


@pytest.mark.parametrize(
    "p_context",
    [
        [[1.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0]],  # a context of one token
        [[0.5, 0.5, 0, 0, 0], [0.3, 0.7, 0, 0, 0]],
        [[0.5, 0.5, 0, 0, 0], [0.3, 0, 0.7, 0, 0]],
    ],
)
def test_contexts_that_any_gradient_fits_say_nothing(p_context: list[list[float]]) -> None:
    """As many f_n' as tokens: whatever the gradient was, the fit would be exact."""
    evidence = evolve(SequenceClasses(p_context, query=[2, 2], next_token=[3, 4]), spans=1)
    noise = np.random.default_rng(0).normal(0, 1, evidence.g.shape)
    for found in (evidence, replace(evidence, g=np.where(evidence.attention > 0, noise, 0))):
        for claim in check(found):
            assert (claim.status, claim.margin) == ("not applicable", None)
            assert "any gradient is a combination" in claim.reason


def test_without_gradients_or_times() -> None:
    evidence = flow("textbook")
    assert all("needs the gradients" in claim.reason for claim in check(replace(evidence, g=None)))
    assert all("no time is recorded" in claim.reason for claim in check(replace(evidence, t=evidence.t + 1e6)))
