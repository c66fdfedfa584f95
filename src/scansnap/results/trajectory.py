"""Labelled results: an xarray Dataset whose dimensions, coordinates and attributes say what it is.

Dimensions run, step, seq_class, token and query; rates and seed are coordinates along run. The attributes hold
everything needed to make the numbers again: settings, classes (as TOML) and versions.

On disk each byte is under a checksum: in a Zarr folder by its ``checksums.json`` (and a CRC in every chunk, for readers
that do not know the former), in NetCDF as `scansnap.results.netcdf` says, in a Dataset that grows as
`scansnap.results.growing` says.
"""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Collection, Hashable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import xarray as xr

import scansnap
from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.results import growing, netcdf
from scansnap.runs import Runs
from scansnap.storage import checksums, put, replacing
from scansnap.storage.checksums import CheckedFiles, Damaged
from scansnap.storage.chunks import MARKER
from scansnap.storage.json_text import to_json
from scansnap.storage.objects import Folder, Objects, place_of

FORMAT, FORMER = "scansnap trajectory 2", "scansnap trajectory 1"
PROBED = "scansnap probe 1"  # measurements of somebody's model
_FIELD = "the result path"


def assemble(
    runs: Runs,
    settings: dict[str, Any],
    steps: list[int],
    records: dict[str, np.ndarray],  # each (run, step, …)
    dims: Mapping[str, tuple[str, ...]],  # of each, after run and step
    failed_step: np.ndarray,
    stopped: str,
    labelled: Mapping[str, Any] | None = None,  # more coordinates
) -> xr.Dataset:
    """A Dataset from what was recorded. ``stopped`` is why it ended: complete, interrupted, non-finite, event: …"""
    status = np.where(failed_step < 0, "ok", "non-finite").astype(object)
    coords: dict[str, Any] = {
        "run": np.arange(len(runs)),
        "step": np.array(steps, dtype=np.int64),
        **{name: ("run", values) for name, values in runs.columns().items()},
        "status": ("run", status, {"description": "non-finite: frozen before update number failed_step"}),
        "failed_step": ("run", failed_step),
        **(labelled or {}),
    }
    attrs = {"complete": int(stopped != "interrupted"), "stopped": stopped, "settings": to_json(settings),
             "format": FORMAT, "versions": json.dumps(versions())}  # fmt: skip
    variables = {name: (("run", "step", *dims[name]), values) for name, values in records.items()}
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def labels(classes: SequenceClasses, dims: Collection[Hashable]) -> dict[str, Any]:
    """Coordinates of the dimensions that come from classes."""
    coords: dict[str, Any] = {"seq_class": np.arange(classes.n_classes), "token": np.arange(classes.vocab_size),
                             "output": np.arange(classes.vocab_size), "query": classes.queries}  # fmt: skip
    coords = {dim: label for dim, label in coords.items() if dim in dims}
    if "seq_class" in dims:
        coords |= {"class_query": ("seq_class", classes.query), "next_token": ("seq_class", classes.next_token),
                  "p_class": ("seq_class", classes.p_class)}  # fmt: skip
    return coords


def identity(classes: SequenceClasses) -> dict[str, str]:
    """The attributes every trajectory carries, whatever made it."""
    return {"format": FORMAT, "classes": classes.as_toml(), "versions": json.dumps(versions())}


def versions() -> dict[str, str]:
    """What made a result."""
    import torch

    modules = {"numpy": np, "scipy": scipy, "torch": torch, "xarray": xr}
    installed = {name: str(module.__version__) for name, module in modules.items()}
    return {"scansnap": scansnap.__version__, "python": platform.python_version(), **installed}


def save(data: xr.Dataset, path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Write a trajectory to a file, completely or not at all.

    Parameters
    ----------
    data
        The trajectory.
    path
        A name that ends in ``.zarr`` (a folder) or ``.nc`` (NetCDF). A NetCDF file is first built in memory.
    overwrite
        Whether to replace an existing file.

    Examples
    --------
    >>> result = ss.simulate(ss.SequenceClasses.syn_small(), eta_z=1.0, eta_y=1.0, steps=20)
    >>> save(result, "run.zarr")
    >>> bool((load("run.zarr").z == result.z).all())
    True
    """
    try:
        write(data, Path(path), overwrite)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(_FIELD, fspath(path), f"a place that can be written ({reason})") from error


def write(data: xr.Dataset, target: Path, overwrite: bool) -> None:
    """As `save`; but a disk that fails is no mistake in the input, and stays a `WriteError`."""
    kind = _kind(target)
    if target.exists() and not overwrite:
        raise InputError.conflict(_FIELD, f"{target} exists; pass overwrite=True to replace it", str(target))
    if kind == "zarr":
        with replacing(target) as scratch:
            _write_zarr(data, scratch)
            checksums.put_table(scratch)
    else:
        put(target, netcdf.encoded(data))


def load(path: str | PathLike[str], *, verify: bool = True) -> xr.Dataset:
    """Open a saved trajectory; arrays are read from the disk when they are used.

    Parameters
    ----------
    path : str or path
        A file ``….nc``, a folder ``….zarr``, or ``s3://bucket/name.zarr``.
    verify : bool
        Whether to compare all of it with its checksums first (about 1 GB/s): damage is refused, and the damaged part
        named. Without, a Zarr folder of any size opens at once, and a damaged chunk raises when it is read. A probe's
        file is read whole in any case. In a bucket, which has checksums of its own, only sizes are compared.

    Returns
    -------
    xarray.Dataset

    Examples
    --------
    >>> import tempfile
    >>> import scansnap as ss
    >>> data = ss.simulate(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=1.0, steps=2)
    >>> path = tempfile.mkdtemp() + "/run.zarr"
    >>> ss.save(data, path)
    >>> ss.load(path).identical(data)
    True
    """
    target, place = Path(path), place_of(path, _FIELD)
    if not place.trusted and growing.is_growing_dataset(target):
        return _load_pieces(target, verify)
    if verify:
        _check_remote(place) if place.trusted else check(target)
    elif not place.trusted:
        _check_kind(target)
    try:
        if _kind(target) == "zarr":
            from scansnap.storage.zarr_store import open_dataset

            data = open_dataset(place.zarr())
        else:
            data = netcdf.open_dataset(_FIELD, target)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(_FIELD, fspath(path), f"a readable trajectory ({error})") from None
    if data.attrs.get("format") not in (FORMAT, PROBED):
        data.close()
        raise InputError(_FIELD, fspath(path), f"a file of the format '{FORMAT}'")
    if MARKER in data.coords:  # runs of a sweep, which may not be finished
        data.attrs["complete"] = int(data[MARKER].all())
    return data.rename({"class": "seq_class"}) if "class" in data.dims else data  # its name until version 0.2


def _load_pieces(path: Path, verify: bool) -> xr.Dataset:
    data = growing.load(_FIELD, path, verify=verify)
    if data.attrs.get("format") != PROBED:
        raise InputError(_FIELD, str(path), f"a file of the format '{PROBED}'")
    return data


def _check_kind(path: Path) -> str:
    """Refuse a path that does not exist or is not what its suffix says; returns the suffix."""
    kind = _kind(path)
    if not path.exists():
        partial = path.with_name(path.name + ".partial")
        hint = "an unfinished run is there; continue it with resume=True" if partial.exists() else ""
        raise InputError(_FIELD, str(path), "a saved trajectory", hint)
    if path.is_dir() != (kind == "zarr"):
        raise InputError(_FIELD, str(path), f"a readable trajectory (a {'folder' if kind == 'zarr' else 'file'})")
    return kind


def check(path: Path) -> CheckedFiles:
    """Compare every byte of a saved trajectory with its checksums; refuses what is damaged or something else."""
    kind = _check_kind(path)
    if kind == "nc":
        return netcdf.check(_FIELD, path, (FORMAT, PROBED), FORMER)
    if growing.is_growing_dataset(path):
        return growing.check(_FIELD, path)
    if not (path / checksums.NAME).exists():
        _refuse_without_table(path)
    return checksums.check(_FIELD, path)


def _check_remote(place: Objects) -> None:
    try:
        names = place.sizes()
        if not names:
            raise InputError(_FIELD, str(place), "a saved trajectory")
        checksums.check(_FIELD, place, sizes=names)
    except OSError as error:
        raise InputError(_FIELD, str(place), f"a readable trajectory ({error.strerror or error})") from None


def _write_zarr(data: xr.Dataset, folder: Path) -> None:
    from zarr.codecs import Crc32cCodec, ZstdCodec

    # strings of a fixed length have no type in Zarr's specification; those of any length are read by everything
    fixed = {name: variable.astype(object) for name, variable in data.variables.items() if variable.dtype.kind == "U"}
    data = data.assign_coords({name: fixed[name] for name in fixed.keys() & data.coords.keys()})
    data = data.assign({name: fixed[name] for name in fixed.keys() & data.data_vars.keys()})
    encoding = {str(name): {"compressors": (ZstdCodec(level=0), Crc32cCodec())} for name in data.variables}
    with warnings.catch_warnings():
        # strings in Zarr 3 are not yet in its written standard; both libraries read them
        warnings.filterwarnings("ignore", message=".*Zarr format 3 specification.*")
        warnings.filterwarnings("ignore", message=".*Consolidated metadata.*")
        data.drop_encoding().to_zarr(folder, mode="w", zarr_format=3, consolidated=True, encoding=encoding)


def _refuse_without_table(path: Path) -> None:
    """A folder without checksums: from before there were any, or one that lost them, or another's."""
    try:
        attributes = json.loads(Folder(path).get("zarr.json"))["attributes"]
        format_name = attributes.get("format") if isinstance(attributes, dict) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(_FIELD, str(path), f"a readable trajectory (with zarr.json and {checksums.NAME})") from None
    if format_name == FORMER or (format_name == PROBED and "checksums" in attributes):
        raise InputError.conflict(_FIELD, f"{path} {checksums.EARLIER}", str(path))
    if format_name in (FORMAT, PROBED):
        raise Damaged(_FIELD, path, checksums.NAME, "is missing")
    raise InputError(_FIELD, str(path), f"a file of the format '{FORMAT}'")


def classes_of(data: xr.Dataset) -> SequenceClasses:
    """The classes a trajectory was made with."""
    import tomllib

    if "classes" not in data.attrs:
        raise InputError("the trajectory", data.attrs.get("module"), "one of the YZ model on sequence classes")
    return SequenceClasses.from_table(tomllib.loads(data.attrs["classes"]), where="the trajectory")


def _kind(path: Path) -> str:
    if path.suffix not in (".zarr", ".nc"):
        raise InputError(_FIELD, fspath(path), "a name ending in .zarr or .nc")
    return path.suffix[1:]
