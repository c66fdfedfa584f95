"""A live run is the simulation, stopped and looked at: the same numbers to the last bit."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.evidence import from_trajectory
from scansnap.explorer.live.film import EVERY_UNTIL, Film, next_scheduled
from scansnap.explorer.live.run import LiveRun
from scansnap.explorer.setups.read import read_setup

SMALL: dict[str, Any] = {"classes": {"preset": "syn-small"}, "steps": 90}
SETUPS: dict[str, dict[str, Any]] = {
    "small": {**SMALL, "momentum": 0.9},
    "uniform start": {
        "classes": {"preset": "syn-medium", "n_queries": 2},
        "steps": 90,
        "init": "uniform",
        "eta_y": 2.0,
    },
    "adam": {**SMALL, "optimizer": "adam", "momentum": 0.0, "eta_y": 0.1, "eta_z": 0.1},
    "population": {**SMALL, "context": "inf", "batch_size": None, "dtype": "float64"},
    "residual, heads": {**SMALL, "residual": "normed", "heads": 2, "init": "uniform", "momentum": 0.0},
}


def run_to_end(live: LiveRun, chunk: int = 10**9) -> LiveRun:
    while not live.over:
        live.advance(chunk)
    return live


def fields(live: LiveRun) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    steps, rows = live.film.after(-1)
    return steps, {f["name"]: rows[:, f["offset"] : f["offset"] + f["size"]] for f in live.layout()["fields"]}


def simulated(live: LiveRun, steps: Any, **more: Any) -> Any:
    setup = {k: v for k, v in live.blueprint.setup.items() if k != "classes"}
    if setup["context"] == "inf":
        setup["context"] = math.inf
    return ss.simulate(live.classes, record=[int(s) for s in steps], device="cpu", **setup, **more).isel(run=0)


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("chunk", [10**9, 7])
def test_frames_are_what_simulate_records(name: str, chunk: int) -> None:
    live = LiveRun(read_setup(SETUPS[name]))
    run_to_end(live, chunk)
    steps, seen = fields(live)
    assert steps[0] == 0
    assert steps[-1] == 90
    data = simulated(live, steps)
    layout = live.layout()
    np.testing.assert_array_equal(seen["loss"][:, 0], data.loss.values.astype(np.float32))
    np.testing.assert_array_equal(seen["entropy"], data.entropy.values.astype(np.float32))
    expected = [data.attention.values[:, n, tokens] for n, tokens in enumerate(layout["tokens"])]
    np.testing.assert_array_equal(seen["attention"], np.concatenate(expected, axis=1).astype(np.float32))
    z = data.z.mean("head").values if "head" in data.dims else data.z.values
    expected = [z[:, q, tokens] for q, tokens in enumerate(layout["query_tokens"])]
    np.testing.assert_allclose(seen["z"], np.concatenate(expected, axis=1).astype(np.float32), atol=1e-7, rtol=0)
    if "head" not in data.dims:
        np.testing.assert_array_equal(seen["z"], np.concatenate(expected, axis=1).astype(np.float32))


def test_measured_growth_is_that_of_theorem_3() -> None:
    live = run_to_end(LiveRun(read_setup(SETUPS["small"])))
    steps, seen = fields(live)
    data = simulated(live, steps).expand_dims("run")
    evidence = from_trajectory(data, live.classes)
    np.testing.assert_allclose(seen["growth"], evidence.measured_growth, rtol=1e-4, atol=1e-5)
    z = evidence.z
    np.testing.assert_allclose(seen["log_chi"][:, 0], 2 * (z[:, 0, 19] - z[0, 0, 19]), rtol=1e-5, atol=1e-7)


def test_growth_does_not_depend_on_how_often_one_looks() -> None:
    setup = {**SMALL, "steps": 300}
    plain, watched = LiveRun(read_setup(setup)), LiveRun(read_setup(setup))
    run_to_end(plain)
    while not watched.over:
        watched.advance(1)
        watched.record()
    steps, seen = fields(plain)
    _, more = fields(watched)
    np.testing.assert_array_equal(seen["growth"], more["growth"][steps])


def test_rates_changed_on_the_way_are_new_rates_with_the_same_state() -> None:
    live, other = (LiveRun(read_setup({**SMALL, "momentum": 0.9})) for _ in range(2))
    for run in (live, other):
        while run.step < 30:
            run.advance(30 - run.step)
    live.change(None, 1.0)
    assert live.marks == [], "the same rates are no change"
    live.change(None, 0.0)
    assert live.marks == [{"step": 30, "eta_y": 1.0, "eta_z": 0.0}]
    run_to_end(live)
    run_to_end(other)
    steps, seen = fields(live)
    _, without = fields(other)
    np.testing.assert_array_equal(seen["z"][:31], without["z"][:31])
    frozen = seen["z"][steps > 32]
    assert (frozen == frozen[0]).all(), "with η_Z = 0 attention stops"
    assert not np.array_equal(frozen[0], without["z"][40])


def test_reset_and_extend_give_the_same_numbers_again() -> None:
    live = LiveRun(read_setup({**SMALL, "steps": 40}))
    run_to_end(live)
    live.extend(90)
    run_to_end(live)
    _, first = fields(live)
    live.change(5.0, None)
    live.reset()
    assert (live.step, live.marks, live.eta) == (0, [], (1.0, 1.0))
    run_to_end(live)
    _, second = fields(live)
    np.testing.assert_array_equal(first["z"][-1], second["z"][-1])


def test_a_run_that_leaves_the_float_range_fails_in_the_open() -> None:
    live = LiveRun(read_setup({**SMALL, "init": "uniform", "eta_y": 1e4, "eta_z": 1e4, "weight_decay": 10.0}))
    run_to_end(live)
    assert live.failed_step is not None
    assert live.failed_step < 20
    assert live.advance(5) == 0
    assert all(np.isfinite(row[0]) for row in live.film.rows)


def test_scheduled_steps_are_dense_first_and_then_every_two_percent() -> None:
    at, steps = 0, [0]
    while at < 10**6:
        at = next_scheduled(at)
        steps.append(at)
    assert steps[: EVERY_UNTIL + 1] == list(range(EVERY_UNTIL + 1))
    assert len(steps) < 800
    assert all(b <= 1.02 * a + 1 for a, b in pairwise(steps))


def test_a_film_stays_within_its_bytes_and_keeps_both_ends() -> None:
    film = Film(4000)
    for step in range(5000):
        film.add(step, np.full(10, step, dtype=np.float32))
        assert len(film.rows) * 40 <= 4000
        assert film.steps[0] == 0
        assert film.steps[-1] == step
    assert len(film.rows) >= 30
    steps, rows = film.after(100)
    assert steps[0] > 100
    np.testing.assert_array_equal(rows[:, 0], steps)


def test_a_table_of_an_earlier_step_is_the_nearest_that_is_kept() -> None:
    live = run_to_end(LiveRun(read_setup(SMALL)))
    kept = live.tables.steps
    assert 40 in kept
    assert kept[-1] == 90, "the last one, whatever the schedule"
    step, values = live.table_y(64, 40)
    assert step == 40
    full = simulated(live, [40], variables=("y",)).y.values[0][:30][:, [32, 33, 0]]
    np.testing.assert_array_equal(values[-full.size :].reshape(full.shape), full)
    between = next(i for i in range(90) if i not in kept)
    assert live.table_y(64, between)[0] == min(kept, key=lambda at: abs(at - between))
    assert live.table_y(64, 10**6)[0] == 90
    live.tables.steps.clear()  # as where they are too large to keep
    assert live.table_y(64, 40)[0] == 90


@pytest.mark.parametrize("size", [8, 64])
def test_table_y_is_y(size: int) -> None:
    live = run_to_end(LiveRun(read_setup(SMALL)))
    step, values = live.table_y(size)
    assert step == 90
    rows, columns = int(values[0]), int(values[1])
    y = values[2 + rows + columns :].reshape(rows, columns)
    assert (rows, columns) == (min(size, 30), 3)
    assert values[2 + rows + columns - 1] == -1, "the last column stands for all tokens that are never next"
    full = simulated(live, [90], variables=("y",)).y.values[0][:30][:, [32, 33, 0]]
    if size == 64:
        np.testing.assert_array_equal(y, full)
    else:
        starts = values[2 : 2 + rows].astype(int)
        blocks = [full[a:b].mean(0) for a, b in zip(starts, [*starts[1:], 30], strict=True)]
        np.testing.assert_allclose(y, blocks, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chunk", [10**9, 7])
def test_changes_of_the_rates_known_beforehand_come_at_their_steps(chunk: int) -> None:
    marks = [{"step": 30, "eta_y": 1.0, "eta_z": 0.0}, {"step": 61, "eta_y": 2.0, "eta_z": 0.5}]
    known = run_to_end(LiveRun(read_setup(SMALL), marks), chunk)
    made = LiveRun(read_setup(SMALL))
    for mark in marks:
        while made.step < mark["step"]:
            made.advance(mark["step"] - made.step)
        made.change(mark["eta_y"], mark["eta_z"])
    run_to_end(made)
    assert known.marks == made.marks == marks
    assert known.film.steps == made.film.steps
    np.testing.assert_array_equal(np.array(known.film.rows), np.array(made.film.rows))
    known.reset()
    assert (known.marks, known.eta) == ([], (1.0, 1.0))
    run_to_end(known)
    assert known.marks == [], "reset takes them back"
