"""Language models for real text: the original transformer and the YZ model over a whole vocabulary."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scansnap.text.prediction import predict as predict


def __getattr__(name: str) -> Any:
    if name == "predict":  # on first use: it loads torch
        return importlib.import_module("scansnap.text.prediction").predict
    raise AttributeError(f"module 'scansnap.text' has no attribute {name!r}")
