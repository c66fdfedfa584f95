"""The verdict on each head, in words, with the numbers it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from scansnap.probe.findings.rest import rest
from scansnap.probe.findings.scan import reason, scan
from scansnap.probe.findings.snap import snap

WORDS = {"scans": "scans", "snaps": "snaps", "is_sink": "sink", "is_positional": "positional"}  # variable: word
HEADS = {"layer", "head"}
NOTE = ("a learning rate that goes to zero freezes any attention: whether heads snap by themselves "
        "is seen at a constant rate")  # fmt: skip


def findings(data: xr.Dataset) -> xr.Dataset:
    """A probe's record with what follows from it: scan index, snapping times, frozenness, verdicts."""
    if not data.sizes.get("step", 0) or not data.sizes.get("layer", 0):
        return data
    found = xr.merge([scan(data), snap(data), rest(data)], join="exact", combine_attrs="drop_conflicts")
    real = np.isfinite(data["n_queries"].isel(step=-1).transpose("layer", "head").values)  # layers may have fewer heads
    holds = np.stack([found[name].transpose("layer", "head").values for name in WORDS], -1)
    unsaid = reason(data)
    last = data.merge(found, compat="no_conflicts").isel(step=-1)
    by_head = {str(name): one.transpose("layer", "head").values for name, one in last.items() if set(one.dims) == HEADS}
    words, numbers = np.full((2, *real.shape), "", dtype=object)
    for layer, head in np.argwhere(real):
        words[layer, head] = verdict(holds[layer, head])
        one = {name: values[layer, head] for name, values in by_head.items()}
        numbers[layer, head] = numbers_of(one.__getitem__, unsaid)
    heads = ("layer", "head")
    return data.merge(found, compat="no_conflicts").assign(
        verdict=(heads, words.astype(np.str_), {"long_name": "what holds of the head"}),
        verdict_numbers=(heads, numbers.astype(np.str_), {"long_name": "what the verdict rests on"}),
    ).assign_attrs(findings_note=NOTE)  # fmt: skip


def verdict(holds: np.ndarray) -> str:
    """From yes (1), no (0) and undecided (NaN) for each of WORDS."""
    said = [word for word, one in zip(WORDS.values(), holds, strict=True) if one == 1]
    return " and ".join(said) or ("undecided" if np.isnan(holds).any() else "neither")


def numbers_of(value: Callable[[str], Any], unsaid: str) -> str:
    """One line for one head, whose numbers ``value`` knows by name; ``unsaid``: why nothing is said of scanning."""
    frozen = ""
    if math.isfinite(value("frozenness_ln")):
        low, high = value("frozenness_ln_low"), value("frozenness_ln_high")
        bounds = f" ({low:.2f} to {high:.2f})" if high - low > 0.005 else ""
        frozen = f", frozen {value('frozenness_ln'):.2f} in ln t{bounds}"
    times = [f"{name} {value(name):.4g}" if math.isfinite(value(name)) else f"no {name}: {value(name + '_reason')}"
             for name in ("t_snap", "t_snap_ln")]  # fmt: skip
    scan_index = f"scan index {value('scan_index'):+.3f} ({value('scan_low_all'):+.3f} to {value('scan_high_all'):+.3f}"
    return "; ".join([
        f"scanning undecided ({unsaid})" if unsaid else f"{scan_index}, chance ±{value('scan_chance'):.3f})",
        ", ".join([f"moved {value('moved_from_start'):.3f}{frozen}", *times]),
        f"first key {value('sink'):.2f} (uniform {value('sink_uniform'):.2f})",
        f"own and previous {value('near'):.2f} (uniform {value('near_uniform'):.2f})",
    ])  # fmt: skip
