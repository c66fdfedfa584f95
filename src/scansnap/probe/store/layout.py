"""How measurements lie in arrays: which layer, head and sequence stands where, and the sampled rows as one block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from scansnap.probe.look import Layer, Measurement, Name, Samples
from scansnap.probe.schema import AGAINST, DECILES, VARIABLES

Row = dict[str, np.ndarray]  # one measurement: each variable in its dimensions


@dataclass(frozen=True)
class Layout:
    """The layers that were seen so far, in order, with the shapes (B, H, q, S) of their samples."""

    layers: tuple[Layer, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def names(self) -> list[Name]:
        return [(layer.path, layer.number) for layer in self.layers]

    @property
    def sizes(self) -> dict[str, int]:
        return {"layer": len(self.layers), "head": max((layer.heads for layer in self.layers), default=0),
                "sequence": max((shape[0] for shape in self.shapes), default=0), "decile": DECILES,
                "against": len(AGAINST)}  # fmt: skip

    @property
    def block(self) -> tuple[int, ...] | None:
        """The shape of most layers' samples, if these have all sequences and heads; the report shows them."""
        common = Counter(self.shapes).most_common(1)
        sizes = self.sizes
        fits = common and common[0][0][:2] == (sizes["sequence"], sizes["head"])
        return common[0][0] if fits else None

    def with_layers(self, new: Measurement) -> Layout:
        """Room for those of a measurement that were not seen before."""
        known = set(self.names)
        more = [layer for layer in new.layers if (layer.path, layer.number) not in known]
        shapes = [tuple(new.samples[layer.path, layer.number].shape) for layer in more]
        return Layout((*self.layers, *more), (*self.shapes, *shapes)) if more else self

    # --- variables ---------------------------------------------------------------------------------------------

    def empty(self, name: str) -> np.ndarray:
        """A variable of one measurement before anything is known."""
        return np.full([self.sizes[dim] for dim in VARIABLES[name].dims], np.nan)

    def row(self, new: Measurement) -> Row:
        """A measurement; NaN where a layer has fewer heads, or was not there."""
        place = {name: i for i, name in enumerate(self.names)}
        row = {}
        for name, variable in VARIABLES.items():
            row[name] = self.empty(name)
            of_layers = "layer" in variable.dims
            for layer, array in zip(new.layers if of_layers else [None], new.values.get(name, ()), strict=False):
                lengths = iter(np.shape(array))
                at = tuple(place[layer.path, layer.number] if dim == "layer" and layer is not None
                           else slice(next(lengths)) for dim in variable.dims)  # fmt: skip
                if row[name][at].shape == np.shape(array):
                    row[name][at] = array
        return row

    def widened(self, row: Row) -> Row:
        """A row of an earlier layout, which had fewer of something."""
        wide = {}
        for name in VARIABLES:
            wide[name] = self.empty(name)
            old = row.get(name)
            if old is not None and old.ndim == wide[name].ndim:
                wide[name][tuple(map(slice, old.shape))] = old
        return wide

    # --- samples -----------------------------------------------------------------------------------------------

    def packed(self, samples: Samples) -> np.ndarray:
        """Samples as the block (layer, B, H, q, S) of those that have its shape; NaN for the others."""
        block = np.full((len(self.layers), *self.block) if self.block else 0, np.nan, np.float32)
        for i, name in enumerate(self.names):
            if name in samples and tuple(samples[name].shape) == self.block:
                block[i] = samples[name].float().cpu().numpy()
        return block

    def by_number(self, samples: Samples) -> dict[str, np.ndarray]:
        """Samples by the number of the layer, which does not change when other layers come."""
        return {str(i): samples[name].float().cpu().numpy() for i, name in enumerate(self.names) if name in samples}

    def by_name(self, arrays: Mapping[str, np.ndarray]) -> Samples:
        """The samples that :meth:`by_number` returned."""
        return {self.names[int(i)]: torch.from_numpy(array.copy()) for i, array in arrays.items()}

    def to_values(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"layers": [asdict(layer) for layer in self.layers], "shapes": self.shapes}

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Layout:
        return cls(tuple(Layer(**layer) for layer in values["layers"]), tuple(map(tuple, values["shapes"])))
