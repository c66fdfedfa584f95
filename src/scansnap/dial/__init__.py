"""The dial: from the paper's model to a transformer, one assumption at a time.

``scansnap.dial(…)`` measures it (:func:`scansnap.dial.study.dial`); a rung of one's own is made of :class:`Rung`,
:func:`register_rung` and :func:`register_attention`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scansnap.dial.rungs import Flags as Flags
    from scansnap.dial.rungs import Rung as Rung
    from scansnap.dial.rungs import register_attention as register_attention
    from scansnap.dial.rungs import register_rung as register_rung

_HERE = ("Flags", "Rung", "register_attention", "register_rung")


class _Room(ModuleType):
    """The room and what is done in it have one name, so the module can be called."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return importlib.import_module("scansnap.dial.study").dial(*args, **options)


sys.modules[__name__].__class__ = _Room


def __getattr__(name: str) -> Any:
    if name not in _HERE:
        raise AttributeError(f"module 'scansnap.dial' has no attribute {name!r}")
    return getattr(importlib.import_module("scansnap.dial.rungs"), name)
