"""JSON without what JSON lacks: NaN is null, and the infinities are the words "inf" and "-inf"."""

from __future__ import annotations

import json
import math
from typing import Any


def to_jsonable(value: Any) -> Any:
    """Return ``value`` with NumPy's numbers and arrays as Python's, and without NaN and infinities.

    >>> to_jsonable({"loss": float("nan"), "context": (2, math.inf)})
    {'loss': None, 'context': [2, 'inf']}
    """
    if isinstance(value, dict):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    if type(value).__module__ == "numpy":
        return to_jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def to_json(value: Any, **options: Any) -> str:
    """Return strict JSON; ``options`` are those of `json.dumps`."""
    return json.dumps(to_jsonable(value), **{"allow_nan": False, "ensure_ascii": False} | options)


def to_float(value: Any) -> float:
    """Return a number read from such JSON: null is NaN, the words are infinities."""
    return math.nan if value is None else float(value)
