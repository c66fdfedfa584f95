"""Lemma 2: the slope −1/2, on sequences that are what they should be and on some that are not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import scansnap as ss
from scansnap.claims import lemma2
from scansnap.claims.evidence import Evidence, from_flow, from_trajectory
from scansnap.classes import SequenceClasses
from scansnap.sampling import SamplingTable, sample_counts

CLASSES = {
    "syn-small": SequenceClasses.syn_small(),
    "syn-medium": SequenceClasses.syn_medium(3),
    "textbook": SequenceClasses.textbook(),
    "zipf": SequenceClasses.zipf(vocab=30, classes=3),
}


def evidence_of(classes: SequenceClasses, eta_z: float = 0.02, t_end: float = 1e3) -> Evidence:
    return from_flow(classes, eta_y=0.9, eta_z=eta_z, t_end=t_end, n_times=6)


@pytest.fixture(scope="module")
def textbook() -> Evidence:
    return evidence_of(CLASSES["textbook"], eta_z=1.0)


@pytest.mark.parametrize("name", CLASSES)
def test_holds_on_the_flow(name: str) -> None:
    claim = lemma2.check(evidence_of(CLASSES[name]))
    assert claim.status == "holds", claim
    assert claim.predicted == -0.5
    assert claim.measured == pytest.approx(-0.5, abs=0.02)
    assert list(claim.curve.x) == [2**i for i in range(6, 15, 2)]
    # the level, not only the slope: the constant of the delta method
    np.testing.assert_allclose(claim.curve.measured, claim.curve.predicted, rtol=0.15)


def test_holds_on_sgd_where_attention_is_concentrated() -> None:
    classes = CLASSES["syn-small"]
    data = ss.simulate(classes, eta_y=1.0, eta_z=3.0, seed=0, momentum=0.9, init="uniform", steps=60,
                       record=[0, 60], variables=["z", "attention", "y"], dtype="float64", device="cpu")  # fmt: skip
    evidence = from_trajectory(data, classes)
    assert evidence.attention[-1].max() > 3 * evidence.attention[0].max()
    assert lemma2.check(evidence).status == "holds"


def test_is_the_same_every_time_and_depends_on_the_seed(textbook: Evidence) -> None:
    slopes = [lemma2.check(textbook, seed=seed).measured for seed in (0, 0, 1)]
    assert slopes[0] == slopes[1] != slopes[2]


def test_the_tolerance_covers_the_sampling_error() -> None:
    """Over seeds the slope spreads by about its stated standard error."""
    evidence = evidence_of(SequenceClasses([[0.4, 0.6, 0]], query=[2], next_token=[0]), t_end=1)
    claims = [lemma2.check(evidence, seed=seed) for seed in range(20)]
    stated = np.mean([(claim.tolerance - lemma2.TOLERANCE) / 5 for claim in claims])
    seen = np.std([claim.measured for claim in claims])
    assert 0.6 < seen / stated < 1.5, (seen, stated)
    assert all(claim.status == "holds" for claim in claims)


# --- it can fail ----------------------------------------------------------------------------------------------


def repeated(table: SamplingTable, cls: Tensor, seeds: Tensor, steps: Tensor, length: int) -> Tensor:
    """63 independent tokens, each repeated: the sequence grows, what it says does not."""
    return sample_counts(table, cls, seeds, steps, 63) * (length / 63)


def correlated(table: SamplingTable, cls: Tensor, seeds: Tensor, steps: Tensor, length: int) -> Tensor:
    """Runs of equal tokens that grow with the length: √T independent ones."""
    return sample_counts(table, cls, seeds, steps, math.isqrt(length)) * math.isqrt(length)


def other_data(table: SamplingTable, cls: Tensor, seeds: Tensor, steps: Tensor, length: int) -> Tensor:
    p = table.p_slot * np.linspace(0.8, 1.2, table.p_slot.shape[1])
    return sample_counts(SamplingTable(table.p_class, p / p.sum(1, keepdims=True)), cls, seeds, steps, length)


@pytest.mark.parametrize(("draw", "slope"), [(repeated, 0.0), (correlated, -0.25), (other_data, None)])
def test_wrong_sequences_fail(textbook: Evidence, draw: lemma2.Draw, slope: float | None) -> None:
    claim = lemma2.check(textbook, draw=draw)
    assert claim.status == "fails"
    assert "at T = " in claim.why
    if slope is not None:
        assert claim.measured == pytest.approx(slope, abs=0.03)


def test_a_few_percent_in_the_exponent_are_seen(textbook: Evidence) -> None:
    def slower(table: SamplingTable, cls: Tensor, seeds: Tensor, steps: Tensor, length: int) -> Tensor:
        return sample_counts(table, cls, seeds, steps, round(length**0.9))

    claim = lemma2.check(textbook, draw=slower)
    assert claim.status == "fails"
    assert claim.measured == pytest.approx(-0.45, abs=0.02)


# --- rare tokens and degenerate classes ------------------------------------------------------------------------


def test_rare_tokens_move_the_lengths_up() -> None:
    """A token of probability 1e-6 is not met in 2¹⁴ draws, so 1/√T is to be seen later."""
    rare = SequenceClasses([[1 - 1e-6, 1e-6, 0]], query=[2], next_token=[0])
    claim = lemma2.check(evidence_of(rare, t_end=1))
    assert claim.status == "holds", claim
    assert claim.curve.x[0] > 1e7


def test_tokens_too_rare_are_not_applicable() -> None:
    rare = SequenceClasses([[1.0, 1e-13, 0]], query=[2], next_token=[0])
    claim = lemma2.check(evidence_of(rare, t_end=1))
    assert claim.status == "not applicable"
    assert "too rare" in claim.why


def test_one_token_contexts_are_not_applicable() -> None:
    alone = SequenceClasses([[1.0, 0, 0], [0, 1.0, 0]], query=[2, 2], next_token=[0, 1])
    claim = lemma2.check(evidence_of(alone, t_end=1))
    assert claim.status == "not applicable"
    assert "single token" in claim.why


def test_one_token_contexts_beside_others_do_no_harm() -> None:
    mixed = SequenceClasses([[1.0, 0, 0], [0.5, 0.5, 0]], query=[2, 2], next_token=[0, 1])
    claim = lemma2.check(evidence_of(mixed, t_end=1))
    assert claim.status == "holds"
    assert np.isfinite([claim.measured, claim.margin, claim.tolerance]).all()


def test_no_deviation_at_all_is_not_applicable(textbook: Evidence) -> None:
    def exact(table: SamplingTable, cls: Tensor, seeds: Tensor, steps: Tensor, length: int) -> Tensor:
        return torch.tensor(table.p_slot)[cls]

    claim = lemma2.check(textbook, draw=exact)
    assert claim.status == "not applicable"
    assert "no slope" in claim.why


def test_no_attention_is_not_applicable(textbook: Evidence) -> None:
    claim = lemma2.check(replace(textbook, z=np.full_like(textbook.z, np.nan)))
    assert claim.status == "not applicable"
    assert "not finite" in claim.why
