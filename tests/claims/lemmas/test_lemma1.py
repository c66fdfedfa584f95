"""Lemma 1: the engine's and the flow's gradients against autograd, and dynamics that are wrong in one place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flows import trained
from torch import Tensor

from scansnap.claims.evidence import Array, Evidence, from_flow
from scansnap.claims.lemmas import lemma1
from scansnap.classes import SequenceClasses
from scansnap.dynamics import norms, yz
from scansnap.dynamics.engines import batches
from scansnap.dynamics.engines.batches import Batches, Stretch
from scansnap.dynamics.flow import compact, decoder_rows
from scansnap.dynamics.flow.dense import error
from scansnap.kernels.cpu import library
from scansnap.kernels.cpu.flow import FlowKernel
from scansnap.sampling.counts import weighted_counts

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
    evidence = trained(classes, eta_y=1.0, eta_z=1.0, seed=3, momentum=0.9, init=init, steps=40, record=[0, 1, 5, 40])
    claim = lemma1.check(evidence)
    assert claim.status == "holds", claim
    assert 0 not in claim.curve.x


def test_without_y_it_is_not_applicable() -> None:
    claim = lemma1.check(replace(evidence_of(SequenceClasses.syn_small()), y=None, y_times=None))
    assert (claim.status, claim.reason) == ("not applicable", "the trajectory holds no y")


whole_batch = Batches._infinite

# --- it can fail: an engine or a flow with one thing wrong ---------------------------------------------------------


def without_projection(kind: str, g: Tensor, v: Tensor, f: Tensor) -> Tensor:
    return g / torch.linalg.vector_norm(v, dim=-1, keepdim=True)


def not_normalised(kind: str, v: Tensor) -> Tensor:
    return v


def error_with_one_output_for_all(logits: Tensor, n_rest: int) -> Tensor:
    """The outputs that are never right count once instead of M − K times."""
    return error(logits, 1)


def every_class_alike(self: Batches, *args: Any) -> Stretch:
    stretch = whole_batch(self, *args)
    return replace(stretch, weight=torch.ones_like(stretch.weight))


def without_the_last_token(slots: Tensor, n_slots: int, weight: Tensor) -> Tensor:
    return weighted_counts(slots[..., :-1], n_slots, weight[:-1])


def one_output_more(rates: tuple[float, ...], *tables: Any) -> FlowKernel:
    """The compiled field with M − K + 1 outputs that are never right."""
    return FlowKernel((rates[0] + 1, rates[1], rates[2]), *tables)


def half(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: 0.5 * method(*args)


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "who"),
    [
        (norms, "pull_back", without_projection, "the engine in expectation: dz"),
        (norms, "apply", not_normalised, "the engine in expectation: d"),
        (yz, "_to_z", half(yz._to_z), ": dz off by 0.5 "),
        (yz, "to_rows", half(yz.to_rows), "the engine in expectation: d"),
        (Batches, "_infinite", every_class_alike, "the engine in expectation: d"),
        (batches, "weighted_counts", without_the_last_token, "the engine on sampled sequences: d"),
        (compact, "FlowKernel", one_output_more, "the flow: d"),
        (compact, "error", error_with_one_output_for_all, "the flow: d"),
        (decoder_rows.DistinctRows, "back_project", half(decoder_rows.DistinctRows.back_project), "the flow: dz"),
        (decoder_rows.CommonRows, "back_project", half(decoder_rows.CommonRows.back_project), "the flow: dz"),
        (decoder_rows.CommonRows, "_spread", half(decoder_rows.CommonRows._spread), "the flow: d"),
    ],
)
def test_wrong_terms_in_the_dynamics_fail(
    monkeypatch: pytest.MonkeyPatch, small: Evidence, owner: Any, name: str, wrong: Any, who: str
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    if name != "FlowKernel":
        monkeypatch.setattr(compact, "SMALL", 0)
    elif not library.find("flow"):
        pytest.skip("the compiled field is not built here")
    claim = lemma1.check(small)
    assert claim.status == "fails"
    assert claim.margin < 0
    assert who in claim.reason


def test_the_flow_is_judged_apart_from_the_engine(monkeypatch: pytest.MonkeyPatch, small: Evidence) -> None:
    """An engine that is wrong does not excuse a flow, nor the other way round."""
    statuses = {way.name: lemma1.check(small, ways=[way]).status for way in lemma1.WAYS}
    assert set(statuses.values()) == {"holds"}
    monkeypatch.setattr(norms, "pull_back", without_projection)
    statuses = {way.name: lemma1.check(small, ways=[way]).status for way in lemma1.WAYS}
    assert statuses == {
        "the engine in expectation": "fails", "the engine on sampled sequences": "fails", "the flow": "holds",
    }  # fmt: skip


def scaled_z(dy: Array, dz: Array) -> tuple[Array, Array]:
    return dy, dz * (1 + 1e-7)


def one_entry_of_y(dy: Array, dz: Array) -> tuple[Array, Array]:
    dy[12, 32] *= 1 + 1e-6
    return dy, dz


def not_a_number(dy: Array, dz: Array) -> tuple[Array, Array]:
    dz[0, 3] = math.nan
    return dy, dz


@pytest.mark.parametrize(
    ("wrong", "place"),
    [(scaled_z, "dz off by 1e-07"), (one_entry_of_y, "Y[12, 32]"), (not_a_number, "query 30, token 3")],
)
@pytest.mark.parametrize("way", lemma1.WAYS, ids=lambda way: way.name)
def test_small_errors_are_seen(small: Evidence, way: lemma1.Implementation, wrong: Callable, place: str) -> None:
    claim = lemma1.check(small, ways=[way._replace(by_hand=lambda *state: wrong(*way.by_hand(*state)))])
    assert claim.status == "fails"
    assert claim.margin < 0
    assert place in claim.reason
    assert way.name in claim.reason


def test_the_right_gradients_of_other_states_fail(small: Evidence) -> None:
    other = small.z[-1] + np.random.default_rng(0).normal(0, 0.01, small.z[-1].shape)
    for way in lemma1.WAYS:
        elsewhere = way._replace(by_hand=lambda y, z, classes, way=way: way.by_hand(y, other, classes))
        assert lemma1.check(small, ways=[elsewhere]).status == "fails"


def test_the_flow_is_left_out_where_it_cannot_be() -> None:
    """From random tables the outputs that are never right differ, and the flow keeps one column for all."""
    classes = CLASSES["syn-small"]
    for init, ways in (("zero", 3), ("uniform", 2)):
        claim = lemma1.check(trained(classes, eta_y=1.0, eta_z=1.0, seed=3, init=init, steps=3, record=[0, 3]))
        assert claim.status == "holds"
        assert ("the flow" in claim.quantity) == (ways == 3)


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
