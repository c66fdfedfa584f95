"""What a probe has measured, in memory: the labelled Dataset is made from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from scansnap.probe.look import Measurement, Samples
from scansnap.probe.schema import AGAINST, DECILES, VARIABLES
from scansnap.probe.statistics.movement import a_fold_before, still_needed
from scansnap.probe.store.layout import Layout, Row

FIRST, LAST = "attention_first", "attention_last"


class Measurements:
    """Measurements by step, in order.

    attrs   what is said of all of them
    tokens  token ids (B, T) of the batch, if it has them
    words   the text of each token id, from 0 on, if that is known
    """

    def __init__(self, attrs: dict[str, Any], tokens: Tensor | None = None, words: Sequence[str] | None = None) -> None:
        self.attrs = attrs
        self.found: dict[str, Any] = {}  # what the file said when it was opened
        self.is_written = True  # all of it is where it should be
        self.tokens = None if tokens is None else tokens.cpu().numpy()
        self.words = words
        self.steps: list[int] = []
        self.rows: list[Row] = []
        self.layout = Layout()
        self.positions: np.ndarray | None = None  # of the queries whose attention is kept
        self.first: Samples = {}  # what the sampled queries attended to in the first measurement
        self.last: Samples = {}  # … and in the last
        self.anchors: dict[int, Samples] = {}  # … and in those that later ones are compared with over an e-fold

    def begin(self, step: int) -> None:
        """Training is at this step; nothing follows from it in memory."""

    def before(self, step: int) -> Samples:
        """What the sampled queries attended to an e-fold of steps ago; empty where that is not known."""
        i = a_fold_before(self.steps, step)
        return {} if i is None else self.anchors.get(i, {})

    def add(self, step: int, new: Measurement) -> None:
        """Keep one more."""
        layout = self.layout.with_layers(new)
        if layout.sizes != self.layout.sizes:
            self.rows = [layout.widened(row) for row in self.rows]
        self.layout = layout
        self.rows.append(layout.row(new))
        self.steps.append(step)
        self.first = self.first or new.samples
        self.last = new.samples
        known = self.anchors | {len(self.steps) - 1: new.samples}
        self.anchors = {i: known[i] for i in still_needed(self.steps) if i in known}
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            if self.positions is None and shape == layout.block and name in new.positions:
                self.positions = new.positions[name].cpu().numpy()

    def dataset(self) -> xr.Dataset:
        """All of it by step, layer and head, and the sampled attention of the first and the last measurement."""
        data: dict[str, Any] = {}
        for name, variable in VARIABLES.items():
            values = np.stack([row[name] for row in self.rows]) if self.rows else self.layout.empty(name)[None][:0]
            data[name] = (("step", *variable.dims), values, {"long_name": variable.meaning})
        layers = self.layout.layers
        steps = np.array(self.steps, dtype=np.int64)
        coords = {"step": steps, "decile": np.arange(DECILES), "against": _texts(AGAINST),
                  "path": ("layer", _texts([layer.path for layer in layers])),
                  "call": ("layer", [layer.number for layer in layers]),
                  "kind": ("layer", _texts([layer.kind for layer in layers]))}  # fmt: skip
        return xr.Dataset({**data, **self._sentences(), **self._sampled()}, coords=coords, attrs=dict(self.attrs))

    def _sentences(self) -> dict[str, Any]:
        """The tokens of the batch, where its sequences are those of the attention."""
        if self.tokens is None or len(self.tokens) != self.layout.sizes["sequence"]:
            return {}
        found: dict[str, Any] = {
            "tokens": (("sequence", "position"), self.tokens, {"long_name": "token ids of the batch"})
        }
        if self.words is not None:
            found["words"] = ("token", _texts(list(self.words)), {"long_name": "text of each token id"})
        return found

    def _sampled(self) -> dict[str, Any]:
        block = self.layout.block
        if block is None or self.positions is None or not self.rows:
            return {}
        ours = self.tokens is None or self.tokens.shape == (block[0], block[3])
        dims = ("layer", "sequence", "head", "sampled", "position" if ours else "key")
        found: dict[str, Any] = {"sampled_position": ("sampled", self.positions, {"long_name": "their place, from 0"})}
        for name, samples, which in ((FIRST, self.first, "first"), (LAST, self.last, "last")):
            words = f"attention of the sampled queries in the {which} measurement"
            found[name] = (dims, self.layout.packed(samples), {"long_name": words})
        return found


def _texts(words: Sequence[str]) -> np.ndarray:
    """Of any length, as files keep them."""
    return np.array(words, dtype=object)
