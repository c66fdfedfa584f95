"""A damaged file is refused by name, or gives the very same numbers where nothing of them was hit; never others."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import scansnap as ss
from refusals import refused
from scansnap.checks import InputError
from scansnap.corpus import cache, corpus
from scansnap.corpus.encoding import EncodedText
from scansnap.corpus.sources import SPLITS
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.dynamics import checkpoint
from scansnap.storage import checksums
from scansnap.sweep.config import read as read_sweep
from scansnap.sweep.run import prepare, run
from scansnap.sweep.store import RegionWriter
from scansnap.text.model_files import load_model
from scansnap.text.training import train
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

CLASSES = ss.SequenceClasses.synthetic(n_queries=2, next_per_query=1, common=2, distinct=3)
SWEEP = """
[classes]
preset = "syn-medium"
n_queries = [1, 2]
[grid]
eta_z = [0.5, 1]
ratio = 2
seed = "0:2"
[run]
steps = 2
batch_size = 4
record = [0, 2]
variables = ["loss", "entropy"]
[groups]
runs = 2
"""
WORDS = Vocabulary(("the", "of", "river", "bank", "<unk>", "<eos>"), [50, 30, 10, 8, 4, 3])


# --- what can happen to a file -----------------------------------------------------------------------------------


def flip(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def zero(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content))
    stop = min(start + chance.choice([1, 16, 512]), len(content))
    content[start:stop] = bytes(stop - start)


def swap(content: bytearray, chance: random.Random) -> None:
    middle = chance.randrange(len(content))
    content[:] = content[middle:] + content[:middle]


DAMAGES: dict[str, Callable[[bytearray, random.Random], None] | None] = {
    "flip": flip, "cut": cut, "zero": zero, "swap": swap, "remove": None
}  # fmt: skip


def damage(path: Path, kind: str, chance: random.Random) -> tuple[Path, bytes]:
    """Damage one file; it and its bytes before. A zero set to zero is no damage, and another place is taken."""
    files = sorted(place for place in path.rglob("*") if place.is_file()) if path.is_dir() else [path]
    change = DAMAGES[kind]
    victim = chance.choice([file for file in files if file.stat().st_size or change is None])
    before = victim.read_bytes()
    if change is None:
        victim.unlink()
    else:
        content = bytearray(before)
        while content == before:
            change(content, chance)
        victim.write_bytes(content)
    return victim, before


# --- what we write, and what comes back --------------------------------------------------------------------------


def same(found: Any, whole: Any) -> bool:
    if isinstance(whole, xr.Dataset):
        return found.identical(whole)
    if isinstance(whole, dict):
        return found.keys() == whole.keys() and all(same(found[name], whole[name]) for name in whole)
    if isinstance(whole, list | tuple):
        return len(found) == len(whole) and all(map(same, found, whole))
    if isinstance(whole, torch.Tensor | np.ndarray):
        return found.dtype == whole.dtype and np.array_equal(found, whole, equal_nan=True)
    return found == whole


def read_trajectory(path: Path) -> xr.Dataset:
    with ss.load(path) as data:
        return data.load()


def read_store(path: Path) -> list[xr.Dataset]:
    checksums.check("the store", path)
    with xr.open_zarr(path) as root:
        return [root.load(), *(read_trajectory(path / f"classes-{s}.zarr") for s in (0, 1))]


def read_partial(path: Path) -> Any:
    saved = checkpoint.RunCheckpoint(path.with_suffix(""), "fingerprint").load()
    return saved.values, saved.arrays, saved.records


def read_model(path: Path) -> Any:
    found = load_model(path)
    return found.header, found.model.tensors(), found.vocabulary, found.measured


def read_entry(path: Path) -> Any:
    found = corpus.read_entry(path)
    if found is None:  # as good as absent: the text is encoded again
        raise InputError("the cache", str(path), "whole")
    return found.vocabulary, {split: np.array(tokens) for split, tokens in found.splits.items()}, found.words


READ: dict[str, Callable[[Path], Any]] = {
    "a.zarr": read_trajectory, "a.nc": read_trajectory, "flow.zarr": read_trajectory, "s.zarr": read_store,
    "b.zarr.partial": read_partial, "m.safetensors": read_model, "entry": read_entry,
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each kind."""
    folder = tmp_path_factory.mktemp("saved")
    data = ss.simulate(CLASSES, ss.grid(eta_z=[0.5, 1e38], ratio=2, seed=[0, 1]), steps=3, record="all", device="cpu")
    ss.save(data, folder / "a.zarr")
    ss.save(data, folder / "a.nc")
    ss.save(ss.flow(CLASSES, eta_y=1.0, eta_z=0.02, t=np.geomspace(0.1, 10, 4)), folder / "flow.zarr")
    partial = checkpoint.RunCheckpoint(folder / "b.zarr", "fingerprint")
    partial.append({"steps": [0, 1]}, {"loss": np.ones((1, 2)), "entropy": np.zeros((1, 2, 2))})
    partial.append({"steps": [2]}, {"loss": np.full((1, 1), np.nan), "entropy": np.ones((1, 1, 2))})
    partial.save({"step": 2}, {"y": np.arange(6, dtype=np.float32).reshape(1, 2, 3) / 7})
    model = YZTransformer(YZSettings(vocab_size=len(WORDS), init="zero", eta_y=5.0, eta_z=1.0))
    train(model, np.tile([0, 2, 1, 3], 40), steps=3, batch=2, length=5, checkpoint=folder / "m.safetensors",
          vocabulary=WORDS, measure=lambda m, step: {"entropy": 1.0 * step})  # fmt: skip
    with cache.writing(folder / "entry") as entry:
        for split in SPLITS:
            np.save(entry / f"{split}.npy", np.arange(6, dtype=np.uint16))
        corpus.finish_text(entry, EncodedText(WORDS, {}, dict.fromkeys(SPLITS, 6)))
    (folder / "sweep.toml").write_text(SWEEP)
    assert run(prepare(read_sweep(folder / "sweep.toml"), folder / "s.zarr", device="cpu")).complete
    return folder


def outcome(saved: Path, name: str, kind: str, seed: int, whole: Any, scratch: Path) -> str:
    """refused or identical; anything else fails."""
    path = saved / name
    if name == "entry":  # a damaged one is deleted
        path = Path(shutil.copytree(path, scratch / f"{kind}-{seed}" / "entry"))
    victim, before = damage(path, kind, random.Random(f"{name} {kind} {seed}"))
    what = f"{kind} in {victim.relative_to(path.parent)} (seed {seed})"
    try:
        found = READ[name](path)
    except InputError as error:
        said = str(error)
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    else:
        assert same(found, whole), f"{what}: other numbers, silently"
        return "identical"
    finally:
        victim.parent.mkdir(parents=True, exist_ok=True)
        victim.write_bytes(before)
    assert str(path) in said, what
    assert "\n" not in said, what
    return "refused"


def campaign(saved: Path, name: str, kind: str, times: int, scratch: Path) -> Counter[str]:
    whole = READ[name](saved / name)
    assert same(READ[name](saved / name), whole)
    return Counter(outcome(saved, name, kind, seed, whole, scratch) for seed in range(times))


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", READ)
def test_damage_is_refused_by_name_or_without_effect(saved: Path, tmp_path: Path, name: str, kind: str) -> None:
    found = campaign(saved, name, kind, 8, tmp_path)
    assert found["refused"] >= 7, found  # a change may fall where nothing is: a table's own white space


@pytest.mark.campaign
@pytest.mark.parametrize("name", READ)
def test_a_thousand_damages(saved: Path, tmp_path: Path, name: str) -> None:
    """1,280 of them, half a minute and more; prints the counts with -s."""
    found: Counter[str] = Counter()
    for kind in DAMAGES:
        found += campaign(saved, name, kind, 32, tmp_path)
    print(name, dict(found))
    assert found["refused"] > 120


# --- a sweep is recomputed where it can be (tests/sweep/test_store.py: chunk by chunk) -------------------------------


def contents(store: Path) -> dict[str, bytes]:
    return {str(place.relative_to(store)): place.read_bytes() for place in store.rglob("*") if place.is_file()}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_sweep_is_mended_or_refused_when_it_is_resumed(
    saved: Path, tmp_path: Path, kind: str, seed: int
) -> None:
    whole = contents(saved / "s.zarr")
    path = Path(shutil.copytree(saved / "s.zarr", tmp_path / "s.zarr"))
    damage(path, kind, random.Random(f"{kind} {seed}"))
    try:
        assert run(prepare(read_sweep(saved / "sweep.toml"), path, resume=True)).complete
        refused = ""
    except InputError as error:
        refused = str(error)
    assert str(path) in refused or contents(path) == whole


def test_a_damaged_template_is_refused(saved: Path, tmp_path: Path) -> None:
    """Which runs there are is not to be guessed."""
    for part in ("zarr.json", "eta_z/c/0", "classes-0.zarr/checksums.json", "classes-1.zarr/loss/zarr.json"):
        path = Path(shutil.copytree(saved / "s.zarr", tmp_path / part / "s.zarr"))
        damage(path / part, "flip", random.Random(1))
        before = contents(path)
        with refused("--out", error=checksums.Damaged):
            run(prepare(read_sweep(saved / "sweep.toml"), path, resume=True))
        assert contents(path) == before


def test_a_sweep_of_an_earlier_version_is_said(saved: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(saved / "s.zarr", tmp_path / "s.zarr"))
    (path / "checksums.json").unlink()
    text = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(text.replace("scansnap sweep 3", "scansnap sweep 2"))
    with refused("--out"):
        prepare(read_sweep(saved / "sweep.toml"), path, resume=True)


# --- scansnap info -----------------------------------------------------------------------------------------------

KINDS = {"a.zarr": "trajectory", "a.nc": "trajectory", "flow.zarr": "trajectory", "s.zarr": "sweep",
         "s.zarr/classes-1.zarr": "trajectory", "b.zarr.partial": "unfinished run",
         "m.safetensors": "text model"}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_info_check(scansnap: Callable[..., tuple[int, str, str]], saved: Path, name: str) -> None:
    path = saved / name
    code, out, err = scansnap("info", "--check", path)
    assert (code, err) == (0, "")
    assert f"({KINDS[name]}) is intact" in out
    told = json.loads(scansnap("info", "--check", path, "--json")[1])
    files = len(contents(path)) if path.is_dir() else 1
    size = sum(map(len, contents(path).values())) if path.is_dir() else path.stat().st_size
    assert told == {"file": str(path), "kind": KINDS[name], "whole": True, "files": files, "bytes": size}
    victim, before = damage(path, "cut", random.Random(3))
    try:
        code, out, err = scansnap("info", "--check", path)
        assert (code, out) == (1, "")
        assert err.startswith(f"{path} is damaged: ")
        assert err.count("\n") == 1
        code, out, err = scansnap("info", "--check", path, "--json")
        told = json.loads(out)
        assert (code, told["whole"], err) == (1, False, "")
        assert told["part"]
    finally:
        victim.write_bytes(before)


@pytest.mark.parametrize("name", ["sweep.toml", "nowhere.zarr", "b.zarr.partial/state"])
def test_info_checks_only_files_of_ours(refuses: Callable[..., object], saved: Path, name: str) -> None:
    field = "the result path" if name == "nowhere.zarr" else "--check"
    refuses(field, "info", "--check", saved / name, value=str(saved / name))


def test_info_tells_what_is_in_a_file(scansnap: Callable[..., tuple[int, str, str]], saved: Path) -> None:
    told = {name: json.loads(scansnap("info", saved / name, "--json")[1]) for name in KINDS}
    assert (told["s.zarr"]["runs"], told["s.zarr"]["groups_done"], told["s.zarr"]["complete"]) == (8, 4, True)
    assert told["b.zarr.partial"]["recorded"] == [0, 1, 2]
    assert told["m.safetensors"]["steps"] == 3
    assert told["a.nc"]["settings"] == told["a.zarr"]["settings"]
    for name in KINDS:
        code, out, err = scansnap("info", saved / name)
        assert (code, err) == (0, "")
        assert out.startswith(str(saved / name))


# --- a sweep under way -------------------------------------------------------------------------------------------


def test_an_unfinished_sweep_can_be_looked_at_and_its_damage_is_noticed(
    scansnap: Callable[..., tuple[int, str, str]], saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "s.zarr", contents(saved / "s.zarr")
    ready = prepare(read_sweep(saved / "sweep.toml"), path, device="cpu")
    write = RegionWriter.write

    def two_groups(writer: RegionWriter, group: Any, arrays: Any) -> Any:
        if group.class_set == 1:
            raise KeyboardInterrupt
        return write(writer, group, arrays)

    monkeypatch.setattr(RegionWriter, "write", two_groups)
    with pytest.raises(KeyboardInterrupt):
        run(ready)
    monkeypatch.undo()
    half = path / "classes-1.zarr/loss/c/0/0"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"a chunk of a group that was not finished")
    assert scansnap("info", "--check", path)[0] == 0
    told = json.loads(scansnap("info", path, "--json")[1])
    assert (told["groups"], told["groups_done"], told["complete"]) == (4, 2, False)
    with ss.load(path / "classes-0.zarr") as data:
        assert (data.attrs["complete"], bool(data.done.all())) == (1, True)
        assert not np.isnan(data.loss).any()
    with ss.load(path / "classes-1.zarr") as data:
        assert (data.attrs["complete"], bool(data.done.any())) == (0, False)
    for name in ("loss/c/1/0", "done/c/0", "checksums.json", "zarr.json"):
        victim, before = damage(path / "classes-0.zarr" / name, "flip", random.Random(2))
        with pytest.raises(checksums.Damaged):
            ss.load(path / "classes-0.zarr")
        assert scansnap("info", "--check", path)[0] == 1
        victim.write_bytes(before)
    resumed = run(prepare(read_sweep(saved / "sweep.toml"), path, resume=True))
    assert (resumed.complete, resumed.skipped) == (True, 4)
    assert contents(path) == whole
