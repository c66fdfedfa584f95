"""Versions of the packages that determine the numbers; unfinished work is continued with the same versions only."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from scansnap.checks import InputError

DECISIVE = ("scansnap", "torch", "numpy")  # another version of one of these may change the last digits


def decisive_versions() -> dict[str, str]:
    """The versions on which the numbers depend."""
    return {name: str(import_module(name).__version__) for name in DECISIVE}


def refuse_other_versions(field: str, place: object, recorded: Mapping[str, Any] | None) -> None:
    """Refuse to continue work of other versions. Finished results can be read with any version."""
    here, there = decisive_versions(), recorded or {}
    differing = [name for name in DECISIVE if there.get(name) != here[name]]
    if differing:
        began = " and ".join(f"{name} {there.get(name, 'of an unknown version')}" for name in differing)
        now = " and ".join(f"{name} {here[name]}" for name in differing)
        message = f"{place} was begun with {began}, and here is {now}; install those versions, or overwrite it"
        raise InputError.conflict(field, message, str(place))
