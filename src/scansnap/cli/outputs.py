"""Output paths, checked before the work starts, so that no result is lost at the end."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from scansnap.checks import InputError
from scansnap.storage import check_writable, is_stream

PICTURES = (".png", ".pdf", ".svg")
REPLACE, RESUME_OR_REPLACE = "--overwrite to replace it", "--resume to continue or --overwrite to replace it"


def check_output(option: str, path: Path, *endings: str, stream: bool = False) -> None:
    """Refuse a path with another ending, or that cannot be written. A name ending in .zarr is a folder.

    ``stream`` allows a device or a pipe.
    """
    if endings and path.suffix not in endings:
        raise InputError(option, str(path), f"a name ending in {' or '.join(endings)}")
    if not is_stream(path):
        check_writable(option, path, folder=path.suffix == ".zarr" and ".zarr" in endings)
    elif not stream:
        raise InputError(option, str(path), "the name of a file, not a device or a pipe")


def refuse_existing(option: str, path: Path, overwrite: bool, remedy: str = REPLACE) -> None:
    """Refuse to replace a file. Commands call it after they have read everything that the user typed."""
    if not overwrite and os.path.lexists(path) and not is_stream(path):
        raise InputError.conflict(option, f"{path} exists; pass {remedy}", str(path))


def default_output(first: Path, *beside: str, resume: bool = False, overwrite: bool = False) -> Path:
    """The first free path of out/run.zarr, out/run-2.zarr, …; the last existing one to resume, the first to overwrite.

    ``beside`` are endings of further files of the same name, such as ``.png``.
    """
    last = first
    for n in count(1):
        path = first if n == 1 else first.with_name(f"{first.stem}-{n}{first.suffix}")
        files = (path, path.with_name(f"{path.name}.partial"), *(path.with_suffix(ending) for ending in beside))
        if overwrite or not any(map(os.path.lexists, files)):
            return last if resume and not overwrite else path
        last = path
    raise AssertionError("unreachable")
