"""Ratios of learning rates: constant, by layer, or for a part of the training; and the schedule that applies them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from scansnap.checks import InputError, check_float, check_integer
from scansnap.dynamics.schedules import Schedule


@dataclass(frozen=True)
class Ratio:
    """A factor of the learning rate that applies during a part of the training; before and after it is 1.

    Parameters
    ----------
    value : float
        The factor.
    start, end : float
        The part of the training, as fractions of its updates.

    Examples
    --------
    >>> early = Ratio(0.25, end=0.2)  # a quarter of the rate in the first fifth of the training
    >>> early.at(0.1), early.at(0.5)
    (0.25, 1.0)
    """

    value: float
    start: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        check_float("value", self.value, least=0)
        check_float("start", self.start, least=0, most=1)
        check_float("end", self.end, least=self.start, most=1)
        if self.value == 0 and not self.is_constant:
            raise InputError("value", 0, "a float > 0 for a part of the training")

    @property
    def is_constant(self) -> bool:
        """Whether it applies to the whole training."""
        return self.start == 0 and self.end == 1

    def at(self, progress: float) -> float:
        """The factor at a fraction of the training."""
        return float(self.value) if self.start <= progress < self.end or (self.end == 1 <= progress) else 1.0


RatioSpec = float | Ratio | Sequence[float | Ratio] | Callable[[int, int], float | Ratio]


def parse_ratio(field: str, spec: RatioSpec, layer: int | None, n_layers: int) -> Ratio:
    """The ratio of a layer; a parameter outside the layers takes part in constants only."""
    if callable(spec) or (isinstance(spec, Sequence) and not isinstance(spec, str)):
        if not callable(spec) and len(spec) != n_layers:
            raise InputError(field, f"{len(spec)} ratios", f"one for each of the {n_layers} layers")
        if layer is None:
            return Ratio(1.0)
        spec = spec(layer, n_layers) if callable(spec) else spec[layer]
    return spec if isinstance(spec, Ratio) else Ratio(check_float(field, spec, least=0))


def factor_at(ratios: Iterable[Sequence[float]], progress: float) -> float:
    """The product of a group's ratios at a fraction of the training."""
    return math.prod(Ratio(*ratio).at(progress) for ratio in ratios)


def as_plain(ratios: Iterable[Ratio]) -> list[tuple[float, ...]]:
    """For a parameter group, so that ``state_dict`` holds them as plain numbers."""
    return [astuple(ratio) for ratio in ratios]


def ratio_schedule(optimizer: Optimizer, steps: int, base: str | Callable[[int], float] = "constant") -> LambdaLR:
    """The learning-rate scheduler that applies ratios with a start or an end, on top of a base schedule.

    Without it, and without a `Ratio` that changes, any scheduler of torch works with `param_groups`.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        With the groups of `param_groups`.
    steps : int
        Number of updates of the training.
    base : str or callable
        A schedule as in ``scansnap text train``, such as ``"warmup(50) cosine(0.1)"``, or a function from the number of
        the update to a factor.

    Returns
    -------
    torch.optim.lr_scheduler.LambdaLR
        Call ``step()`` after each update. ``state_dict`` saves it; a resumed one continues.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 8)
    >>> groups = ss.param_groups(model, lr=0.1, qk=ss.rates.Ratio(0.5, end=0.5))
    >>> optimizer = torch.optim.SGD(groups)
    >>> schedule = ss.rates.ratio_schedule(optimizer, steps=4)
    >>> rates = []
    >>> for step in range(4):
    ...     rates.append(ss.rates.rates_by_role(optimizer)["qk"])
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [0.05, 0.05, 0.1, 0.1]
    """
    check_integer("steps", steps, least=1)
    if callable(base):
        factor = base
    else:
        parsed = Schedule.parse(base, "base")
        factor = lambda step: parsed.factor(step, steps)  # noqa: E731
    return LambdaLR(optimizer, [_lambda(group, factor, steps) for group in optimizer.param_groups])


def _lambda(group: Mapping[str, Any], base: Callable[[int], float], steps: int) -> Callable[[int], float]:
    ratios = group.get("ratios")
    if ratios is None:
        raise InputError("optimizer", "a parameter group without a role", "the groups of ss.param_groups")
    first = factor_at(ratios, 0.0)
    if not first:
        return lambda step: 0.0
    return lambda step: base(step) * factor_at(ratios, step / steps) / first


def rates_by_role(optimizer: Optimizer) -> dict[str, float]:
    """The learning rate of each role now: the geometric mean over its parameter groups, weighted by parameters.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        With the groups of `param_groups`; the keys are empty for any other.

    Examples
    --------
    >>> import torch, scansnap as ss
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 8)
    >>> optimizer = torch.optim.AdamW(ss.param_groups(model, lr=1e-3, qk=2))
    >>> rates_by_role(optimizer)
    {'qk': 0.002, 'vo': 0.001, 'mlp': 0.001, 'norm': 0.001}
    """
    logs: dict[str, list[tuple[float, int]]] = {}
    for group in optimizer.param_groups:
        if "role" in group:
            size = sum(parameter.numel() for parameter in group["params"])
            logs.setdefault(group["role"], []).append((float(group["lr"]), size))
    return {role: _mean(rates) for role, rates in logs.items()}


def ratios_by_role(optimizer: Optimizer) -> dict[str, list[float]]:
    """The ratios of each role at the start, without repetition: more than one if they differ between layers."""
    ratios: dict[str, set[float]] = {}
    for group in optimizer.param_groups:
        if "role" in group:
            ratios.setdefault(group["role"], set()).add(factor_at(group["ratios"], 0.0))
    return {role: sorted(values) for role, values in ratios.items()}


def _mean(rates: list[tuple[float, int]]) -> float:
    if len({rate for rate, _ in rates}) == 1 or min(rate for rate, _ in rates) <= 0:
        return min(rate for rate, _ in rates)
    total = sum(size for _, size in rates)
    return math.exp(sum(size * math.log(rate) for rate, size in rates) / total)
