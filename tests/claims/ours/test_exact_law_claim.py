"""The exact law of attention and decoder: kept by flows and, step by step to rounding, by SGD of full expectation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from flows import deviation, snap

import scansnap as ss
from scansnap.claims.evidence import Evidence, from_flow, from_trajectory
from scansnap.claims.ours import exact_law

CASES = {
    "one query": (ss.SequenceClasses.syn_medium(1), 0.9, 0.45),
    "three queries": (ss.SequenceClasses.syn_medium(3), 0.9, 0.09),
    "unequal classes": (ss.SequenceClasses.zipf(60, 4), 0.9, 0.9),
}
SETTINGS = {"context": math.inf, "batch_size": None, "variables": ["z", "attention", "y"], "dtype": "float64",
            "device": "cpu", "seed": 0}  # fmt: skip


def evolved(name: str) -> Evidence:
    classes, eta_y, eta_z = CASES[name]
    return from_flow(classes, eta_y=eta_y, eta_z=eta_z, t_end=10 * snap(classes, eta_y))


def stepped(record, name: str = "three queries", **more) -> Evidence:
    classes, eta_y, eta_z = CASES[name]
    data = ss.simulate(classes, eta_y=eta_y, eta_z=eta_z, steps=200, record=record, **{**SETTINGS, **more})
    return from_trajectory(data, classes)


@pytest.mark.parametrize("name", CASES)
def test_flows_keep_it_with_one_query_and_several(name: str) -> None:
    claim = exact_law.check(evolved(name))
    assert claim.status == "holds"
    assert deviation(claim) < 1e-5
    assert claim.tolerance < 1e-4


@pytest.mark.parametrize("name", CASES)
def test_steps_keep_it_to_rounding_where_all_are_recorded(name: str) -> None:
    claim = exact_law.check(stepped(list(range(201)), name))
    assert claim.status == "holds"
    assert deviation(claim) < 1e-13


def test_steps_keep_it_between_recorded_ones() -> None:
    claim = exact_law.check(stepped("log:60"))
    assert claim.status == "holds"
    assert claim.tolerance < 1e-2


@pytest.mark.parametrize("name", CASES)
def test_without_its_integral_or_with_attention_that_has_not_moved_it_fails(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = evolved(name)
    whole = exact_law.pull_rate(evidence)
    monkeypatch.setattr(exact_law, "pull_rate", lambda _: np.zeros_like(whole))
    assert exact_law.check(evidence).status == "fails"
    along = (evidence.f * evidence.g).sum(-1) * evidence.classes.p_class  # JoMA: f² outside of the integral
    for f in (evidence.f[:1], evidence.f[-1:]):
        frozen = np.einsum("tnl,tn->tl", np.broadcast_to(f**2, evidence.f.shape), along)
        monkeypatch.setattr(exact_law, "pull_rate", lambda _, frozen=frozen: frozen)
        assert exact_law.check(evidence).status == "fails"


def test_another_rate_of_attention_breaks_it_and_so_does_one_query_of_several() -> None:
    evidence = evolved("three queries")
    assert exact_law.check(replace(evidence, eta_z=1.001 * evidence.eta_z)).status == "fails"
    alone = evidence.z.copy()
    alone[:, 1:] = 0
    assert exact_law.check(replace(evidence, z=alone)).status == "fails"


def test_without_the_squares_of_the_steps_they_do_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = stepped(list(range(201)))
    monkeypatch.setattr(exact_law, "_squared_steps", lambda _, y: np.zeros(y.shape[:2]))
    claim = exact_law.check(evidence)
    assert claim.status == "fails"
    assert deviation(claim) > 1e-3, "a step has a size"


def test_it_says_what_it_needs() -> None:
    assert "momentum" in exact_law.check(stepped("log:40", momentum=0.9)).reason
    assert "sampled" in exact_law.check(stepped("log:40", batch_size=32)).reason
    evidence = evolved("one query")
    assert "needs y" in exact_law.check(replace(evidence, y=None, y_times=None)).reason
    few = slice(None, None, 30)
    coarse = replace(evidence, t=evidence.t[few], z=evidence.z[few], attention=evidence.attention[few],
                     g=evidence.g[few], y=evidence.y[-1:], y_times=np.array([4]))  # fmt: skip
    assert "fewer" in exact_law.check(coarse).reason
