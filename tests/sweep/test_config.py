from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap.sweep.config import Axes, from_table

BASE = {"classes": {"preset": "syn-small"}, "grid": {"eta_z": 1, "eta_y": 1}}


def test_axes_are_the_outer_product_with_the_seed_slowest():
    axes = Axes.of({"eta_z": [0.5, 1], "seed": "3:5", "ratio": [1, 2, 5], "momentum": 0.9})
    assert len(axes) == 12
    actual, reference = axes.take(0, 12), ss.grid(seed=[3, 4], eta_z=[0.5, 1], ratio=[1, 2, 5], momentum=0.9)
    for name in ("eta_y", "eta_z", "seed", "momentum", "weight_decay", "ratio"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(reference, name))
        np.testing.assert_array_equal(getattr(axes.take(4, 9), name), getattr(reference, name)[4:9])
    assert actual.seed.dtype == np.int64


def test_a_list_of_settings_is_a_class_set_for_each():
    sweep = from_table(BASE | {"classes": {"preset": "synthetic", "n_queries": [1, 3], "distinct": 2,
                                           "distinct_weights": [0.5, 1.0]}})  # fmt: skip
    assert [class_set.settings for class_set in sweep.class_sets] == [
        {"n_queries": 1, "distinct": 2},
        {"n_queries": 3, "distinct": 2},
    ]
    expected = ss.SequenceClasses.synthetic(n_queries=3, distinct=2, distinct_weights=[0.5, 1.0])
    assert sweep.class_sets[1].classes == expected
    two = from_table(BASE | {"classes": [{"preset": "syn-small"}, {"preset": "zipf", "vocab": 50, "classes": 3}]})
    assert [class_set.classes.n_classes for class_set in two.class_sets] == [2, 3]
    weights = {"preset": "synthetic", "distinct": 2, "distinct_weights": [[0.5, 1.0], [1.0, 1.0]]}
    assert len(from_table(BASE | {"classes": weights}).class_sets) == 2


def test_what_measures_need_is_recorded_but_not_stored():
    sweep = from_table(BASE | {"run": {"variables": ["loss"]}, "measure": {"fates": {}, "entropy": True}})
    assert sweep.stored == ("loss",)
    assert set(sweep.options["variables"]) == {"loss", "attention", "z"}
    assert [measure.name for measure in sweep.measures] == ["fates", "attention_entropy"]


BAD = {
    "table": ({"grids": {}}, "grids"),
    "not a table": ({"run": 3}, "run"),
    "field": ({"grid": {"eta_z": 1, "eta_y": 1, "rate": 2}}, "rate"),
    "both": ({"grid": {"eta_z": 1, "eta_y": 1, "ratio": 2}}, "eta_y and ratio"),
    "no rate": ({"grid": {"eta_z": 1}}, "eta_y and ratio"),
    "range": ({"grid": {"eta_z": 1, "eta_y": 1, "seed": "5:1"}}, "seed"),
    "range word": ({"grid": {"eta_z": 1, "eta_y": 1, "seed": "all"}}, "seed"),
    "negative": ({"grid": {"eta_z": [1, -1], "eta_y": 1}}, "eta_z"),
    "nested": ({"grid": {"eta_z": [[1]], "eta_y": 1}}, "eta_z"),
    "empty": ({"grid": {"eta_z": [], "eta_y": 1}}, ("eta_z", "empty")),
    "too large": ({"grid": {"eta_z": [1e200], "ratio": [1e200]}}, "ratio · eta_z"),
    "knob": ({"classes": {"preset": "syn-medium", "n": [1, 2]}}, "the setting 'n' of preset syn-medium"),
    "empty knob": ({"classes": {"preset": "syn-medium", "n_queries": []}}, "n_queries in [classes]"),
    "classes": ({"classes": 3}, "classes"),
    "setting": ({"run": {"step": 3}}, "step"),
    "optimizer": ({"run": {"optimizer": "sdg"}}, "optimizer"),
    "variable": ({"run": {"variables": ["atention"]}}, "variables"),
    "idle momentum": (
        {"grid": {"eta_z": 1, "eta_y": 1, "momentum": [0, 0.5]}, "run": {"optimizer": "adam"}},
        "momentum",
    ),
    "momentum": ({"run": {"momentum": [0.1, 0.2]}}, "momentum in [run]"),
    "momentum twice": (
        {"grid": {"eta_z": 1, "eta_y": 1, "momentum": 0}, "run": {"momentum": 0.5}},
        "momentum in [run]",
    ),
    "measure": ({"measure": {"entropi": {}}}, "measure"),
    "measure option": ({"measure": {"recall": {"treshold": 1}}}, "treshold"),
    "measure pool": ({"measure": {"snap_time": {"pool": True}}}, "pool"),
    "measure form": ({"measure": {"recall": 3}}, "recall in [measure]"),
    "measure name": ({"measure": {"entropy": {"function": "top_mass"}}}, "name in [measure]"),
    "groups": ({"groups": {"runs": 0}}, "runs in [groups]"),
}


@pytest.mark.parametrize(("change", "field"), BAD.values(), ids=BAD.keys())
def test_mistakes_are_one_sentence(change, field):
    with refused(field):
        from_table(BASE | change)


@pytest.mark.parametrize("table", ["classes", "grid"])
def test_needed_tables(table):
    with refused(f"[{table}]", None):
        from_table({name: value for name, value in BASE.items() if name != table})
