"""Export a probe's measurements as TensorBoard scalars, per layer and per head.

    train_loss, batch_loss
    entropy_rel/layer03                     mean over the layer's heads
    entropy_rel_by_head/layer03_head05

for ``entropy_rel``, ``scan_index`` (distinctness less that of the first measurement, mean over sequences) and ``moved``
(total variation since the last measurement).
"""

from __future__ import annotations

import math
from os import PathLike, fspath
from pathlib import Path

import numpy as np
import xarray as xr

from scansnap.checks import InputError
from scansnap.probe.report.curves import mean, values_of
from scansnap.storage import WriteError
from scansnap.text.tensorboard import EventWriter, check_event_folder

SUFFIX = ".scansnap-probe"  # of our event files, which a later export replaces


def export(data: xr.Dataset, folder: str | PathLike[str]) -> Path:
    """Write event files into ``folder``; needs the package tensorboard."""
    if not isinstance(folder, str | PathLike) or not fspath(folder):
        raise InputError("tensorboard", folder, "the path of a folder")
    place = check_event_folder(Path(fspath(folder)))
    values_by_step = scalars(data)
    earlier = list(place.glob(f"events.out.tfevents.*{SUFFIX}")) if place.is_dir() else []
    try:
        writer = EventWriter(place, SUFFIX)
        for step, values in values_by_step.items():
            writer.add(step, values)
        writer.close()
        for file in earlier:
            file.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror if isinstance(error, WriteError) else str(error)
        raise InputError("tensorboard", str(place), "a writable folder", str(reason)) from None
    return place


def scalars(data: xr.Dataset) -> dict[int, dict[str, float]]:
    """Finite values by step and name."""
    steps = [int(step) for step in data["step"].values]
    result: dict[int, dict[str, float]] = {step: {} for step in steps}
    for name in {"batch_loss", "train_loss"} & set(data):
        for step, value in zip(steps, data[name].values.tolist(), strict=True):
            _put(result[step], name, value)
    for name in ("entropy_rel", "scan_index", "moved"):
        values = scan_index(data) if name == "scan_index" else values_of(data, name)
        if values is None:
            continue
        width = [len(str(max(n - 1, 0))) for n in values.shape[1:]]  # leading zeros keep the order
        for step, by_layer, by_head in zip(steps, mean(values, 2), values, strict=True):
            for i, layer in enumerate(by_head):
                label = f"layer{i:0{width[0]}}"
                _put(result[step], f"{name}/{label}", by_layer[i])
                for j, value in enumerate(layer):
                    _put(result[step], f"{name}_by_head/{label}_head{j:0{width[1]}}", value)
    return result


def scan_index(data: xr.Dataset) -> np.ndarray | None:
    """Scan index by step, layer and head."""
    if "distinctness" not in data or not data.sizes["step"]:
        return None
    values = data["distinctness"].transpose("step", "layer", "head", "sequence").values
    return mean(values - values[:1], -1)


def _put(values: dict[str, float], name: str, value: float) -> None:
    if math.isfinite(value):
        values[name] = float(value)
