"""The measurements of a probe in memory, as a labelled Dataset with attributes."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from scansnap.probe.batch import hash_batch
from scansnap.probe.measurement import AttentionLayer, LayerKey, Measurement, Samples
from scansnap.probe.schema import AGAINST, DECILES, PARTS, VARIABLES
from scansnap.probe.statistics.sampled import index_before_fold, needed_indices
from scansnap.results.trajectory import PROBED, versions


def describe_run(model: nn.Module, batch: Any, every: int | str | Iterable[int], queries: int | None) -> dict[str, Any]:
    """Attributes of the Dataset; ``corpus`` and ``coverage`` are added if known."""
    transformers = sys.modules.get("transformers")
    packages = versions() | ({"transformers": str(transformers.__version__)} if transformers is not None else {})
    return {
        "format": PROBED,
        "batch": hash_batch(batch),
        "queries": "all" if queries is None else queries,
        "every": every if isinstance(every, int | str) else json.dumps(sorted(every)),
        "model": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "versions": json.dumps(packages),
    }


Row = dict[str, np.ndarray]  # one measurement: each variable with its dimensions but step


@dataclass(frozen=True)
class MeasurementLayout:
    """How measurements lie in arrays: the layers so far, in order, with the shapes (B, H, q, S) of their samples."""

    layers: tuple[AttentionLayer, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def keys(self) -> list[LayerKey]:
        return [(layer.path, layer.number) for layer in self.layers]

    @property
    def sizes(self) -> dict[str, int]:
        return {"layer": len(self.layers), "head": max((layer.heads for layer in self.layers), default=0),
                "sequence": max((shape[0] for shape in self.shapes), default=0), "decile": DECILES,
                "against": len(AGAINST), "part": len(PARTS)}  # fmt: skip

    @property
    def block(self) -> tuple[int, ...] | None:
        """The shape of most layers' samples, if they have all sequences and heads; the report shows these."""
        common = Counter(self.shapes).most_common(1)
        sizes = self.sizes
        fits = common and common[0][0][:2] == (sizes["sequence"], sizes["head"])
        return common[0][0] if fits else None

    def with_layers(self, new: Measurement) -> MeasurementLayout:
        """This layout with the new layers of a measurement."""
        known = set(self.keys)
        more = [layer for layer in new.layers if (layer.path, layer.number) not in known]
        shapes = [tuple(new.samples[layer.path, layer.number].shape) for layer in more]
        return MeasurementLayout((*self.layers, *more), (*self.shapes, *shapes)) if more else self

    def empty(self, name: str) -> np.ndarray:
        """A variable of one measurement, all NaN."""
        return np.full([self.sizes[dim] for dim in VARIABLES[name].dims], np.nan)

    def row(self, new: Measurement) -> Row:
        """A measurement; NaN for missing layers and heads."""
        index = {name: i for i, name in enumerate(self.keys)}
        row = {}
        for name, variable in VARIABLES.items():
            row[name] = self.empty(name)
            of_layers = "layer" in variable.dims
            for layer, array in zip(new.layers if of_layers else [None], new.values.get(name, ()), strict=False):
                lengths = iter(np.shape(array))
                at = tuple(index[layer.path, layer.number] if dim == "layer" and layer is not None
                           else slice(next(lengths)) for dim in variable.dims)  # fmt: skip
                if row[name][at].shape == np.shape(array):
                    row[name][at] = array
        return row

    def widen(self, row: Row) -> Row:
        """A row of an earlier, smaller layout."""
        wide = {}
        for name in VARIABLES:
            wide[name] = self.empty(name)
            old = row.get(name)
            if old is not None and old.ndim == wide[name].ndim:
                wide[name][tuple(map(slice, old.shape))] = old
        return wide

    def pack(self, samples: Samples) -> np.ndarray:
        """The samples with the shape of ``block`` as one array (layer, B, H, q, S); NaN for the others."""
        block = np.full((len(self.layers), *self.block) if self.block else 0, np.nan, np.float32)
        for i, name in enumerate(self.keys):
            if name in samples and tuple(samples[name].shape) == self.block:
                block[i] = samples[name].float().cpu().numpy()
        return block

    def by_index(self, samples: Samples) -> dict[str, np.ndarray]:
        """Samples by the index of the layer, which new layers do not change."""
        return {str(i): samples[name].float().cpu().numpy() for i, name in enumerate(self.keys) if name in samples}

    def by_key(self, arrays: Mapping[str, np.ndarray]) -> Samples:
        """The inverse of `by_index`."""
        return {self.keys[int(i)]: torch.from_numpy(array.copy()) for i, array in arrays.items()}

    def to_values(self) -> dict[str, Any]:
        """As values for JSON."""
        return {"layers": [asdict(layer) for layer in self.layers], "shapes": self.shapes}

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> MeasurementLayout:
        return cls(tuple(AttentionLayer(**layer) for layer in values["layers"]), tuple(map(tuple, values["shapes"])))


FIRST, LAST = "attention_first", "attention_last"


class Measurements:
    """Measurements by step, in order.

    attrs   attributes of the Dataset
    tokens  token ids (B, T) of the batch, if it has them
    words   the text of each token id, if known
    """

    def __init__(self, attrs: dict[str, Any], tokens: Tensor | None = None, words: Sequence[str] | None = None) -> None:
        self.attrs = attrs
        self.stored_attrs: dict[str, Any] = {}  # of the file, when it was opened
        self.is_written = True  # whether everything is on disk
        self.tokens = None if tokens is None else tokens.cpu().numpy()
        self.words = words
        self.steps: list[int] = []
        self.rows: list[Row] = []
        self.layout = MeasurementLayout()
        self.positions: np.ndarray | None = None  # of the sampled queries
        self.first: Samples = {}  # attention of the sampled queries in the first measurement
        self.last: Samples = {}  # … in the last
        self.anchors: dict[int, Samples] = {}  # … in those that later ones are compared with over an e-fold

    def begin(self, step: int) -> None:
        """Training is at this step; only a file needs to know."""

    def before(self, step: int) -> Samples:
        """Samples of an e-fold of steps ago; empty if unknown."""
        i = index_before_fold(self.steps, step)
        return {} if i is None else self.anchors.get(i, {})

    def add(self, step: int, new: Measurement) -> None:
        """Add a measurement."""
        layout = self.layout.with_layers(new)
        if layout.sizes != self.layout.sizes:
            self.rows = [layout.widen(row) for row in self.rows]
        self.layout = layout
        self.rows.append(layout.row(new))
        self.steps.append(step)
        samples = {key: tensor.cpu() for key, tensor in new.samples.items()}
        self.first = self.first or samples
        self.last = new.samples  # on the model's device, since the next measurement is compared with it
        known = self.anchors | {len(self.steps) - 1: samples}
        self.anchors = {i: known[i] for i in needed_indices(self.steps) if i in known}
        self.attrs.pop("nonfinite_since", None)
        if since := self.nonfinite_since():
            self.attrs["nonfinite_since"] = json.dumps(since)
        for name, shape in zip(layout.keys, layout.shapes, strict=True):
            if self.positions is None and shape == layout.block and name in new.positions:
                self.positions = new.positions[name].cpu().numpy()

    def nonfinite_since(self) -> dict[str, int]:
        """The parts of the model that are NaN or infinite in the last measurement, with the step since when."""
        since: dict[str, int] = {}
        for i, part in enumerate(PARTS):
            for step, row in zip(self.steps, self.rows, strict=True):
                if row["nonfinite"][i] == 1:
                    since.setdefault(part, step)
                elif row["nonfinite"][i] == 0:
                    since.pop(part, None)
        return since

    def dataset(self) -> xr.Dataset:
        """All measurements by step, layer and head, with the samples of the first and the last."""
        data: dict[str, Any] = {}
        for name, variable in VARIABLES.items():
            values = np.stack([row[name] for row in self.rows]) if self.rows else self.layout.empty(name)[None][:0]
            data[name] = (("step", *variable.dims), values, {"long_name": variable.meaning})
        layers = self.layout.layers
        steps = np.array(self.steps, dtype=np.int64)
        coords = {"step": steps, "decile": np.arange(DECILES), "against": _object_array(AGAINST),
                  "part": _object_array(PARTS),
                  "path": ("layer", _object_array([layer.path for layer in layers])),
                  "call": ("layer", [layer.number for layer in layers]),
                  "kind": ("layer", _object_array([layer.kind for layer in layers]))}  # fmt: skip
        return xr.Dataset(
            {**data, **self._token_variables(), **self._sample_variables()}, coords=coords, attrs=dict(self.attrs)
        )

    def _token_variables(self) -> dict[str, Any]:
        """The tokens of the batch, if its sequences are those of the attention."""
        if self.tokens is None or len(self.tokens) != self.layout.sizes["sequence"]:
            return {}
        variables: dict[str, Any] = {
            "tokens": (("sequence", "position"), self.tokens, {"long_name": "token ids of the batch"})
        }
        if self.words is not None:
            variables["words"] = ("token", _object_array(list(self.words)), {"long_name": "text of each token id"})
        return variables

    def _sample_variables(self) -> dict[str, Any]:
        block = self.layout.block
        if block is None or self.positions is None or not self.rows:
            return {}
        own_keys = self.tokens is None or self.tokens.shape == (block[0], block[3])
        dims = ("layer", "sequence", "head", "sampled", "position" if own_keys else "key")
        variables: dict[str, Any] = {"sampled_position": ("sampled", self.positions, {"long_name": "query position"})}
        for name, samples, which in ((FIRST, self.first, "first"), (LAST, self.last, "last")):
            meaning = f"attention of the sampled queries in the {which} measurement"
            variables[name] = (dims, self.layout.pack(samples), {"long_name": meaning})
        return variables


def _object_array(words: Sequence[str]) -> np.ndarray:
    """Strings of any length."""
    return np.array(words, dtype=object)
