"""Settings of the YZ model: refused in one sentence, and the same after a file."""

from __future__ import annotations

import json
import math

import pytest
import torch

from refusals import bad_values, refused
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings


@pytest.mark.parametrize(
    ("options", "field"),
    [
        *bad_values(
            vocab_size=[1], layers=[0], rank=[0], norm=["layernorm"], residual=["yes"], activation=["gelu"],
            optimizer=["muon"], query_in_keys=[1], momentum=[1.0], eta_y=[-1], eta_z=[(1.0, 2.0), "fast"],
            init=["ones"], precision=["fp8"], dtype=["float16"],
        ),
        ({"rank": 11, "init": "uniform"}, "rank"), ({"rank": 3}, "init"), ({"layers": 2}, "init"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options, field):
    with refused(field):
        YZSettings(**{"vocab_size": 10, **options})


def test_a_description_is_plain_values_and_builds_the_same_model():
    settings = YZSettings(12, layers=2, rank=3, init="normal(0.5)", eta_y=(1.0, 2.0), seed=4, dtype="float64")
    model = YZTransformer(settings)
    description = json.loads(json.dumps(model.describe()))
    assert description["kind"] == "yz"
    again = YZTransformer.from_description(description)
    assert again.settings == settings
    for name, tensor in again.tensors().items():
        assert torch.equal(tensor, model.tensors()[name]), name
    with refused("colour", "red"):
        YZTransformer.from_description({**description, "colour": "red"})


@pytest.mark.parametrize("rank", [None, 40])
@pytest.mark.parametrize(("init", "std"), [("uniform", 1 / math.sqrt(3 * 400)), ("normal(0.2)", 0.2)])
def test_initial_tables_have_the_named_spread(rank, init, std):
    model = YZTransformer(YZSettings(400, rank=rank, init=init))
    for table in (*model.y, *model.z):
        assert float(table.matrix().std()) == pytest.approx(std, rel=0.05)
        assert abs(float(table.matrix().mean())) < 0.05 * std


def test_kernels_that_cannot_run_are_refused():
    with refused("fused"):
        YZTransformer(YZSettings(10), fused=True)


def test_targets_must_match():
    model = YZTransformer(YZSettings(10))
    with refused("targets"):
        model.train_step(torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long))
