"""Lemma 1 against autograd: on the flow, on SGD, and with gradients that are wrong in one place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims import lemma1
from scansnap.claims.evidence import Array, Evidence, from_flow, from_trajectory
from scansnap.classes import SequenceClasses

CLASSES = {
    "syn-small": SequenceClasses.syn_small(),
    "syn-medium": SequenceClasses.syn_medium(3),
    "zipf": SequenceClasses.zipf(vocab=120, classes=4),
}


def evidence_of(classes: SequenceClasses, eta_z: float = 0.02, t_end: float = 1e3) -> Evidence:
    return from_flow(classes, eta_y=0.9, eta_z=eta_z, t_end=t_end, n_times=12)


@pytest.fixture(scope="module")
def small() -> Evidence:
    return evidence_of(CLASSES["syn-small"])


@pytest.mark.parametrize("name", CLASSES)
def test_holds_on_the_flow(name: str) -> None:
    claim = lemma1.check(evidence_of(CLASSES[name], eta_z=0.5))
    assert claim.status == "holds", claim
    assert claim.margin > 0.999, claim  # 1e-12 and better
    assert claim.measured == pytest.approx(claim.predicted, rel=1e-9)
    assert len(claim.curve.x) == 3
    assert (np.diff(claim.curve.x) > 0).all()


def test_holds_where_the_loss_has_almost_vanished() -> None:
    """1 − α_n is 1e-9 there: a formula that subtracts α_n from 1 would keep seven digits of it."""
    evidence = evidence_of(CLASSES["syn-small"], t_end=1e9)
    assert evidence.t[evidence.y_times[-1]] == 1e9
    assert lemma1.check(evidence).margin > 0.99


@pytest.mark.parametrize("init", ["zero", "uniform"])
def test_holds_on_sgd(init: str) -> None:
    classes = CLASSES["syn-medium"]
    data = ss.simulate(classes, eta_y=1.0, eta_z=1.0, seed=3, momentum=0.9, init=init, steps=40, record=[0, 1, 5, 40],
                       variables=["z", "attention", "y"], dtype="float64", device="cpu")  # fmt: skip
    claim = lemma1.check(from_trajectory(data, classes))
    assert claim.status == "holds", claim
    assert 0 not in claim.curve.x


def test_without_y_it_is_not_applicable() -> None:
    claim = lemma1.check(replace(evidence_of(SequenceClasses.syn_small()), y=None, y_times=None))
    assert (claim.status, claim.why) == ("not applicable", "the trajectory holds no y")


# --- it can fail ----------------------------------------------------------------------------------------------


def scaled_z(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    dy, dz = lemma1.formula(y, z, classes)
    return dy, dz * (1 + 1e-7)


def one_entry_of_y(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    dy, dz = lemma1.formula(y, z, classes)
    dy[12, 32] *= 1 + 1e-6
    return dy, dz


def without_projection(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    dy, _ = lemma1.formula(y, z, classes)
    row = np.searchsorted(classes.queries, classes.query)
    f = classes.p_context * np.exp(z[row])
    f /= np.linalg.norm(f, axis=1, keepdims=True)
    alpha = np.exp(f @ y)
    alpha /= alpha.sum(1, keepdims=True)
    dz = np.zeros_like(z)
    np.add.at(dz, row, classes.p_class[:, None] * f * ((np.eye(len(y))[classes.next_token] - alpha) @ y.T))
    return dy, dz


def without_class_probabilities(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    dy, dz = lemma1.formula(y, z, classes)
    return dy * classes.n_classes, dz


def not_a_number(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    dy, dz = lemma1.formula(y, z, classes)
    dz[0, 3] = math.nan
    return dy, dz


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (scaled_z, "dz off by 1e-07"),
        (one_entry_of_y, "Y[12, 32]"),
        (without_projection, "dz"),
        (without_class_probabilities, "dY off by 1 "),
        (not_a_number, "query 30, token 3"),
    ],
)
def test_wrong_gradients_fail(small: Evidence, wrong: Callable, place: str) -> None:
    claim = lemma1.check(small, gradients=wrong)
    assert claim.status == "fails"
    assert claim.margin < 0
    assert place in claim.why


def test_the_right_gradients_of_other_states_fail(small: Evidence) -> None:
    other = replace(small, z=small.z + np.random.default_rng(0).normal(0, 0.01, small.z.shape))
    claim = lemma1.check(small, gradients=lambda y, z, classes: lemma1.formula(y, other.z[-1], classes))
    assert claim.status == "fails"


# --- degenerate classes ----------------------------------------------------------------------------------------

DEGENERATE = {
    "one class": SequenceClasses([[0.5, 0.3, 0.2]], query=[2], next_token=[0]),
    "one token": SequenceClasses([[1.0, 0, 0]], query=[2], next_token=[0]),
    "no common": SequenceClasses([[0.5, 0.5, 0, 0], [0, 0, 0.1, 0.9]], query=[2, 2], next_token=[0, 1]),
    "no distinct": SequenceClasses([[0.5, 0.5, 0, 0], [0.3, 0.7, 0, 0]], query=[2, 2], next_token=[0, 1]),
    "as many classes as outputs": SequenceClasses([[0.5, 0.5], [0.3, 0.7]], query=[0, 0], next_token=[0, 1]),
    "a class never drawn": SequenceClasses([[0.5, 0.5, 0], [0.3, 0, 0.7]], [0, 0], [0, 1], p_class=[1.0, 0]),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_classes(name: str) -> None:
    claim = lemma1.check(evidence_of(DEGENERATE[name], t_end=100))
    assert claim.status == "holds", claim
    assert np.isfinite([claim.measured, claim.predicted, claim.margin]).all()
    assert claim.curve is None or (claim.curve.measured > 0).all()


def test_a_single_output_is_not_applicable(small: Evidence) -> None:
    alone = SequenceClasses([[1.0]], query=[0], next_token=[0])
    evidence = replace(small, classes=alone, z=np.zeros((13, 1, 1)), y=np.zeros((3, 1, 1)))
    assert lemma1.check(evidence).status == "not applicable"
