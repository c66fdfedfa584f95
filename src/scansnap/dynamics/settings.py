"""What a simulation is, in full: the model, the optimisers, the data and what to record.

Frozen and validated on creation; ``to_dict`` is the one format of stored attributes and fingerprints, ``settings``
reads the flat options of ``simulate``, run files and the command line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from scansnap.checks import InputError, check_integer, check_keys, digits
from scansnap.dynamics.norms import NORMS
from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.update import UPDATES
from scansnap.results.variables import SIMULATED, USUAL
from scansnap.settings import Page, SettingSpec, check_fields, parse_numbers, setting, settings_of

RESIDUALS = ("none", "normed", "plain")
OUTPUTS = ("all", "next")
INIT = "zero, uniform or normal(std) with a std above 0"
_RECORD = "a list of steps, all, linear:N or log:N with N of at least 2"


@dataclass(frozen=True)
class ModelConfig:
    """The 1-layer YZ transformer and its options.

    Norms: ``l2`` is f = v/‖v‖, ``none`` is f = v, ``layernorm`` is f = (v − mean)/std. Residuals: ``none`` is
    f = norm(c), ``normed`` is f = norm(norm(c) + e_m), ``plain`` is f = norm(c + e_m). Each head has a table Z.

    Examples
    --------
    >>> ModelConfig(norm="layernorm", heads=2).heads
    2
    """

    norm: str = setting(
        "l2", "Norm after attention: l2 as in the paper, none, or layernorm.", choices=NORMS,
        page=Page("Norm", "LN"))  # fmt: skip
    residual: str = setting(
        "none", "Residual connection: add the query to the normed or the plain output of attention.", choices=RESIDUALS
    )
    query_in_keys: bool = setting(False, "Whether the query may attend to itself.", page=Page("Query among keys"))
    outputs: str = setting("all", "Softmax over all tokens, or over the next tokens only.", choices=OUTPUTS)
    heads: int = setting(
        1, "Attention heads, whose attentions are averaged.", least=1, most=1024, page=Page("Heads", "H", 1, 8)
    )
    position_bias: float | tuple[float, ...] | None = setting(
        None, "ALiBi slope, or biases of the logits by distance 1, 2, …; the last value repeats.", multiple=True,
        accepts="a slope or at least one value by distance",
        page=Page("Position bias", least=-10.0, most=10.0, words={"none": "none"}))  # fmt: skip
    init: str = setting(
        "zero", "Initial Y and Z: zero, uniform within ±1/√M, or normal(std).", accepts=INIT, page=Page("Start")
    )

    def __post_init__(self) -> None:
        check_fields(self)
        self.init_scale(1)

    def init_scale(self, vocab_size: int) -> tuple[str, float]:
        """Return the kind of initial values and their scale: half-width of the uniform, std of the normal."""
        if self.init == "zero":
            return "zero", 0.0
        if self.init == "uniform":
            return "uniform", 1 / math.sqrt(vocab_size)
        match = re.fullmatch(r"normal\(([^()]+)\)", self.init) if isinstance(self.init, str) else None
        try:
            std = float(match.group(1)) if match else math.nan
        except ValueError:
            std = math.nan
        if not (math.isfinite(std) and std > 0):
            raise InputError("init", self.init, INIT)
        return "normal", std

    def position_weights(self, length: int) -> np.ndarray:
        """Return e^{bias} of the T − 1 context positions, oldest first."""
        distance = np.arange(length, 0, -1)
        if self.position_bias is None:
            return np.ones(length)
        if isinstance(self.position_bias, tuple):
            bias = np.array(self.position_bias)
            return np.exp(bias[np.minimum(distance, len(bias)) - 1])
        return np.exp(-self.position_bias * distance)


@dataclass(frozen=True)
class Settings:
    """Settings of a simulation, apart from its classes and runs.

    A sequence of T = ``context`` tokens has T − 1 context tokens and the query.

    Parameters
    ----------
    model
        The model.
    optimizer_y, optimizer_z
        The optimisers of the tables Y and Z.

    Examples
    --------
    >>> Settings(steps=100, record="linear:3").record
    (0, 50, 100)
    """

    steps: int = setting(
        100, "Number of updates.", most=2**32 - 2,
        page=Page("Last step", low=100, high=100_000, log=True, default=2000, least=1))  # fmt: skip
    batch_size: int | None = setting(
        128, "Sequences per update; none: the expectation over classes, which needs context = inf.",
        least=1, most=2**31, page=Page("Batch", low=1, high=1024, log=True, words={"none": "all"}))  # fmt: skip
    context: float = setting(
        128, "Sequence length T, including the query; inf: probabilities instead of counts.", unit="tokens", least=2,
        allow_inf=True, page=Page("Sequence length", "T", 2, 4096, log=True, words={"inf": "∞"}))  # fmt: skip
    sampling: str = setting(
        "counts", "Draw token counts or whole token sequences; the distribution is the same.",
        choices=("counts", "tokens"))  # fmt: skip
    update: str = setting(
        "gradient", "Update of Y: its gradient, or that of the paper's proof (Eq. 26) with frozen attention.",
        choices=UPDATES, page=None)  # fmt: skip
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer_y: Optimizer = field(default_factory=Optimizer)
    optimizer_z: Optimizer = field(default_factory=Optimizer)
    record: tuple[int, ...] = setting(
        "log:50", "Steps whose state is recorded; 0 is before the first update.", accepts=_RECORD, page=None,
        parse=lambda text: text if text[:1].isalpha() else parse_numbers("record", text))  # fmt: skip
    variables: tuple[str, ...] = setting(USUAL, "Recorded variables.", choices=SIMULATED, multiple=True, page=None)
    dtype: str = setting("float32", "Precision of the run.", choices=("float32", "float64"), page=Page("Precision"))

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "record", record_steps(self.record, self.steps))
        if self.batch_size is None and not math.isinf(self.context):
            raise InputError("batch_size", None, "a whole number when context is finite (None needs context=inf)")
        if self.update == "modified":
            self._check_modified()
        if self.model.position_bias is not None and math.isinf(self.context):
            raise InputError("context", self.context, "finite when there is a position_bias")
        if self.model.position_bias is not None:
            object.__setattr__(self, "sampling", "tokens")
            with np.errstate(over="ignore"):
                weights = self.model.position_weights(int(self.context) - 1)
            if not (np.isfinite(weights).all() and weights.max() > 1e-30):
                allowed = f"small enough that e^bias stays an ordinary number at context {self.context:g}"
                raise InputError("position_bias", self.model.position_bias, allowed)

    def _check_modified(self) -> None:
        """Refuse what the paper's proof excludes: it makes plain steps of batch size 1 with constant f_n."""
        rule = self.optimizer_y
        for field_, value, required, is_met in (
            ("batch_size", self.batch_size, "1", self.batch_size == 1),
            ("context", self.context, "inf", math.isinf(self.context)),
            ("optimizer", rule.name, "sgd for Y", rule.name == "sgd"),
            ("clip", rule.clip, "None for Y", rule.clip is None),
        ):
            if not is_met:
                raise InputError(field_, value, f"{required} with update='modified'")

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """The optimisers by table, ``y`` and ``z``."""
        return {"y": self.optimizer_y, "z": self.optimizer_z}

    @property
    def has_momentum(self) -> bool:
        """Whether an optimiser uses momentum."""
        return any(optimizer.rule.momentum for optimizer in self.optimizers.values())

    def refuse_idle_momentum(self, momentum: np.ndarray) -> None:
        """Refuse a momentum of the runs that no optimiser uses."""
        if np.any(momentum) and not self.has_momentum:
            names = " and ".join(sorted({optimizer.name for optimizer in self.optimizers.values()}))
            raise InputError("momentum", float(np.max(momentum)), f"0 with {names}, which has no momentum")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as numbers, strings and lists."""
        flat = asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in flat.items()}


def record_steps(record: Any, steps: int) -> tuple[int, ...]:
    """The steps to record, ascending and within [0, steps].

    ``record`` is a list of steps, or ``all``, ``linear:N``, ``log:N``: about N steps including the first and last.
    """
    if isinstance(record, str):
        if record == "all":
            return tuple(range(steps + 1))
        kind, _, text = record.partition(":")
        number = digits(text)
        if kind not in ("linear", "log") or number is None or number < 2:
            raise InputError("record", record, _RECORD)
        if kind == "linear" or steps == 0:
            chosen = np.linspace(0, steps, min(number, steps + 2))  # more than that are all steps as well
        else:
            number = min(number, 3 + math.ceil(steps * (1 + math.log(steps))))
            chosen = np.concatenate([[0], np.geomspace(steps, 1, number - 1)])  # the last one first: it stays
        return tuple(int(s) for s in np.unique(np.rint(chosen)))
    if isinstance(record, Integral):
        record = [record]
    if not isinstance(record, Iterable):
        raise InputError("record", record, _RECORD)
    chosen_steps = sorted({check_integer("record", step, most=steps) for step in record})
    if not chosen_steps:
        raise InputError("record", "empty", "at least one step")
    return tuple(chosen_steps)


def run_settings() -> dict[str, SettingSpec]:
    """All flat options of a simulation, as ``simulate``, run files and the command line take them."""
    rule = settings_of(Optimizer)["optimizer"]
    return settings_of(Settings) | {rule.name: rule} | settings_of(ModelConfig)


def settings(options: Mapping[str, Any]) -> Settings:
    """Settings from flat options, from the objects ``settings`` and ``model``, or from these with options on top."""
    flat = dict(options)
    base, model = _object("settings", flat, Settings), _object("model", flat, ModelConfig)
    check_keys("the run settings", flat, run_settings())
    model = replace(model or (base.model if base else ModelConfig()), **_part(flat, ModelConfig))
    rest = _part(flat, Settings) | {"model": model}
    if "optimizer" in flat:
        rule = flat["optimizer"]
        both = rule if isinstance(rule, dict) and set(rule) <= {"y", "z"} else {"y": rule, "z": rule}
        rest |= {f"optimizer_{table}": Optimizer.of(both.get(table, "sgd")) for table in "yz"}
    return replace(base, **rest) if base else Settings(**rest)


def arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Flat options as arguments of ``simulate``: the model as one object, whatever is declared of it."""
    model = _part(options, ModelConfig)
    return {name: value for name, value in options.items() if name not in model} | {"model": ModelConfig(**model)}


_Object = TypeVar("_Object", Settings, ModelConfig)


def _object(name: str, options: dict[str, Any], kind: type[_Object]) -> _Object | None:
    value = options.pop(name, None)
    if value is not None and not isinstance(value, kind):
        raise InputError(name, value, f"a scansnap.{kind.__name__}")
    return value


def _part(options: Mapping[str, Any], place: type) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in settings_of(place)}
