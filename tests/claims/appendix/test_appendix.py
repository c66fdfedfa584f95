"""The appendix: what holds on settings that meet every assumption, and every control with which it must fail."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from flows import evolve

import scansnap as ss
from scansnap import theory
from scansnap.claims.appendix import counts, decoder_time, modified_run, overlaps
from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence
from scansnap.claims.paper_statements import four_classes, weak_overlap
from scansnap.theory.modified import overlap_complement

MISPRINTED = {"lemma-12", "corollary-1-eq-71", "theorem-1-eq-88"}


@cache
def evidence(name: str) -> Evidence:
    classes = {"textbook": ss.SequenceClasses.textbook, "four": four_classes, "weak": weak_overlap}[name]()
    return evolve(classes, spans=0.1)


def statuses(claims: list[Claim]) -> dict[str, str]:
    return {claim.name: claim.status for claim in claims}


def failures(claims: list[Claim]) -> set[str]:
    return {name for name, status in statuses(claims).items() if status != "holds"}


# --- the proof's own dynamics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["textbook", "four", "weak"])
def test_only_misprints_fail_on_the_proofs_dynamics(name: str) -> None:
    assert failures(modified_run.check(evidence(name))) == MISPRINTED


def test_under_gradient_descent_all_of_it_fails() -> None:
    """But for ξ_n > 0, which gradient descent shares: there ξ_n/γ is 1/M and not the squared length."""
    claims = modified_run.check(evidence("four"), update="gradient")
    held = {"xi-positive"}
    assert failures(claims) == {claim.name for claim in claims} - held
    sizes = {claim.name: claim.measured for claim in claims}
    assert sizes["lemma-5"] > 0.01
    assert sizes["xi-force"] < 0.1 * next(c.predicted for c in claims if c.name == "xi-force")


def test_the_draws_of_another_seed_fail() -> None:
    def others(*known: object, **more: object) -> modified_run.ModifiedRun:
        state = modified_run.modified_run(*known, **more)
        return replace(state, visits=np.roll(state.visits, 1))

    assert {"lemma-5", "theorem-5", "corollary-1", "theorem-1-eq-84"} <= failures(
        modified_run.check(evidence("four"), run=others)
    )


def test_dependent_f_are_not_applicable() -> None:
    same = ss.SequenceClasses(np.full((2, 30), 1 / 30), [5, 5], [6, 7])
    assert set(statuses(modified_run.check(evolve(same, spans=0.1))).values()) == {"not applicable"}


def test_xi_is_positive_below_the_papers_bound_and_by_the_printed_signs_it_is_not() -> None:
    """Random overlaps with |λ₁| < 1/K, random draws with min h/max h just above Σ_k E_nk."""
    rng = np.random.default_rng(7)
    below = positive = printed = classes = 0
    for _ in range(300):
        k, m = int(rng.integers(2, 9)), int(rng.integers(100, 5000))
        e = np.triu(rng.exponential(size=(k, k)) * (rng.random((k, k)) < 0.7), 1)
        e += e.T
        size = np.abs(np.linalg.eigvalsh(e)).max()
        if not size:
            continue
        e *= rng.uniform(0.0005, 0.999) / k / size
        smallest = np.abs(np.linalg.eigvalsh(e)).min()
        below += smallest < 6 / np.sqrt(m)
        high = rng.uniform(10, 500)
        draws = np.geomspace(1e-3, high, 400)
        heights = np.asarray(theory.h(draws, eta_y=0.5, vocab_size=m))
        low = draws[heights > e.sum(1).max() * heights[-1]][0]  # as few as the theorem allows
        visits = rng.choice([low, high], size=k)
        decoder = theory.modified_decoder(np.eye(k) + e, visits, eta_y=0.5, vocab_size=m, steps=False)
        own = e.max(1) > 0
        classes += own.sum()
        positive += (decoder.xi[own] > 0).sum()
        printed += ((decoder.beta_printed * e).sum(1)[own] < 0).sum()
    assert positive == classes > 1000
    assert below > 250
    assert printed > 50


def test_a_starved_class_may_have_a_negative_force() -> None:
    """Outside the condition of the theorem: class 0 of a chain is never drawn."""
    e = np.array([[0, 0.2, 0], [0.2, 0, 0.2], [0, 0.2, 0]])
    xi = [
        theory.modified_decoder(np.eye(3) + e, [0, low, 200], eta_y=0.5, vocab_size=1000, steps=False).xi[0]
        for low in (1, 200)
    ]
    assert xi[0] < 0 < xi[1]


# --- h and time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["textbook", "four"])
def test_h_and_time(name: str) -> None:
    expected = {"remark-1", "remark-2"} | ({"remark-1-fewer"} if name == "textbook" else set())
    assert failures(decoder_time.check(evidence(name))) == expected


def slow(*known: object, eta_y: float, **more: object) -> np.ndarray:
    return theory.h(*known, eta_y=0.1 * eta_y, **more)


def steps_as_flow(steps: int, **known: float) -> np.ndarray:
    return np.asarray(theory.h(np.arange(steps + 1), **known))


def one_ahead(steps: int, *, eta_y: float, vocab_size: float) -> np.ndarray:
    return steps_as_flow(steps, eta_y=eta_y, vocab_size=vocab_size) + eta_y / vocab_size


@pytest.mark.parametrize(
    ("changed", "fails", "holds"),
    [
        ({"height": slow}, {"lemma-6", "lemma-7"}, set()),
        ({"recursion": one_ahead}, {"lemma-7-limit"}, {"lemma-7"}),
        ({"recursion": steps_as_flow}, {"step-lead"}, {"remark-2"}),
        ({"linear": 0.5}, {"lemma-8"}, set()),
    ],
)
def test_controls_of_h_and_time(changed: dict[str, object], fails: set[str], holds: set[str]) -> None:
    found = failures(decoder_time.check(evidence("textbook"), **changed))
    assert fails <= found
    assert not holds & found


def test_a_rate_below_the_first_crossing_and_large_rates() -> None:
    textbook = evidence("textbook")
    tiny = decoder_time.check(replace(textbook, eta_y=0.3 / 2014))
    assert next(claim for claim in tiny if claim.name == "remark-3").observed == "fails"
    assert set(statuses(decoder_time.check(replace(textbook, eta_y=1.5))).values()) == {"not applicable"}


# --- counts ---------------------------------------------------------------------------------------------------------


def convex(s: np.ndarray, **known: float) -> np.ndarray:
    return np.asarray(s) ** 2 * known["eta_y"] / known["vocab_size"]


def test_counts() -> None:
    assert failures(counts.check(evidence("four"))) == set()
    quarter = failures(
        counts.check(
            evidence("four"), of_classes=lambda n, risk: counts.hoeffding(n, risk) / 4,
            of_tokens=lambda n, risk: counts.hoeffding(n, risk) / 4, height=convex, steps=0.1,
        )
    )  # fmt: skip
    assert quarter == {"lemma-10", "lemma-18", "lemma-11", "lemma-11-error", "remark-4"}


def test_tails_are_those_of_the_binomial_distribution() -> None:
    n, p, bound = 40, np.array([0.3, 0.01]), 4.0
    drawn = np.random.default_rng(0).binomial(n, p, size=(200_000, 2))
    np.testing.assert_allclose(counts.outside(n, p, bound), (np.abs(drawn - n * p) > bound).mean(0), atol=0.004)


def test_the_counts_of_unequal_classes_are_not_close_to_each_other() -> None:
    small = ss.SequenceClasses.syn_small()
    skewed = ss.SequenceClasses(small.p_context, small.query, small.next_token, p_class=[0.7, 0.3])
    assert statuses(counts.check(evolve(skewed, spans=0.1)))["remark-4"] == "not applicable"


# --- overlaps -------------------------------------------------------------------------------------------------------


def test_overlaps_along_a_run() -> None:
    assert failures(overlaps.check(evidence("four"))) == set()
    assert failures(overlaps.check(evidence("textbook"))) == {"theorem-1-eq-93"}  # K = 2: false always
    strong = evolve(ss.SequenceClasses.syn_medium(3), spans=0.1)
    assert set(statuses(overlaps.check(strong)).values()) == {"not applicable"}


def test_overlaps_at_random() -> None:
    rng = np.random.default_rng(1)
    sizes = []
    for _ in range(200):
        f = rng.dirichlet(np.full(30, 0.1), 5)
        f /= np.linalg.norm(f, axis=1, keepdims=True)
        size = f @ f.T
        if np.abs(np.linalg.eigvalsh(size) - 1).max() < 0.99:
            sizes.append(size)
    assert len(sizes) > 100
    found = np.array(sizes)
    claims = overlaps.judge(found, np.array([overlap_complement(size) for size in found]))
    assert failures(claims) == {"theorem-1-eq-93"}


def test_controls_of_overlaps() -> None:
    size = evidence("four").overlap[:1]
    e_prime = np.array([overlap_complement(size[0])])
    assert failures(overlaps.judge(size, -e_prime)) >= {"lemma-14", "lemma-16", "lemma-17"}  # Appendix D.1
    assert "lemma-15" in failures(overlaps.judge(size, 3 * e_prime))
    lopsided = size.copy()
    lopsided[0, 0, 1] += 0.3
    assert "lemma-13" in failures(overlaps.judge(lopsided, e_prime))
