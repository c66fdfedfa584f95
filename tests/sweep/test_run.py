from __future__ import annotations

import errno
import json
import sys

import numpy as np
import pytest
import xarray as xr
from sweeps import SMALL, contents, marks, write

import scansnap as ss
from refusals import refused
from scansnap.checks import InputError
from scansnap.cli.sweep import sweep as command
from scansnap.storage.objects import Folder
from scansnap.sweep import backends, store, template
from scansnap.sweep.config import read
from scansnap.sweep.run import prepare, run
from scansnap.sweep.store import RegionWriter

OPTIONS = {"endpoint": None, "engine": "local", "address": None, "cpus": 1, "gpus": 0.0, "memory": None,
           "device": "cpu", "resume": False, "overwrite": False, "dry_run": False, "as_json": False}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted sweep: its store."""
    folder = tmp_path_factory.mktemp("whole")
    outcome = run(prepare(read(write(folder)), folder / "s.zarr", device="cpu"))
    assert outcome.complete
    return folder / "s.zarr"


def test_the_numbers_are_those_of_simulate(whole):
    root = xr.open_zarr(whole)
    runs = ss.grid(seed=range(3), eta_z=[0.5, 1], ratio=[1, 2, 5])
    for s, q in enumerate((1, 2)):
        classes = ss.SequenceClasses.syn_medium(q)
        expected = ss.simulate(classes, runs, steps=6, batch_size=16, context=32, momentum=0.9, init="uniform",
                               record=[0, 3, 6], device="cpu")  # fmt: skip
        data = ss.load(whole / f"classes-{s}.zarr")
        for name in (
            "loss",
            "entropy",
            "z",
            "eta_y",
            "eta_z",
            "seed",
            "ratio",
            "momentum",
            "failed_step",
            "class_query",
        ):
            np.testing.assert_array_equal(data[name].values, expected[name].values)
            assert data[name].dims == expected[name].dims
        assert (data.status == "ok").all()
        assert data.attrs["complete"] == 1
        np.testing.assert_array_equal(data.recall, ss.measure.recall(expected.attention, classes))
        part = root.isel(run=root.n_queries == q)
        np.testing.assert_array_equal(part.run, data.run)
        np.testing.assert_array_equal(part.loss, expected.loss)
        np.testing.assert_allclose(part.entropy, expected.entropy.mean("seq_class"), rtol=1e-6)
        np.testing.assert_array_equal(part.class_set, s)
    assert root.done.all()
    assert "z" not in root  # its size differs between the class sets


@pytest.mark.integration
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_numbers_do_not_depend_on_the_grouping(tmp_path, optimizer):
    text = SMALL.replace("momentum = 0.9", f'optimizer = "{optimizer}"')
    text = text.replace("record = [0, 3, 6]", 'record = "all"').replace("steps = 6", "steps = 9")
    text = (
        text.replace("0:3", "0:2")
        .replace("[1, 2]", "2")
        .replace("[measure]", "[measure]\nsnap_time = { resamples = 50 }")
    )
    stores = []
    for n in (1, 5, 100):
        path = tmp_path / f"{n}.zarr"
        ready = prepare(read(write(tmp_path, text.replace("runs = 4", f"runs = {n}"))), path, device="cpu")
        assert ready.plan.sizes == ({1: 1, 5: 4, 100: 12}[n],)
        assert run(ready).complete
        stores.append(path)
    for name in ("", "classes-0.zarr"):
        first, *others = (xr.open_zarr(path / name) for path in stores)
        for other in others:
            xr.testing.assert_equal(first, other)
    assert "t_snap" in first


@pytest.mark.parametrize(
    ("module", "function", "call"),
    [(backends, "run_group", 4), (RegionWriter, "_array", 18), (RegionWriter, "_array", 24)],
    ids=["in a run", "before a chunk", "before the marker"],
)
def test_stopped_anywhere_and_resumed_it_is_the_same_store(tmp_path, whole, monkeypatch, module, function, call):
    """KeyboardInterrupt stands for whatever ends a process; leftovers of a killed one are put there by hand."""
    path, calls, original = tmp_path / "s.zarr", 0, getattr(module, function)

    def interrupted(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls >= call:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    ready = prepare(read(write(tmp_path)), path, device="cpu")
    monkeypatch.setattr(module, function, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(ready)
    monkeypatch.undo()
    assert 0 < marks(path) < len(ready.plan)
    partial = xr.open_zarr(path / "classes-0.zarr")
    assert not partial.done.all()
    assert not np.isnan(partial.loss.values[partial.done.values]).any()
    (path / "classes-0.zarr/z/c/4/0/0").mkdir(parents=True)
    (path / "classes-0.zarr/z/c/4/0/0/0").write_bytes(b"half")
    (path / "classes-0.zarr/done/c/4").write_bytes(b"")  # a mark that lost its content
    (path / "loss/c/0").mkdir(parents=True)
    outcome = run(prepare(read(write(tmp_path)), path, resume=True))
    assert outcome.complete
    assert 0 < outcome.skipped < outcome.n_runs
    assert outcome.skipped + outcome.finished == outcome.n_runs
    assert contents(path) == contents(whole)


def test_a_group_that_raises_is_reported_and_tried_again(tmp_path, whole, monkeypatch, capsys):
    original = backends.run_group

    def raising(job, classes, start, stop, progress=None):
        if start == 4 and classes.n_classes == 4:
            raise MemoryError("no room for [this] group")
        return original(job, classes, start, stop, progress)

    monkeypatch.setattr(backends, "run_group", raising)
    file, path = write(tmp_path), tmp_path / "s.zarr"
    assert command(file, target=path, **(OPTIONS | {"as_json": True})) == 1
    messages = capsys.readouterr()
    assert "runs 4 to 7 of class set 1: MemoryError: no room for [this] group" in " ".join(messages.err.split())
    report = json.loads(messages.out)
    assert report["complete"] is False
    assert report["finished_runs"] == 32
    root = xr.open_zarr(path)
    assert root.done.values.sum() == 32
    assert np.isnan(root.loss.values[~root.done.values]).all()
    monkeypatch.undo()
    assert command(file, target=path, **(OPTIONS | {"resume": True})) == 0
    assert "4 of 36 runs" in capsys.readouterr().out
    assert contents(path) == contents(whole)
    assert command(file, target=path, **(OPTIONS | {"resume": True})) == 0  # nothing left to do
    assert contents(path) == contents(whole)


def test_a_full_disk_is_one_sentence_and_resumable(tmp_path, whole, monkeypatch, capsys):
    original, room = Folder._put, 60

    def full(self, target, content):
        nonlocal room
        if "/c/" in str(target):
            room -= 1
            if room < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        original(self, target, content)

    file, path = write(tmp_path), tmp_path / "s.zarr"
    monkeypatch.setattr(Folder, "_put", full)
    assert command(file, target=path, **OPTIONS) == 1
    monkeypatch.undo()
    messages = " ".join(capsys.readouterr().err.split())
    assert "No space left on device" in messages
    assert "--resume" in messages
    assert 0 < marks(path) < 10
    assert command(file, target=path, **(OPTIONS | {"resume": True})) == 0
    assert contents(path) == contents(whole)


def test_refusals(tmp_path, whole):
    file = write(tmp_path)
    with refused("--out", names=("--resume", "--overwrite")):
        prepare(read(file), whole)
    with refused("sweep file", "[grid], [run]"):
        prepare(read(write(tmp_path, **{"0:3": "0:4", "steps = 6": "steps = 7"})), whole, resume=True)
    with refused("--memory"):
        prepare(read(write(tmp_path)), whole, resume=True, memory="1GB")
    with refused("--out", names="scansnap sweep 3"):
        prepare(read(file), whole / "classes-0.zarr", resume=True)
    with refused("--out", names=".zarr"):
        prepare(read(file), tmp_path / "s.nc")
    (tmp_path / "file").touch()
    with refused("--out"):
        prepare(read(file), tmp_path / "file" / "s.zarr")
    with refused("measure", "recal"):
        prepare(read(write(tmp_path, recall="recal")), tmp_path / "s.zarr")
    for change in ({"engine": "slurm"}, {"address": "auto"}, {"resume": True, "overwrite": True}):
        with pytest.raises(InputError):
            command(file, target=tmp_path / "s.zarr", **(OPTIONS | change))
    assert {place.name for place in tmp_path.iterdir()} == {"sweep.toml", "file"}


def test_without_zarr_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with refused("--out", names=("Zarr", "pip install scansnap")):
        prepare(read(write(tmp_path)), tmp_path / "s.zarr")
    assert {place.name for place in tmp_path.iterdir()} == {"sweep.toml"}


def test_a_sweep_in_progress_is_neither_replaced_nor_joined(tmp_path, whole):
    """The second begins between two groups of the first, which ends as if it had been alone."""
    file, path, refusals = write(tmp_path), tmp_path / "s.zarr", []
    ready = prepare(read(file), path, device="cpu")
    late = prepare(read(file), path, device="cpu")  # looked before the first began
    others = ({"overwrite": True}, {"resume": True})

    def second(done, total):
        if done and not refusals:
            for options in others:
                with refused("--out") as error:
                    command(file, target=path, **(OPTIONS | options))
                refusals.append(error)
            with refused("--out"):
                run(late)

    assert run(ready, progress=second).complete
    assert len(refusals) == 2
    assert contents(path) == contents(whole)
    with refused("--out", names="--resume"):
        run(late)
    assert contents(path) == contents(whole)


def test_the_summary_is_the_same_in_pieces(tmp_path, whole, monkeypatch):
    """Pieces of 10 runs: their borders fall into groups, and one into both class sets."""
    for module in (template, store):
        monkeypatch.setattr(module, "ROOT_CHUNK", 10)
    ready = prepare(read(write(tmp_path)), tmp_path / "s.zarr", device="cpu")
    assert run(ready).complete
    assert [piece.stop for piece in store.summary_pieces(ready.plan)] == [10, 20, 30, 36]
    with xr.open_zarr(tmp_path / "s.zarr") as data, xr.open_zarr(whole) as expected:
        xr.testing.assert_identical(data.load(), expected.load())


def test_overwrite_and_resume_of_nothing_start_anew(tmp_path, whole):
    path = tmp_path / "s.zarr"
    run(prepare(read(write(tmp_path, **{"steps = 6": "steps = 7"})), path, device="cpu"))
    assert run(prepare(read(write(tmp_path)), path, device="cpu", overwrite=True)).complete
    assert contents(path) == contents(whole)
    assert run(prepare(read(write(tmp_path)), tmp_path / "t.zarr", device="cpu", resume=True)).complete
    assert contents(tmp_path / "t.zarr") == contents(whole)


def test_diverging_runs_and_measures_with_dimensions_of_their_own(tmp_path):
    text = SMALL.replace("eta_z = [0.5, 1]", "eta_z = [0.5, 1e37]").replace("steps = 6", "steps = 20")
    text = text.replace("record = [0, 3, 6]", 'record = "all"').replace("momentum = 0.9", 'optimizer = "adam"')
    text = text.replace("[measure]", "[measure]\nfates = {}\nscan_order = {}\nlog_odds = {}")
    path = tmp_path / "s.zarr"
    outcome = run(prepare(read(write(tmp_path, text)), path, device="cpu"))
    assert outcome.complete
    data = ss.load(path / "classes-1.zarr")
    assert data.z_change.dims == ("run", "fates_pair")
    assert data.drop_time.dims == ("run", "scan_order_pair")
    assert set(data.fates_kind.values) == {"common", "distinct"}
    assert data.fates_seq_class.dims == ("fates_pair",)
    assert set(np.asarray(data.status.values).tolist()) == {"ok", "non-finite"}
    np.testing.assert_array_equal(data.status == "ok", data.failed_step < 0)
    root = xr.open_zarr(path)
    assert root.log_odds.dims == ("run", "step")


def test_the_plan_is_shown_and_nothing_written(tmp_path, capsys):
    file = write(tmp_path)
    assert command(file, target=tmp_path / "s.zarr", **(OPTIONS | {"dry_run": True})) == 0
    messages = capsys.readouterr().out
    assert "36 runs in 10 groups on cpu" in messages
    assert "n_queries = 2): 5 groups of at most 4 runs" in messages
    assert "estimated" in messages
    assert command(file, target=tmp_path / "s.zarr", **(OPTIONS | {"dry_run": True, "as_json": True})) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["groups"] == 10
    assert report["class_sets"][0]["group_bytes"] > 0
    assert report["estimated_seconds"] > 0
    assert {place.name for place in tmp_path.iterdir()} == {"sweep.toml"}


def test_nothing_in_the_store_tells_when_it_was_made(tmp_path, whole):
    ready = prepare(read(write(tmp_path)), tmp_path / "s.zarr", device="cpu")
    ready.store.create(replaces=False)
    writer = ready.store.writer()
    for group in reversed(ready.plan.groups()):
        classes = ready.sweep.class_sets[group.class_set].classes
        job = backends.SweepJob(ready.sweep.axes, ready.sweep.options, ready.sweep.stored, ready.sweep.measures, "cpu")
        writer.write(group, backends.run_group(job, classes, group.start, group.stop))
    assert all(writer.summarise(piece) for piece in store.summary_pieces(ready.plan))
    assert ready.store.finish(True)
    ready.store.place.tidy()
    assert contents(tmp_path / "s.zarr") == contents(whole)


def test_each_table_may_have_a_weight_decay_of_its_own(tmp_path):
    text = SMALL.replace("ratio = [1, 2, 5]", "ratio = 1\nweight_decay_y = [0, 0.1]").replace("[1, 2]", "2")
    text = text.replace("momentum = 0.9", "momentum = 0.9\nweight_decay_z = 0.2")
    path = tmp_path / "s.zarr"
    assert run(prepare(read(write(tmp_path, text)), path, device="cpu")).complete
    data = ss.load(path / "classes-0.zarr")
    assert sorted(set(data.weight_decay_y.values)) == [0.0, 0.1]
    assert set(data.weight_decay_z.values) == {0.2}
    assert "weight_decay" not in data.coords
    index = int(np.flatnonzero((data.weight_decay_y == 0.1) & (data.seed == 2) & (data.eta_z == 1))[0])
    alone = ss.simulate(ss.SequenceClasses.syn_medium(2), eta_z=1.0, ratio=1.0, seed=2, weight_decay_y=0.1,
                        weight_decay_z=0.2, momentum=0.9, steps=6, batch_size=16, context=32, init="uniform",
                        record=[0, 3, 6], device="cpu")  # fmt: skip
    np.testing.assert_allclose(data.z[index], alone.z[0], rtol=1e-6)
