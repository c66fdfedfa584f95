"""Trajectories of the page's engine are those of ``simulate(engine="general", dtype="float64")``.

Two engines add the same numbers in different orders, so they differ by rounding, and training carries rounding on:
Muon's five polynomials multiply a small singular value by up to 3.4445⁵ ≈ 480 in each update, and rules by size (Adam,
sign) turn a direction that cancels to rounding into a whole step. Hence two bounds: 10⁻¹², or where rounding grows
beyond it, eight times the largest difference between Python's engine and itself with its sums in four other orders. To
first order in the rounding unit each difference is a draw from one distribution, so a fifth exceeds eight times the
largest of four in fewer than one of 3,000 cases. Cases that Python itself decides by rounding are not compared.
"""

import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st
from page_engine import answers, needs_node, sample, spelled_out
from test_engine_draws import CLASSES, as_question

from refusals import refused
from scansnap.classes import SequenceClasses
from scansnap.dynamics import optimizers, yz
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.settings import ModelConfig, Settings
from scansnap.dynamics.simulate import simulate
from scansnap.runs import grid

pytestmark = needs_node
TOLERANCE = 1e-12
UNDECIDED = 1e-9  # a run whose own rounding moves it further has no trajectory to compare with
OTHERS = [SequenceClasses.synthetic(n_queries=2, common_per_query=2, distinct=3, unused=7),
          SequenceClasses([[0.5, 0.5, 0, 0], [0.5, 0, 0.25, 0.25]], [3, 3], [1, 3], [0.3, 0.7]),
          SequenceClasses([[0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0]], [3, 3], [1, 1], shared_next=True)]  # fmt: skip
REST = {"seed": 0, "weight_decay": 0.0}
MUON = Optimizer("muon")
GROWS = (OTHERS[0], Settings(steps=12, batch_size=64, context=2, dtype="float64", record=[0], optimizer_y=MUON,
                             optimizer_z=MUON, model=ModelConfig(residual="normed", heads=2)),
         {**REST, "eta_y": 3.0, "eta_z": 1.0, "seed": 14807745})  # fmt: skip


@st.composite
def cases(draw):
    def one_of(*values):
        return draw(st.sampled_from(values))

    classes, context = one_of(*CLASSES[:3], *OTHERS), one_of(2, 16, 128, 1000, math.inf)
    model = ModelConfig(
        norm=one_of("l2", "l2", "none", "layernorm"), residual=one_of("none", "none", "normed", "plain"),
        query_in_keys=draw(st.booleans()), outputs=one_of("all", "all", "next"), heads=one_of(1, 1, 2, 3),
        init=one_of("zero", "uniform", "normal(0.1)"),
        position_bias=None if math.isinf(context) else one_of(None, None, 0.1, (0.5, -1.0)),
    )  # fmt: skip
    # layernorm of a sample whose mean is 0 to rounding, or one token's share that is 1, is 0/0 but for rounding
    assume(model.norm != "layernorm" or (model.heads == 1 and context > 16))
    schedules = ("constant", "cosine", "cosine(0.3)", "step(5, 0.5)", "warmup(3) linear(0.1, 30)",
                 "warmup(2) step(4, 0.5, 0.2)")  # fmt: skip
    y, z = (Optimizer(one_of("sgd", "nesterov", "adam", "adamw", "sign", "muon"), schedule=one_of(*schedules),
                      clip=one_of(None, None, 0.05), beta1=one_of(0.9, 0.5), eps=one_of(1e-8, 1e-3))
            for _ in range(2))  # fmt: skip
    made = Settings(steps=one_of(1, 12), batch_size=one_of(None, 16) if math.isinf(context) else one_of(1, 7, 64),
                    context=context, model=model, dtype="float64", sampling=one_of("counts", "tokens"), optimizer_y=y,
                    optimizer_z=z, record=[0])  # fmt: skip
    # expected directions from Y = 0 cancel to rounding, which these rules would blow up to a whole step
    by_size = {y.name, z.name} & {"adam", "adamw", "sign", "muon"}
    assume(not (by_size and math.isinf(context) and model.init == "zero"))
    rates = {"eta_y": one_of(0.1, 1.0, 3.0), "eta_z": one_of(0.0, 0.3, 1.0), "seed": draw(st.integers(0, 2**53 - 1)),
             "weight_decay": one_of(0.0, 0.0, 0.05),
             "momentum": one_of(0.0, 0.9) if made.has_momentum else 0.0}  # fmt: skip
    return classes, made, rates


def question(case, **changes):
    classes, made, rates = case
    runs = grid(**rates)
    one = {name: getattr(runs, name)[0].item()
           for name in ("eta_y", "eta_z", "seed", "momentum", "weight_decay_y", "weight_decay_z")}  # fmt: skip
    return {"ask": "run", "classes": spelled_out(classes), "settings": as_question(made), "rates": one,
            "until": made.steps} | changes  # fmt: skip


def in_python(case):
    """Tables, attention and loss after the last step, and the step that failed, as the engine answers."""
    classes, made, rates = case
    layout = make_layout(classes, made.model, decays=rates["weight_decay"] > 0)
    tables = {}
    data = simulate(classes, grid(**rates), settings=made, record=[made.steps], device="cpu", engine="general",
                    variables=("attention", "loss"),
                    record_fn=lambda state: tables.update({k: t[0].numpy().ravel().copy()
                                                           for k, t in state.tables.items()}) or {})  # fmt: skip
    attention = data.attention.values[0, -1]
    return {**tables, "loss": data.loss.values[:, -1], "failed": int(data.failed_step[0]),
            "attention": [attention[n, layout.slots[n, :size]] for n, size in enumerate(layout.n_slots)]}  # fmt: skip


def difference(own, theirs, names=("y", "z", "loss", "attention")):
    """The largest difference, relative to the largest entry of its table or 1."""
    assert own["failed"] == theirs["failed"]
    pairs = [[np.hstack(side[name]).astype(float) for side in (own, theirs)] for name in names]
    return max(float(np.abs(a - b).max() / max(1.0, np.abs(b).max())) for a, b in pairs)


def reordered(case, seed):
    """The same run in Python with samples, slots, rows and columns in another order in every sum."""
    random, gradients, orthogonalize = np.random.default_rng(seed), yz.gradients, optimizers.orthogonalize

    def orders(*sizes):
        return [torch.from_numpy(random.permutation(n)) for n in sizes]

    def other_gradients(y, z, batch, tables, *rest):
        b, s, i, j = orders(*batch.counts.shape[1:], *y.shape[1:])
        tables = replace(tables, slots=tables.slots[:, s], slot_row=i.argsort()[tables.slot_row[:, s]],
                         slot_query=tables.slot_query[:, s], target=j.argsort()[tables.target],
                         multiplicity=tables.multiplicity[j])  # fmt: skip
        batch = yz.CountBatch(batch.cls[:, b], batch.counts[:, b][..., s], batch.weight[:, b])
        loss, dy, dz = gradients(y[:, i][..., j], z, batch, tables, *rest)
        return yz.Gradients(loss, dy[:, i.argsort()][..., j.argsort()], dz)

    def other_orthogonalize(matrix, multiplicity=None):
        i, j = orders(*matrix.shape[-2:])
        own = orthogonalize(matrix[..., i, :][..., j], None if multiplicity is None else multiplicity[j])
        return own[..., i.argsort(), :][..., j.argsort()]

    with patch.object(yz, "gradients", other_gradients), patch.object(optimizers, "orthogonalize", other_orthogonalize):
        return in_python(case)


def bound(case, theirs):
    """How far an engine may be away; None for a run that rounding decides."""
    own = max(difference(reordered(case, seed), theirs) for seed in range(4))
    return max(TOLERANCE, 8 * own) if own <= UNDECIDED else None


@pytest.mark.hypothesis
def test_trajectories():
    collected = sample(cases(), 35)
    for case, own in zip(collected, answers(map(question, collected)), strict=True):
        theirs = in_python(case)
        off = difference(own, theirs)
        assert off <= TOLERANCE or (most := bound(case, theirs)) is None or off <= most, (off, case[1:])


def test_where_rounding_grows_a_rate_that_differs_by_1e_10_is_found():
    theirs, rates = in_python(GROWS), question(GROWS)["rates"]
    own, other = answers([question(GROWS), question(GROWS, rates=rates | {"eta_y": 3.0 * (1 + 1e-10)})])
    most = bound(GROWS, theirs)
    assert TOLERANCE < most < 1e-10
    assert difference(own, theirs) <= most < difference(other, theirs)


def test_a_hundred_steps_of_each_preset():
    base = Settings(steps=100, dtype="float64", record=[0])
    expected = replace(base, batch_size=None, context=math.inf)
    rates = {**REST, "eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9}
    longer = [(CLASSES[0], base, rates | {"eta_y": 1.0}),
              (CLASSES[1], replace(base, model=ModelConfig(init="uniform")), rates),
              (CLASSES[3], expected, {**REST, "eta_y": 0.9, "eta_z": 0.02}), (CLASSES[4], base, rates)]  # fmt: skip
    for case, own in zip(longer, answers(map(question, longer)), strict=True):
        assert difference(own, in_python(case)) <= TOLERANCE, case[1:]


def test_a_wrong_seed_step_or_length_is_another_trajectory():
    made = Settings(steps=30, dtype="float64", record=[0])
    right = (CLASSES[0], made, {**REST, "eta_y": 1.0, "eta_z": 1.0, "seed": 5})
    wrong = [question((*right[:2], right[2] | {"seed": 6})), question(right, until=29),
             question((CLASSES[0], replace(made, context=129), right[2]))]  # fmt: skip
    theirs = in_python(right)
    own, *others = answers([question(right), *wrong])
    assert difference(own, theirs) <= TOLERANCE
    assert min(difference(other, theirs, [table]) for other in others for table in "yz") > 1e-6


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_diverges_stops_where_python_stops():
    made = Settings(steps=100, dtype="float64", model=ModelConfig(norm="none"), record=[0])
    case = (CLASSES[0], made, {**REST, "eta_y": 1e4, "eta_z": 1e4, "weight_decay": 10.0})
    (own,) = answers([question(case)])
    assert 0 <= own["failed"] < 100
    assert difference(own, in_python(case), ["attention"]) <= TOLERANCE  # it also compares the step of the failure


def test_what_the_engine_refuses():
    table = spelled_out(CLASSES[0])
    wrong = {"next_token": {"next_token": [1, 1]}, "words": {"words": ["a"]}, "p_class": {"p_class": [0.5, 0.6]},
             "query": {"query": [0, 99]}, "vocab_size": {"vocab_size": 0}}  # fmt: skip
    found = answers([{"ask": "classes", "classes": table | change} for change in wrong.values()])
    assert [refusal.field for refusal in found] == list(wrong)
    with refused("query"):
        SequenceClasses.from_support(**(table | wrong["query"]))
