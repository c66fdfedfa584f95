"""The fingerprint of a run: everything that decides its numbers, so that only the same run is continued.

A fingerprint is JSON text, the name of each part with its value (short ones) or its digest. Two runs are the same if
their fingerprints are equal. It includes engine and device, since they round differently, and not how tokens read.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from scansnap.dynamics.settings import Settings
from scansnap.runs import Runs

_LONGEST = 40  # characters of a value that is stored as it is
_LISTED = 4096  # runs up to which their numbers are listed
_NAMED = 3  # differences that are listed


def digest(*parts: Any) -> str:
    """A short SHA-256 of JSON values and arrays."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=_to_list).encode()).hexdigest()[:16]


def run_fingerprint(parts: dict[str, Any], runs: Runs, settings: Settings, *, engine: str, device: str) -> str:
    """``parts`` describe the model and its data, ``engine`` is the one in use, ``device`` its type."""
    parts = {**parts, "engine": engine, "device": device}
    parts |= {name: _column(values) for name, values in runs.columns().items() if name != "ratio"}
    parts |= _flatten(settings.to_dict())
    return json.dumps({name: _shorten(value) for name, value in parts.items()}, sort_keys=True)


def describe_difference(saved: str, current: str) -> str:
    """The parts in which two fingerprints differ, with their values where they are short."""
    try:
        old, new = json.loads(saved), json.loads(current)
    except ValueError:
        old, new = None, None
    if not isinstance(old, dict) or not isinstance(new, dict):
        return "the file is from a version that did not record what decides its numbers"
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    differences = [_describe(name, old.get(name), new.get(name)) for name in names[:_NAMED]]
    return ", ".join(differences) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _describe(name: str, old: Any, new: Any) -> str:
    if old is None or new is None or "sha256" in f"{old}{new}":
        return f"{name} differs"
    return f"{name} is {old} in the file and {new} now"


def _to_list(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot fingerprint {type(value)}")


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names; the model's fields by their own."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, "" if name == "model" else f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _column(values: np.ndarray) -> Any:
    """Numbers of the runs; for very many the digest of their bytes, since text would take longer than training."""
    if len(values) <= _LISTED:
        return values.tolist()
    return f"sha256 {hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]}"


def _shorten(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    text = value if isinstance(value, str) else json.dumps(value).replace("Infinity", "inf")
    return text if len(text) <= _LONGEST else f"sha256 {digest(value)}"
