"""Sizes of memory as words."""

from __future__ import annotations

import re

from scansnap.checks import InputError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def parse_memory(text: str) -> int:
    """``4GB``, ``500 MB``, ``2GiB`` or a number of bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?|)B?\s*", text.upper(), re.ASCII)
    size = float(match.group(1)) * _UNITS[match.group(2)] if match else 0.0
    if not 0 < size < 2**63:
        raise InputError("--memory", text, "a size such as 500MB or 4GB")
    return int(size)


def format_bytes(n_bytes: float) -> str:
    """4.2 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"
