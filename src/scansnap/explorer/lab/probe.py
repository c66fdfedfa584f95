"""Probes' files as pages: the same report that ``Probe.report`` writes, made anew from a file given at start.

What is given is one file, or a folder of them: then the page lets one choose, and a file that comes later is found. A
training may still be writing to it; each look shows what is there by then. No other file can be asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

from scansnap.checks import InputError
from scansnap.explorer.lab.refusal import Refused

FIELD = "--probe"
_SUFFIXES = (".zarr", ".nc")
_MOST = 200  # files listed


def files(given: Path | None) -> dict[str, Path]:
    """What there is to look at, by name: the file itself, or those in the folder; links that lead out are left out."""
    if given is None:
        return {}
    if given.suffix in _SUFFIXES or not given.is_dir():
        return {given.name: given}
    root = given.resolve()
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(root):
        for name in sorted([*folders, *names]):
            path = Path(folder, name)
            if path.suffix in _SUFFIXES and path.resolve().is_relative_to(root) and len(found) < _MOST:
                found[path.relative_to(root).as_posix()] = path
        folders[:] = sorted(name for name in folders if Path(name).suffix not in _SUFFIXES)  # stores are folders
    return found


def check(given: Path) -> None:
    """Refuses what cannot be shown, before anything starts: no probe's file, or a folder without one."""
    found = files(given)
    if not found:
        raise InputError(FIELD, str(given), "a file that a probe wrote, or a folder that holds some")
    if given.suffix in _SUFFIXES or not given.is_dir():
        html(given)


def html(given: Path | None, name: str = "") -> str:
    """The report on a file: the one of this name, or the first."""
    found = files(given)
    if given is None:
        raise Refused(404, "probe", "There is no probe's file here: start with scansnap explorer --probe probe.zarr.")
    if (name and name not in found) or not found:
        raise Refused(404, "probe", f"There is no probe's file {name[:60]!r} in the folder given at start.")
    path = found[name] if name else next(iter(found.values()))
    from scansnap.probe.report.page import page
    from scansnap.results.trajectory import load

    try:
        with load(path) as data:
            if not {"step", "layer", "head"} <= set(data.sizes):
                raise InputError(FIELD, str(path), "a file that a probe wrote")
            return page(data)
    except InputError as error:
        raise InputError(FIELD, str(path), error.expected) from None
    except OSError as error:  # it was taken away, or is being replaced
        raise InputError(FIELD, str(path), f"a file that can be read ({error.strerror or error})") from None


def policy() -> str:
    """What the report may do: its one script, its own styles, and nothing else; only our own page may frame it."""
    from scansnap.html.page import script_hash
    from scansnap.probe.report.page import PACKAGE

    return (f"default-src 'none'; script-src '{script_hash(PACKAGE)}'; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'self'")  # fmt: skip
