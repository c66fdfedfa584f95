"""The grid of runs: an outer product in the order it is written, and nothing that is not a number gets in."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from refusals import refused
from scansnap.runs import MAX_SEED


def test_the_last_argument_varies_fastest() -> None:
    runs = ss.grid(eta_z=[0.5, 1.0], ratio=[1, 2, 5], seed=range(3))
    points = list(product([0.5, 1.0], [1, 2, 5], range(3)))
    assert len(runs) == 18
    assert list(zip(runs.eta_z, runs.ratio, runs.seed, strict=True)) == points
    np.testing.assert_array_equal(runs.eta_y, [z * r for z, r, _ in points])


def test_the_order_is_that_of_the_arguments() -> None:
    runs = ss.grid(seed=[7, 3], momentum=[0.0, 0.9], eta_y=[4.0, 2.0], eta_z=1.0)
    assert runs.seed.tolist() == [7, 7, 7, 7, 3, 3, 3, 3]
    assert runs.momentum.tolist() == [0.0, 0.0, 0.9, 0.9] * 2
    assert runs.eta_y.tolist() == [4.0, 2.0] * 4


@given(
    n_z=st.integers(1, 4),
    n_ratio=st.integers(1, 4),
    n_seed=st.integers(1, 4),
    names=st.permutations(["z", "r", "s"]),
)
def test_every_combination_occurs_once(n_z: int, n_ratio: int, n_seed: int, names: list[str]) -> None:
    axes = {
        "z": ("eta_z", np.arange(1, n_z + 1)),
        "r": ("ratio", np.arange(1, n_ratio + 1)),
        "s": ("seed", range(n_seed)),
    }
    runs = ss.grid(**dict(axes[name] for name in names))
    found = list(zip(runs.eta_z, runs.ratio, runs.seed, strict=True))
    assert len(found) == n_z * n_ratio * n_seed
    assert set(found) == set(product(range(1, n_z + 1), range(1, n_ratio + 1), range(n_seed)))


def test_ratio_and_eta_y_say_the_same() -> None:
    by_ratio, by_eta_y = ss.grid(eta_z=2.0, ratio=[0.5, 3.0]), ss.grid(eta_z=2.0, eta_y=[1.0, 6.0])
    np.testing.assert_array_equal(by_ratio.eta_y, by_eta_y.eta_y)
    np.testing.assert_array_equal(by_ratio.ratio, by_eta_y.ratio)


def test_the_ratio_is_infinite_where_attention_is_not_trained() -> None:
    assert ss.grid(eta_y=1.0, eta_z=[0.0, 0.5]).ratio.tolist() == [math.inf, 2.0]
    assert ss.grid(eta_y=1e300, eta_z=1e-300).ratio.tolist() == [math.inf]  # without a warning


def test_what_is_left_out_is_zero() -> None:
    runs = ss.grid(eta_z=1.0, ratio=1.0)
    assert (runs.seed.tolist(), runs.momentum.tolist(), runs.weight_decay.tolist()) == ([0], [0.0], [0.0])


@pytest.mark.parametrize(
    "value",
    [
        2, 2.0, np.float32(2), np.array(2.0), xr.DataArray(2.0), [2.0], (2,), np.array([2]), iter([2.0]), range(2, 3),
    ],
)  # fmt: skip
def test_a_number_or_any_sequence_of_numbers_will_do(value: Any) -> None:
    assert ss.grid(eta_z=value, ratio=1).eta_z.tolist() == [2.0]


def test_seeds_keep_all_their_bits() -> None:
    runs = ss.grid(eta_z=1, ratio=1, seed=[MAX_SEED, MAX_SEED - 1, 0])
    assert runs.seed.dtype == np.int64
    assert runs.seed.tolist() == [2**63 - 1, 2**63 - 2, 0]


RATES = {"eta_z": 1.0, "ratio": 1.0}


@pytest.mark.parametrize(
    ("axes", "field"),
    [
        ({**RATES, "eta": 1}, "the run field 'eta'"), ({"ratio": 1}, ("eta_z", None)),
        ({"eta_z": 1}, "eta_y and ratio"), ({**RATES, "eta_y": 1}, "eta_y and ratio"),
        ({"eta_z": math.nan, "ratio": 1}, "eta_z"), ({"eta_z": [1, math.inf], "ratio": 1}, "eta_z"),
        ({"eta_z": -1, "ratio": 1}, "eta_z"), ({"eta_z": 1, "eta_y": -math.inf}, "eta_y"),
        ({"eta_z": 1, "ratio": 0}, "ratio"), ({"eta_z": 1, "ratio": math.inf}, "ratio"),
        ({"eta_z": 1e308, "ratio": 10}, "ratio · eta_z"), ({"eta_z": "1", "ratio": 1}, "eta_z"),
        ({"eta_z": True, "ratio": 1}, "eta_z"), ({"eta_z": [[1, 2]], "ratio": 1}, "eta_z"),
        ({"eta_z": [], "ratio": 1}, ("eta_z", "empty")), ({**RATES, "seed": range(0)}, ("seed", "empty")),
        ({**RATES, "seed": -1}, "seed"), ({**RATES, "seed": 2**63}, "seed"), ({**RATES, "seed": 1.0}, "seed"),
        ({**RATES, "seed": [0, None]}, "seed"), ({**RATES, "momentum": 1}, "momentum"),
        ({**RATES, "momentum": -0.1}, "momentum"), ({**RATES, "weight_decay": -0.1}, "weight_decay"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(axes: dict[str, Any], field: str) -> None:
    with refused(field):
        ss.grid(**axes)


@pytest.mark.parametrize("name", ["momentum", "weight_decay"])
def test_optimiser_constants_come_from_the_grid_or_from_the_call(name: str) -> None:
    filled = ss.grid(**RATES, seed=[0, 1]).filled(**{"momentum": None, "weight_decay": None, name: 0.25})
    assert getattr(filled, name).tolist() == [0.25, 0.25]
    named = ss.grid(**RATES, **{name: [0.5, 0.75]})
    assert getattr(named.filled(), name).tolist() == [0.5, 0.75]
    with refused(name, 0.25):
        named.filled(**{"momentum": None, "weight_decay": None, name: 0.25})


def test_a_constant_of_the_call_is_checked_too() -> None:
    with refused("momentum", 1.5):
        ss.grid(**RATES).filled(momentum=1.5)
    assert ss.grid(**RATES, momentum=0.9).filled(weight_decay=0.1).weight_decay.tolist() == [0.1]


def test_each_table_may_have_its_own_weight_decay() -> None:
    runs = ss.grid(**RATES, weight_decay_y=[0.0, 0.1], weight_decay_z=0.2)
    assert runs.weight_decay_y.tolist() == [0.0, 0.1]
    assert runs.weight_decay_z.tolist() == [0.2, 0.2]
    both = ss.grid(**RATES, weight_decay=[0.0, 0.1])
    assert both.weight_decay_y.tolist() == both.weight_decay_z.tolist() == [0.0, 0.1]
    with refused("weight_decay_y", 0.1):
        ss.grid(**RATES, weight_decay=0.1, weight_decay_y=0.1)
    with refused("weight_decay"):
        runs.filled(weight_decay=0.1)


def test_decay_of_one_table_leaves_the_other_alone() -> None:
    """Without learning (η = 0 but for decoupled decay's own rate) only the table with decay shrinks."""
    classes = ss.SequenceClasses.syn_small()
    common = {"eta_y": 0.1, "eta_z": 0.1, "steps": 3, "init": "uniform", "variables": ["y", "z"], "record": [0, 3]}
    plain, y_only, both = (ss.simulate(classes, **common, **decay) for decay in
                           ({}, {"weight_decay_y": 5.0}, {"weight_decay": 5.0}))  # fmt: skip

    def size(data, name):
        return float((data[name].isel(step=-1) ** 2).sum())

    assert size(y_only, "y") < 0.1 * size(plain, "y")
    assert size(y_only, "z") == pytest.approx(size(plain, "z"), rel=0.05)
    assert size(both, "z") < 0.1 * size(plain, "z")
    assert "weight_decay" not in y_only.coords
    assert (float(y_only.weight_decay_y[0]), float(y_only.weight_decay_z[0])) == (5.0, 0.0)
    assert float(both.weight_decay[0]) == 5.0
