"""The linear response against the flow while it trusts itself; past that, and at another rate, it must fail."""

import math
from dataclasses import replace

import pytest
from flows import deviation, flow, snap, with_logits

import scansnap as ss
from scansnap.claims.evidence import from_trajectory
from scansnap.claims.ours import response


def judged(evidence):
    return {claim.name: claim for claim in response.check(evidence)}


@pytest.mark.parametrize(
    ("name", "eta_z", "within"),
    [("textbook", 0.02, 5e-4), ("two queries", 0.02, 5e-4), ("three common", 0.02, 2e-3), ("syn-small", 0.9, 0.1),
     ("syn-medium", 0.45, 0.1), ("zipf", 0.2, 0.1)],
)  # fmt: skip
def test_it_holds_for_any_classes_and_queries_and_knows_its_error(name: str, eta_z: float, within: float) -> None:
    claims = judged(flow(name, eta_z))
    assert claims["response"].status == "holds"
    assert deviation(claims["response"]) < within
    assert claims["response-error"].status == "holds"


def test_what_it_says_of_its_error_is_not_forced() -> None:
    """On Syn-Medium the estimate is the true error to a tenth or so at its worst time: it could not be halved twice."""
    claim = judged(flow("syn-medium", 0.45))["response-error"]
    assert 0.5 < deviation(claim) < response.ERROR_TOLERANCE


@pytest.mark.parametrize("name", ["textbook", "syn-medium"])
def test_at_another_rate_of_attention_it_fails(name: str) -> None:
    own, faster = flow(name, 0.02), flow(name, 0.03)
    claims = judged(with_logits(own, faster.z))
    assert claims["response"].status == "fails"
    assert claims["response-error"].status == "fails"


def test_past_its_trust_it_fails_and_is_not_asked() -> None:
    evidence = flow("syn-small", 0.9)
    data = evidence.response
    until = data.attrs["trusted_until"]
    assert until < 5 * evidence.t_snap
    assert response.predict_path(evidence).t[-1] < until
    blind = replace(evidence)
    object.__setattr__(blind, "response", data.assign_attrs(trusted_until=math.inf))
    assert judged(blind)["response"].status == "fails"
    unsure = replace(evidence)
    object.__setattr__(unsure, "response", data.assign_attrs(trusted_until=float(data.t[1])))
    for claim in judged(unsure).values():
        assert claim.status == "not applicable"
        assert "validity" in claim.reason


def sampled(seeds: int, context: int, batch: int, boost: float = 1.0):
    """SGD on the textbook classes, as if it had been made with another rate of attention."""
    classes = ss.SequenceClasses.textbook()
    runs = ss.grid(eta_y=0.9, eta_z=0.09, seed=range(seeds))
    steps = math.ceil(4 * snap(classes, 0.9))
    data = ss.simulate(classes, runs, steps=steps, context=context, batch_size=batch, record="log:30",
                       variables=["z", "attention"], dtype="float64", device="cpu")  # fmt: skip
    return replace(from_trajectory(data, classes), eta_z=0.09 * boost)


def test_sampled_runs_are_judged_by_their_mean_with_an_interval() -> None:
    few, many = judged(sampled(1, 10**6, 128))["response"], judged(sampled(6, 10**6, 1024))["response"]
    assert few.status == "undecided"
    assert "one run" in few.reason
    assert many.status == "holds"
    assert many.interval is not None
    assert many.interval[0] <= deviation(many) <= many.interval[1]
    assert judged(sampled(6, 10**6, 1024, boost=1.5))["response"].status == "fails"


def test_expected_steps_are_those_of_the_flow_but_for_their_size() -> None:
    classes = ss.SequenceClasses.syn_medium(3)
    data = ss.simulate(classes, eta_y=0.5, eta_z=0.01, seed=0, steps=300, context=math.inf, batch_size=None,
                       record="log:40", variables=["z", "attention"], dtype="float64", device="cpu")  # fmt: skip
    claims = judged(from_trajectory(data, classes))
    assert claims["response"].status == "holds"
    assert claims["response-error"].status == "not applicable"
    assert claims["response"].interval is None
