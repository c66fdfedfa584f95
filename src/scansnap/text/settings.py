"""Settings that both kinds of text model share, and those of a training. This module does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scansnap.checks import InputError, check_keys
from scansnap.dynamics.optimizers import optimizer_names
from scansnap.dynamics.schedules import FORM, Schedule
from scansnap.settings import check_fields, setting

if TYPE_CHECKING:
    import torch

    from scansnap.text.table_optimizer import TableOptimizer


@dataclass(frozen=True)
class TextSettings:
    """The vocabulary size, layers and optimizer of a text model."""

    vocab_size: int = setting(help="Number of words.", least=2)
    _: KW_ONLY
    layers: int = setting(1, "Layers, each with its own tables or matrices.", least=1)
    optimizer: str = setting(
        "sgd", "The optimizer; momentum is sgd with momentum 0.9. YZ tables update only touched rows.",
        choices=lambda: optimizer_names(entrywise=True))  # fmt: skip
    momentum: float | None = setting(
        None, "Momentum; none: 0 for sgd, else 0.9. Only for optimizers with momentum.", least=0, below=1
    )
    weight_decay: float = setting(0.0, "Weight decay of all weights.", least=0)
    beta1: float = setting(0.9, "Adam's β₁, the decay rate of the first moment.", least=0, below=1)
    beta2: float = setting(0.999, "Adam's β₂, the decay rate of the second moment.", least=0, below=1)
    eps: float = setting(1e-8, "Adam's ε, added to the denominator.", above=0)
    seed: int = setting(0, "Seed of the initial values, the dropout and the order of windows.")
    dtype: str = setting("float32", "Data type of the weights.", choices=("float32", "float64"))

    def __post_init__(self) -> None:
        if momentum := self.table_optimizer.momentum:
            object.__setattr__(self, "momentum", momentum)
        check_fields(self)

    @property
    def table_optimizer(self) -> TableOptimizer:
        """The update rule with its constants."""
        from scansnap.text.table_optimizer import TableOptimizer

        constants = {name: getattr(self, name) for name in ("beta1", "beta2", "eps")}
        return TableOptimizer.of(self.optimizer, self.momentum, self.weight_decay, **constants)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The data type of the weights."""
        import torch

        return torch.float32 if self.dtype == "float32" else torch.float64

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        check_keys("model", values, cls.__dataclass_fields__)
        if "vocab_size" not in values:
            raise InputError("vocab_size", None, "an integer ≥ 2")
        return cls(**values)


@dataclass(frozen=True)
class TrainingSettings:
    """How long to train on which windows, when to measure, and what to write.

    Parameters
    ----------
    snapshots
        Steps to measure at; None: log-spaced.
    checkpoint
        A file, replaced every ``checkpoint_seconds``, on Ctrl-C and at the end. ``resume`` continues it, and
        ``overwrite`` replaces an existing file.
    tensorboard
        A folder for event files of loss, perplexity and measured numbers.

    Examples
    --------
    >>> TrainingSettings(steps=1000, batch=40, schedule="warmup(50) cosine").length
    35
    """

    steps: int | None = setting(None, "Number of updates; none: as many as the epochs have.")
    epochs: int | None = setting(None, "Passes over the text, instead of steps.")
    batch: int = setting(20, "Windows per batch, over all processes.", least=1)
    accumulate: int = setting(1, "Transformer: batches per update, whose gradients are summed.", least=1)
    length: int = setting(35, "Tokens per window.", unit="tokens", least=1)
    shuffle: int | None = setting(None, "Seed of the order of windows, shuffled in each epoch; none: in text order.")
    schedule: str = setting("constant", "Schedule of the learning rates.", accepts=FORM)
    validate_every: int | None = setting(None, "Steps between two validations; none: once per epoch.", least=1)
    checkpoint_seconds: float = setting(300.0, "Time between two checkpoints.", unit="seconds", least=0)
    snapshots: Sequence[int] | None = None
    checkpoint: Path | str | None = None
    resume: bool = False
    overwrite: bool = False
    tensorboard: Path | str | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise InputError("steps", self.steps, "either steps or epochs")
        check_fields(self)
        if self.resume and self.checkpoint is None:
            raise InputError("resume", True, "False without a checkpoint")
        self.parsed_schedule(self.steps)

    def parsed_schedule(self, steps: int | None = None) -> Schedule:
        """The schedule of the rates, which must reach beyond its warm-up within ``steps``."""
        schedule = Schedule.parse(self.schedule)
        if steps and schedule.kind in ("cosine", "linear") and (schedule.steps or steps) <= schedule.warmup:
            raise InputError("schedule", self.schedule, f"a warm-up below {steps} steps")
        return schedule
