"""A user's own records and reasons to stop, and a momentum that nobody would look at."""

from __future__ import annotations

from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap.dynamics.options import SimulateOptions
from scansnap.dynamics.settings import run_settings
from scansnap.runs import RunOptions, run_fields

CLASSES = ss.SequenceClasses.syn_small()
COMMON = {"eta_y": 0.5, "eta_z": 0.5, "steps": 20, "record": [0, 5, 10, 15, 20], "device": "cpu"}


def strongest(seen):
    return {"strongest": (("seq_class",), seen["attention"].max(-1)), "updates": np.full(len(seen.runs), seen.step)}


def test_a_users_function_of_the_state_is_recorded() -> None:
    data = ss.simulate(CLASSES, **COMMON, record_fn=strongest, variables=["attention"])
    assert data.strongest.dims == ("run", "step", "seq_class")
    np.testing.assert_array_equal(data.strongest, data.attention.max("token"))
    assert data.updates.values.tolist() == [[0, 5, 10, 15, 20]]
    assert list(data["seq_class"]) == list(range(CLASSES.n_classes))


def test_it_is_resumed_like_everything_else(tmp_path) -> None:
    def stop(done, total):
        if done >= 5:
            raise KeyboardInterrupt

    whole = ss.simulate(CLASSES, **COMMON, record_fn=strongest)
    saved = {**COMMON, "record_fn": strongest, "save_to": tmp_path / "a.nc"}
    with pytest.raises(ss.Interrupted):
        ss.simulate(CLASSES, **saved, progress=stop)
    with refused("the unfinished run", names="record_fn"):
        ss.simulate(CLASSES, **{**saved, "record_fn": lambda seen: {}}, resume=True)
    again = ss.simulate(CLASSES, **saved, resume=True)
    np.testing.assert_array_equal(again.strongest, whole.strongest)
    np.testing.assert_array_equal(ss.load(tmp_path / "a.nc").strongest, whole.strongest)


@pytest.mark.parametrize(
    ("record_fn", "field"),
    [
        (lambda seen: 3, "what record_fn returns"),
        (lambda seen: {"z": seen["z"]}, "a name from record_fn"),
        (lambda seen: {"a": np.zeros(7)}, "a from record_fn"),
        (lambda seen: {"a": (("seq_class", "token"), np.zeros((1, 2)))}, "the dims of a from record_fn"),
        (lambda seen: {"a": seen["nothing"]}, "the variable"),
    ],
)
def test_bad_records_are_refused_before_the_work(record_fn, field, tmp_path) -> None:
    with refused(field):
        ss.simulate(CLASSES, **COMMON, record_fn=record_fn, save_to=tmp_path / "a.zarr")
    assert list(tmp_path.iterdir()) == []


def test_until_ends_it_and_says_so() -> None:
    def low_loss(seen):
        return bool((seen["loss"] < 0.5 * np.log(CLASSES.vocab_size)).all())

    whole = ss.simulate(CLASSES, **COMMON)
    assert whole.attrs["stopped"] == "complete"
    early = ss.simulate(CLASSES, **COMMON, until=low_loss)
    assert early.attrs["stopped"] == "event: low_loss"
    assert early.attrs["complete"] == 1
    below = whole.loss.values[0] < 0.5 * np.log(CLASSES.vocab_size)
    assert 0 < below.argmax() < len(below) - 1, "the test needs an end on the way"
    assert early.step.values.tolist() == whole.step.values[: below.argmax() + 1].tolist()
    with refused("what until returns", 1.5):
        ss.simulate(CLASSES, **COMMON, until=lambda seen: 1.5)


def test_runs_that_all_fail_are_a_reason_too() -> None:
    data = ss.simulate(CLASSES, **{**COMMON, "eta_y": 1e38, "eta_z": 1e38})
    assert data.attrs["stopped"] == "non-finite"
    assert (data.status == "non-finite").all()


def test_adam_refuses_a_momentum_instead_of_ignoring_it() -> None:
    with refused("momentum", 0.9, names="adam"):
        ss.simulate(CLASSES, **COMMON, optimizer="adam", momentum=0.9)
    data = ss.simulate(CLASSES, **COMMON, optimizer={"y": "sgd", "z": "adam"}, momentum=0.9)  # Y has one
    assert float(data.momentum[0]) == 0.9


def test_a_model_may_be_given_whole() -> None:
    model = ss.ModelConfig(norm="none", init="uniform", heads=2)
    whole = ss.simulate(CLASSES, **COMMON, model=model)
    flat = ss.simulate(CLASSES, **COMMON, norm="none", init="uniform", heads=2)
    np.testing.assert_array_equal(whole.z, flat.z)
    on_top = ss.simulate(CLASSES, **COMMON, model=ss.ModelConfig(heads=2), norm="none", init="uniform")
    np.testing.assert_array_equal(on_top.z, flat.z)
    whole = ss.simulate(CLASSES, settings=ss.Settings(steps=20, record=(0, 20), model=model), eta_y=0.5, eta_z=0.5)
    np.testing.assert_array_equal(whole.z[:, -1], flat.z[:, -1])
    for name, value in (("model", 3), ("settings", {})):
        with refused(name, names="scansnap"):
            ss.simulate(CLASSES, **COMMON, **{name: value})


def test_the_options_are_those_declared() -> None:
    types = {"integer": (int, float), "float": (int, float), "choice": (str,), "text": (str, int), "flag": (bool,)}
    for written, declared in ((RunOptions, run_fields()), (SimulateOptions, run_fields() | run_settings())):
        hints = get_type_hints(written)
        assert set(hints) == set(declared)
        for name, hint in hints.items():
            kinds = set(types[declared[name].kind])
            assert kinds & {hint, *get_args(hint), *(type(word) for word in get_args(hint))}, name
            literal = [set(get_args(part)) for part in (hint, *get_args(hint)) if get_origin(part) is Literal]
            if literal and declared[name].kind == "choice":
                assert literal == [set(declared[name].options)], name
            assert type(None) in get_args(hint) or not declared[name].optional, name
    with refused("stepz"):
        ss.simulate(CLASSES, **COMMON, stepz=3)


def test_a_record_that_changes_on_the_way_is_one_sentence() -> None:
    with refused("what record_fn returns"):
        ss.simulate(CLASSES, **COMMON, record_fn=lambda seen: {f"at_{seen.step > 5}": np.zeros(1)})
