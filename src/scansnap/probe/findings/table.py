"""The findings as lines of text, one for each head, and how many there are of each."""

from __future__ import annotations

from collections import Counter

import numpy as np
import xarray as xr

from scansnap.probe.findings.scan import reason
from scansnap.probe.findings.verdict import NOTE, findings


def summary(data: xr.Dataset) -> str:
    """One line for each head: whose it is, its verdict and its numbers; before them what was looked at."""
    data = data if "verdict" in data else findings(data)
    if "verdict" not in data:
        return "nothing was measured"
    heads = [
        (layer, head) for layer, head in np.ndindex(data["verdict"].shape) if str(data["verdict"].values[layer, head])
    ]
    names = {(layer, head): f"{_layer(data, layer)} head {head}" for layer, head in heads}
    verdicts = {at: str(data["verdict"].values[at]) for at in heads}
    width, wide = (max((len(text) for text in some.values()), default=0) for some in (names, verdicts))
    steps = data["step"].values
    counts = ", ".join(f"{n} {word}" for word, n in Counter(verdicts.values()).most_common())
    lines = [f"{len(heads)} heads, {len(steps)} measurements from step {steps[0]} to {steps[-1]}: {counts}"]
    if reason(data):
        lines.append(f"whether heads scan is undecided: {reason(data)}; it takes several sequences and a corpus")
    lines += [f"{names[at]:{width}}  {verdicts[at]:{wide}}  {data['verdict_numbers'].values[at]}" for at in heads]
    return "\n".join([*lines, f"({NOTE})"])


def _layer(data: xr.Dataset, layer: int) -> str:
    path, call = str(data["path"].values[layer]), int(data["call"].values[layer])
    return (path or "the model") + (f" call {call}" if call else "")
