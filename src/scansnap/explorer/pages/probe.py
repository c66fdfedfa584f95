"""A probe's file as a page: the same report that ``Probe.report`` writes, made anew from the file given at start.

A training may still be writing to it; each look shows what is there by then. No other file can be asked for.
"""

from __future__ import annotations

from pathlib import Path

from scansnap.checks import InputError
from scansnap.explorer.protocol import Refused

FIELD = "--probe"


def html(path: Path | None) -> str:
    """The report on the file."""
    if path is None:
        raise Refused(404, "probe", "There is no probe's file here: start with scansnap serve --probe probe.zarr.")
    from scansnap.probe.report.page import page
    from scansnap.results.trajectory import load

    try:
        with load(path) as data:
            if not {"step", "layer", "head"} <= set(data.sizes):
                raise InputError(FIELD, str(path), "a file that a probe wrote")
            return page(data)
    except InputError as error:
        raise InputError(FIELD, str(path), error.allowed) from None
    except OSError as error:  # it was taken away, or is being replaced
        raise InputError(FIELD, str(path), f"a file that can be read ({error.strerror or error})") from None


def policy() -> str:
    """What the report may do: its one script, its own styles, and nothing else."""
    from scansnap.probe.report.page import script_hash

    return (f"default-src 'none'; script-src '{script_hash()}'; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")  # fmt: skip
