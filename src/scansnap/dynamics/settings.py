"""What a simulation is, in full: the model, the optimisers, the data and what to record.

Frozen and validated on creation; ``to_dict`` and ``from_dict`` are the one format of run files, stored
attributes and fingerprints.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from typing import Any

import numpy as np

from scansnap.checks import InputError, choice, known_keys, real, whole
from scansnap.dynamics.norms import NORMS
from scansnap.dynamics.optimizers import Optimizer

RESIDUALS = ("none", "normed", "plain")
OUTPUTS = ("all", "next")
VARIABLES = ("attention", "loss", "entropy", "z", "y", "batch_loss")


@dataclass(frozen=True)
class Model:
    """The 1-layer transformer in its Y, Z form, with the options the analysis leaves open.

    norm           what stands for the paper's LN: l2 (f = v/‖v‖), none (f = v), layernorm ((v − mean)/std)
    residual       none (f = norm(c)), normed (f = norm(norm(c) + e_m)), plain (f = norm(c + e_m))
    query_in_keys  the query token m is one of its own keys
    outputs        softmax over all M tokens, or over the K next tokens only
    heads          H tables Z whose attentions are averaged
    position_bias  added to the attention logit by distance 1, 2, … to the query (the last value goes on), or one
                   number: the ALiBi slope, bias = −slope · distance. Needs token sequences.
    init           zero, uniform (each entry U(−1/√M, 1/√M)) or normal(std)
    """

    norm: str = "l2"
    residual: str = "none"
    query_in_keys: bool = False
    outputs: str = "all"
    heads: int = 1
    position_bias: float | tuple[float, ...] | None = None
    init: str = "zero"

    def __post_init__(self) -> None:
        choice("norm", self.norm, NORMS)
        choice("residual", self.residual, RESIDUALS)
        choice("outputs", self.outputs, OUTPUTS)
        if not isinstance(self.query_in_keys, bool):
            raise InputError("query_in_keys", self.query_in_keys, "true or false")
        object.__setattr__(self, "heads", whole("heads", self.heads, least=1, most=1024))
        if isinstance(self.position_bias, list | tuple):
            object.__setattr__(self, "position_bias", tuple(real("position_bias", b) for b in self.position_bias))
            if not self.position_bias:
                raise InputError("position_bias", "empty", "a slope or at least one value by distance")
        elif self.position_bias is not None:
            object.__setattr__(self, "position_bias", real("position_bias", self.position_bias))
        self.init_scale(1)

    def init_scale(self, vocab_size: int) -> tuple[str, float]:
        """The kind of initial values and their scale: half-width of the uniform, std of the normal."""
        if self.init == "zero":
            return "zero", 0.0
        if self.init == "uniform":
            return "uniform", 1 / math.sqrt(vocab_size)
        found = re.fullmatch(r"normal\(([^()]+)\)", self.init) if isinstance(self.init, str) else None
        try:
            std = float(found.group(1)) if found else math.nan
        except ValueError:
            std = math.nan
        if not (math.isfinite(std) and std > 0):
            raise InputError("init", self.init, "zero, uniform or normal(std) with a std above 0")
        return "normal", std

    def position_weights(self, length: int) -> np.ndarray:
        """e^{bias} for the context positions, oldest first, (T − 1,)."""
        distance = np.arange(length, 0, -1)
        if self.position_bias is None:
            return np.ones(length)
        if isinstance(self.position_bias, tuple):
            bias = np.array(self.position_bias)
            return np.exp(bias[np.minimum(distance, len(bias)) - 1])
        return np.exp(-self.position_bias * distance)


@dataclass(frozen=True)
class Settings:
    """One simulation, apart from the classes and the runs.

    context is T, counting the query (so T − 1 context tokens), or infinity: counts become probabilities.
    batch_size None (with infinite context) takes the expectation over classes instead of a sample.
    record lists the steps whose state is kept; 0 is before the first update.
    """

    steps: int = 100
    batch_size: int | None = 128
    context: float = 128
    sampling: str = "counts"
    model: Model = field(default_factory=Model)
    optimizer_y: Optimizer = field(default_factory=Optimizer)
    optimizer_z: Optimizer = field(default_factory=Optimizer)
    record: tuple[int, ...] = ()
    variables: tuple[str, ...] = ("attention", "loss", "entropy", "z")
    dtype: str = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole("steps", self.steps, most=2**32 - 2))
        if self.batch_size is not None:
            object.__setattr__(self, "batch_size", whole("batch_size", self.batch_size, least=1, most=2**31))
        if not (isinstance(self.context, float) and math.isinf(self.context) and self.context > 0):
            object.__setattr__(self, "context", whole("context", self.context, least=2))
        if self.batch_size is None and not math.isinf(self.context):
            raise InputError("batch_size", None, "a whole number when context is finite (None needs context=inf)")
        choice("sampling", self.sampling, ("counts", "tokens"))
        if self.model.position_bias is not None and math.isinf(self.context):
            raise InputError("context", self.context, "finite when there is a position_bias")
        if self.model.position_bias is not None:
            object.__setattr__(self, "sampling", "tokens")
            with np.errstate(over="ignore"):
                weights = self.model.position_weights(int(self.context) - 1)
            if not (np.isfinite(weights).all() and weights.max() > 1e-30):
                allowed = f"small enough that e^bias stays an ordinary number at context {self.context:g}"
                raise InputError("position_bias", self.model.position_bias, allowed)
        for name in self.variables:
            choice("variables", name, VARIABLES)
        choice("dtype", self.dtype, ("float32", "float64"))

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """By the name of the table."""
        return {"y": self.optimizer_y, "z": self.optimizer_z}

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        flat = asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in flat.items()}


_RECORD = "a list of steps, all, linear:N or log:N with N of at least 2"


def record_steps(record: Any, steps: int) -> tuple[int, ...]:
    """The steps to record, ascending and within [0, steps].

    ``record`` is a list of steps, or ``all``, ``linear:N``, ``log:N``: about N steps including the first and last.
    """
    if isinstance(record, str):
        if record == "all":
            return tuple(range(steps + 1))
        kind, _, number = record.partition(":")
        if kind not in ("linear", "log") or not number.isdecimal() or int(number) < 2:
            raise InputError("record", record, _RECORD)
        if kind == "linear" or steps == 0:
            chosen = np.linspace(0, steps, int(number))
        else:
            chosen = np.concatenate([[0], np.geomspace(steps, 1, int(number) - 1)])  # the last one first: it stays
        return tuple(int(s) for s in np.unique(np.rint(chosen)))
    if isinstance(record, Integral):
        record = [record]
    if not isinstance(record, Iterable):
        raise InputError("record", record, _RECORD)
    chosen_steps = sorted({whole("record", one, most=steps) for one in record})
    if not chosen_steps:
        raise InputError("record", "empty", "at least one step")
    return tuple(chosen_steps)


MODEL_FIELDS = tuple(f.name for f in fields(Model))
RUN_KEYS = ("steps", "batch_size", "context", "sampling", "record", "variables", "dtype", "optimizer")


def settings(options: dict[str, Any]) -> Settings:
    """Settings from flat keyword options, as ``simulate`` and run files take them."""
    known_keys("the run settings", options, (*RUN_KEYS, *MODEL_FIELDS))
    model = Model(**{k: v for k, v in options.items() if k in MODEL_FIELDS})
    rest = {k: v for k, v in options.items() if k in RUN_KEYS}
    if rest.get("batch_size") == "none":  # as run files have it: TOML has no null
        rest["batch_size"] = None
    optimizer = rest.pop("optimizer", "sgd")
    per_table = optimizer if isinstance(optimizer, dict) and set(optimizer) <= {"y", "z"} else None
    rest["optimizer_y"] = Optimizer.of(per_table.get("y", "sgd") if per_table is not None else optimizer)
    rest["optimizer_z"] = Optimizer.of(per_table.get("z", "sgd") if per_table is not None else optimizer)
    if isinstance(rest.get("context"), str):
        if rest["context"] != "inf":
            raise InputError("context", rest["context"], "a whole number of at least 2, or inf")
        rest["context"] = math.inf
    if "variables" in rest:
        variables = rest["variables"]
        if not isinstance(variables, Iterable):
            raise InputError("variables", variables, "a list of " + ", ".join(VARIABLES))
        rest["variables"] = (variables,) if isinstance(variables, str) else tuple(variables)
    steps = whole("steps", rest.get("steps", Settings.steps), most=2**32 - 2)
    rest["record"] = record_steps(rest.get("record", "log:50"), steps)
    return Settings(model=model, **rest)
