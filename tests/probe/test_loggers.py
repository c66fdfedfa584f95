"""What loggers write, read back with their own packages, equals the record number by number."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

from refusals import refused
from scansnap.probe.loggers.scalars import QUANTITIES
from scansnap.probe.loggers.targets import check_loggers, export
from scansnap.probe.probe import Probe

HEADS = 3
OVER = {"max_logit": np.nanmax, "n_nonfinite": np.nansum}  # of the heads; the mean of all others


class Model(nn.Module):
    """One attention over embedded tokens; ``is_broken`` makes the first query infinite."""

    is_broken = False

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 2 * HEADS)
        self.attn = nn.MultiheadAttention(2 * HEADS, HEADS, batch_first=True)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        if self.is_broken:
            x = x.index_fill(1, torch.tensor([1]), torch.inf)
        return self.attn(x, x, x, need_weights=False)[0]


def measured(folder: Path | None = None, **options: Any) -> Probe:
    """Three measurements of a random walk, the last one with an infinite query."""
    torch.manual_seed(0)
    model = Model()
    probe = Probe(model, {"input_ids": torch.randint(7, (3, 9))}, every=1, alerts=[],
                  max_bytes=10**9, out=folder, **options)  # fmt: skip
    for step in range(3):
        model.is_broken = step == 2
        probe.step(step, None if step == 0 else 1.0 / step)
        with torch.no_grad():
            for weights in model.parameters():
                weights += 0.3 * torch.randn_like(weights)
    return probe


def of_record(data: xr.Dataset, step: int) -> dict[str, float]:
    """The numbers of a step from the Dataset: those that are known, and all of heads that are not finite."""
    row = data.sel(step=step)
    names = ("batch_loss", "train_loss")
    nonfinite = {str(part): float(value) for part, value in zip(row.part.values, row.nonfinite.values, strict=True)}
    values = {"probe/step": float(step)} | {f"probe/{name}": float(row[name]) for name in names if nonfinite[name] == 0}
    values |= {f"probe/nonfinite/{part}": value for part, value in nonfinite.items() if value == value}
    for name in QUANTITIES:
        if name == "scan_index":
            heads = (data.distinctness.sel(step=step) - data.distinctness[0]).mean("sequence", skipna=True).values
        else:
            heads = row[name].values
        broken = row.n_nonfinite.values > 0
        if np.isnan(heads[~broken]).any() or (np.isnan(heads).all() and not broken.any()):
            continue
        for i, layer in enumerate(heads):
            over = OVER.get(name, np.mean)
            values[f"attention/layer{i}/{name}"] = float(over(layer) if not np.isnan(layer).any() else np.nan)
            values |= {f"attention/layer{i}/head{j}/{name}": float(value) for j, value in enumerate(layer)}
        values[f"attention/{name}"] = float(OVER.get(name, np.mean)(heads) if not np.isnan(heads).any() else np.nan)
    return values


def assert_same(logged: dict[str, float], expected: dict[str, float], rtol: float = 1e-6) -> None:
    assert set(logged) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(logged[name], value, rtol=rtol, atol=1e-9, err_msg=name)


def test_on_measure_gets_the_record() -> None:
    calls: list[dict[str, float]] = []
    data = measured(on_measure=calls.append).dataset()
    for step, values in enumerate(calls):
        assert_same(values, of_record(data, step))
    assert [values["probe/step"] for values in calls] == [0, 1, 2]
    assert "probe/train_loss" not in calls[0]
    assert "attention/layer0/head2/entropy" in calls[0]
    assert "attention/moved" not in calls[0], "the first has none before it"
    assert calls[2]["attention/n_nonfinite"] > 0
    assert calls[1]["attention/n_nonfinite"] == 0, "the control"
    wrong = {**calls[1], "attention/layer0/head1/entropy": calls[1]["attention/layer0/head2/entropy"]}
    with pytest.raises(AssertionError):
        assert_same(wrong, of_record(data, 1))


@pytest.mark.parametrize("way", ["log", "export"])
def test_tensorboard_has_the_record(way: str, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    probe = measured(log=f"tensorboard:{folder}") if way == "log" else measured()
    if way == "export":
        folder.mkdir()
        other = folder / "events.out.tfevents.1.host"
        other.write_bytes(b"")
        for _ in range(2):  # the second takes the place of the first, and of nothing else
            probe.tensorboard(folder)
        assert len(list(folder.iterdir())) == 2
        assert other.exists()
    assert_same_events(read_events(folder), probe.dataset())


def test_a_resumed_training_continues_the_events(tmp_path: Path) -> None:
    """Steps of the abandoned run are hidden."""
    data = measured(tmp_path / "a.zarr", log=f"tensorboard:{tmp_path / 'events'}").dataset()
    model = Model()
    probe = Probe(model, {"input_ids": torch.randint(7, (3, 9), generator=torch.Generator().manual_seed(1))}, every=1,
                  log=f"tensorboard:{tmp_path / 'events'}")  # fmt: skip
    probe.step(1)
    events = read_events(tmp_path / "events")
    assert [(event.step) for event in events.Scalars("attention/entropy")] == [0, 1]
    now = float(probe.dataset().entropy.mean())
    np.testing.assert_allclose([event.value for event in events.Scalars("attention/entropy")],
                               [float(data.entropy[0].mean()), now], rtol=1e-6)  # fmt: skip


def read_events(folder: Path) -> Any:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), {"scalars": 0}).Reload()


def assert_same_events(events: Any, data: xr.Dataset) -> None:
    by_step: dict[int, dict[str, float]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            by_step.setdefault(event.step, {})[tag] = event.value
    assert sorted(by_step) == data.step.values.tolist()
    for step, values in by_step.items():
        assert_same(values, of_record(data, step))


WITH_PACKAGE = """
import sys
sys.path[:0] = {paths}
from test_loggers import measured
{begin}
probe = measured(log="{name}")
{end}
probe.dataset().to_netcdf("record.nc", engine="h5netcdf")
"""
RUNS = {
    "wandb": ("import wandb; run = wandb.init(project='p', settings=wandb.Settings(x_disable_stats=True))",
              "wandb.log({'mine': 3.0}, step=2); run.finish()"),
    "trackio": ("import trackio; run = trackio.init(project='p', name='r')", "run.finish()"),
}  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("name", RUNS)
def test_other_loggers_have_the_record(name: str, tmp_path: Path) -> None:
    """Offline, with the real package."""
    if find_spec(name) is None:
        pytest.skip(f"NO {name.upper()}: its logger is not tested (pip install {name})")
    begin, end = RUNS[name]
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    environment = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true", "HOME": str(tmp_path),
                   "TRACKIO_DIR": str(tmp_path / "trackio")}  # fmt: skip
    code = WITH_PACKAGE.format(paths=paths, begin=begin, end=end, name=name)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env={**os.environ, **environment})
    with xr.open_dataset(tmp_path / "record.nc", engine="h5netcdf") as data:
        rows = list(READERS[name](tmp_path))
        assert [row["probe/step"] for row in rows] == [0, 1, 2]
        for step, row in enumerate(rows):
            assert_same({key: value for key, value in row.items() if "/" in key}, of_record(data.load(), step))
    if name == "wandb":
        assert [row.get("mine") for row in rows] == [None, None, 3.0], "the user's own numbers are in the same row"


def wandb_rows(folder: Path) -> Iterator[dict[str, float]]:
    """The history of an offline run, from its file."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    for content in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        if record.WhichOneof("record_type") == "history":
            yield {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}


def records(content: bytes, block: int = 1 << 15) -> Iterator[bytes]:
    """Of a log of blocks, each record with a checksum, a length, and whether it is whole or a part."""
    at, parts = 7, []
    while at + 7 <= len(content):
        if block - at % block < 7:  # the rest of a block is padding
            at += block - at % block
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        parts.append(content[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def trackio_rows(folder: Path) -> Iterator[dict[str, float]]:
    code = "import json, trackio; print(json.dumps(trackio.sqlite_storage.SQLiteStorage.get_logs('p', 'r')))"
    environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio")}
    text = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
    for row in json.loads(text.stdout.splitlines()[-1]):
        yield {key: math.nan if value in ("NaN", None) else value for key, value in row.items() if "/" in key}


READERS = {"wandb": wandb_rows, "trackio": trackio_rows}


@pytest.mark.parametrize(
    "log",
    ["mlflow", ["wandb", 3], 7, "wandb:folder", "tensorboard:{file}"],
    ids=["unknown", "number in a list", "number", "folder", "file"],
)
def test_bad_loggers_are_refused_by_the_constructor(log: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused("log"):
        measured(log=log.format(file=tmp_path / "file") if isinstance(log, str) else log)


def test_a_missing_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = measured()
    for bad in (tmp_path / "record.nc" / "x", "", None):
        tmp_path.joinpath("record.nc").touch()
        with refused("tensorboard"):
            export([], bad)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with refused("tensorboard", names="pip install"):
        probe.tensorboard(tmp_path / "events")
    with refused("log", names="pip install"):
        check_loggers("tensorboard")
    monkeypatch.setattr("scansnap.probe.loggers.targets.installed", lambda name: False)
    for name in ("wandb", "trackio"):
        with refused("log", name, names=f"pip install {name}"):
            check_loggers(name)
    assert not (tmp_path / "events").exists()
