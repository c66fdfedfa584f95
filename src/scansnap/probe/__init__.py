"""Measure the attention of any PyTorch model while it trains, without changing the training."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scansnap.probe import alerts as alerts
    from scansnap.probe.capture.watcher import record as record
    from scansnap.probe.comparison.diff import diff as diff

_MODULES = {"record": "scansnap.probe.capture.watcher", "diff": "scansnap.probe.comparison.diff"}
__all__ = ["alerts", "diff", "record"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that torch is loaded only if a model is measured."""
    if name == "alerts":
        return import_module("scansnap.probe.alerts")
    if name not in _MODULES:
        raise AttributeError(f"module 'scansnap.probe' has no attribute {name!r}")
    globals()[name] = getattr(import_module(_MODULES[name]), name)
    return globals()[name]
