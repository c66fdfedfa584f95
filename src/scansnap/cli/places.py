"""Where a command will write: looked at before the work, so that hours of it are not refused at the end."""

from __future__ import annotations

import os
from pathlib import Path

from scansnap.checks import InputError
from scansnap.storage import is_stream, writable

PICTURES = (".png", ".pdf", ".svg")


def place(
    option: str, path: Path, *endings: str, overwrite: bool, hint: str = "--overwrite", stream: bool = False
) -> Path:
    """``path`` if it has one of the endings, can be written, and is free or may be replaced.

    With ``stream`` it may be a device or a pipe. A name ending in .zarr is that of a folder.
    """
    if endings and path.suffix not in endings:
        allowed = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
        raise InputError(option, str(path), f"a name ending in {allowed}")
    if is_stream(path):
        if not stream:
            raise InputError(option, str(path), "the name of a file, and that is a device or a pipe")
        return path
    writable(option, path, folder=path.suffix == ".zarr" and ".zarr" in endings)
    if not overwrite and os.path.lexists(path):
        raise InputError(option, str(path), f"a path that does not exist yet (or say {hint})")
    return path
