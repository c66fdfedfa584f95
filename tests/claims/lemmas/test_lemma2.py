"""Lemma 2: the slope −1/2, on sequences that are what they should be and on some that are not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flows import trained
from torch import Tensor

from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence, from_flow
from scansnap.claims.lemmas import lemma2
from scansnap.classes import SequenceClasses
from scansnap.dynamics import yz
from scansnap.dynamics.engines.layout import TableLayout
from scansnap.dynamics.settings import ModelConfig
from scansnap.dynamics.yz import CountBatch, forward
from scansnap.sampling.counts import SamplingTable

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


def check_slope(evidence: Evidence, **options: Any) -> Claim:
    return lemma2.check(evidence, **options)[0]


@pytest.mark.parametrize("name", CLASSES)
def test_holds_on_the_flow(name: str) -> None:
    claim, size = lemma2.check(evidence_of(CLASSES[name]))
    assert (claim.status, size.status) == ("holds", "holds"), (claim, size)
    assert claim.predicted == -0.5
    assert claim.measured == pytest.approx(-0.5, abs=0.01)
    assert (claim.tolerance, claim.interval[1] < 0.015) == (lemma2.TOLERANCE, True)
    assert list(claim.curve.x) == [2**i for i in range(6, 15, 2)]


def test_holds_on_sgd_where_attention_is_concentrated() -> None:
    classes = CLASSES["syn-small"]
    evidence = trained(classes, eta_y=1.0, eta_z=3.0, momentum=0.9, init="uniform", steps=60, record=[0, 60])
    assert evidence.attention[-1].max() > 3 * evidence.attention[0].max()
    assert check_slope(evidence).status == "holds"


def test_is_the_same_every_time_and_depends_on_the_seed(textbook: Evidence) -> None:
    slopes = [check_slope(textbook, seed=seed).measured for seed in (0, 0, 1)]
    assert slopes[0] == slopes[1] != slopes[2]


def test_the_interval_is_that_of_the_sampling() -> None:
    """Over seeds the slope spreads by about its stated standard error."""
    evidence = evidence_of(SequenceClasses([[0.4, 0.6, 0]], query=[2], next_token=[0]), t_end=1)
    claims = [check_slope(evidence, seed=seed) for seed in range(20)]
    stated = np.mean([(claim.interval[1] - abs(claim.measured + 0.5)) / 3 for claim in claims])
    seen = np.std([claim.measured for claim in claims])
    assert 0.6 < seen / stated < 1.5, (seen, stated)
    assert all(claim.status == "holds" for claim in claims)


def test_too_few_sequences_leave_it_undecided(monkeypatch: pytest.MonkeyPatch, textbook: Evidence) -> None:
    monkeypatch.setattr(lemma2, "_SAMPLES", 16)
    monkeypatch.setattr(lemma2, "_ROUNDS", 1)
    claim = check_slope(textbook)
    assert claim.status == "undecided"
    assert "more sequences would decide" in claim.reason


# --- it can fail ----------------------------------------------------------------------------------------------


def repeated(layout: TableLayout, length: int, step: int, seed: int) -> CountBatch:
    """63 independent tokens, each repeated: the sequence grows, what it says does not."""
    return lemma2.sequences(layout, 63, step, seed)


def correlated(layout: TableLayout, length: int, step: int, seed: int) -> CountBatch:
    """Runs of equal tokens that grow with the length: √T independent ones."""
    return lemma2.sequences(layout, math.isqrt(length), step, seed)


def slower(layout: TableLayout, length: int, step: int, seed: int) -> CountBatch:
    return lemma2.sequences(layout, round(length**0.9), step, seed)


def slightly_slower(layout: TableLayout, length: int, step: int, seed: int) -> CountBatch:
    return lemma2.sequences(layout, round(length**0.94), step, seed)


def other_data(layout: TableLayout, length: int, step: int, seed: int) -> CountBatch:
    p = layout.slot_p * np.linspace(0.98, 1.02, layout.slot_p.shape[1])
    table = SamplingTable(layout.table.p_class, p / p.sum(1, keepdims=True))
    return lemma2.sequences(replace(layout, table=table), length, step, seed)


def test_half_the_tokens_have_the_slope_and_not_the_size(textbook: Evidence) -> None:
    slope, size = lemma2.check(
        textbook, draw=lambda layout, length, *rest: lemma2.sequences(layout, length // 2, *rest)
    )
    assert (slope.status, size.status) == ("holds", "fails")
    assert size.measured / size.predicted == pytest.approx(math.sqrt(2), rel=0.03)


@pytest.mark.parametrize(
    ("draw", "slope"),
    [(repeated, 0.0), (correlated, -0.25), (slower, -0.45), (slightly_slower, -0.47), (other_data, None)],
)
def test_wrong_sequences_fail(textbook: Evidence, draw: lemma2.Draw, slope: float | None) -> None:
    claim = check_slope(textbook, draw=draw)
    assert claim.status == "fails"
    assert "at T = " in claim.reason
    if slope is not None:
        assert claim.measured == pytest.approx(slope, abs=0.015)


def blind_to_counts(y: Tensor, z: Tensor, batch: CountBatch, tables: yz.Tables, model: ModelConfig) -> yz.Forward:
    """Attends to which tokens there are, not to how often."""
    return forward(y, z, batch._replace(counts=(batch.counts > 0).to(y.dtype)), tables, model)


def colder(y: Tensor, z: Tensor, batch: CountBatch, tables: yz.Tables, model: ModelConfig) -> yz.Forward:
    return forward(y, 1.2 * z, batch, tables, model)


@pytest.mark.parametrize("wrong", [blind_to_counts, colder])
def test_wrong_attention_in_the_engine_fails(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    evidence = evidence_of(CLASSES["syn-small"], eta_z=1.0)
    assert check_slope(evidence).status == "holds"
    monkeypatch.setattr(yz, "forward", wrong)
    claim = check_slope(evidence)
    assert claim.status == "fails"
    assert claim.measured > -0.4  # longer sequences do not bring it to c_n


def test_recorded_attention_that_is_not_the_limit_fails(textbook: Evidence) -> None:
    """c_n is what was recorded, not what is computed again from z."""
    attention = textbook.attention.copy()
    attention[-1, 0, 0] *= 1.05
    assert check_slope(replace(textbook, attention=attention)).status == "fails"


# --- rare tokens and degenerate classes ------------------------------------------------------------------------


def test_rare_tokens_move_the_lengths_up() -> None:
    """A token of probability 1e-6 is not met in 2¹⁴ draws, so 1/√T is to be seen later."""
    rare = SequenceClasses([[1 - 1e-6, 1e-6, 0]], query=[2], next_token=[0])
    claim = check_slope(evidence_of(rare, t_end=1))
    assert claim.status == "holds", claim
    assert claim.curve.x[0] > 1e7


def test_tokens_too_rare_are_not_applicable() -> None:
    rare = SequenceClasses([[1.0, 1e-13, 0]], query=[2], next_token=[0])
    claim = check_slope(evidence_of(rare, t_end=1))
    assert claim.status == "not applicable"
    assert "too rare" in claim.reason


def test_one_token_contexts_are_not_applicable() -> None:
    alone = SequenceClasses([[1.0, 0, 0], [0, 1.0, 0]], query=[2, 2], next_token=[0, 1])
    claim = check_slope(evidence_of(alone, t_end=1))
    assert claim.status == "not applicable"
    assert "single token" in claim.reason


def test_one_token_contexts_beside_others_do_no_harm() -> None:
    mixed = SequenceClasses([[1.0, 0, 0], [0.5, 0.5, 0]], query=[2, 2], next_token=[0, 1])
    claim = check_slope(evidence_of(mixed, t_end=1))
    assert claim.status == "holds"
    assert np.isfinite([claim.measured, claim.margin, claim.tolerance]).all()


def test_sequences_that_were_not_sampled_fail(monkeypatch: pytest.MonkeyPatch, textbook: Evidence) -> None:
    def exact(layout: TableLayout, length: int, step: int, seed: int) -> CountBatch:
        batch = lemma2.sequences(layout, length, step, seed)
        return batch._replace(counts=torch.tensor(layout.slot_p)[batch.cls])

    claim = check_slope(textbook, draw=exact)
    assert claim.status == "fails"
    assert claim.measured == pytest.approx(0, abs=0.01)  # what is left is rounding, at any length
    monkeypatch.setattr(lemma2, "_deviations", lambda layout, z, c, batch: np.zeros(len(batch.cls[0])))
    assert check_slope(textbook, draw=exact).status == "fails"


def test_single_precision_is_not_asked_for_what_it_cannot_show() -> None:
    """A token of probability 1e-8 deviates by less than float32 rounds off."""
    rare = evidence_of(SequenceClasses([[1 - 1e-8, 1e-8, 0]], query=[2], next_token=[0]), t_end=1)
    assert check_slope(rare).status == "holds"
    claim = check_slope(replace(rare, attention=rare.attention.astype(np.float32).astype(np.float64)))
    assert claim.status == "not applicable"
    assert "single precision" in claim.reason


def test_no_attention_is_not_applicable(textbook: Evidence) -> None:
    claim = check_slope(replace(textbook, z=np.full_like(textbook.z, np.nan)))
    assert claim.status == "not applicable"
    assert "not finite" in claim.reason
