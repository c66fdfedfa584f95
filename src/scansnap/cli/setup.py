"""A run from the command line: a preset or a TOML file, with options on top.

A run file has two tables: ``[classes]`` (see classes/toml.py) and ``[run]`` with rates and settings, where rates
and seeds may be lists; the runs are their outer product.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scansnap.checks import InputError, known_keys
from scansnap.classes import SequenceClasses
from scansnap.classes.toml import load_table
from scansnap.runs import FIELDS as RATE_KEYS

DEFAULT_PRESET = "syn-small"
DEFAULT_RATE = 1.0


def find_classes(path: Path | None, preset: str | None, settings: dict[str, Any]) -> SequenceClasses:
    """The classes of a TOML file, or of a preset."""
    if path is not None and (preset is not None or settings):
        raise InputError("FILE", str(path), "left out when --preset or --set is given")
    if path is not None:
        return SequenceClasses.from_toml(path)
    return SequenceClasses.preset(preset or DEFAULT_PRESET, **settings)


def find_run(path: Path | None, given: dict[str, Any]) -> tuple[SequenceClasses | None, dict[str, Any], dict[str, Any]]:
    """Classes (if the file has them), rates and settings; options given on the command line win over the file."""
    from scansnap.dynamics.settings import MODEL_FIELDS, RUN_KEYS  # loads torch, which other commands do not need

    setting_keys = (*RUN_KEYS, *MODEL_FIELDS)
    classes, run = None, {}
    if path is not None:
        table = load_table(path)
        if "classes" in table or "run" in table:
            known_keys(str(path), table, ("classes", "run"))
            run = table.get("run", {})
            if not isinstance(run, dict):
                raise InputError("run", run, "a table: [run]")
            known_keys("[run]", run, (*RATE_KEYS, *setting_keys))
            classes = SequenceClasses.from_table(table["classes"], "[classes]") if "classes" in table else None
        else:
            classes = SequenceClasses.from_table(table, str(path))
    if "eta_y" in given or "ratio" in given:  # one of them replaces the other
        run = {k: v for k, v in run.items() if k not in ("eta_y", "ratio")}
    merged = {**run, **given}
    rates = {k: v for k, v in merged.items() if k in RATE_KEYS}
    rates.setdefault("eta_z", DEFAULT_RATE)
    if "eta_y" not in rates and "ratio" not in rates:
        rates["eta_y"] = DEFAULT_RATE
    return classes, rates, {k: v for k, v in merged.items() if k in setting_keys}
