"""What is to be run: a preset or a TOML file, with the options of the command line on top.

A run file has two tables: ``[classes]`` (see classes/toml.py) and ``[run]`` with rates and settings, where rates
and seeds may be lists; the runs are their outer product.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scansnap.checks import InputError, check_keys
from scansnap.classes import SequenceClasses
from scansnap.classes.toml import load_table
from scansnap.dynamics.settings import run_settings
from scansnap.runs import run_fields

DEFAULT_PRESET = "syn-small"


def find_classes(path: Path | None, preset: str | None, settings: dict[str, Any]) -> SequenceClasses:
    """The classes of a TOML file, or of a preset."""
    if path is not None and (preset is not None or settings):
        raise InputError("FILE", str(path), "left out when --preset or --set is given")
    if path is not None:
        return SequenceClasses.from_toml(path)
    return SequenceClasses.preset(preset or DEFAULT_PRESET, **settings)


def find_run(path: Path | None, given: dict[str, Any]) -> tuple[SequenceClasses | None, dict[str, Any], dict[str, Any]]:
    """Classes (if the file has them), rates and settings; options given on the command line win over the file."""
    rates, settings = run_fields(), run_settings()
    classes, run = None, {}
    if path is not None:
        table = load_table(path)
        if "classes" in table or "run" in table:
            check_keys(str(path), table, ("classes", "run"))
            run = table.get("run", {})
            if not isinstance(run, dict):
                raise InputError("run", run, "a table: [run]")
            check_keys("[run]", run, (*rates, *settings))
            classes = SequenceClasses.from_table(table["classes"], "[classes]") if "classes" in table else None
        else:
            classes = SequenceClasses.from_table(table, str(path))
    if "eta_y" in given or "ratio" in given:  # one of them replaces the other
        run = {k: v for k, v in run.items() if k not in ("eta_y", "ratio")}
    run = {"eta_z": rates["eta_z"].default} | run | given
    if "ratio" not in run:
        run.setdefault("eta_y", rates["eta_y"].default)
    return classes, {k: v for k, v in run.items() if k in rates}, {k: v for k, v in run.items() if k in settings}
