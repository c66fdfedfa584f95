"""Reports of probe files: the report that ``Probe.report`` writes, made from the file at each request.

``--probe`` names a file or a folder of files, also with files that appear later. A training may still be writing to the
file. No other file is served.
"""

from __future__ import annotations

import os
from pathlib import Path

from scansnap.checks import InputError
from scansnap.explorer.lab.refusal import Refused

FIELD = "--probe"
_SUFFIXES = (".zarr", ".nc")
_MOST = 200  # files listed


def files(source: Path | None) -> dict[str, Path]:
    """The files by name: the file itself, or those in the folder; links that lead out of it are left out."""
    if source is None:
        return {}
    if source.suffix in _SUFFIXES or not source.is_dir():
        return {source.name: source}
    root = source.resolve()
    paths: dict[str, Path] = {}
    for folder, folders, names in os.walk(root):
        for name in sorted([*folders, *names]):
            path = Path(folder, name)
            if path.suffix in _SUFFIXES and path.resolve().is_relative_to(root) and len(paths) < _MOST:
                paths[path.relative_to(root).as_posix()] = path
        folders[:] = sorted(name for name in folders if Path(name).suffix not in _SUFFIXES)  # stores are folders
    return paths


def check(source: Path) -> None:
    """Refuses a file that no probe wrote, or a folder without one, before the server starts."""
    paths = files(source)
    if not paths:
        raise InputError(FIELD, str(source), "a file that a probe wrote, or a folder that holds some")
    if source.suffix in _SUFFIXES or not source.is_dir():
        html(source)


def html(source: Path | None, name: str = "") -> str:
    """The report on a file: the one of this name, or the first."""
    paths = files(source)
    if source is None:
        raise Refused(404, "probe", "There is no probe's file here: start with scansnap explorer --probe probe.zarr.")
    if (name and name not in paths) or not paths:
        raise Refused(404, "probe", f"There is no probe's file {name[:60]!r} in the folder of --probe.")
    path = paths[name] if name else next(iter(paths.values()))
    from scansnap.probe.report.page import page
    from scansnap.results.trajectory import load

    try:
        with load(path) as data:
            if not {"step", "layer", "head"} <= set(data.sizes):
                raise InputError(FIELD, str(path), "a file that a probe wrote")
            return page(data)
    except InputError as error:
        raise InputError(FIELD, str(path), error.expected) from None
    except OSError as error:  # it was deleted, or is being replaced
        raise InputError(FIELD, str(path), f"a file that can be read ({error.strerror or error})") from None


def policy() -> str:
    """The content-security policy of the report: its one script and its styles; only our page may frame it."""
    from scansnap.html.page import script_hash
    from scansnap.probe.report.page import PACKAGE

    return (f"default-src 'none'; script-src '{script_hash(PACKAGE)}'; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'self'")  # fmt: skip
