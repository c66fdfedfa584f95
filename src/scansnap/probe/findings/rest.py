"""Where attention rests at the last measurement, beyond what uniform attention gives.

    excess = (value − uniform)/(1 − uniform)        0 for uniform attention, 1 where all of it is there

so that a short window, in which every key gets much, makes no sink. These describe the batch that was looked at; they
are no estimates and have no interval. A head that looks back by another fixed lag is not called positional.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

SINK = 0.3  # excess of attention on the first key (the threshold of Gu et al. 2024, there without the uniform share) …
SEQUENCES = 0.5  # … and the share of sequences above it: most of them, not a few extreme ones
POSITIONAL = 0.5  # excess on the query's own and the previous position: most of what there is to decide


def rest(data: xr.Dataset) -> xr.Dataset:
    """Excesses (layer, head), and ``is_sink``, ``is_positional``: 1, 0 or NaN where unknown."""
    last = data.isel(step=-1)
    sink = _excess(last["sink"], last["sink_uniform"])
    near = _excess(_near(last), _near(last, "_uniform"))
    is_sink = ((sink >= SINK) & (last["sink_share"] > SEQUENCES)).where(np.isfinite(sink))
    found = {
        "sink_excess": (sink, "attention to the first key beyond uniform attention"),
        "near": (_near(last), "attention to the own and the previous position"),
        "near_uniform": (_near(last, "_uniform"), "the same for uniform attention"),
        "positional_excess": (near, "attention to the own and the previous position beyond uniform attention"),
        "is_sink": (is_sink, "1: a sink, 0: not, NaN: unknown"),
        "is_positional": ((near >= POSITIONAL).where(np.isfinite(near)), "1: positional, 0: not, NaN: unknown"),
    }
    return xr.Dataset(
        {name: value.transpose("layer", "head").assign_attrs(long_name=text) for name, (value, text) in found.items()}
    ).drop_vars("step", errors="ignore")


def _near(last: xr.Dataset, which: str = "") -> xr.DataArray:
    """On the own and the previous position; a model that does not look at one of them has only the other."""
    own, previous = last["self" + which], last["previous" + which]
    return (own.fillna(0) + previous.fillna(0)).where(np.isfinite(own) | np.isfinite(previous))


def _excess(value: xr.DataArray, uniform: xr.DataArray) -> xr.DataArray:
    room = 1 - uniform
    return (value - uniform) / room.where(room > 1e-6)
