"""NetCDF files: written in memory with a checksum, and read only after what lies in them has been checked.

The checksum is the attribute ``checksum``: the SHA-256 of the file with that number blank. HDF5 can do more than hold
data: a variable may lie in another file, and may have any shape without any content. Neither is read.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import re
from pathlib import Path
from typing import Any

import xarray as xr

from scansnap.checks import InputError
from scansnap.storage import checksums
from scansnap.storage.checksums import CheckedFiles, Damaged
from scansnap.storage.objects import open_regular

_BLANK = b"scansnap sha256 " + b"0" * 64
_CHECKSUM = re.compile(rb"scansnap sha256 ([0-9a-f]{64})")
_FILTERS = frozenset({1, 2, 3})  # of HDF5: deflate, shuffle, Fletcher's checksum
_RATIO = 1032  # by which deflate can compress


def encoded(data: xr.Dataset) -> memoryview:
    """The bytes of a NetCDF file with the checksum in it."""
    image = data.drop_encoding().assign_attrs(checksum=_BLANK.decode()).to_netcdf(engine="h5netcdf")
    (place,) = [match.start(1) for match in _CHECKSUM.finditer(image)]
    image[place : place + 64] = hashlib.sha256(image).hexdigest().encode()
    return image


def open_dataset(field: str, path: Path) -> xr.Dataset:
    """A file whose checksum was compared; InputError for one that refers to other files, or declares more than it has.

    Arrays are read when they are used.
    """
    problem = _problem_inside(path)
    if problem:
        raise InputError.conflict(field, f"{path} is not read: {problem}", str(path))
    data = xr.open_dataset(path, engine="h5netcdf")
    data.attrs.pop("checksum", None)
    return data


def check(field: str, path: Path, formats: tuple[str, ...], former: str) -> CheckedFiles:
    """The whole file, before HDF5 sees any of it: that library may crash on what is damaged."""
    try:
        with open_regular(path.resolve()) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            checksums_inside = [(match.span(1), match[1].decode()) for match in _CHECKSUM.finditer(content)]
            ours = any(content.find(name.encode()) >= 0 for name in formats)
            foreign = not checksums_inside and not ours
            if foreign and content.find(former.encode()) >= 0:
                raise InputError.conflict(field, f"{path} {checksums.EARLIER}", str(path))
            if foreign and content[:8] == b"\x89HDF\r\n\x1a\n":
                raise InputError(field, str(path), f"a file of the format '{formats[0]}', with a checksum")
            if foreign:
                raise InputError(field, str(path), "a readable trajectory (this is no NetCDF file)")
            if len(checksums_inside) != 1:
                raise Damaged(field, path, "its checksum", "is damaged")
            (start, stop), expected = checksums_inside[0]
            with memoryview(content) as view, view[:start] as head, view[stop:] as tail:
                digest = hashlib.sha256(head)
                digest.update(b"0" * 64)
                digest.update(tail)
            if digest.hexdigest() != expected:
                raise Damaged(field, path, "its content", "does not match its checksum")
            return CheckedFiles(1, len(content))
    except OSError as error:
        raise InputError(field, str(path), f"a readable trajectory ({error.strerror})") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(field, str(path), "a readable trajectory (this file is empty)") from None


def _problem_inside(path: Path) -> str:
    """Why a file must not be read; empty if it may."""
    import h5py

    with h5py.File(path, "r") as file:
        todo, known = [file["/"]], set[Any]()
        while todo:
            group = todo.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in known:  # the same group by two names
                continue
            known.add(address)
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    return f"{name} is a link"
                member = group[name]
                if isinstance(member, h5py.Group):
                    todo.append(member)
                elif isinstance(member, h5py.Dataset) and (problem := _problem_of(member)):
                    return f"{name} {problem}"
    return ""


def _problem_of(variable: Any) -> str:
    if variable.external or variable.is_virtual:
        return "lies in another file"
    creation = variable.id.get_create_plist()
    filters = {creation.get_filter(i)[0] for i in range(creation.get_nfilters())}
    if not filters <= _FILTERS:
        return "is packed by a filter that is not read"
    declared = math.prod(variable.shape or ()) * variable.dtype.itemsize
    stored = variable.id.get_storage_size() * (_RATIO if filters & {1} else 1)
    empty_dimension = variable.attrs.get("NAME", b"")[:34] == b"This is a netCDF dimension but not"
    if declared > stored and variable.shape is not None and not empty_dimension:
        return f"declares {declared:,} bytes and has {variable.id.get_storage_size():,}"
    return ""
