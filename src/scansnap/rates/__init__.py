"""Learning rates by role: query/key, value/output, MLP, embedding and norm weights of any PyTorch model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scansnap.rates.optimizer import RuleOptimizer as RuleOptimizer
    from scansnap.rates.ratio import Ratio as Ratio
    from scansnap.rates.ratio import rates_by_role as rates_by_role
    from scansnap.rates.ratio import ratio_schedule as ratio_schedule

_HOME = {"Ratio": "ratio", "ratio_schedule": "ratio",
         "rates_by_role": "ratio", "RuleOptimizer": "optimizer"}  # fmt: skip
__all__ = ["Ratio", "RuleOptimizer", "rates_by_role", "ratio_schedule"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that torch is loaded only with a model."""
    if name not in _HOME:
        raise AttributeError(f"module 'scansnap.rates' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"scansnap.rates.{_HOME[name]}"), name)
    globals()[name] = value
    return value
