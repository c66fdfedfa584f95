"""The keyword arguments of ``simulate``, for editors and type checkers.

Each setting is declared once, in ``runs.py`` or ``dynamics/settings.py``, with its range, default and help. This file
repeats only names and types; a test compares it with the declarations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from scansnap.dynamics.optimizers import Optimizer
from scansnap.runs import RunOptions

OptimizerLike = str | Optimizer | Mapping[str, Any]  # a name, an object, or a table of settings for one or by y and z


class SimulateOptions(RunOptions, total=False):
    """Options of `scansnap.simulate` beside its own arguments; docs/settings.md explains them."""

    # fields of Settings
    steps: int
    batch_size: int | None
    context: float | Literal["inf"]
    sampling: Literal["counts", "tokens"]
    update: Literal["gradient", "modified"]
    optimizer: OptimizerLike
    record: str | int | Iterable[int]
    variables: str | Sequence[str] | None
    dtype: Literal["float32", "float64"]
    # fields of ModelConfig
    norm: str
    residual: Literal["none", "normed", "plain"]
    query_in_keys: bool
    outputs: Literal["all", "next"]
    heads: int
    position_bias: float | Sequence[float] | None
    init: str | None
