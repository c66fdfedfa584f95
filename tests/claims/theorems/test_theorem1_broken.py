"""Theorem 1 on gradients made to break it, and on classes that do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from flows import chain, composed, evolve, flow, judge, trained

from scansnap import SequenceClasses
from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence
from scansnap.claims.theorems import gradient_decomposition as decomposition
from scansnap.claims.theorems.gradient_decomposition import decompose

check = partial(judge, "theorem-1")


def broken(name: str, evidence: Evidence) -> Claim:
    """The claim on evidence made to break it, which must say so."""
    claim = check(evidence)[name]
    assert (claim.status, claim.observed) == ("fails", "fails"), claim
    assert claim.margin < 0
    assert claim.reason
    return claim


def test_gradients_out_of_the_span_fail() -> None:
    evidence = flow("textbook")
    noise = np.random.default_rng(0).normal(size=evidence.g.shape) * (evidence.classes.p_context > 0)
    noise[:20] = 0
    claim = broken("theorem-1-span", replace(evidence, g=evidence.g * (1 + 0.5 * noise)))
    assert claim.reason.startswith("class ")
    assert "t = " in claim.reason


@pytest.mark.parametrize("name", ["textbook", "three classes", "syn-small"])
def test_a_span_without_the_other_classes_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every f_n' deleted from the decomposition only a multiple of f_n is left, which moves nothing."""
    evidence = flow(name)
    with_all = check(evidence)["theorem-1-span"]
    monkeypatch.setattr(decomposition, "overlapping", lambda classes: np.zeros((classes.n_classes,) * 2, dtype=bool))
    alone = check(evidence)["theorem-1-span"]
    assert (with_all.observed, alone.observed) == ("holds", "fails")
    assert alone.measured == pytest.approx(1)


def test_a_hundredth_of_g_outside_the_span_fails() -> None:
    """What is next to nothing beside g_n is more than all that moves attention."""
    evidence = flow("textbook")
    first, second = evidence.classes.distinct(0)[:2]
    g, f = evidence.g.copy(), evidence.f[:, 0]
    size = 0.01 * np.linalg.norm(g[:, 0], axis=-1) / np.hypot(f[:, first], f[:, second])
    g[:, 0, first] += size * f[:, second]
    g[:, 0, second] -= size * f[:, first]
    assert broken("theorem-1-span", replace(evidence, g=g)).measured > 0.5


def test_a_negative_beta_fails() -> None:
    evidence = flow("textbook")
    times = np.arange(len(evidence.t))
    fit = decompose(evidence, times)
    for size in (10, 1, 0.1):  # in 1/M; β itself begins at 1
        gamma_beta = fit.gamma_beta.copy()
        gamma_beta[25, 1, 0] = -size / evidence.classes.vocab_size * fit.gamma_iota[25, 1]
        turned = composed(evidence, fit.gamma_iota, gamma_beta)
        claim = broken("theorem-1-beta", turned)
        assert claim.measured == pytest.approx(1 - 1 / 80)
        assert f"for class 1 against class 0 at t = {evidence.t[25]:.4g}" in claim.reason
        xi = broken("theorem-1-xi", turned)
        assert xi.measured == pytest.approx(1 - 1 / 80)
        assert xi.reason.startswith("1 of 80 do not")
        assert "class 1" in xi.reason


def test_flipped_signs_of_beta_fail() -> None:
    for name in ("textbook", "three classes", "syn-small"):
        evidence = flow(name)
        fit = decompose(evidence, np.arange(len(evidence.t)))
        assert check(composed(evidence, fit.gamma_iota, fit.gamma_beta))["theorem-1-beta"].observed == "holds"
        claim = check(composed(evidence, fit.gamma_iota, -fit.gamma_beta))["theorem-1-beta"]
        assert (claim.observed, claim.measured) == ("fails", 0)


def test_a_beta_below_the_error_of_the_fit_is_undecided() -> None:
    """At T = 500 the noise in Y is larger than the β of early times: no sign can be told there, so none is given."""
    classes = SequenceClasses.synthetic(1, 2, common=1, distinct=5, common_weight=0.8, unused=990)
    claim = check(trained(classes, steps=250, context=500, record=[0, 40, 60, 100, 150, 250]))["theorem-1-beta"]
    assert (claim.status, claim.observed) == ("undecided", "undecided")
    assert "the sign cannot be told" in claim.reason


def test_gamma_of_the_wrong_size_fails() -> None:
    evidence = flow("textbook")
    assert check(replace(evidence, g=evidence.g * 1.2))["theorem-1-gamma"].status == "holds"
    claim = broken("theorem-1-gamma", replace(evidence, g=evidence.g * 1.3))
    assert claim.measured == pytest.approx(1.3 * claim.predicted, rel=0.01)
    broken("theorem-1-gamma", replace(evidence, g=-evidence.g))


def test_the_predicted_xi_would_pass() -> None:
    """Gradients made by Eq. 26's own formula agree with the claim that the exact flow fails."""
    evidence = flow("three classes")
    inverse = np.linalg.inv(evidence.overlap)  # I − E'
    gamma_iota, gamma_beta = np.diagonal(inverse, axis1=1, axis2=2), -inverse * (1 - np.eye(3))
    claim = check(composed(evidence, gamma_iota, gamma_beta))["theorem-1-xi-size"]
    assert claim.status == "holds"
    assert claim.margin == pytest.approx(1)


def test_what_is_not_a_number_never_passes() -> None:
    evidence = flow("textbook")
    g = evidence.g.copy()
    g[30, 1, evidence.classes.distinct(1)[0]] = np.nan
    for claim in check(replace(evidence, g=g)).values():
        assert (claim.status, claim.observed) == ("fails", "fails"), claim
        assert "class 1" in claim.reason or "class 0" in claim.reason

    attention = evidence.attention.copy()
    attention[30] = np.nan
    claims = check(replace(evidence, attention=attention))
    assert all(claim.status == "fails" for claim in claims.values()), claims


def test_xi_may_be_negative_with_every_assumption_met() -> None:
    """Two unequal classes with η_Y = 10 η_Z: what Y remembers turns the sign of b."""
    p = np.zeros((2, 3000))
    p[0, :4], p[1, [0, 4, 5]] = [0.126, 0.112, 0.386, 0.376], [0.5, 0.357, 0.143]
    evidence = evolve(SequenceClasses(p, query=[10, 10], next_token=[11, 12]), eta_z=0.09)
    assert "class 1 against class 0" in broken("theorem-1-beta", evidence).reason
    assert "for class 1 at t = 355.8 (10 t₀)" in broken("theorem-1-xi", evidence).reason
    # Half of what moves attention is then this memory, outside the span.
    assert broken("theorem-1-span", evidence).measured == pytest.approx(0.5, abs=0.05)


def test_beta_may_be_negative_between_weak_neighbours() -> None:
    """The first and the last of a chain overlap less than both do with the middle one: E' and β are below 0."""
    evidence = evolve(chain(0.05, 0.5), eta_z=1e-4)
    claim = check(evidence)["theorem-1-beta"]
    assert claim.status == "not applicable"
    assert claim.observed == "fails"
    assert claim.measured < 1
    assert (np.eye(3) - np.linalg.inv(evidence.overlap[0]))[0, 2] < 0


def test_a_slow_decoder_is_outside_the_theorem() -> None:
    claims = check(evolve(SequenceClasses.zipf(vocab=60, classes=4, overlap=0.8), eta_z=0.9))
    assert "fast decoder: 1 against 10" in claims["theorem-1-span"].reason
    assert claims["theorem-1-span"].observed == "fails"  # Y remembers earlier f
    assert claims["theorem-1-gamma"].observed == "fails"
