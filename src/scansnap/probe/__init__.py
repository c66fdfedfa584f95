"""Watching other people's models: which attention they compute, and what is in it, without a trace in the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scansnap.probe.capture.record import record as record

__all__ = ["record"]


def __getattr__(name: str) -> Any:
    """Imported on first use, so that torch is loaded only where a model is watched."""
    if name != "record":
        raise AttributeError(f"module 'scansnap.probe' has no attribute {name!r}")
    from scansnap.probe.capture.record import record

    globals()[name] = record
    return record
