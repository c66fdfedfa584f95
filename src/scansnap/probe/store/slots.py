"""Where samples lie in a probe's file: in slots that are used again, by the number of the measurement."""

from __future__ import annotations

import numpy as np

from scansnap.probe.look import Layer, Samples
from scansnap.probe.store.layout import Layout
from scansnap.storage.growing import Growing


def names(slot: int) -> tuple[str, str]:
    """The files with one sample: of the layers of one shape, and of the others."""
    return f"samples/{slot}", f"samples/{slot}-others"


def chunk(name: str) -> str:
    """The one file of a sample that is a variable."""
    return f"{name}/c/0/0/0/0/0"


def slots_of(store: Growing) -> dict[int, int]:
    """Where the samples are that count, by the number of the measurement."""
    return dict(store.table["layout"]["samples"])


def sample_of(store: Growing, i: int, layout: Layout) -> Samples:
    """That of a measurement; empty where it is no longer there."""
    slot = slots_of(store).get(i)
    if slot is None:
        return {}
    block, rest = (store.file(name) for name in names(slot))
    return layout.unpacked(block or b"", rest or b"")


def layout_of(store: Growing) -> tuple[Layout, np.ndarray | None]:
    """How the file is arranged, and the positions of the sampled queries."""
    there = store.table["layout"]
    layers = tuple(Layer(**layer) for layer in there["layers"])
    positions = None if there["positions"] is None else np.array(there["positions"])
    return Layout(layers, tuple(map(tuple, there["shapes"]))), positions
