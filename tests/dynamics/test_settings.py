"""Settings: which steps are recorded, what the options mean, and a clear word for everything that is wrong."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from refusals import bad_values, refused
from scansnap.dynamics.settings import ModelConfig, Settings, record_steps, settings

# --- which steps are recorded ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "steps", "expected"),
    [
        ([4, 0, 2, 4, 100], 100, (0, 2, 4, 100)), ([3], 5, (3,)), (3, 5, (3,)), (np.int64(3), 5, (3,)),
        (np.array([5, 1]), 5, (1, 5)), (range(0, 5, 2), 5, (0, 2, 4)), ({2, 1}, 5, (1, 2)), (iter([2, 1]), 5, (1, 2)),
        ("all", 4, (0, 1, 2, 3, 4)), ("all", 0, (0,)), ("linear:2", 10, (0, 10)), ("linear:3", 10, (0, 5, 10)),
        ("linear:100", 3, (0, 1, 2, 3)), ("log:2", 100, (0, 100)), ("log:3", 100, (0, 1, 100)),
        ("log:4", 100, (0, 1, 10, 100)), ("log:50", 0, (0,)), ("log:50", 1, (0, 1)), ("log:50", 4, (0, 1, 2, 3, 4)),
    ],
)  # fmt: skip
def test_record_forms(record: Any, steps: int, expected: tuple[int, ...]) -> None:
    found = record_steps(record, steps)
    assert found == expected
    assert all(type(step) is int for step in found)


@given(kind=st.sampled_from(["linear", "log"]), number=st.integers(2, 200), steps=st.integers(0, 2**32 - 2))
def test_ranges_begin_at_0_end_at_the_last_step_and_are_about_as_long_as_asked(
    kind: str, number: int, steps: int
) -> None:
    found = record_steps(f"{kind}:{number}", steps)
    assert found[0] == 0
    assert found[-1] == steps
    assert list(found) == sorted(set(found))
    assert len(found) <= number
    if steps >= number:
        assert len(found) > number / 3  # small steps of a log range coincide


def test_a_log_range_is_even_in_the_logarithm() -> None:
    steps = np.array(record_steps("log:41", 10**8)[1:])
    late = steps[steps > 1000]
    np.testing.assert_allclose(late[1:] / late[:-1], 10 ** (8 / 39), rtol=1e-3)


# --- what the options mean ------------------------------------------------------------------------------------


def test_the_defaults_are_the_papers_experiments() -> None:
    plan = settings({})
    assert (plan.steps, plan.batch_size, plan.context, plan.dtype) == (100, 128, 128, "float32")
    assert (plan.model.norm, plan.model.residual, plan.model.outputs, plan.model.init) == (
        "l2",
        "none",
        "all",
        "zero",
    )
    assert plan.optimizer_y.name == plan.optimizer_z.name == "sgd"
    assert plan.variables == ("attention", "loss", "entropy", "z")


def test_one_optimiser_for_both_tables_or_one_for_each() -> None:
    both = settings({"optimizer": {"name": "adam", "beta1": 0.5}})
    assert both.optimizer_y == both.optimizer_z == ss.Optimizer("adam", beta1=0.5)
    each = settings({"optimizer": {"y": "adam", "z": {"name": "sgd", "clip": 2.0}}})
    assert (each.optimizer_y, each.optimizer_z) == (ss.Optimizer("adam"), ss.Optimizer("sgd", clip=2.0))
    only_z = settings({"optimizer": {"z": ss.Optimizer("sign")}})
    assert (only_z.optimizer_y.name, only_z.optimizer_z.name) == ("sgd", "sign")


def test_infinite_context_as_a_number_or_a_word() -> None:
    assert settings({"context": "inf"}) == settings({"context": math.inf})


def test_a_position_bias_needs_token_sequences() -> None:
    assert settings({}).sampling == "counts"
    assert settings({"position_bias": 0.1}).sampling == "tokens"


def test_position_weights_by_hand() -> None:
    e = math.exp
    np.testing.assert_array_equal(ModelConfig().position_weights(3), [1, 1, 1])
    slope = ModelConfig(position_bias=0.5).position_weights(3)  # oldest first: distances 3, 2, 1
    np.testing.assert_allclose(slope, [e(-1.5), e(-1), e(-0.5)])
    by_distance = ModelConfig(position_bias=[0.1, -0.2]).position_weights(4)  # the last value goes on
    np.testing.assert_allclose(by_distance, [e(-0.2), e(-0.2), e(-0.2), e(0.1)])


def test_initial_scales() -> None:
    assert ModelConfig(init="zero").init_scale(25) == ("zero", 0.0)
    assert ModelConfig(init="uniform").init_scale(25) == ("uniform", 0.2)
    assert ModelConfig(init="normal(0.3)").init_scale(25) == ("normal", 0.3)
    assert ModelConfig(init="normal(1e-3)").init_scale(25) == ("normal", 1e-3)


def test_a_single_variable_may_be_named_without_a_list() -> None:
    assert settings({"variables": "loss"}).variables == ("loss",)


def test_numbers_of_numpy_become_plain_ones() -> None:
    options = {"steps": np.int64(7), "batch_size": np.int32(3), "context": np.int16(9), "heads": np.int8(2),
               "position_bias": np.float32(0.5), "record": np.arange(3)}  # fmt: skip
    plan = settings(options)
    assert plan == settings({"steps": 7, "batch_size": 3, "context": 9, "heads": 2, "position_bias": 0.5,
                             "record": [0, 1, 2]})  # fmt: skip
    assert all(type(n) is int for n in (plan.steps, plan.batch_size, plan.context, plan.model.heads, *plan.record))
    assert type(plan.model.position_bias) is float


def test_a_dictionary_of_plain_values_says_it_all() -> None:
    plan = settings({"position_bias": [0.1, 0.2], "optimizer": {"y": "adam"}, "record": [0, 5], "context": 64})
    stored = json.loads(json.dumps(plan.to_dict()))
    model = ModelConfig(**stored.pop("model"))
    optimizers = {f"optimizer_{table}": ss.Optimizer(**stored.pop(f"optimizer_{table}")) for table in "yz"}
    lists = {name: tuple(stored.pop(name)) for name in ("record", "variables")}
    assert Settings(model=model, **optimizers, **lists, **stored) == plan


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings({}).steps = 5  # type: ignore[misc]


# --- what is refused ------------------------------------------------------------------------------------------

REFUSED = [
    *bad_values(
        steps=[-1, 10.0, None, True], batch_size=[0, -3, 1.5, "128", None],
        context=[1, 0, -5, math.nan, -math.inf, 2.5, "x", None], norm=["L2", None], residual=["yes"], outputs=["K"],
        query_in_keys=["yes", 1],
        init=["zeros", "normal", "normal(-1)", "normal(0)", "normal(nan)", "normal(inf)", "normal(x)", 0.1],
        heads=[0, 1.0], position_bias=[math.inf, "0.1"], sampling=["token"],
        record=[[1.0], 101, True, None, 2.5, "every", "log", "log:1", "linear:-3", "linear:3.0", "linear:²"],
        variables=["losses", 3, [1]], dtype=["float16", torch.float32], optimizer=["sdg", None],
    ),
    ({"steps": 2**32 - 1}, ("steps", 4294967295)), ({"position_bias": [0.1, math.nan]}, ("position_bias", math.nan)),
    ({"position_bias": []}, ("position_bias", [])), ({"position_bias": 0.1, "context": "inf"}, "context"),
    ({"record": [0, 101]}, ("record", 101)), ({"record": [-1]}, ("record", -1)), ({"record": ["1"]}, ("record", "1")),
    ({"record": []}, ("record", "empty")), ({"variables": ["loss", "losses"]}, ("variables", "losses")),
    ({"optimizer": {"y": "adam", "z": "sdg"}}, ("optimizer", "sdg")),
    ({"optimizer": {"name": "adam", "beta": 1}}, "beta"), ({"optimizer": {"name": "adam", "beta1": 1}}, "beta1"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "field"), REFUSED, ids=lambda value: str(value)[:40])
def test_bad_settings_name_the_field_the_value_and_what_is_allowed(options: dict[str, Any], field: str) -> None:
    with refused(field):
        settings(options)
    with refused(field):  # and the same words from where users meet them
        ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, **options)


def test_a_setting_nobody_reads_is_refused() -> None:
    with refused("step", 5, names="steps"):
        settings({"step": 5})


@pytest.mark.parametrize(
    ("options", "field"),
    [
        *bad_values(
            device=["gpu", "meta", None], engine=["fast"], checkpoint_seconds=[-1, math.nan], resume=[True],
            save_to=["result.csv"], momentum=[1.0], weight_decay=[-1], seed=[-1, 0.5], eta_z=[None, math.inf],
        ),
        ({"ratio": 2.0}, "eta_y and ratio"), ({"eta_y": None}, "eta_y and ratio"),
        ({"engine": "fused", "dtype": "float64", "device": "cpu"}, "engine"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_bad_arguments_of_a_simulation(options: dict[str, Any], field: str) -> None:
    with refused(field):
        ss.simulate(ss.SequenceClasses.syn_small(), **{"eta_y": 1.0, "eta_z": 1.0, "steps": 2, **options})


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_a_missing_gpu_is_said_in_words() -> None:
    with refused("device", "cuda"):
        ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, device="cuda")


@pytest.mark.parametrize("classes", [None, "syn-small", ss.SequenceClasses, [[1.0]]])
def test_classes_of_the_wrong_type(classes: Any) -> None:
    with refused("classes", names="SequenceClasses"):
        ss.simulate(classes, eta_y=1.0, eta_z=1.0)


@pytest.mark.parametrize("runs", [{"eta_y": 1.0}, 1.0, [1.0], "runs"])
def test_runs_of_the_wrong_type(runs: Any) -> None:
    with refused("runs", names="scansnap.grid"):
        ss.simulate(ss.SequenceClasses.syn_small(), runs)


@pytest.mark.parametrize("rate", [{"eta_y": 1.0}, {"eta_z": 1.0}, {"ratio": 1.0}, {"seed": 0}])
def test_runs_and_rates_together_are_refused(rate: dict[str, Any]) -> None:
    ((name, value),) = rate.items()
    with refused(name, value):
        ss.simulate(ss.SequenceClasses.syn_small(), ss.grid(eta_y=1.0, eta_z=1.0), **rate)


@pytest.mark.parametrize("name", ["momentum", "weight_decay"])
def test_a_constant_given_twice_is_refused(name: str) -> None:
    with refused(name, 0.1):
        ss.simulate(ss.SequenceClasses.syn_small(), ss.grid(eta_y=1, eta_z=1, **{name: 0.5}), **{name: 0.1})


def test_a_run_file_says_none_for_the_expectation_over_classes():
    """TOML has no null."""
    assert settings({"batch_size": "none", "context": "inf"}).batch_size is None
