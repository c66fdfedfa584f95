"""Triton kernels, compiled when they are first used."""

from __future__ import annotations

import importlib.util


def triton_available() -> bool:
    """Whether they can be compiled: Triton comes with CUDA builds of torch."""
    return importlib.util.find_spec("triton") is not None
