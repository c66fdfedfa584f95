"""Runs and flows the theory does not speak of: no verdict on any statement, and one reason why."""

import json
from dataclasses import fields

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap.claims.registry import select_checks, statements
from scansnap.claims.verify import verify

SMALL = ss.SequenceClasses.syn_small()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adam"}, "the optimiser is not SGD"),
        ({"optimizer": {"y": "sgd", "z": "nesterov"}}, "the optimiser is not SGD"),
        ({"optimizer": {"clip": 0.1}}, "gradients are clipped"),
        ({"optimizer": {"y": {"schedule": "cosine"}}}, "the rates follow a schedule"),
        ({"weight_decay": 1e-3}, "there is weight decay"),
        ({"norm": "none"}, "the norm is not l2"),
        ({"residual": "plain"}, "there is a residual connection"),
        ({"heads": 2}, "there are several heads"),
        ({"position_bias": 0.1}, "there is a position bias"),
        ({"outputs": "next"}, "the softmax is over the next tokens only"),
        ({"query_in_keys": True}, "the query is among the keys"),
        ({"init": "uniform"}, "the run does not start from Y = Z = 0"),
        ({"init": "normal(0.1)"}, "the run does not start from Y = Z = 0"),
        ({"eta_z": 0.0}, "a rate is 0"),
        ({"eta_y": 0.0}, "a rate is 0"),
        ({"eta_y": 1e38}, "the run became non-finite at step 0"),
    ],
    ids=str,
)
def test_what_the_theory_does_not_speak_of_gets_no_verdict(options, message):
    data = ss.simulate(SMALL, **{"eta_y": 1.0, "eta_z": 0.1, "steps": 12, "variables": ["attention", "z"], **options})
    report = verify(data=data)
    assert [claim.name for claim in report] == [statement.name for statement in statements(select_checks(None))]
    assert {(claim.status, claim.margin) for claim in report} == {("not applicable", None)}
    assert all(message in claim.reason for claim in report), report
    assert message in report.setting


def test_everything_that_can_be_set_is_known_to_be_inside_or_outside():
    """A new option of the model or the optimiser must be put on the list, or here."""
    inside_model, inside_optimizer = set(), {"beta1", "beta2", "eps"}  # of Adam, which is outside
    tested = {"norm", "residual", "query_in_keys", "outputs", "heads", "position_bias", "init"}
    assert {f.name for f in fields(ss.ModelConfig)} == tested | inside_model
    assert {f.name for f in fields(ss.Optimizer)} == {"name", "clip", "schedule"} | inside_optimizer


def test_one_run_of_many_is_outside():
    """Momentum is inside, and so is the run beside one with weight decay or one that became non-finite."""
    runs = ss.grid(eta_y=[1.0, 1e38], eta_z=0.1, weight_decay=[0.0, 0.1], momentum=0.5)
    data = ss.simulate(SMALL, runs, steps=12)
    whys = [{claim.reason for claim in verify(data=data, run=run)} for run in range(4)]
    assert all("weight decay" not in why and "non-finite" not in why for why in whys[0])
    assert whys[1] == {"there is weight decay"}
    assert len(whys[2]) == 1
    assert "non-finite" in whys[2].pop()
    with refused("run", 4):
        verify(data=data, run=4)


def test_an_unfinished_run_is_outside():
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(ss.Interrupted) as interrupted:
        ss.simulate(SMALL, eta_y=1.0, eta_z=0.1, steps=5000, progress=stop)
    assert {claim.reason for claim in verify(data=interrupted.value.partial)} == {
        "the run was stopped before its last step"
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [({"eta_z": 0.0}, "a rate is 0"), ({"z0": np.ones((2, 34))}, "the flow does not start from Z = 0")],
)
def test_flows_outside_the_theory(options, message):
    data = ss.flow(SMALL, **{"eta_y": 1.0, "eta_z": 0.1, "t": [0, 1, 10], **options})
    speaks = {"scan-order"} if "z0" in options else set()  # the one that accepts a start of attention
    assert {claim.reason for claim in verify(data=data) if claim.name not in speaks} == {message}


def test_a_trajectory_of_others_is_refused_in_words():
    data = ss.simulate(SMALL, eta_y=1.0, eta_z=0.1, steps=2)
    del data.attrs["settings"]
    with refused("the trajectory", "without settings"):
        verify(data=data)


def test_the_command_says_why_a_run_is_outside(scansnap, tmp_path):
    ss.simulate(SMALL, eta_y=1.0, eta_z=0.1, steps=3, optimizer="adam", save_to=tmp_path / "run.zarr")
    code, out, _ = scansnap("verify", tmp_path / "run.zarr", "--json", "r.json")
    assert code == 0
    assert "the optimiser is not SGD" in out
    assert {c["status"] for c in json.loads((tmp_path / "r.json").read_text())["claims"]} == {"not applicable"}
