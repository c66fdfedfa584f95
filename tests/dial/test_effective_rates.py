"""Effective rates: those of the YZ model are its rates, and components with other kernels are tuned to them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dial import model, study
from scansnap.dial.cells import Cell, run_cell, train_cell
from scansnap.dial.components import Flags, flags_of
from scansnap.dial.data import Task
from scansnap.dial.rate_matching import (
    MOST_OFF,
    TENTH_T0,
    StudySettings,
    _crossings,
    _Search,
    match_loss,
    match_rates,
    measure_rates,
)

CPU, DOUBLE = torch.device("cpu"), torch.float64
SHORT = StudySettings((1.0, 10.0), seeds=2, context=24, end=2)


def task(flags: Flags, data: str = "syn-medium") -> Task:
    return Task(flags, data, CPU, DOUBLE, 24)


@pytest.mark.parametrize("flags", [Flags(), Flags(residual=True), Flags(norm="none"), Flags(shared_next=True)])
def test_the_effective_rate_of_z_is_its_rate(flags: Flags) -> None:
    eta = {"y": np.array([0.7, 2.0]), "z": np.array([0.3, 1.5])}
    rates = measure_rates(flags, task(flags), "sgd", np.arange(2), eta, 4, 100)
    np.testing.assert_allclose(rates["z"], eta["z"], rtol=1e-9)


def test_the_effective_rate_of_y_is_its_rate_in_the_yz_model_and_not_with_a_smaller_f() -> None:
    eta = {"y": np.array([0.7, 2.0]), "z": np.array([0.3, 1.5])}
    np.testing.assert_allclose(measure_rates(Flags(), task(Flags()), "sgd", np.arange(2), eta, 4, 100)["y"], eta["y"])
    none = measure_rates(Flags(norm="none"), task(Flags()), "sgd", np.arange(2), eta, 4, 100)["y"]
    classes = ss.SequenceClasses.syn_medium(n_queries=3)
    share = (classes.p_context**2).sum(1)[0]  # ‖c‖² of an attention that has hardly moved
    np.testing.assert_allclose(none, share * eta["y"], rtol=0.05)


@pytest.mark.parametrize("flags", [Flags(norm="none"), Flags(norm="layernorm"), Flags(width=32), Flags(finite=True),
                                   Flags(finite=True, every_position=True), Flags(heads=2)], ids=str)  # fmt: skip
def test_rates_are_tuned_to_the_same_effective_ones(flags: Flags) -> None:
    rates = match_rates(flags, task(flags), "sgd", SHORT, 100)
    assert rates.kind == "kernel"
    np.testing.assert_allclose(rates.effective["y"], SHORT.eta_y, rtol=0.1)
    np.testing.assert_allclose(rates.effective["z"], SHORT.eta_y / np.array(SHORT.ratios), rtol=0.1)


def test_nominal_rates_of_equal_effective_ones_differ() -> None:
    """So nominal rates cannot be given."""
    nominal = [
        match_rates(flags, task(flags), "sgd", SHORT, 100).eta["y"][0] for flags in (Flags(), Flags(norm="none"))
    ]
    assert nominal[1] > 10 * nominal[0]
    names = {*inspect.signature(study.run_dial).parameters, *inspect.signature(StudySettings).parameters}
    assert not names & {"lr", "eta", "eta_z", "rate", "rates", "learning_rate"}


def test_momentum_divides_the_rates() -> None:
    plain, carried = (match_rates(Flags(), task(Flags()), name, SHORT, 100) for name in ("sgd", "momentum"))
    np.testing.assert_allclose(carried.eta["y"], 0.1 * plain.eta["y"])


def test_decay_plays_no_part_in_matching() -> None:
    with_decay, without = (
        match_rates(Flags(decay=decay), task(Flags()), "sgd", SHORT, 100) for decay in ("both", "none")
    )
    np.testing.assert_allclose(with_decay.eta["z"], without.eta["z"])


@pytest.mark.parametrize("optimizer", ["adamw", "sign"])
def test_the_loss_is_at_a_tenth_at_the_fixed_step(optimizer: str) -> None:
    rates = match_loss(Flags(), task(Flags()), optimizer, SHORT, 100)
    assert (rates.loss_step <= SHORT.loss_step).all()
    assert (rates.loss_step >= 0.8 * SHORT.loss_step).all()
    np.testing.assert_allclose(rates.eta["y"] / rates.eta["z"], SHORT.ratios)


def test_a_tenth_that_comes_too_early_is_looked_at_more_closely(monkeypatch) -> None:
    """Between two rates of the second round the loss of this model drops all at once: a third one finds where."""
    flags, setting = flags_of("embedding", "cumulative"), StudySettings((1.0,), 2, loss_step=30, context=24)
    asked = []
    monkeypatch.setattr(
        "scansnap.dial.rate_matching._crossings", lambda *given: asked.append(given) or _crossings(*given)
    )
    rates = match_loss(flags, Task(flags, "syn-medium", CPU, torch.float32, 24), "adamw", setting, 692)
    assert 2 <= len(asked) <= 3
    assert rates.met.all()
    assert setting.loss_step / (1 + MOST_OFF) <= rates.loss_step <= setting.loss_step


def test_the_share_of_t0_is_that_of_the_yz_model() -> None:
    _, trajectory = train_cell(Cell("yz", "single", "sgd"), StudySettings((10.0,), 2, eta_y=1.0, end=2), device="cpu")
    loss, step = trajectory.data.loss.values.mean(0), trajectory.data.step.values
    when = np.interp(-0.1 * loss[0], -loss, step) / trajectory.t0
    assert when == pytest.approx(TENTH_T0, abs=0.05)


def test_rates_with_which_nothing_trains_are_reported(monkeypatch) -> None:
    """Where no rate brings the loss to a tenth at the wanted step, no observable of the cell has a verdict."""
    monkeypatch.setattr("scansnap.dial.rate_matching.TENTH", -1.0)
    setting = StudySettings((10.0,), 2, loss_step=3, end=20, context=24)
    cell = run_cell(Cell("finite", "single", "adamw"), setting, device="cpu")
    assert {row["verdict"] for row in cell["observables"]} == {"no rates"}
    assert cell["trains"] == [False]


def test_rates_that_are_far_off_are_reported() -> None:
    """Where effective rates are not those asked for by more than a quarter, the cell is no comparison and says so."""
    setting = StudySettings((10.0,), 2, end=12, context=24)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scansnap.dial.rate_matching._ROUNDS", 1)  # as far as the first guess goes: too slow by much
        rates = match_rates(Flags(separate=True), task(Flags(separate=True)), "sgd", setting, 100)
        off = np.abs(np.log(rates.effective["z"] / 0.4)).max()
        assert off > np.log(1 + MOST_OFF)
        cell = run_cell(Cell("separate", "single", "sgd"), setting, device="cpu")
    assert (cell["met"], cell["trains"]) == ([False], [True])
    assert {row["verdict"] for row in cell["observables"]} <= {"rates not matched", "diverged"}
    assert match_rates(Flags(separate=True), task(Flags(separate=True)), "sgd", setting, 100).met.all()


@pytest.mark.parametrize("component", ["embedding", "residual", "heads"])
def test_rates_match_without_norms_too(component: str) -> None:
    """Cumulative models at the edge of stability, which a plain correction of the rates steps over and back again."""
    flags = flags_of(component, "cumulative")
    setting = StudySettings((10.0,), 2, context=24)
    rates = match_rates(flags, Task(flags, "syn-medium", CPU, torch.float32, 24), "sgd", setting, 394)
    assert rates.met.all()
    np.testing.assert_allclose(rates.effective["y"], 4.0, rtol=MOST_OFF)
    np.testing.assert_allclose(rates.effective["z"], 0.4, rtol=MOST_OFF)


@pytest.mark.parametrize("steep", [0.5, 1.0, 3.0])
def test_a_rate_is_found_between_too_slow_and_too_fast(steep: float) -> None:
    """ln η_eff = s ln η, non-finite above a limit: found within a few tries whatever the slope."""
    search = _Search(4.0)
    for _ in range(10):
        off = -2.0 if search.x > 3 else 1.0 - steep * search.x
        search.update(off)
    assert steep * search.x == pytest.approx(1.0, abs=0.05)


def test_a_plateau_is_reported(monkeypatch) -> None:
    """Where W_Q and W_K start near 0 the effective rate of attention does too, and grows."""
    flags = Flags(separate=True, width=32)
    monkeypatch.setattr(model, "shapes", lambda *given: _small(*given))
    assert (match_rates(flags, task(flags), "sgd", SHORT, 100).plateau < 0.5).all()
    assert match_rates(Flags(), task(Flags()), "sgd", SHORT, 100).plateau == pytest.approx(1.0, rel=1e-6)


def _small(*given, shapes=model.shapes):
    return {name: (shape, 1e-3 if name in ("w_q", "w_k") else scale) for name, (shape, scale) in shapes(*given).items()}
