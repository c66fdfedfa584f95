"""Trajectories of the page's engine are those of ``simulate(engine="general", dtype="float64")``."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from page_engine import answers, needs_node, spelled_out
from test_engine_draws import CLASSES, as_question

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.settings import ModelConfig, Settings
from scansnap.dynamics.simulate import simulate
from scansnap.runs import Runs, grid

pytestmark = needs_node
TOLERANCE = 1e-12
Case = tuple[SequenceClasses, Settings, dict[str, Any]]

SCHEDULES = st.sampled_from(
    ["constant", "cosine", "cosine(0.3)", "step(5, 0.5)", "warmup(3) linear(0.1, 30)", "warmup(2) step(4, 0.5, 0.2)"]
)
OPTIMIZERS = st.builds(
    Optimizer, name=st.sampled_from(["sgd", "nesterov", "adam", "adamw", "sign", "muon"]), schedule=SCHEDULES,
    clip=st.sampled_from([None, None, 0.05]), beta1=st.sampled_from([0.9, 0.5]), eps=st.sampled_from([1e-8, 1e-3]),
)  # fmt: skip
OTHERS = [SequenceClasses.synthetic(n_queries=2, common_per_query=2, distinct=3, unused=7),
          SequenceClasses([[0.5, 0.5, 0, 0], [0.5, 0, 0.25, 0.25]], [3, 3], [1, 3], [0.3, 0.7]),
          SequenceClasses([[0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0]], [3, 3], [1, 1], shared_next=True)]  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> Case:
    classes = draw(st.sampled_from(CLASSES[:3] + OTHERS))
    context = draw(st.sampled_from([2, 16, 128, 1000, math.inf]))
    model = ModelConfig(
        norm=draw(st.sampled_from(["l2", "l2", "none", "layernorm"])),
        residual=draw(st.sampled_from(["none", "none", "normed", "plain"])),
        query_in_keys=draw(st.booleans()), outputs=draw(st.sampled_from(["all", "all", "next"])),
        heads=draw(st.sampled_from([1, 1, 2, 3])), init=draw(st.sampled_from(["zero", "uniform", "normal(0.1)"])),
        position_bias=None if math.isinf(context) else draw(st.sampled_from([None, None, 0.1, (0.5, -1.0)])),
    )  # fmt: skip
    # layernorm of a sample whose mean is 0 to rounding, or one token's share that is 1, is 0/0 but for rounding
    assume(model.norm != "layernorm" or (model.heads == 1 and context > 16))
    batch = draw(st.sampled_from([1, 7, 64])) if math.isfinite(context) else draw(st.sampled_from([None, 16]))
    made = Settings(steps=draw(st.sampled_from([1, 12])), batch_size=batch, context=context, model=model,
                    dtype="float64", sampling=draw(st.sampled_from(["counts", "tokens"])), optimizer_y=draw(OPTIMIZERS),
                    optimizer_z=draw(OPTIMIZERS), record=[0])  # fmt: skip
    # expected directions from Y = 0 cancel to rounding, which these rules would blow up to a whole step
    by_size = any(one.name in ("adam", "adamw", "sign", "muon") for one in (made.optimizer_y, made.optimizer_z))
    assume(not (by_size and math.isinf(context) and model.init == "zero"))
    rates = {"eta_y": draw(st.sampled_from([0.1, 1.0, 3.0])), "eta_z": draw(st.sampled_from([0.0, 0.3, 1.0])),
             "seed": draw(st.integers(0, 2**53 - 1)), "weight_decay": draw(st.sampled_from([0.0, 0.0, 0.05])),
             "momentum": draw(st.sampled_from([0.0, 0.9])) if made.has_momentum else 0.0}  # fmt: skip
    return classes, made, rates


def question(case: Case, until: int | None = None) -> dict[str, Any]:
    classes, made, rates = case
    runs: Runs = grid(**rates)
    one = {name: getattr(runs, name)[0].item()
           for name in ("eta_y", "eta_z", "seed", "momentum", "weight_decay_y", "weight_decay_z")}  # fmt: skip
    return {"ask": "run", "classes": spelled_out(classes), "settings": as_question(made), "rates": one,
            "until": made.steps if until is None else until}  # fmt: skip


def differences(case: Case, own: dict[str, Any]) -> dict[str, float]:
    """The largest differences from Python's last step, relative to the largest entry or 1."""
    classes, made, rates = case
    layout = make_layout(classes, made.model, decays=rates["weight_decay"] > 0)
    seen = {}

    def tables(state: Any) -> dict[str, Any]:
        seen["y"], seen["z"] = state.tables["y"][0].numpy().copy(), state.tables["z"][0].numpy().copy()
        return {}

    data = simulate(classes, grid(**rates), settings=made, record=[made.steps], device="cpu",
                    variables=("attention", "loss"),
                    engine="general", record_fn=tables)  # fmt: skip
    attention = data.attention.values[0, -1]  # (K, M)
    theirs = {
        "y": seen["y"].ravel(), "z": seen["z"].ravel(), "loss": data.loss.values[:, -1],
        "attention": np.concatenate([attention[n, layout.slots[n, :size]] for n, size in enumerate(layout.n_slots)]),
    }  # fmt: skip
    mine = own | {"loss": [own["loss"]], "attention": np.concatenate(own["attention"])}
    assert own["failed"] == int(data.failed_step[0])
    assert {name: len(values) for name, values in theirs.items()} == {name: len(mine[name]) for name in theirs}
    return {name: float(np.abs(np.array(mine[name], dtype=float) - values).max() / max(1.0, np.abs(values).max()))
            for name, values in theirs.items()}  # fmt: skip


@pytest.mark.hypothesis
def test_trajectories() -> None:
    collected: list[Case] = []

    @settings(max_examples=35)
    @given(cases())
    def collect(case: Case) -> None:
        collected.append(case)

    collect()
    for case, own in zip(collected, answers([question(case) for case in collected]), strict=True):
        assert max(differences(case, own).values()) <= TOLERANCE, (differences(case, own), case[1].to_dict(), case[2])


def test_a_hundred_steps_of_each_preset() -> None:
    longer: list[Case] = [
        (CLASSES[0], Settings(steps=100, dtype="float64", record=[0]), {"eta_y": 1.0, "eta_z": 1.0, "momentum": 0.9}),
        (CLASSES[1], Settings(steps=100, dtype="float64", model=ModelConfig(init="uniform"), record=[0]),
         {"eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9}),
        (CLASSES[3], Settings(steps=100, batch_size=None, context=math.inf, dtype="float64", record=[0]),
         {"eta_y": 0.9, "eta_z": 0.02}),
        (CLASSES[4], Settings(steps=100, dtype="float64", record=[0]), {"eta_y": 2.0, "eta_z": 1.0, "momentum": 0.9}),
    ]  # fmt: skip
    with_all = [(classes, made, {"weight_decay": 0.0, "seed": 0} | rates) for classes, made, rates in longer]
    for case, own in zip(with_all, answers([question(case) for case in with_all]), strict=True):
        assert max(differences(case, own).values()) <= TOLERANCE, (differences(case, own), case[2])


def test_a_wrong_seed_step_or_length_is_another_trajectory() -> None:
    made = Settings(steps=30, dtype="float64", record=[0])
    rates = {"eta_y": 1.0, "eta_z": 1.0, "seed": 5, "weight_decay": 0.0}
    right: Case = (CLASSES[0], made, rates)
    wrong = [question((CLASSES[0], made, rates | {"seed": 6})), question(right, until=29),
             question((CLASSES[0], Settings(steps=30, context=129, dtype="float64", record=[0]), rates))]  # fmt: skip
    own, *others = answers([question(right), *wrong])
    assert max(differences(right, own).values()) <= TOLERANCE
    for other in others:
        found = differences(right, other)
        assert min(found["y"], found["z"]) > 1e-6


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_diverges_stops_where_python_stops() -> None:
    made = Settings(steps=100, dtype="float64", model=ModelConfig(norm="none"), record=[0])
    case: Case = (CLASSES[0], made, {"eta_y": 1e4, "eta_z": 1e4, "seed": 0, "weight_decay": 10.0})
    (own,) = answers([question(case)])
    assert 0 <= own["failed"] < 100
    assert differences(case, own)["attention"] <= TOLERANCE  # it also compares the step of the failure


def test_what_the_engine_refuses() -> None:
    table = spelled_out(CLASSES[0])
    wrong = {"next_token": {"next_token": [1, 1]}, "words": {"words": ["a"]}, "p_class": {"p_class": [0.5, 0.6]},
             "query": {"query": [0, 99]}, "vocab_size": {"vocab_size": 0}}  # fmt: skip
    found = answers([{"ask": "classes", "classes": table | change} for change in wrong.values()])
    assert [refused.field for refused in found] == list(wrong)
    with pytest.raises(InputError):
        SequenceClasses.from_support(**(table | wrong["query"]))
