"""The mark of a run: everything that decides its numbers, part by part, so that only the same run is continued.

Runs are continued from checkpoints and finished ones are not made again; both only if the marks agree. A mark is JSON
text, the name of each part with its value (short ones) or the digest of its value. How tokens read is no part of it.
Engine and device are: they round differently, and a run must not change between them unnoticed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from scansnap.dynamics.checkpoint import fingerprint
from scansnap.dynamics.settings import Settings
from scansnap.runs import Runs

_LONGEST = 40  # characters of a value that is kept as it is
_LISTED = 4096  # runs up to which their numbers are listed
_NAMED = 3  # differences that are told


def mark_of(what: dict[str, Any], runs: Runs, plan: Settings, *, engine: str, device: str) -> str:
    """``what`` says what is trained on what, ``engine`` what was resolved to (fused, …), ``device`` is the kind."""
    parts = {**what, "engine": engine, "device": device}
    parts |= {name: _column(values) for name, values in runs.columns().items() if name != "ratio"}
    parts |= _flat(plan.to_dict())
    return json.dumps({name: _short(value) for name, value in parts.items()}, sort_keys=True)


def difference(there: str, here: str) -> str:
    """In what two marks differ, in words: the parts by name, with their values where they are short."""
    try:
        old, new = json.loads(there), json.loads(here)
    except ValueError:
        old, new = None, None
    if not isinstance(old, dict) or not isinstance(new, dict):
        return "it is from a version that did not write down what decides its numbers"
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    told = [_told(name, old.get(name), new.get(name)) for name in names[:_NAMED]]
    return ", ".join(told) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _told(name: str, old: Any, new: Any) -> str:
    if old is None or new is None or "sha256" in f"{old}{new}":
        return f"not the same {name}"
    return f"{name} is {old} there and {new} here"


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names; the model's fields by their own."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, "" if name == "model" else f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _column(values: np.ndarray) -> Any:
    """Numbers of the runs; the digest of their bytes for very many, which as text would take longer than to train."""
    if len(values) <= _LISTED:
        return values.tolist()
    return f"sha256 {hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]}"


def _short(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    text = value if isinstance(value, str) else json.dumps(value).replace("Infinity", "inf")
    return text if len(text) <= _LONGEST else f"sha256 {fingerprint(value)}"
