"""Measure the attention of any PyTorch model while it trains, without changing the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scansnap.probe.capture.watcher import record as record

__all__ = ["record"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that torch is loaded only if a model is measured."""
    if name != "record":
        raise AttributeError(f"module 'scansnap.probe' has no attribute {name!r}")
    from scansnap.probe.capture.watcher import record

    globals()[name] = record
    return record
