"""Labelled results: an xarray Dataset whose dimensions, coordinates and attributes say what it is.

Dimensions run, step, class, token and query; rates and seed are coordinates along run. The attributes hold
everything needed to make the numbers again: settings, classes (as TOML) and versions.
"""

from __future__ import annotations

import json
import math
import platform
import warnings
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import xarray as xr

import scansnap
from scansnap import classes_toml
from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.runs import Runs
from scansnap.storage import replacing

FORMAT = "scansnap trajectory 1"

DIMS = {
    "attention": ("run", "step", "class", "token"),
    "loss": ("run", "step"),
    "entropy": ("run", "step", "class"),
    "z": ("run", "step", "query", "token"),
    "y": ("run", "step", "token", "output"),
    "batch_loss": ("run", "step"),
}
MEANING = {
    "attention": "token-level attention of the class, c_n ∝ P(l|n) e^z (mean over heads)",
    "loss": "−log α_n of the classes themselves (T → ∞), weighted by p_n",
    "entropy": "entropy of attention over the class's distinct tokens, renormalised (nats)",
    "z": "attention logit of the query for the token",
    "y": "vote of the context token for the output token",
    "batch_loss": "mean loss of the mini-batch the next update uses",
}


def assemble(
    classes: SequenceClasses,
    runs: Runs,
    settings: dict[str, Any],
    steps: list[int],
    records: dict[str, np.ndarray],  # each (run, step, …)
    failed_step: np.ndarray,
    complete: bool,
) -> xr.Dataset:
    """A Dataset from what was recorded."""
    variables = {}
    for name, values in records.items():
        dims = DIMS[name]
        if name == "z" and values.ndim == 5:
            dims = ("run", "step", "head", "query", "token")
        variables[name] = (dims, values, {"long_name": MEANING[name]})
    per_run = {name: ("run", getattr(runs, name)) for name in ("eta_y", "eta_z", "ratio", "seed", "momentum",
                                                               "weight_decay")}  # fmt: skip
    status = np.where(failed_step < 0, "ok", "non-finite").astype(object)
    coords: dict[str, Any] = {
        "run": np.arange(len(runs)),
        "step": np.array(steps, dtype=np.int64),
        **per_run,
        "status": ("run", status, {"long_name": "non-finite: frozen before update number failed_step"}),
        "failed_step": ("run", failed_step),
    }
    dims_used = {dim for dims, *_ in variables.values() for dim in dims}
    labels = {"class": np.arange(classes.n_classes), "token": np.arange(classes.vocab_size),
              "output": np.arange(classes.vocab_size), "query": classes.queries}  # fmt: skip
    coords |= {dim: label for dim, label in labels.items() if dim in dims_used}
    if "class" in dims_used:
        coords |= {"class_query": ("class", classes.query), "next_token": ("class", classes.next_token),
                   "p_class": ("class", classes.p_class)}  # fmt: skip
    attrs = {"complete": int(complete), "settings": json.dumps(_plain(settings)), **identity(classes)}
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def identity(classes: SequenceClasses) -> dict[str, str]:
    """The attributes every trajectory carries, whatever made it."""
    return {"format": FORMAT, "classes": classes_toml.dumps(classes), "versions": json.dumps(versions())}


def versions() -> dict[str, str]:
    """What made a result."""
    import torch

    modules = {"numpy": np, "scipy": scipy, "torch": torch, "xarray": xr}
    found = {name: str(module.__version__) for name, module in modules.items()}
    return {"scansnap": scansnap.__version__, "python": platform.python_version(), **found}


def save(data: xr.Dataset, path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Write a Dataset to ``….zarr`` (a folder) or ``….nc`` (NetCDF), whole or not at all."""
    target = Path(path)
    kind = _kind(target)
    if target.exists() and not overwrite:
        raise InputError("the result path", fspath(path), "a path that does not exist yet (or say overwrite)")
    try:
        with replacing(target) as scratch:
            if kind == "zarr":
                with warnings.catch_warnings():
                    # strings in Zarr 3 are not yet in its written standard; both libraries read them
                    warnings.filterwarnings("ignore", message=".*Zarr format 3 specification.*")
                    warnings.filterwarnings("ignore", message=".*Consolidated metadata.*")
                    data.to_zarr(scratch, mode="w", consolidated=False)
            else:
                data.to_netcdf(scratch, engine="h5netcdf")
    except OSError as error:
        raise InputError("the result path", fspath(path), f"a place that can be written ({error})") from error


def load(path: str | PathLike[str]) -> xr.Dataset:
    """Open a saved trajectory; arrays are read when they are used."""
    target = Path(path)
    kind = _kind(target)
    if not target.exists():
        partial = target.with_name(target.name + ".partial")
        hint = "; an unfinished run is there: continue it with resume" if partial.exists() else ""
        raise InputError("the result path", fspath(path), f"a saved trajectory{hint}")
    try:
        if kind == "zarr":
            data = xr.open_dataset(target, engine="zarr", consolidated=False)
        else:
            data = xr.open_dataset(target, engine="h5netcdf")
    except (OSError, ValueError, KeyError) as error:
        raise InputError("the result path", fspath(path), f"a readable trajectory ({error})") from None
    if data.attrs.get("format") != FORMAT:
        data.close()
        raise InputError("the result path", fspath(path), f"a file of the format '{FORMAT}'")
    return data


def classes_of(data: xr.Dataset) -> SequenceClasses:
    """The classes a trajectory was made with."""
    import tomllib

    return classes_toml.from_table(tomllib.loads(data.attrs["classes"]), where="the trajectory")


def _kind(path: Path) -> str:
    if path.suffix not in (".zarr", ".nc"):
        raise InputError("the result path", fspath(path), "a name ending in .zarr or .nc")
    return path.suffix[1:]


def _plain(value: Any) -> Any:
    """JSON has no infinity: T = ∞ is written as the word."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return "inf" if isinstance(value, float) and math.isinf(value) else value
