"""A probe's scalars in TensorBoard's files, read back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

from refusals import refused
from scansnap.probe.probe import Probe
from scansnap.probe.tensorboard import export, scalars

HEADS = 11  # names with two digits, so that they stand in order


class Model(nn.Module):
    """One attention over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 2 * HEADS)
        self.attn = nn.MultiheadAttention(2 * HEADS, HEADS, batch_first=True)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        return self.attn(x, x, x, need_weights=False)[0]


@pytest.fixture(scope="module")
def probe() -> Probe:
    torch.manual_seed(0)
    model = Model()
    probe = Probe(model, {"input_ids": torch.randint(7, (3, 9))}, every=1)
    for step in range(3):
        probe.step(step)
        with torch.no_grad():
            for weights in model.parameters():
                weights += 0.3 * torch.randn_like(weights)
    return probe


def read(folder: Path) -> Any:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder)).Reload()


def test_events_are_the_data(probe: Probe, tmp_path: Path) -> None:
    probe.tensorboard(tmp_path / "events")
    events, data = read(tmp_path / "events"), probe.dataset()
    entropy = data["entropy_rel"].values[:, 0]
    found = events.Scalars("entropy_rel_by_head/layer0_head07")
    assert [one.step for one in found] == [0, 1, 2]
    np.testing.assert_allclose([one.value for one in found], entropy[:, 7], rtol=1e-6)
    means = [one.value for one in events.Scalars("entropy_rel/layer0")]
    np.testing.assert_allclose(means, entropy.mean(1), rtol=1e-6)
    d = data["distinctness"].values[:, :, 0]
    scan = [one.value for one in events.Scalars("scan_index_by_head/layer0_head10")]
    np.testing.assert_allclose(scan, (d - d[0]).mean(1)[:, 10], rtol=1e-5, atol=1e-7)
    assert [one.step for one in events.Scalars("moved/layer0")] == [1, 2], "the first has none before it"
    assert {tag.split("/")[0] for tag in events.Tags()["scalars"]} == {
        f"{name}{by}" for name in ("entropy_rel", "scan_index", "moved") for by in ("", "_by_head")
    }


def test_written_again_it_takes_the_place_of_its_own_files_only(probe: Probe, tmp_path: Path) -> None:
    other = tmp_path / "events.out.tfevents.1.host"
    other.write_bytes(b"")
    for _ in range(2):
        probe.tensorboard(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert other.exists()
    assert len(read(tmp_path).Scalars("entropy_rel/layer0")) == 3


def test_what_is_not_finite_is_left_out(probe: Probe) -> None:
    data = probe.dataset().copy(deep=True)
    data["entropy_rel"].values[1, 0, 2] = np.inf
    data["train_loss"].values[:] = [np.nan, 2.0, np.nan]
    found = scalars(data)
    assert "entropy_rel_by_head/layer0_head02" not in found[1]
    assert "entropy_rel_by_head/layer0_head02" in found[2]
    assert np.isfinite(found[1]["entropy_rel/layer0"])
    assert {step: values.get("train_loss") for step, values in found.items()} == {0: None, 1: 2.0, 2: None}


def test_bad_places_and_a_missing_package_are_said(
    probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: xr.Dataset = probe.dataset()
    (tmp_path / "a file").touch()
    for bad in (tmp_path / "a file", "", None):
        with refused("tensorboard"):
            export(data, bad)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with refused("tensorboard", names="pip install"):
        export(data, tmp_path / "events")
    assert not (tmp_path / "events").exists()
