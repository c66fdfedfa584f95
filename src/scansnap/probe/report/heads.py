"""Every head with its verdict and the numbers it rests on, as the probe's findings have them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from scansnap.probe.report.curves import values_of

WORDS = ("scans", "snaps", "sink", "positional", "neither", "undecided")  # the first that a head has gives its colour
UNJUDGED = "not judged"
DERIVED = ("scan_index", "scan_low", "scan_high", "t_snap", "t_snap_ln", "frozenness_ln")
LAST = ("entropy_rel", "sink", "previous", "induction")  # of the last measurement, in the table


@dataclass(frozen=True)
class Head:
    """One head of one attention."""

    layer: int
    head: int
    path: str
    call: int
    kind: str
    words: tuple[str, ...]
    numbers: dict[str, float]  # NaN where there is none
    reasons: dict[str, str]  # why there is no t_snap, or none in ln t
    said: str  # all that the verdict rests on, in a line

    @property
    def name(self) -> str:
        return f"layer {self.layer} · head {self.head}"

    @property
    def colour(self) -> str:
        return next((word for word in WORDS if word in self.words), UNJUDGED).replace(" ", "-")

    @property
    def verdict(self) -> str:
        return " and ".join(self.words) or UNJUDGED

    @property
    def snap(self) -> float:
        """The step to mark for a head that snaps, as it is seen over ln t; NaN for others."""
        times = [self.numbers[name] for name in ("t_snap_ln", "t_snap") if math.isfinite(self.numbers[name])]
        return times[0] if times and "snaps" in self.words else math.nan

    def time(self, name: str) -> str:
        """A snapping time, or why there is none."""
        value = self.numbers[name]
        return step_words(value) if math.isfinite(value) else self.reasons[name] or ("not yet" if self.words else "–")


def heads_of(data: xr.Dataset) -> list[Head]:
    """All heads there are; in the data a layer with fewer heads than others has empty places."""
    found = []
    judged = _by_head(data, "verdict")
    numbers = {name: _by_head(data, name) for name in DERIVED}
    words_for = {name: _by_head(data, name) for name in ("t_snap_reason", "t_snap_ln_reason", "verdict_numbers")}
    ends = {name: _first_and_last(values_of(data, name)) for name in LAST}
    for layer, head in np.argwhere(_there(data)).tolist():
        said = "" if judged is None else str(judged[layer, head])
        texts = {name: "" if values is None else str(values[layer, head]) for name, values in words_for.items()}
        reasons = {name: texts[f"{name}_reason"] for name in ("t_snap", "t_snap_ln")}
        own = {name: math.nan if values is None else float(values[layer, head]) for name, values in numbers.items()}
        for name, pair in ends.items():
            own[f"{name}_first"], own[name] = (math.nan, math.nan) if pair is None else (
                float(pair[0][layer, head]), float(pair[1][layer, head]))  # fmt: skip
        words = tuple(word for word in WORDS if re.search(rf"\b{word}\b", said))
        found.append(Head(layer, head, _text(data, "path", layer), int(_label(data, "call", layer, 0)),
                          _text(data, "kind", layer), words, own, reasons, texts["verdict_numbers"]))  # fmt: skip
    return found


def counts(heads: Sequence[Head]) -> dict[str, int]:
    """How many heads have each word; one head may have several."""
    return {word: sum(word in head.words for head in heads) for word in WORDS}


def most_scanning(heads: Sequence[Head], moved: np.ndarray | None, n: int) -> tuple[list[Head], bool]:
    """The heads with the greatest scan index; where there is none, those whose attention moved furthest, and False."""
    known = [head for head in heads if math.isfinite(head.numbers["scan_index"])]
    if known:
        return sorted(known, key=lambda head: -head.numbers["scan_index"])[:n], True
    if moved is None:
        return list(heads[:n]), False
    _, last = _first_and_last(moved) or (None, moved[-1])
    far = {(head.layer, head.head): float(np.nan_to_num(last[head.layer, head.head])) for head in heads}
    return sorted(heads, key=lambda head: -far[head.layer, head.head])[:n], False


def _there(data: xr.Dataset) -> np.ndarray:
    """(layer, head): whether anything was measured of it."""
    found = np.zeros((data.sizes.get("layer", 0), data.sizes.get("head", 0)), bool)
    for name in ("n_queries", "entropy", "entropy_rel", "moved"):
        values = values_of(data, name)
        if values is not None:
            found |= np.isfinite(values).any(0)
    return found


def _by_head(data: xr.Dataset, name: str) -> np.ndarray | None:
    """By layer and head; of something that is known at every step, the last."""
    if name not in data or not {"layer", "head"} <= set(data[name].dims):
        return None
    array = data[name]
    if "step" in array.dims:
        if not array.sizes["step"]:
            return None
        array = array.isel(step=-1)
    return array.transpose("layer", "head").values


def _first_and_last(values: np.ndarray | None) -> tuple[np.ndarray, np.ndarray] | None:
    """The first and the last finite value of each head."""
    if values is None or not len(values):
        return None
    finite = np.isfinite(values)
    n = len(values)
    first, last = finite.argmax(0), n - 1 - finite[::-1].argmax(0)
    return tuple(np.take_along_axis(values, at[None], 0)[0] for at in (first, last))


def step_words(step: float) -> str:
    """With thin spaces between the thousands."""
    return f"{step:,.0f}".replace(",", "\u2009")


def _label(data: xr.Dataset, name: str, layer: int, default: Any) -> Any:
    return data[name].values[layer] if name in data.variables else default


def _text(data: xr.Dataset, name: str, layer: int) -> str:
    return str(_label(data, name, layer, ""))
