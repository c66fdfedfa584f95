"""A probe's file: what it says, when it goes on, and when it is refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from small import Small, batch, state_after, train

import scansnap as ss
from refusals import refused
from scansnap.checks import InputError
from scansnap.probe.probe import Probe
from scansnap.probe.store import probe_file
from scansnap.results import growing
from scansnap.storage.checksums import Damaged
from scansnap.storage.objects import Folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "probe.zarr"


def loaded(path: Path) -> xr.Dataset:
    with ss.load(path) as data:
        return data.load()


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")
            if not p.name.endswith(".lock")}  # fmt: skip


def probe_of(model: torch.nn.Module, out: Path | None, **options) -> Probe:
    return Probe(model, batch(), every=1, out=out, max_bytes=10**9, **options)


def test_file_and_memory_say_the_same_after_every_measurement(out: Path) -> None:
    torch.manual_seed(0)
    model = Small()
    probe = probe_of(model, out)
    for step in range(3):
        probe.step(step)
        xr.testing.assert_identical(loaded(out), probe.measurements.dataset())
        with torch.no_grad():
            model.layers[0].qkv.weight.mul_(3)
    assert loaded(out).step.values.tolist() == [0, 1, 2]
    xr.testing.assert_equal(train(None).measurements.dataset(), train(out.with_name("b.zarr")).measurements.dataset())


def test_what_it_says_of_itself(out: Path) -> None:
    data = train(out, steps=2, queries=4).measurements.dataset()
    about = loaded(out).attrs
    assert about["format"] == "scansnap probe 1"
    assert about["model"] == "Small"
    assert about["parameters"] == sum(p.numel() for p in Small().parameters())
    assert (about["queries"], about["every"]) == (4, 1)
    assert len(about["batch"]) == 16
    assert {"scansnap", "torch", "numpy"} <= set(json.loads(about["versions"]))
    assert data.attrs.items() <= about.items()


def test_sentences_and_the_first_and_last_attention_are_in_it(out: Path) -> None:
    torch.manual_seed(1)
    model = Small()
    probe = probe_of(model, out)
    seen = []
    for step in range(2):
        probe.step(step)
        x = model.embed(batch())
        q, k, _ = model.layers[0].qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        causal = torch.ones(9, 9, dtype=torch.bool).tril()
        seen.append(torch.softmax((q @ k.mT / 2).masked_fill(~causal, -torch.inf), -1).detach().numpy())
        with torch.no_grad():
            model.layers[0].qkv.weight.mul_(3)
    data = loaded(out)
    assert data.tokens.dims == ("sequence", "position")
    np.testing.assert_array_equal(data.tokens, batch())
    at = data.sampled_position.values
    assert data.attention_last.dims == ("layer", "sequence", "head", "sampled", "position")
    np.testing.assert_allclose(data.attention_first[0], seen[0][:, :, at], atol=1e-6)
    np.testing.assert_allclose(data.attention_last[0], seen[1][:, :, at], atol=1e-6)
    tv = np.abs(data.attention_last - data.attention_first).sum("position").mean(("sequence", "sampled")) / 2
    np.testing.assert_allclose(data.moved[1], tv, atol=1e-6)
    assert float(data.moved[1, 0].min()) > 0.01


def test_a_training_that_goes_back_ends_with_the_same_file(out: Path) -> None:
    whole = train(out).measurements.dataset()
    for begin in (8, 3, 9):
        going = train(out, back=state_after(begin), steps=begin + 1)
        assert going.measurements.dataset().step.values.tolist() == list(range(1, begin + 2)), (
            "what came later was given up"
        )
        assert loaded(out).sizes["step"] == begin + 1
        del going
        xr.testing.assert_identical(train(out, back=state_after(begin + 1)).measurements.dataset(), whole)
        xr.testing.assert_equal(loaded(out), whole)


def test_a_sample_that_is_no_longer_there_leaves_one_gap_and_is_said(out: Path, monkeypatch) -> None:
    monkeypatch.setattr(probe_file, "SAMPLES", 4)
    whole = train(out).measurements.dataset()
    with pytest.warns(UserWarning, match=r"the last 4 measurements, not of step 3") as said:
        train(out, back=state_after(3))
    assert len(said) == 1
    data = loaded(out)
    assert np.isnan(data.moved[3]).all()
    xr.testing.assert_equal(data.drop_vars("moved"), whole.drop_vars("moved"))
    xr.testing.assert_equal(data.moved.drop_isel(step=3), whole.moved.drop_isel(step=3))
    assert len(list((out / "samples").glob("[0-9]*"))) <= 9, "the first, four, a spare, and three an e-fold ago"


def test_only_what_is_told_first_says_where_the_training_is(out: Path) -> None:
    train(out)
    probe = probe_of(Small(), out)
    probe.due = lambda step: step == 8
    probe.step(6)  # measures nothing
    assert probe.measurements.dataset().step.values.tolist() == [1, 2, 3, 4, 5]
    assert loaded(out).sizes["step"] == 10, "until the next is written"
    probe.step(8)
    assert loaded(out).step.values.tolist() == [1, 2, 3, 4, 5, 8]


def test_a_training_from_the_beginning_is_refused_and_changes_nothing(out: Path) -> None:
    train(out, steps=3)
    before = contents(out.parent)
    probe = probe_of(Small(), out)
    for _ in range(2):
        with refused("out", names=("step 0", "overwrite=True")):
            probe.step(0)
    del probe
    assert contents(out.parent) == before
    again = probe_of(Small(), out, overwrite=True)
    assert contents(out.parent) == before, "nor does overwrite before there is something else"
    again.step(0)
    assert loaded(out).step.values.tolist() == [0]


def test_overwrite_goes_on_where_it_can(out: Path) -> None:
    whole = train(out).measurements.dataset()
    xr.testing.assert_identical(train(out, back=state_after(6), overwrite=True).measurements.dataset(), whole)


@pytest.mark.parametrize(("other", "name"), [({"batch": (batch() + 1) % 7}, "batch"), ({"queries": 3}, "queries")])
def test_a_file_of_another_batch_is_refused(out: Path, other, name: str) -> None:
    train(out, steps=1)
    before = contents(out.parent)
    given = {"batch": batch(), "every": 1, "out": out, "max_bytes": 10**9, **other}
    with refused("out"):
        Probe(Small(), **given)
    assert contents(out.parent) == before
    Probe(Small(), **given, overwrite=True).step(7)
    assert loaded(out).step.values.tolist() == [7]


def test_layers_that_come_later_find_their_place(out: Path) -> None:
    torch.manual_seed(2)
    model = Small(heads=(1, 4))
    model.deep = False
    probe = probe_of(model, out)
    for step in range(2):
        probe.step(step)
    model.deep = True
    for step in range(2, 4):
        probe.step(step)
    data = probe.measurements.dataset()
    assert data.path.values.tolist() == ["layers.0", "layers.1"]
    assert np.isnan(data.entropy[:2, 1]).all()
    assert np.isnan(data.entropy[:, 0, 1:]).all()
    assert np.isfinite(data.entropy[2:, 1]).all()
    xr.testing.assert_equal(loaded(out), data)
    del probe
    probe = probe_of(model, out)  # and are known again, with the samples of both shapes
    probe.step(3)
    xr.testing.assert_equal(probe.measurements.dataset(), data)
    assert float(probe.measurements.dataset().moved[3].sum()) == 0, "the same model"
    assert int(np.isfinite(probe.measurements.dataset().moved[3]).sum()) == 5


def test_a_second_process_is_refused(out: Path) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from small import *
probe = train({str(out)!r}, steps=1); print("there", flush=True); input()"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"there\n"
        with refused("out"):
            probe_of(Small(), out)
        other.communicate(b"\n")
    probe_of(Small(), out).step(2)
    assert loaded(out).step.values.tolist() == [1, 2]
    assert os.listdir(out.parent).count(".lock") == 0


def test_in_a_notebook_the_later_probe_has_the_file(out: Path) -> None:
    model = Small()
    former = probe_of(model, out)
    former.step(0)
    later = probe_of(model, out)
    later.step(1)
    with pytest.warns(UserWarning, match="could not write step 5 .*another probe of this process"):
        former.step(5)
    assert former.measurements.dataset().step.values.tolist() == [0, 5]
    assert loaded(out).step.values.tolist() == [0, 1]


def test_a_disk_that_fails_warns_and_what_was_measured_is_written_later(out: Path, monkeypatch) -> None:
    torch.manual_seed(3)
    model = Small()
    probe = probe_of(model, out)
    probe.step(0)
    put = Folder._put

    for failing in ("rows", "samples", "index"):

        def full(self: Folder, target: Path, content: bytes, failing: str = failing) -> None:
            if target.relative_to(out).parts[0] == failing:
                raise OSError(28, "No space left on device")
            put(self, target, content)

        with monkeypatch.context() as patch:
            patch.setattr(Folder, "_put", full)
            step = len(probe.measurements.dataset().step)
            with pytest.warns(UserWarning, match=f"could not write step {step} to .*No space left.*stays in memory"):
                probe.step(step)
        assert loaded(out).sizes["step"] == 1
    assert probe.measurements.dataset().sizes["step"] == 4
    probe.step(4)
    xr.testing.assert_identical(loaded(out), probe.measurements.dataset())
    assert np.isfinite(probe.measurements.dataset().moved[1:]).all()


def test_a_folder_that_is_removed_is_made_again(out: Path) -> None:
    probe = train(out, steps=3)
    shutil.rmtree(out)
    probe.step(11)
    xr.testing.assert_equal(loaded(out), probe.measurements.dataset())
    assert loaded(out).step.values.tolist() == [1, 2, 3, 11]


def test_what_another_program_put_there_is_left_alone(out: Path) -> None:
    probe = train(out, steps=2)
    (out / "index").write_text("somebody's")
    with pytest.warns(UserWarning, match="another program has changed it"):
        probe.step(5)
    assert (out / "index").read_text() == "somebody's"


def test_what_a_killed_writer_left_goes_with_the_next_measurement(out: Path) -> None:
    train(out, steps=6)
    before = {name for name, content in contents(out).items() if content is not None}
    for left in ("rows/000006.0", "samples/000003.7", ".scansnap-writing/half"):
        (out / left).parent.mkdir(exist_ok=True)
        (out / left).write_bytes(b"half a piece")
    train(out, back=state_after(5), steps=6)
    after = {name for name, content in contents(out).items() if content is not None}
    assert len(after) == len(before)
    assert not {"rows/000006.0", "samples/000003.7", ".scansnap-writing/half"} & after


def test_a_reader_finds_the_file_of_a_writer_that_goes_on(out: Path, monkeypatch) -> None:
    """Between the index and the pieces, that reader is overtaken by some measurements."""
    probe = train(out, steps=3)
    rows = growing.GrowingDataset.rows

    def overtaken(store: growing.GrowingDataset) -> list[dict[str, np.ndarray]]:
        if len(store.index.rows) == 3:
            for step in range(4, 4 + probe_file.SAMPLES + 2):
                probe.step(step)
        return rows(store)

    monkeypatch.setattr(growing.GrowingDataset, "rows", overtaken)
    assert loaded(out).sizes["step"] == 3 + probe_file.SAMPLES + 2


def places(out: Path) -> list[str]:
    return sorted(name for name, content in contents(out).items() if content)


@pytest.mark.parametrize("kind", ["flip", "cut", "remove", "swap"])
def test_any_damage_to_any_file_is_refused(out: Path, scansnap, kind: str) -> None:
    """Every file in turn: nothing is read from any, and ``info --check`` names the piece."""
    whole = train(out, steps=4).measurements.dataset()
    chance = random.Random(kind)
    for name in places(out):
        before = (out / name).read_bytes()
        damage(out, name, kind, chance)
        with pytest.raises(Damaged) as refusal:
            probe_of(Small(), out)
        assert refusal.value.part == name or kind == "swap"
        code, _, _ = scansnap("info", "--check", out)
        assert code == 1, name
        try:
            found = loaded(out)  # a sample of the middle is not part of the Dataset
        except Damaged:
            pass
        else:
            xr.testing.assert_identical(found, whole)
            assert name.startswith("samples/00000")
            assert name not in ("samples/000000.0", "samples/000003.0")
        (out / name).write_bytes(before)
    xr.testing.assert_identical(loaded(out), whole)


def test_checksums_can_be_left_out(out: Path) -> None:
    whole = train(out, steps=2).measurements.dataset()
    row = next(path for path in sorted((out / "rows").iterdir()) if path.is_file())
    content = bytearray(row.read_bytes())
    content[-64] ^= 1  # in the last array
    row.write_bytes(content)
    with pytest.raises(Damaged):
        loaded(out)
    with ss.load(out, verify=False) as data:
        assert data.sizes == whole.sizes
        assert not data.equals(whole)


@pytest.mark.campaign
def test_every_bit_of_a_small_file_counts(out: Path) -> None:
    """Thousands of files with one bit changed or cut at one byte: a minute and more."""
    train(out, steps=1)
    whole = loaded(out)
    for name in places(out):
        before = (out / name).read_bytes()
        for at in {*range(0, len(before), max(1, len(before) // 400)), *range(min(len(before), 600))}:
            for content in (before[:at], before[:at] + bytes([before[at] ^ (1 << at % 8)]) + before[at + 1 :]):
                (out / name).write_bytes(content)
                with pytest.raises(Damaged):
                    loaded(out)
        (out / name).write_bytes(before)
    xr.testing.assert_identical(loaded(out), whole)


def damage(out: Path, name: str, kind: str, chance: random.Random) -> None:
    content = bytearray((out / name).read_bytes())
    at = chance.randrange(len(content))
    if kind == "flip":
        content[at] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del content[at:]
    elif kind == "swap":  # with the content of another piece, sound as it is
        files = places(out)
        content[:] = (out / files[files.index(name) - 1]).read_bytes()
    (out / name).write_bytes(content)
    if kind == "remove":
        (out / name).unlink()


def test_a_file_of_version_0_2_is_said_and_can_be_replaced(out: Path) -> None:
    (out / "samples").mkdir(parents=True)
    attributes = {"format": "scansnap probe 1", "checksums": "{}"}
    (out / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes}))
    for attempt in (lambda: ss.load(out), lambda: probe_of(Small(), out)):
        with pytest.raises(InputError):
            attempt()
    probe_of(Small(), out, overwrite=True).step(1)
    assert loaded(out).step.values.tolist() == [1]


def test_the_measurements_can_be_saved_as_one_dataset(out: Path) -> None:
    data = train(out, steps=3).measurements.dataset()
    for name in ("export.zarr", "export.nc"):
        ss.save(ss.load(out), out.with_name(name))
        xr.testing.assert_identical(loaded(out.with_name(name)), data)


@pytest.mark.parametrize(
    ("name", "says"),
    [("probe.nc", "a name ending in .zarr, or None"), ("x.txt/probe.zarr", "in a place that can be written")],
)
def test_places_that_cannot_be(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "x.txt").write_text("")
    with refused("out"):
        probe_of(Small(), tmp_path / name)


def test_somebody_elses_folder_is_refused(out: Path) -> None:
    out.mkdir()
    (out / "x").write_text("mine")
    with refused("out"):
        probe_of(Small(), out)
    assert contents(out.parent) == {"probe.zarr": None, "probe.zarr/x": b"mine"}
