"""A figure's runs in the explorer: its settings as an address of the file beside the report.

The format is that of explorer/static/js/address.js: a set-up's values by name, those of a second, pinned run with
``pin.`` before them. What an address cannot say (text, formulas, maps over classes) has none.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from scansnap.paper.report.make import EXPLORER

PLACE = EXPLORER  # beside the report
VARIED = ("ratio", "eta_z")  # the last value of the first of them with several values is pinned
TRAINING = ("momentum", "steps", "batch_size", "context", "sampling", "init")
MODEL = ("norm", "residual", "query_in_keys", "outputs", "heads", "position_bias", "init")
FLOW = {"momentum": 0.0, "batch_size": None}  # steps on the expected gradient follow the exact flow


def address(settings: dict[str, Any]) -> str | None:
    """The first run of a figure, and beside it the last along what it varies; None if an address cannot say it."""
    several = settings.get("settings")
    chosen = {**FLOW, **several[0]} if several else settings
    classes = _classes(chosen)
    if classes is None or "eta_z" not in chosen or not ("eta_y" in chosen or "ratio" in chosen):
        return None
    run = {name: _values(chosen[name])[0] for name in (*VARIED, "eta_y") if name in chosen}
    fields = {**classes, **_training(chosen)}
    query = {**fields, **_rates(run)}
    along = next((name for name in VARIED if len(_values(chosen.get(name))) > 1), None)
    if along is not None:
        last = {**fields, **_rates({**run, along: _values(chosen[along])[-1]})}
        query |= {f"pin.{name}": value for name, value in last.items()}
    return f"{PLACE}#{urlencode(query)}"


def _classes(settings: dict[str, Any]) -> dict[str, str] | None:
    """A preset by its name, or the synthetic preset with its settings; of several sizes the first."""
    classes = settings.get("preset", settings.get("classes"))
    if classes is None:
        return None
    if isinstance(classes, dict):
        name, options = "synthetic", classes
    else:
        name = str(classes)
        options = {"n_queries": _values(settings["n_queries"])[0]} if "n_queries" in settings else {}
    fields = {f"classes.{key}": json.dumps(value, separators=(",", ":")) for key, value in options.items()}
    return {"classes": name, **fields}


def _rates(run: dict[str, float]) -> dict[str, str]:
    eta_y = run["eta_y"] if "eta_y" in run else run["ratio"] * run["eta_z"]
    return {"eta_y": f"{eta_y:.12g}", "eta_z": f"{run['eta_z']:.12g}"}


def _training(settings: dict[str, Any]) -> dict[str, str]:
    fields = {name: settings[name] for name in TRAINING if name in settings}
    fields |= {name: settings["model"][name] for name in MODEL if name in settings.get("model", {})}
    if "optimizer_y" in settings:
        fields["optimizer"] = settings["optimizer_y"]["name"]
    if settings.get("seeds"):
        fields["seed"] = settings["seeds"][0]
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}


def _values(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
