from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap.checks.memory import format_bytes, parse_memory
from scansnap.sweep.config import from_table
from scansnap.sweep.plan import SweepPlan, inspect_class_sets, make_plan
from scansnap.sweep.run import prepare

TABLE = {
    "classes": {"preset": "syn-medium", "n_queries": [1, 10]},
    "grid": {"eta_z": [0.5, 1], "ratio": [1, 2, 5], "seed": "0:50"},
    "run": {"steps": 20, "init": "uniform", "record": [20]},
}


def plan_of(table, memory=10**10):
    sweep = from_table(table)
    class_sets = inspect_class_sets(sweep, "cpu", memory)
    return make_plan(sweep, class_sets, memory, "cpu"), class_sets


def test_groups_cover_every_run_once():
    plan, _ = plan_of(TABLE | {"groups": {"runs": 70}})
    assert plan.sizes == (60, 60)  # 5 nearly equal groups rather than 4 of 70 and one of 20
    groups = list(plan.groups())
    assert len(groups) == len(plan) == 10
    for s in (0, 1):
        actual = [g for g in groups if g.class_set == s]
        assert [g.chunk for g in actual] == list(range(5))
        assert actual[0].start == 0
        assert actual[-1].stop == 300
        assert all(a.stop == b.start for a, b in pairwise(actual))
    assert SweepPlan.from_json(plan.to_json()) == plan


def test_memory_decides_how_large_groups_are():
    table = TABLE | {"run": TABLE["run"] | {"variables": ["attention"], "record": "all"}}
    large, class_sets = plan_of(table)
    small, _ = plan_of(table, memory=200_000_000)
    assert small.sizes[1] < large.sizes[1]
    assert small.sizes[1] < small.sizes[0]  # more tokens, larger runs
    for cost, size in zip(class_sets.costs, small.sizes, strict=True):
        assert cost.bytes(size) <= 200_000_000
        assert np.all(np.diff([cost.bytes(n) for n in (1, 2, 10, 100, 1000)]) > 0)
    with refused("--memory", "1 MB"):
        plan_of(table, memory=10**6)


def test_a_run_too_large_is_refused_before_one_is_made(monkeypatch):
    monkeypatch.setattr("scansnap.sweep.schema.simulate", None)
    huge = {"preset": "synthetic", "n_queries": 5000}
    with refused("--memory", "10 GB", names="class set 0"):
        plan_of(TABLE | {"classes": huge, "run": {"variables": ["loss"], "record": [100]}})


def test_recording_and_optimiser_buffers_count():
    plain = plan_of(TABLE)[1].costs[1]
    adam = plan_of(TABLE | {"run": TABLE["run"] | {"optimizer": "adam"}})[1].costs[1]
    classes = ss.SequenceClasses.syn_medium(10)
    table = classes.vocab_size * 4 * (210 + 10)  # a buffer more for Y (210 rows in use) and Z (10 queries)
    assert adam.run_bytes - plain.run_bytes == 3 * table
    more = plan_of(TABLE | {"run": TABLE["run"] | {"variables": ["attention"]}})[1].costs[1]
    assert more.run_bytes > plain.run_bytes + 3 * 20 * classes.vocab_size * 4


def test_a_hundred_thousand_runs_are_planned_without_listing_them(tmp_path):
    table = TABLE | {"grid": {"eta_z": [0.5, 1, 2, 3], "ratio": [1, 2, 5, 10, 20], "seed": "0:5000"}}
    ready = prepare(from_table(table), tmp_path / "x.zarr")
    ready.store.create(replaces=False)
    assert len(ready.store.missing()) == len(ready.plan) < 1000
    assert len(ready.sweep) == 200_000


def test_what_a_measure_refuses_is_refused_before_the_start():
    with refused("step", 1, names="8"):
        plan_of(TABLE | {"run": {"record": [0, 5]}, "measure": {"snap_time": {}}})
    with refused("k", 100):
        plan_of(TABLE | {"measure": {"top_mass": {"k": 100}}})
    with refused("drop_time in [measure]", "drop_time"):
        plan_of(TABLE | {"run": {"record": [0, 5]}, "measure": {"scan_order": {}, "drop_time": {"function": "recall"}}})


@pytest.mark.parametrize(("text", "n"), [("4GB", 4 * 10**9), ("500 mb", 5 * 10**8), ("2GiB", 2**31), ("1000", 1000)])
def test_memory_words(text, n):
    assert parse_memory(text) == n


@pytest.mark.parametrize("text", ["", "many", "-4GB", "0", "4 PB", "9" * 60, "9" * 400 + "TB"])
def test_bad_memory_words(text):
    with refused("--memory"):
        parse_memory(text)


def test_in_words():
    assert [format_bytes(n) for n in (12, 4.2e9, 5e5, 2e13)] == ["12 B", "4.2 GB", "500 kB", "20 TB"]
