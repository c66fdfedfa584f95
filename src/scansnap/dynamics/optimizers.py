"""The registry of update rules, which ``simulate``, the text models and the ablation study share.

A rule changes a table and its moments in place; `register_optimizer` adds one by name. ``d`` is the ascent
direction of the log-likelihood (minus the gradient of the loss), so updates are added. `Optimizer` applies a
rule to copies of tables whose first dimension is the run, with one rate, momentum and weight decay per run.
`InPlaceOptimizer` applies it to the tables themselves, with one momentum.

Columns of Y may stand for several identical ones (``multiplicity``). The norm in clipping and the orthogonalisation in
Muon depend on the whole matrix; they weigh the columns so that the result is that of the full matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from scansnap.checks import InputError, check_choice, check_float, check_keys
from scansnap.dynamics.schedules import FORM, Schedule
from scansnap.kernels.cuda import triton_available
from scansnap.settings import Page, check_fields, setting

if TYPE_CHECKING:  # the command line needs the names of the rules without loading torch
    from torch import Tensor

Moments = dict[str, "Tensor"]
RULES: dict[str, Rule] = {}
DEFAULT_MOMENTUM = 0.9  # of all rules with momentum but sgd; "momentum" is sgd with it


class UpdateContext(NamedTuple):
    """What an update rule receives beside table, direction and moments; its tensors broadcast against the table."""

    step: int | Tensor  # from 0
    eta: Tensor
    momentum: float | Tensor
    optimizer: Optimizer  # its constants
    multiplicity: Tensor | None = None  # (columns,) how many equal columns each stands for


@dataclass(frozen=True)
class Rule:
    """An update rule.

    Parameters
    ----------
    update
        ``update(table, d, moments, context)`` changes ``table`` and ``moments`` in place and returns None. ``d`` is the
        ascent direction and may be overwritten.
    moments
        Names of the buffers shaped like the table, which begin at zero.
    momentum
        Whether the rule uses ``context.momentum``. A momentum is refused where it would have no effect.
    decoupled
        Whether weight decay shrinks the table directly instead of entering the direction.
    entrywise
        Whether each entry depends on its own direction and moments alone, so that parts of a table can move alone.

    Examples
    --------
    >>> def half(table, d, moments, context):
    ...     table.add_(context.eta * d / 2)
    >>> Rule(half).entrywise
    True
    """

    update: Callable[[Tensor, Tensor, Moments, UpdateContext], None]
    moments: tuple[str, ...] = ()
    momentum: bool = False
    decoupled: bool = False
    entrywise: bool = True


@dataclass(frozen=True)
class Optimizer:
    """An update rule and the constants that all runs share.

    Each run has its own momentum and weight decay (see `grid`). Weight decay is added to the direction, except in
    adamw and muon, where it is decoupled.

    Examples
    --------
    >>> Optimizer("adam", beta2=0.99).rule.moments
    ('mean', 'square')
    """

    name: str = setting(
        "sgd", "The update rule; sgd has heavy-ball momentum, sign and muon are of the momentum average.",
        name="optimizer", choices=RULES, page=Page("Optimiser"))  # fmt: skip
    beta1: float = setting(0.9, "Adam: how much of the mean of directions stays in a step.", least=0, below=1)
    beta2: float = setting(0.999, "Adam: how much of the mean of their squares stays in a step.", least=0, below=1)
    eps: float = setting(1e-8, "Adam: added to the root of the mean square.", above=0)
    clip: float | None = setting(None, "Largest L2 norm of the direction of one table of one run.", above=0)
    schedule: str = setting("constant", "How the rates change from the first to the last step.", accepts=FORM)

    def __post_init__(self) -> None:
        check_fields(self)
        Schedule.parse(self.schedule)

    @classmethod
    def of(cls, value: Any) -> Optimizer:
        """From a name, a table of settings, or as it is."""
        if isinstance(value, Optimizer):
            return value
        if isinstance(value, dict):
            check_keys("optimizer", value, asdict(cls()))
            return cls(**value)
        return cls(name=value)

    def rate_factor(self, step: int, steps: int) -> float:
        """The schedule's factor of the base rate in update number ``step`` (from 0) of ``steps``."""
        return Schedule.parse(self.schedule).factor(step, steps)

    @property
    def rule(self) -> Rule:
        """The update rule of that name."""
        return RULES[self.name]

    def start(self, table: Tensor) -> Moments:
        """Moments of zeros."""
        import torch

        return {name: torch.zeros_like(table) for name in self.rule.moments}

    def update(
        self,
        table: Tensor,  # (R, …, rows, columns)
        d: Tensor,  # same shape, ascent direction
        moments: Moments,
        *,
        step: int | Tensor,
        eta: Tensor,  # (R,)
        momentum: Tensor,  # (R,)
        weight_decay: Tensor,  # (R,)
        multiplicity: Tensor | None = None,  # (columns,)
    ) -> tuple[Tensor, Moments]:
        """Table and moments after one update, not in place; ``step`` counts from 0."""
        eta, momentum, weight_decay = (along(x, table) for x in (eta, momentum, weight_decay))
        if self.clip is not None:
            d = d * _clip_factor(d, self.clip, multiplicity)
        if self.rule.decoupled:
            table, d = table * (1 - eta * weight_decay), d.clone()
        else:
            table, d = table.clone(), d - weight_decay * table
        moments = {name: moment.clone() for name, moment in moments.items()}
        self.rule.update(table, d, moments, UpdateContext(step, eta, momentum, self, multiplicity))
        return table, moments


@dataclass(frozen=True)
class InPlaceOptimizer:
    """An optimiser for tables that are trained in place: one momentum, and no first dimension of runs.

    ``weight_decay`` may be a tensor that broadcasts against the table. Clipping and the schedule are the caller's:
    it scales ``d`` and ``eta``.
    """

    optimizer: Optimizer
    momentum: float = 0.0
    weight_decay: float | Tensor = 0.0

    @classmethod
    def of(cls, name: str, momentum: float | None = None, weight_decay: float | Tensor = 0.0, **constants: Any) -> Self:
        """A registered rule by name, or ``momentum``, which is sgd with a momentum of 0.9 unless given."""
        check_choice("optimizer", name, optimizer_names())
        optimizer = Optimizer("sgd" if name == "momentum" else name, **constants)
        if momentum is None:
            momentum = DEFAULT_MOMENTUM if optimizer.rule.momentum and name != "sgd" else 0.0
        elif not optimizer.rule.momentum:
            raise InputError("momentum", momentum, f"None with {name}, which has no momentum")
        if isinstance(weight_decay, int | float):
            weight_decay = check_float("weight_decay", weight_decay, least=0)
        return cls(optimizer, check_float("momentum", momentum, least=0, below=1), weight_decay)

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an update adds η d and nothing else, so that a table can be updated bit by bit."""
        return self._has_no_moments and isinstance(self.weight_decay, float) and not self.weight_decay

    @property
    def _has_no_moments(self) -> bool:
        return self.optimizer.name == "sgd" and not self.momentum

    def start(self, table: Tensor) -> Moments:
        """Moments of zeros; none for sgd without momentum, whose velocity is the direction."""
        return {} if self._has_no_moments else self.optimizer.start(table)

    def update(self, table: Tensor, d: Tensor, moments: Moments, *, eta: Tensor, step: int | Tensor) -> None:
        """One update in place; ``eta`` broadcasts against the table, ``step`` counts from 0, ``d`` is overwritten."""
        decay, rule = self.weight_decay, self.optimizer.rule
        if not isinstance(decay, float):
            if rule.decoupled:
                table.sub_(eta * decay * table)
            else:
                d.addcmul_(decay, table, value=-1)
        elif decay and rule.decoupled:
            table.mul_(1 - eta * decay)
        elif decay:
            d.sub_(table, alpha=decay)
        rule.update(table, d, moments, UpdateContext(step, eta, self.momentum, self.optimizer))


def optimizer_names(*, entrywise: bool = False) -> list[str]:
    """Names that `InPlaceOptimizer.of` takes; ``entrywise`` restricts them to rules that move parts of tables."""
    return ["momentum", *(name for name, rule in RULES.items() if rule.entrywise or not entrywise)]


def register_optimizer(name: str, rule: Rule) -> None:
    """Add an update rule under a new name, for ``simulate``, the text models, run files and the command line.

    Parameters
    ----------
    name
        The new name.
    rule
        The update rule.

    Examples
    --------
    >>> def sign_descent(table, d, moments, context):
    ...     table.add_(context.eta * d.sign())
    >>> register_optimizer("sign-descent", Rule(sign_descent))
    >>> del RULES["sign-descent"]
    """
    if not isinstance(rule, Rule):
        raise InputError("rule", rule, "a scansnap.Rule")
    if name in RULES or name == "momentum":
        raise InputError("name", name, "a new name, none of " + ", ".join(optimizer_names()))
    RULES[name] = rule


def _sgd(table: Tensor, d: Tensor, moments: Moments, context: UpdateContext) -> None:
    velocity = moments["velocity"].mul_(context.momentum).add_(d) if moments else d
    table.addcmul_(velocity, context.eta)


def _nesterov(table: Tensor, d: Tensor, moments: Moments, context: UpdateContext) -> None:
    velocity = moments["velocity"].mul_(context.momentum).add_(d)
    table.addcmul_(d.add_(context.momentum * velocity), context.eta)


def _sign(table: Tensor, d: Tensor, moments: Moments, context: UpdateContext) -> None:
    velocity = moments["velocity"].mul_(context.momentum).add_(d)
    table.addcmul_(velocity.sign(), context.eta)


def _muon(table: Tensor, d: Tensor, moments: Moments, context: UpdateContext) -> None:
    velocity = moments["velocity"].mul_(context.momentum).add_(d)
    table.addcmul_(orthogonalize(velocity, context.multiplicity), context.eta)


def _adam(table: Tensor, d: Tensor, moments: Moments, context: UpdateContext) -> None:
    import torch

    from scansnap.kernels.cpu import adam

    eta, optimizer, mean, square = context.eta, context.optimizer, moments["mean"], moments["square"]
    beta1, beta2, n = optimizer.beta1, optimizer.beta2, context.step + 1
    if table.is_cuda and table.dtype == torch.float32 and eta.ndim == 0 and triton_available():
        from scansnap.kernels.cuda.adam import adam_  # imports Triton

        adam_(table, d, mean, square, eta, torch.as_tensor(n, device=eta.device), beta1, beta2, optimizer.eps)
        return
    if adam.takes(table, d, mean, square, eta):
        adam.adam_(table, d, mean, square, eta, int(n), beta1, beta2, optimizer.eps)
        return
    mean.mul_(beta1).add_(d, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(d, d, value=1 - beta2)
    spread = torch.div(square, 1 - beta2**n, out=d).sqrt_().add_(optimizer.eps)
    change = torch.div(mean, spread, out=d)
    if eta.ndim == 0:
        table.add_(change.mul_(eta / (1 - beta1**n)))
    else:
        table.addcmul_(change.div_(1 - beta1**n), eta)


RULES |= {
    "sgd": Rule(_sgd, ("velocity",), momentum=True),
    "nesterov": Rule(_nesterov, ("velocity",), momentum=True),
    "adam": Rule(_adam, ("mean", "square")),
    "adamw": Rule(_adam, ("mean", "square"), decoupled=True),
    "sign": Rule(_sign, ("velocity",), momentum=True),
    "muon": Rule(_muon, ("velocity",), momentum=True, decoupled=True, entrywise=False),
}


def orthogonalize(matrix: Tensor, multiplicity: Tensor | None = None) -> Tensor:
    """Singular values pushed towards 1 by five Newton–Schulz steps of degree five (Jordan et al., Muon, 2024).

    A column of multiplicity w enters as one column times √w, which has the same Gram matrix as w copies. No
    factor for the matrix's shape is applied: η is the spectral size of the step.
    """
    import torch

    weight = multiplicity.sqrt() if multiplicity is not None else 1.0
    x = matrix * weight
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)  # keeps rounding errors small
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.mT if tall else x) / weight


def _clip_factor(d: Tensor, clip: float, multiplicity: Tensor | None) -> Tensor:
    squared = d * d if multiplicity is None else d * d * multiplicity
    norm = squared.flatten(1).sum(1).sqrt()
    return along((clip / norm.clamp_min(clip)), d)


def along(per_run: Tensor, table: Tensor) -> Tensor:
    """One number per run with the dimensions of the table, whose first is the run."""
    return per_run.reshape(-1, *[1] * (table.ndim - 1))
