"""Three-way agreement: who agrees with whom, until when, and that noise is not called parting."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import xarray as xr

from refusals import refused
from scansnap.claims import three_way as module
from scansnap.claims.three_way import divergence_times, three_way
from scansnap.classes import SequenceClasses
from scansnap.theory import u

CLOSED_FLOW, CLOSED_SGD, FLOW_SGD = "closed form – flow", "closed form – sgd", "flow – sgd"


@cache
def small(eta_y: float, eta_z: float, quiet: bool) -> xr.Dataset:
    noise = {"context": math.inf, "batch_size": None} if quiet else {"seeds": 3}
    return three_way(SequenceClasses.syn_small(), eta_y=eta_y, eta_z=eta_z, **noise)


def at(data: xr.Dataset, variable: str, quantity: str, pair: str) -> float:
    return float(data[variable].sel(quantity=quantity, pair=pair))


# --- the three curves --------------------------------------------------------------------------------------------


def test_one_table_with_three_sources():
    data = small(0.9, 0.02, False)
    assert list(data.source.values) == ["closed form", "flow", "sgd"]
    assert data.t.values[0] == 0
    assert data.t.values[-1] == math.ceil(10 * data.t_snap)
    for name in ("gap", "growth", "logit"):
        assert data[name].dims == data[f"{name}_error"].dims == ("t", "source")
        assert (data[name].sel(source=["flow", "sgd"]) * 0 == 0).all()
        assert (data[f"{name}_error"].sel(source=["closed form", "flow"]) == 0).all()
        assert (data[f"{name}_error"].sel(source="sgd").values[2:] > 0).all()
    assert data.logit.sel(source="closed form").isnull().all()
    expected = u(data.t.values / 2, eta_y=0.9, vocab_size=34)
    np.testing.assert_allclose(data.gap.sel(source="closed form"), expected)


def test_the_gap_agrees_three_ways():
    """On Syn-Small, with cosine 0.72 between the classes, to 10% all the way."""
    found = divergence_times(small(0.9, 0.02, False))
    assert found.compared.sel(quantity="gap").all()
    assert found.divergence_t.sel(quantity="gap").isnull().all()
    assert at(found, "largest", "gap", CLOSED_FLOW) == pytest.approx(0.034, abs=0.003)


def test_growth_parts_from_the_closed_form_before_the_transition():
    """Theorem 4 takes C₀ from the earliest times and ξ/γ does not stay there."""
    data = small(0.9, 0.02, False)
    found = divergence_times(data)
    for pair in (CLOSED_FLOW, CLOSED_SGD):
        assert at(found, "divergence_t", "growth", pair) < 0.6 * data.t_snap
        assert at(found, "final", "growth", pair) > 0.9
    assert not found.compared.sel(quantity="logit", pair=CLOSED_FLOW)
    assert np.isnan(at(found, "divergence_t", "logit", CLOSED_FLOW))


def test_sgd_meets_the_flow_again():
    """The first steps of SGD lag; at the end noise, T = 128 and the step size leave 5%."""
    found = divergence_times(small(0.9, 0.02, False))
    assert at(found, "divergence_t", "growth", FLOW_SGD) < 10
    assert at(found, "final", "growth", FLOW_SGD) < 0.05
    assert at(found, "final", "logit", FLOW_SGD) < 0.05


def test_small_steps_without_noise_never_part_from_the_flow():
    data = small(0.1, 0.002, True)
    assert data.seeds == 1
    assert (data.growth_error == 0).all()
    found = divergence_times(data)
    assert found.divergence_t.sel(pair=FLOW_SGD).isnull().all()
    assert found.largest.sel(pair=FLOW_SGD).max() == pytest.approx(0.024, abs=0.01)
    # the difference is the step size: a tenth of the rates, a tenth of it
    assert float(found.final.sel(pair=FLOW_SGD).max()) < 0.005


def test_steps_nine_times_as_large_do():
    slow, fast = (divergence_times(small(c * 0.1, c * 0.002, True)) for c in (1, 9))
    assert at(fast, "divergence_t", "growth", FLOW_SGD) < 10
    assert at(fast, "largest", "growth", FLOW_SGD) > 5 * at(slow, "largest", "growth", FLOW_SGD)


# --- when they part ----------------------------------------------------------------------------------------------


def made(error: float = 0.0, jump: float = 1.3) -> xr.Dataset:
    """Two curves that agree up to t = 100, and a third that leaves there."""
    t = np.arange(0, 201.0, 10)
    curve = np.sqrt(t)
    sgd = np.where(t > 100, jump, 1.0) * curve
    growth = np.stack([curve, curve, sgd], -1)
    errors = np.zeros_like(growth)
    errors[:, 2] = error
    return xr.Dataset(
        {"growth": (("t", "source"), growth), "growth_error": (("t", "source"), errors)},
        {"t": t, "source": list(module.SOURCES)},
    )


def test_the_first_time_of_a_difference():
    found = divergence_times(made())
    assert np.isnan(at(found, "divergence_t", "growth", CLOSED_FLOW))
    assert at(found, "divergence_t", "growth", FLOW_SGD) == 110
    assert at(found, "largest", "growth", FLOW_SGD) == pytest.approx(0.3 / 1.3)
    assert np.isnan(at(divergence_times(made(), tolerance=0.5), "divergence_t", "growth", FLOW_SGD))


def test_noise_is_not_parting():
    assert np.isnan(at(divergence_times(made(error=2.0)), "divergence_t", "growth", FLOW_SGD))
    assert at(divergence_times(made(error=0.3)), "divergence_t", "growth", FLOW_SGD) == 110


def test_what_is_not_a_number_is_parting():
    data = made(jump=1.0)
    data["growth"][5, 2] = np.nan
    found = divergence_times(data)
    assert at(found, "divergence_t", "growth", FLOW_SGD) == 50
    assert at(found, "largest", "growth", FLOW_SGD) == np.inf
    data["growth"][5, 2] = np.inf
    assert at(divergence_times(data), "divergence_t", "growth", FLOW_SGD) == 50


def test_nothing_that_moves_does_not_part():
    found = divergence_times(made() * 0)
    assert found.compared.all()
    assert found.divergence_t.isnull().all()
    assert (found.largest == 0).all()


# --- other settings ----------------------------------------------------------------------------------------------


def test_classes_without_distinct_tokens_have_a_gap_only():
    classes = SequenceClasses([[0.5, 0.5, 0, 0, 0], [0.2, 0.8, 0, 0, 0]], query=[2, 2], next_token=[3, 4])
    data = three_way(classes, eta_y=0.5, eta_z=0.05, context=math.inf, batch_size=None, t_end=30)
    assert set(data.data_vars) == {"gap", "gap_error"}
    assert divergence_times(data).sizes["quantity"] == 1


def test_one_class_does_not_grow():
    classes = SequenceClasses([[0.5, 0.3, 0.2, 0, 0]], query=[3], next_token=[4])
    data = three_way(classes, eta_y=0.5, eta_z=0.05, context=math.inf, batch_size=None, t_end=30)
    assert np.abs(data.growth).max() < 1e-9
    assert np.isfinite(data.growth).all()


def test_where_every_output_is_right_for_some_class_there_is_no_gap():
    classes = SequenceClasses([[0.5, 0.5, 0], [0.5, 0, 0.5], [0.3, 0.4, 0.3]], [0, 0, 0], [0, 1, 2])
    data = three_way(classes, eta_y=0.5, eta_z=0.05, context=math.inf, batch_size=None, t_end=10)
    assert "gap" not in data


@pytest.mark.parametrize(
    ("change", "field"),
    [({"seeds": 1}, "seeds"), ({"eta_y": 0}, "eta_y"), ({"eta_z": -1.0}, "eta_z"), ({"t_end": 0}, "t_end")],
)
def test_bad_input_is_named(change, field):
    with refused(field):
        three_way(SequenceClasses.syn_small(), **{"eta_y": 1.0, "eta_z": 0.1, **change})


def test_parting_times_wants_what_three_way_returns():
    with refused("data", "with loss", names="three_way"):
        divergence_times(xr.Dataset({"loss": ("t", [1.0])}))
    with refused("tolerance"):
        divergence_times(made(), tolerance=0)
