"""Records of a probe made up so that the answer is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

from scansnap.probe.schema import AGAINST, DECILES, PARTS, VARIABLES

UNIFORM = {"sink": 0.05, "self": 0.05, "previous": 0.05}  # what uniform attention gives in the records below

Record = Callable[..., xr.Dataset]


def recorded(steps: Any, *, heads: int = 1, layers: int = 1, sequences: int = 16, corpus: str = "the corpus given",
             **values: Any) -> xr.Dataset:  # fmt: skip
    """A record of these steps: uniform attention that stands still, save for what is given by name.

    Values broadcast to their variable's dimensions, (step, layer, head) or (step, sequence, layer, head).
    """
    steps = np.asarray(steps)
    sizes = {"step": len(steps), "layer": layers, "head": heads, "sequence": sequences, "decile": DECILES,
             "against": len(AGAINST), "part": len(PARTS)}  # fmt: skip
    known: dict[str, Any] = {name.removesuffix("_uniform"): 0.0 for name in VARIABLES} | dict.fromkeys(VARIABLES, 0.0)
    known |= UNIFORM | {f"{name}_uniform": value for name, value in UNIFORM.items()}
    known |= {"n_queries": 100.0, "distinctness": 0.5, "entropy_rel": 0.9, "max_logit": 5.0, "output_norm": 1.0,
              "output_share": 0.1, **values}  # fmt: skip
    data = {}
    for name, variable in VARIABLES.items():
        dims = ("step", *variable.dims)
        data[name] = (dims, np.broadcast_to(np.asarray(known[name], float), [sizes[dim] for dim in dims]).copy())
    for name in ("moved", "moved_from_start", "scan_chance"):
        data[name][1][0] = np.nan  # nothing came before
    if "moved_fold" not in values:
        data["moved_fold"][1][:] = np.nan
    coords = {"step": steps, "path": ("layer", [f"layers.{i}.attn" for i in range(layers)]),
              "call": ("layer", [0] * layers), "kind": ("layer", ["self"] * layers)}  # fmt: skip
    return xr.Dataset(data, coords=coords, attrs={"corpus": corpus})


@pytest.fixture
def record() -> Record:
    return recorded
