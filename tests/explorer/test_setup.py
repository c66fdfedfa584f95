"""Set-ups: what is accepted means what it means on the command line, and every mistake names its control."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_forms import summary

import scansnap as ss
from scansnap.checks import InputError
from scansnap.cli.run import find_run
from scansnap.explorer.controls import BY_NAME, CONTROLS, PRESET_CONTROLS, class_presets
from scansnap.explorer.page import as_json
from scansnap.explorer.presets import PRESETS
from scansnap.explorer.setup import field_of, read_setup

SMALL: dict[str, Any] = {"classes": {"preset": "syn-small"}}
BARS: dict[str, Any] = {
    "vocab_size": 6,
    "classes": [
        {"query": 4, "next_token": 5, "tokens": [0, 1], "weights": [1, 3]},
        {"query": 4, "next_token": 3, "tokens": [0, 2], "weights": [2, 2]},
    ],
}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p["name"])
def test_presets_are_complete_set_ups(preset: dict[str, Any]) -> None:
    reading = read_setup(preset["setup"])
    assert reading.setup == {name: control.default for name, control in BY_NAME.items()} | preset["setup"], (
        "the page takes a set-up for the preset's as long as it is this"
    )
    assert read_setup(reading.setup).setup == reading.setup, "a filled-in set-up must mean itself"
    assert preset["commentary"]
    as_json(reading.setup)


def test_controls_match_what_the_code_takes() -> None:
    from scansnap.classes import PRESETS as CLASSES
    from scansnap.dynamics.settings import run_settings
    from scansnap.runs import run_fields

    assert {row["name"] for row in class_presets()} == set(CLASSES)
    assert all(row["explain"].endswith(".") for row in class_presets())
    known = {*run_settings(), *run_fields()}
    assert {c.name for c in CONTROLS} == known - {"record", "variables", "ratio", "weight_decay_y", "weight_decay_z"}
    for control in (*CONTROLS, *PRESET_CONTROLS.values()):
        assert control.explain.endswith(".")
        assert len(control.explain) <= 110
        assert control.check(control.default) == control.default
        if control.options:
            assert control.default in control.options


def test_bars_are_normalised_weights() -> None:
    classes = read_setup({"classes": {"bars": BARS}}).classes
    np.testing.assert_array_equal(classes.p_context[:, :3], [[0.25, 0.75, 0], [0.5, 0, 0.5]])
    np.testing.assert_array_equal(classes.p_class, [0.5, 0.5])
    weighted = {**BARS, "classes": [{**row, "p_class": w} for row, w in zip(BARS["classes"], (1, 3), strict=True)]}
    np.testing.assert_array_equal(read_setup({"classes": {"bars": weighted}}).classes.p_class, [0.25, 0.75])


@pytest.mark.parametrize("name", ["syn-small", "syn-medium", "textbook", "zipf"])
def test_the_summary_gives_the_bars_of_any_classes(name: str) -> None:
    classes = read_setup({"classes": {"preset": name}}).classes
    said = summary(classes)
    bars = {"vocab_size": said["vocab_size"], "classes": [
        {**{k: row[k] for k in ("query", "next_token", "p_class", "tokens")}, "weights": row["p"]}
        for row in said["classes"]]}  # fmt: skip
    assert read_setup({"classes": {"bars": bars}}).classes == classes
    for n, row in enumerate(said["classes"]):
        distinct = [t for t, kind in zip(row["tokens"], row["kinds"], strict=True) if kind == "distinct"]
        assert distinct == classes.distinct(n).tolist()
        assert row["dominant"] in distinct


def test_a_run_file_fills_what_is_not_given() -> None:
    text = '[classes]\npreset = "syn-small"\n[run]\nratio = 5\neta_z = 0.5\noptimizer = "adam"\nrecord = "all"\n'
    reading = read_setup({"classes": {"toml": text}, "eta_z": 2.0})
    assert (reading.setup["eta_y"], reading.setup["eta_z"], reading.setup["optimizer"]) == (2.5, 2.0, "adam")


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda f: f.stem)
def test_every_example_that_describes_a_run_is_taken(file: Path) -> None:
    """Of several runs the page shows the first, and says so; a sweep is none."""
    text = file.read_text(encoding="utf-8")
    if "[grid]" in text:
        with pytest.raises(InputError, match="grid"):
            read_setup({"classes": {"toml": text}})
        return
    classes, rates, _ = find_run(file, {})
    reading = read_setup({"classes": {"toml": text}})
    runs = ss.grid(**rates)
    assert reading.classes == classes
    assert (reading.setup["eta_y"], reading.setup["eta_z"]) == (runs.eta_y[0], runs.eta_z[0])
    assert (f"has {len(runs)} runs" in reading.note) == (len(runs) > 1)


def test_of_several_runs_the_first_is_shown_and_told() -> None:
    reading = read_setup({"classes": {"toml": (EXAMPLES / "adam.toml").read_text(encoding="utf-8")}})
    assert reading.note == "The file has 3 runs; this is the first: eta_z = 0.1."
    assert (reading.setup["optimizer"], reading.setup["eta_y"], reading.setup["steps"]) == ("adam", 0.1, 100)
    text = '[classes]\npreset = "syn-small"\n[run]\nratio = [5, 2]\neta_z = 0.5\nseed = [3, 4, 5]\n'
    reading = read_setup({"classes": {"toml": text}})
    assert reading.note == "The file has 6 runs; this is the first: ratio = 5, seed = 3."
    assert (reading.setup["eta_y"], reading.setup["seed"]) == (2.5, 3)


WORDS = """\
vocab_size = 3
words = ["the", "[[class]]", "cat"]
[[class]]
query = 0
next_token = 2
tokens = [0, 1]
p_context = [0.5, 0.5]
"""


REFUSALS: list[tuple[Any, str]] = [
    ([], "setup"),
    ({}, "classes"),
    ({**SMALL, "eta": 1}, "eta"),
    ({**SMALL, "eta_y": -1}, "eta_y"),
    ({**SMALL, "eta_y": "1"}, "eta_y"),
    ({**SMALL, "eta_y": True}, "eta_y"),
    ({**SMALL, "eta_z": 1e9}, "eta_z"),
    ({**SMALL, "momentum": 1}, "momentum"),
    ({**SMALL, "steps": 0}, "steps"),
    ({**SMALL, "steps": 10**9}, "steps"),
    ({**SMALL, "context": 1}, "context"),
    ({**SMALL, "context": "infinite"}, "context"),
    ({**SMALL, "batch_size": None}, "batch_size"),
    ({**SMALL, "batch_size": 10**6}, "batch_size"),
    ({**SMALL, "init": "normal(-1)"}, "init"),
    ({**SMALL, "norm": "l3"}, "norm"),
    ({**SMALL, "optimizer": "lion"}, "optimizer"),
    ({**SMALL, "optimizer": {"name": "sgd", "clip": 0}}, "clip"),
    ({**SMALL, "heads": 99}, "heads"),
    ({**SMALL, "position_bias": 1, "context": "inf"}, "context"),
    ({"classes": {"preset": "huge"}}, "classes"),
    ({"classes": {"preset": "syn-small", "toml": ""}}, "classes"),
    ({"classes": {"preset": "syn-small", "n_queries": 2}}, "classes"),
    ({"classes": {"preset": "syn-medium", "n_queries": 10**12}}, "n_queries"),
    ({"classes": {"preset": "synthetic", "n_queries": 64, "next_per_query": 64}}, "classes"),
    ({"classes": {"preset": "synthetic", "distinct": 20000}}, "classes"),
    ({"classes": {"preset": "zipf", "vocab": 10**15}}, "vocab"),
    ({"classes": {"toml": "="}}, "classes"),
    ({"classes": {"toml": "x = 1"}}, "classes"),
    ({"classes": {"toml": "a = " + "[" * 3000}}, "classes"),
    ({"classes": {"toml": '[classes]\npreset = "syn-small"\n[run]\nseed = [0, -1]'}}, "classes"),
    ({"classes": {"toml": '[classes]\npreset = "syn-small"\n[run]\nsteps = [10, 20]'}}, "steps"),
    ({"classes": {"toml": "[run]\nseed = 1"}}, "classes"),
    ({"classes": {"bars": 3}}, "classes"),
    ({"classes": {"bars": {**BARS, "vocab_size": 10**9}}}, "classes"),
    ({"classes": {"bars": {**BARS, "classes": []}}}, "classes"),
    ({"classes": {"bars": {**BARS, "classes": [{**BARS["classes"][0], "weights": [0, 0]}]}}}, "classes"),
    ({"classes": {"bars": {**BARS, "classes": [{**BARS["classes"][0], "weights": [1, -1]}]}}}, "classes"),
    ({"classes": {"bars": {**BARS, "classes": [{**BARS["classes"][0], "tokens": [0, 10**30]}]}}}, "classes"),
    ({"classes": {"bars": {**BARS, "classes": [{"query": 4}]}}}, "classes"),
]  # fmt: skip


@pytest.mark.parametrize(("setup", "field"), REFUSALS, ids=range(len(REFUSALS)))
def test_refusals_name_the_control(setup: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_setup(setup)
    assert field_of(caught.value) == field, str(caught.value)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {"classes": st.sampled_from([SMALL["classes"], {"bars": BARS}]) | _VALUES},
        optional={name: _VALUES | st.sampled_from([c.default, *(c.options or ())]) for name, c in BY_NAME.items()},
    )
)
def test_anything_is_a_plan_or_a_refusal(setup: dict[str, Any]) -> None:
    try:
        reading = read_setup(setup)
    except InputError as error:
        as_json({"field": field_of(error), "message": str(error)})
    else:
        assert isinstance(reading.classes, ss.SequenceClasses)


def test_a_momentum_that_the_optimiser_does_not_have_is_said_to_be_zero() -> None:
    """And what is exported is a run file that the command line takes."""
    made = read_setup({**SMALL, "optimizer": "adam", "momentum": 0.9})
    assert made.setup["momentum"] == 0.0
    assert made.runs.momentum.tolist() == [0.0]
    assert read_setup({**SMALL, "optimizer": "sgd", "momentum": 0.9}).setup["momentum"] == 0.9
