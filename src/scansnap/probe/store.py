"""What a probe has measured, in memory: the labelled Dataset is made from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from scansnap.probe.look import Layer, Measurement, Samples
from scansnap.probe.schema import AGAINST, DECILES, VARIABLES


class Measurements:
    """Measurements by step, in order."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.layers: list[Layer] = []
        self.found: list[dict[str, dict[tuple[str, int], np.ndarray]]] = []
        self.first: Samples = {}  # what the sampled queries attended to in the first measurement
        self.last: Samples = {}  # … and in the last

    def add(self, step: int, new: Measurement) -> None:
        """Keep one more."""
        known = {(layer.path, layer.number) for layer in self.layers}
        self.layers += [layer for layer in new.layers if (layer.path, layer.number) not in known]
        names = [(layer.path, layer.number) for layer in new.layers]
        self.found.append({key: dict(zip(names, arrays, strict=True)) for key, arrays in new.values.items()})
        self.steps.append(step)
        self.first = self.first or new.samples
        self.last = new.samples

    def dataset(self, n_sequences: int, attrs: dict[str, Any]) -> xr.Dataset:
        """All of it by step, layer and head; NaN where a layer has fewer heads or a step has no such layer."""
        sizes = {"step": len(self.steps), "layer": len(self.layers), "sequence": n_sequences, "decile": DECILES,
                 "against": len(AGAINST), "head": max((layer.heads for layer in self.layers), default=0)}  # fmt: skip
        place = {(layer.path, layer.number): i for i, layer in enumerate(self.layers)}
        data = {}
        for name, variable in VARIABLES.items():
            dims = ("step", *variable.dims)
            values = np.full([sizes[dim] for dim in dims], np.nan)
            for i, found in enumerate(self.found):
                for layer, array in found.get(name, {}).items():
                    at = tuple(place[layer] if dim == "layer" else slice(n) for dim, n in _extent(variable.dims, array))
                    if values[i][at].shape == array.shape:
                        values[i][at] = array
            data[name] = (dims, values, {"long_name": variable.meaning})
        coords = {"step": self.steps, "decile": np.arange(DECILES), "against": list(AGAINST),
                  "path": ("layer", [layer.path for layer in self.layers]),
                  "call": ("layer", [layer.number for layer in self.layers]),
                  "kind": ("layer", [layer.kind for layer in self.layers])}  # fmt: skip
        return xr.Dataset(data, coords=coords, attrs=attrs)


def _extent(dims: tuple[str, ...], array: np.ndarray) -> list[tuple[str, int]]:
    """Each dimension with the length that one layer's array has along it."""
    lengths = iter(array.shape)
    return [(dim, 0 if dim == "layer" else next(lengths)) for dim in dims]
