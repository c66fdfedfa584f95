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
from scansnap.dynamics.settings import Model, Settings, record_steps, settings

# --- which steps are recorded ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "steps", "expected"),
    [
        ([4, 0, 2, 4, 100], 100, (0, 2, 4, 100)),
        ([3], 5, (3,)),
        (3, 5, (3,)),
        (np.int64(3), 5, (3,)),
        (np.array([5, 1]), 5, (1, 5)),
        (range(0, 5, 2), 5, (0, 2, 4)),
        ({2, 1}, 5, (1, 2)),
        (iter([2, 1]), 5, (1, 2)),
        ("all", 4, (0, 1, 2, 3, 4)),
        ("all", 0, (0,)),
        ("linear:2", 10, (0, 10)),
        ("linear:3", 10, (0, 5, 10)),
        ("linear:100", 3, (0, 1, 2, 3)),
        ("log:2", 100, (0, 100)),
        ("log:3", 100, (0, 1, 100)),
        ("log:4", 100, (0, 1, 10, 100)),
        ("log:50", 0, (0,)),
        ("log:50", 1, (0, 1)),
        ("log:50", 4, (0, 1, 2, 3, 4)),
    ],
)
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
    np.testing.assert_array_equal(Model().position_weights(3), [1, 1, 1])
    slope = Model(position_bias=0.5).position_weights(3)  # oldest first: distances 3, 2, 1
    np.testing.assert_allclose(slope, [e(-1.5), e(-1), e(-0.5)])
    by_distance = Model(position_bias=[0.1, -0.2]).position_weights(4)  # the last value goes on
    np.testing.assert_allclose(by_distance, [e(-0.2), e(-0.2), e(-0.2), e(0.1)])


def test_initial_scales() -> None:
    assert Model(init="zero").init_scale(25) == ("zero", 0.0)
    assert Model(init="uniform").init_scale(25) == ("uniform", 0.2)
    assert Model(init="normal(0.3)").init_scale(25) == ("normal", 0.3)
    assert Model(init="normal(1e-3)").init_scale(25) == ("normal", 1e-3)


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
    model = Model(**stored.pop("model"))
    optimizers = {f"optimizer_{table}": ss.Optimizer(**stored.pop(f"optimizer_{table}")) for table in "yz"}
    lists = {name: tuple(stored.pop(name)) for name in ("record", "variables")}
    assert Settings(model=model, **optimizers, **lists, **stored) == plan


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings({}).steps = 5  # type: ignore[misc]


# --- what is refused ------------------------------------------------------------------------------------------

WHOLE = "it must be a whole number of at least"
RECORD = "it must be a list of steps, all, linear:N or log:N with N of at least 2."
INIT = "it must be zero, uniform or normal(std) with a std above 0."
VARIABLES = "one of attention, loss, entropy, z, y, batch_loss."

REFUSED = [
    ({"steps": -1}, f"steps is -1; {WHOLE} 0 and at most 4294967294."),
    ({"steps": 10.0}, f"steps is 10.0; {WHOLE} 0"),
    ({"steps": None}, f"steps is None; {WHOLE} 0"),
    ({"steps": True}, f"steps is True; {WHOLE} 0"),
    ({"steps": 2**32 - 1}, f"steps is 4294967295; {WHOLE} 0 and at most 4294967294."),
    ({"batch_size": 0}, f"batch_size is 0; {WHOLE} 1 and at most 2147483648."),
    ({"batch_size": -3}, f"batch_size is -3; {WHOLE} 1"),
    ({"batch_size": 1.5}, f"batch_size is 1.5; {WHOLE} 1"),
    ({"batch_size": "128"}, f"batch_size is '128'; {WHOLE} 1"),
    ({"batch_size": None}, "batch_size is None; it must be a whole number when context is finite "
                           "(None needs context=inf)."),
    ({"context": 1}, f"context is 1; {WHOLE} 2."),
    ({"context": 0}, f"context is 0; {WHOLE} 2."),
    ({"context": -5}, f"context is -5; {WHOLE} 2."),
    ({"context": math.nan}, f"context is nan; {WHOLE} 2."),
    ({"context": -math.inf}, f"context is -inf; {WHOLE} 2."),
    ({"context": 2.5}, f"context is 2.5; {WHOLE} 2."),
    ({"context": "x"}, "context is 'x'; it must be a whole number of at least 2, or inf."),
    ({"context": None}, f"context is None; {WHOLE} 2."),
    ({"norm": "L2"}, "norm is 'L2'; it must be one of l2, none, layernorm."),
    ({"norm": None}, "norm is None; it must be one of l2, none, layernorm."),
    ({"residual": "yes"}, "residual is 'yes'; it must be one of none, normed, plain."),
    ({"outputs": "K"}, "outputs is 'K'; it must be one of all, next."),
    ({"query_in_keys": "yes"}, "query_in_keys is 'yes'; it must be true or false."),
    ({"query_in_keys": 1}, "query_in_keys is 1; it must be true or false."),
    ({"init": "zeros"}, f"init is 'zeros'; {INIT}"),
    ({"init": "normal"}, f"init is 'normal'; {INIT}"),
    ({"init": "normal(-1)"}, f"init is 'normal(-1)'; {INIT}"),
    ({"init": "normal(0)"}, f"init is 'normal(0)'; {INIT}"),
    ({"init": "normal(nan)"}, f"init is 'normal(nan)'; {INIT}"),
    ({"init": "normal(inf)"}, f"init is 'normal(inf)'; {INIT}"),
    ({"init": "normal(x)"}, f"init is 'normal(x)'; {INIT}"),
    ({"init": 0.1}, f"init is 0.1; {INIT}"),
    ({"heads": 0}, f"heads is 0; {WHOLE} 1 and at most 1024."),
    ({"heads": 1.0}, f"heads is 1.0; {WHOLE} 1 and at most 1024."),
    ({"position_bias": math.inf}, "position_bias is inf; it must be a finite number."),
    ({"position_bias": [0.1, math.nan]}, "position_bias is nan; it must be a finite number."),
    ({"position_bias": []}, "position_bias is 'empty'; it must be a slope or at least one value by distance."),
    ({"position_bias": "0.1"}, "position_bias is '0.1'; it must be a finite number."),
    ({"position_bias": 0.1, "context": "inf"}, "context is inf; it must be finite when there is a position_bias."),
    ({"sampling": "token"}, "sampling is 'token'; it must be one of counts, tokens."),
    ({"record": [0, 101]}, f"record is 101; {WHOLE} 0 and at most 100."),
    ({"record": [-1]}, f"record is -1; {WHOLE} 0 and at most 100."),
    ({"record": [1.0]}, f"record is 1.0; {WHOLE} 0"),
    ({"record": ["1"]}, f"record is '1'; {WHOLE} 0"),
    ({"record": 101}, f"record is 101; {WHOLE} 0"),
    ({"record": True}, f"record is True; {WHOLE} 0"),
    ({"record": []}, "record is 'empty'; it must be at least one step."),
    ({"record": None}, f"record is None; {RECORD}"),
    ({"record": 2.5}, f"record is 2.5; {RECORD}"),
    ({"record": "every"}, f"record is 'every'; {RECORD}"),
    ({"record": "log"}, f"record is 'log'; {RECORD}"),
    ({"record": "log:1"}, f"record is 'log:1'; {RECORD}"),
    ({"record": "linear:-3"}, f"record is 'linear:-3'; {RECORD}"),
    ({"record": "linear:3.0"}, f"record is 'linear:3.0'; {RECORD}"),
    ({"record": "linear:²"}, f"record is 'linear:²'; {RECORD}"),
    ({"variables": ["loss", "losses"]}, f"variables is 'losses'; it must be {VARIABLES}"),
    ({"variables": "losses"}, f"variables is 'losses'; it must be {VARIABLES}"),
    ({"variables": 3}, "variables is 3; it must be a list of attention, loss, entropy, z, y, batch_loss."),
    ({"variables": [1]}, f"variables is 1; it must be {VARIABLES}"),
    ({"dtype": "float16"}, "dtype is 'float16'; it must be one of float32, float64."),
    ({"dtype": torch.float32}, "dtype is torch.float32; it must be one of float32, float64."),
    ({"optimizer": "sdg"}, "optimizer is 'sdg'; it must be one of sgd, nesterov, adam, adamw, sign, muon."),
    ({"optimizer": None}, "optimizer is None; it must be one of sgd, nesterov"),
    ({"optimizer": {"y": "adam", "z": "sdg"}}, "optimizer is 'sdg'; it must be one of sgd, nesterov"),
    ({"optimizer": {"name": "adam", "beta": 1}}, "the key 'beta' in optimizer is 1; it must be left out or one"),
    ({"optimizer": {"name": "adam", "beta1": 1}}, "beta1 is 1.0; it must be a finite number at least 0 and below"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_bad_settings_name_the_field_the_value_and_what_is_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ss.InputError) as caught:
        settings(options)
    assert str(caught.value).startswith(message)
    with pytest.raises(ss.InputError) as caught:  # and the same words from where users meet them
        ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, **options)
    assert str(caught.value).startswith(message)


def test_a_setting_nobody_reads_is_refused() -> None:
    with pytest.raises(
        ss.InputError, match=r"the key 'step' in the run settings is 5; it must be left out or one of steps, "
    ):
        settings({"step": 5})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device is 'gpu'; it must be auto, cpu or cuda."),
        ({"device": "meta"}, "device is 'meta'; it must be auto, cpu or cuda."),
        ({"device": None}, "device is None; it must be auto, cpu or cuda."),
        ({"engine": "fast"}, "engine is 'fast'; it must be one of auto, general, fused."),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds is -1.0; it must be a finite number at least 0."),
        ({"checkpoint_seconds": math.nan}, "checkpoint_seconds is nan; it must be a finite number at least 0."),
        ({"resume": True}, "resume is True; it must be given together with save_to."),
        ({"save_to": "result.csv"}, "save_to is 'result.csv'; it must be a name ending in .zarr or .nc."),
        ({"momentum": 1.0}, "momentum is 1.0; it must be a finite number at least 0 and below 1."),
        ({"weight_decay": -1}, "weight_decay is -1.0; it must be a finite number at least 0."),
        ({"seed": -1}, "seed is -1; it must be a whole number of at least 0"),
        ({"seed": 0.5}, "seed is 0.5; it must be a whole number of at least 0"),
        ({"ratio": 2.0}, "eta_y and ratio is 'both given'; it must be exactly one of the two"),
        ({"eta_y": None}, "eta_y and ratio is 'neither given'; it must be exactly one of the two"),
        ({"eta_z": None}, "eta_z is None; it must be given"),
        ({"eta_z": math.inf}, "eta_z is inf; it must be a finite number at least 0."),
        ({"engine": "fused", "dtype": "float64", "device": "cpu"}, "engine is 'fused'; it must be auto or"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_bad_arguments_of_a_simulation(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ss.InputError) as caught:
        ss.simulate(ss.SequenceClasses.syn_small(), **{"eta_y": 1.0, "eta_z": 1.0, "steps": 2, **options})
    assert str(caught.value).startswith(message)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_a_missing_gpu_is_said_in_words() -> None:
    with pytest.raises(ss.InputError, match="device is 'cuda'; it must be cpu or auto: no CUDA device is present here"):
        ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, device="cuda")


@pytest.mark.parametrize("classes", [None, "syn-small", ss.SequenceClasses, [[1.0]]])
def test_classes_of_the_wrong_type(classes: Any) -> None:
    with pytest.raises(ss.InputError, match=r"^classes is .*; it must be a SequenceClasses object\.$"):
        ss.simulate(classes, eta_y=1.0, eta_z=1.0)


@pytest.mark.parametrize("runs", [{"eta_y": 1.0}, 1.0, [1.0], "runs"])
def test_runs_of_the_wrong_type(runs: Any) -> None:
    with pytest.raises(ss.InputError, match=r"^runs is .*; it must be what scansnap\.grid returns\.$"):
        ss.simulate(ss.SequenceClasses.syn_small(), runs)


@pytest.mark.parametrize("rate", [{"eta_y": 1.0}, {"eta_z": 1.0}, {"ratio": 1.0}, {"seed": 0}])
def test_runs_and_rates_together_are_refused(rate: dict[str, Any]) -> None:
    ((name, value),) = rate.items()
    with pytest.raises(ss.InputError) as caught:
        ss.simulate(ss.SequenceClasses.syn_small(), ss.grid(eta_y=1.0, eta_z=1.0), **rate)
    assert str(caught.value) == f"{name} is {value!r}; it must be left out here, since runs are given."


@pytest.mark.parametrize("name", ["momentum", "weight_decay"])
def test_a_constant_given_twice_is_refused(name: str) -> None:
    with pytest.raises(ss.InputError) as caught:
        ss.simulate(ss.SequenceClasses.syn_small(), ss.grid(eta_y=1, eta_z=1, **{name: 0.5}), **{name: 0.1})
    assert str(caught.value) == f"{name} is 0.1; it must be left out here, since the runs give their own."


def test_a_run_file_says_none_for_the_expectation_over_classes():
    """TOML has no null."""
    assert settings({"batch_size": "none", "context": "inf"}).batch_size is None
