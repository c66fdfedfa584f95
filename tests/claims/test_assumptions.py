"""Overlaps against the dense definition; each assumption against a setting built to meet or to miss it."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from scansnap import SequenceClasses
from scansnap.claims.assumptions import Assumption, check_assumptions, met_level, overlap_matrix


def dense_overlap(classes: SequenceClasses, z: np.ndarray | None = None) -> np.ndarray:
    c = classes.p_context  # (K, M)
    if z is not None:
        c = c * np.exp(z[np.searchsorted(classes.queries, classes.query)])
    f = c / np.linalg.norm(c, axis=1, keepdims=True)
    return f @ f.T


def one_common_token(k: int, m: int, cosine: float) -> SequenceClasses:
    """K classes of one distinct token each and one token common to all: every cosine is ``cosine``."""
    p = np.array([math.sqrt(cosine), math.sqrt(1 - cosine)])
    return SequenceClasses.from_support(
        [[0, 1 + n] for n in range(k)], [p / p.sum()] * k,
        vocab_size=m, query=[k + 1] * k, next_token=k + 2 + np.arange(k),
    )  # fmt: skip


def check(classes: SequenceClasses, **setting: Any) -> dict[str, Assumption]:
    setting = dict({"eta_y": 0.5, "eta_z": 0.01}, **setting)
    return {found.name: found for found in check_assumptions(classes, **setting)}


@pytest.mark.parametrize(
    "classes",
    [
        SequenceClasses.syn_small(),
        SequenceClasses.syn_medium(5),
        SequenceClasses.zipf(vocab=400, classes=30, overlap=0.3),
        SequenceClasses.synthetic(common=0, common_per_query=1, n_queries=30),  # every token in few classes
        SequenceClasses.synthetic(common=0),  # no overlap at all
        SequenceClasses.synthetic(n_queries=1, next_per_query=1),  # a single class
    ],
    ids=repr,
)
def test_overlap_is_the_gram_matrix_of_attention(classes: SequenceClasses) -> None:
    np.testing.assert_allclose(overlap_matrix(classes), dense_overlap(classes), atol=1e-15)
    z = np.random.default_rng(0).normal(size=(len(classes.queries), classes.vocab_size))
    np.testing.assert_allclose(overlap_matrix(classes, z), dense_overlap(classes, z), atol=1e-15)


def test_dense_and_sparse_products_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens in 2 of 40 classes, tokens in all of them, and blocks smaller than their number."""
    monkeypatch.setattr("scansnap.claims.assumptions._DENSE_BLOCK", 3)
    classes = SequenceClasses.synthetic(n_queries=20, common=10, common_per_query=2)
    np.testing.assert_allclose(overlap_matrix(classes), dense_overlap(classes), atol=1e-15)


def test_extreme_logits_are_safe() -> None:
    classes = SequenceClasses.syn_medium(1)
    z = np.zeros((1, classes.vocab_size))
    z[0, 0] = 5000.0  # everyone looks at the common token 0
    np.testing.assert_allclose(overlap_matrix(classes, z), 1.0)
    z[0, :10] = -5000.0  # nobody looks at the ten common ones
    np.testing.assert_allclose(overlap_matrix(classes, z), np.eye(2))


@given(k=st.integers(1, 12), cosine=st.floats(0.01, 0.9), logit=st.floats(-3, 3))
def test_overlap_of_one_common_token(k: int, cosine: float, logit: float) -> None:
    classes = one_common_token(k, 100, cosine)
    z = np.zeros((1, 100))
    z[0, 0] = logit
    common = cosine * math.exp(2 * logit)
    expected = np.full((k, k), common / (common + 1 - cosine))
    np.fill_diagonal(expected, 1.0)
    np.testing.assert_allclose(overlap_matrix(classes, z), expected, rtol=1e-12)


def test_an_ideal_setting_meets_everything() -> None:
    classes = one_common_token(k=2, m=1000, cosine=0.3)
    found = check_assumptions(classes, eta_y=0.5, eta_z=0.01, t=1000)
    assert [a.name for a in found if not a.met] == []
    assert len(found) == 10 + 2
    assert met_level(found) == 2
    assert all(a.statement and a.note and "\n" not in a.statement for a in found)
    assert len({a.name for a in found}) == len(found)
    with pytest.raises(FrozenInstanceError):
        found[0].met = False


def test_steps_are_checked_only_when_given() -> None:
    classes = SequenceClasses.syn_small()
    assert "many steps" not in check(classes)
    for name, least in (("many steps", 20 * math.log(2)), ("steps above classes squared", 40)):
        assert not check(classes, t=0.99 * least)[name].met
        assert check(classes, t=1.01 * least)[name].met


def test_rates() -> None:
    classes = one_common_token(k=2, m=1000, cosine=0.3)
    assert check(classes, eta_y=0.1, eta_z=0.01)["fast decoder"].met
    assert not check(classes, eta_y=0.1, eta_z=0.02)["fast decoder"].met
    assert not check(classes, eta_y=1.0)["eta_y below 1"].met
    low = check(classes, eta_y=0.01)["eta_y not too small"]
    assert (low.met, low.threshold) == (False, pytest.approx(10 * 1000**-0.99))


def test_sizes() -> None:
    small = check(one_common_token(k=5, m=240, cosine=0.01))
    assert not small["vocabulary larger than classes squared"].met
    assert small["vocabulary larger than classes squared"].value == pytest.approx(9.6)
    assert not small["large vocabulary"].met
    assert check(one_common_token(k=5, m=250, cosine=0.01))["vocabulary larger than classes squared"].met


def test_eigenvalues_of_equal_overlaps() -> None:
    """All cosines ρ: the eigenvalues of E are (K − 1)ρ and −ρ."""
    k, m, rho = 4, 10_000, 0.07
    found = check(one_common_token(k, m, rho))
    assert found["weak overlap"].value == pytest.approx((k - 1) * rho)
    assert found["weak overlap"].threshold == 1 / k
    assert found["weak overlap"].met
    assert found["overlap not degenerate"].value == pytest.approx(rho)
    assert found["overlap not degenerate"].threshold == pytest.approx(0.06)
    assert found["overlap not degenerate"].met
    assert not check(one_common_token(k, m, 0.09))["weak overlap"].met
    weaker = check(one_common_token(k, m, 0.05))
    assert not weaker["overlap not degenerate"].met
    assert weaker["no class alone"].met
    assert met_level(weaker.values()) == 1


def test_overlaps_are_judged_at_the_worst_time_of_a_run() -> None:
    classes = one_common_token(2, 10_000, 0.2)
    rho = np.array([0.2, 0.6, 0.0])
    along = np.eye(2) + rho[:, None, None] * (1 - np.eye(2))
    found = check(classes, overlap=along)
    assert found["weak overlap"].value == pytest.approx(0.6)
    assert (found["no class alone"].value, found["no class alone"].met) == (0, False)
    assert found["overlap not degenerate"].value == 0
    assert met_level(found.values()) == 0
    assert met_level(check(classes).values()) == 2


def test_one_class_alone_is_degenerate() -> None:
    found = check(SequenceClasses.synthetic(n_queries=1, next_per_query=1))
    assert found["weak overlap"].met
    for name in ("overlap not degenerate", "no class alone"):
        assert (found[name].value, found[name].met) == (0, False)


def test_long_sequences_measures_the_sampling_error() -> None:
    classes = SequenceClasses.zipf(vocab=60, classes=3)
    context = 65
    found = check(classes, context=context)["long sequences"]
    rng = np.random.default_rng(1)
    errors = []
    for p in classes.p_context:
        counts = rng.multinomial(context - 1, p, size=20_000) / (context - 1)
        errors.append(np.sqrt(np.mean(np.sum((counts - p) ** 2, axis=1)) / np.sum(p**2)))
    assert found.value == pytest.approx(max(errors), rel=0.02)
    assert not found.met
    assert check(classes, context=4 * 64 + 1)["long sequences"].value == pytest.approx(found.value / 2)
    assert check(classes)["long sequences"].value == 0
    assert check(classes, context=100_000)["long sequences"].met


def test_one_token_contexts_need_no_length() -> None:
    classes = SequenceClasses.synthetic(common=0, distinct=1)
    assert check(classes, context=2)["long sequences"].value == 0


def test_uniform_classes() -> None:
    p = SequenceClasses.syn_small()
    skewed = SequenceClasses(p.p_context, p.query, p.next_token, p_class=[0.6, 0.4])
    assert check(p)["uniform classes"].met
    found = check(skewed)["uniform classes"]
    assert (found.met, found.value) == (False, pytest.approx(0.2))


def test_thousands_of_classes_stay_sparse() -> None:
    """2000 classes over 100,000 tokens: a dense (K, M) table would take 1.6 GB."""
    k, m = 2000, 100_000
    classes = one_common_token(k, m, 0.2)
    overlap = overlap_matrix(classes)
    assert overlap.shape == (k, k)
    assert overlap[0, -1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda c: check_assumptions(c, eta_y=0, eta_z=1), "eta_y"),
        (lambda c: check_assumptions(c, eta_y=1, eta_z=math.nan), "eta_z"),
        (lambda c: check_assumptions(c, eta_y=1, eta_z=1, context=1), "context"),
        (lambda c: check_assumptions(c, eta_y=1, eta_z=1, t=-1), "t"),
        (lambda c: overlap_matrix(c, np.zeros(34)), "z"),
        (lambda c: overlap_matrix(c, np.full((2, 34), np.inf)), "z"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, field: str) -> None:
    with refused(field):
        call(SequenceClasses.syn_small())
