"""How a text model is trained: settings that both kinds of model share, and those of a training. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scansnap.checks import InputError, check_keys
from scansnap.dynamics.optimizers import RULES
from scansnap.knobs import check, knob
from scansnap.text.schedules import SCHEDULES, Schedule

if TYPE_CHECKING:
    import torch

    from scansnap.text.updates import Update


def rules() -> list[str]:
    """Update rules that move entries on their own, as a table moves in parts here; ``momentum`` is sgd with one."""
    return ["momentum", *(name for name, rule in RULES.items() if rule.entrywise)]


@dataclass(frozen=True)
class TextSettings:
    """A vocabulary and how a model over it is trained; frozen, checked when made, plain values on the way out."""

    vocab_size: int = knob(help="Number of words.", least=2)
    _: KW_ONLY
    layers: int = knob(1, "Layers, each with its own tables or matrices.", least=1)
    optimizer: str = knob(
        "sgd", "The update rule; momentum is sgd with one. YZ tables are lazy: only what a batch touches moves.",
        choices=rules)  # fmt: skip
    momentum: float | None = knob(
        None, "Of the rule; none is 0.9, but 0 for sgd. Refused where the rule has none.", least=0, below=1
    )
    weight_decay: float = knob(0.0, "Pulls all weights back towards 0 in every step.", least=0)
    beta1: float = knob(0.9, "Adam: how much of the mean of directions stays in a step.", least=0, below=1)
    beta2: float = knob(0.999, "Adam: how much of the mean of their squares stays in a step.", least=0, below=1)
    eps: float = knob(1e-8, "Adam: added to the root of the mean square.", above=0)
    seed: int = knob(0, "Of the initial values, the dropout and the order of windows.")
    dtype: str = knob("float32", "Numbers the weights are kept in.", choices=("float32", "float64"))

    def __post_init__(self) -> None:
        if self.update.momentum:
            object.__setattr__(self, "momentum", self.update.momentum)
        check(self)

    @property
    def update(self) -> Update:
        """The rule with its numbers."""
        from scansnap.text.updates import Update

        return Update.of(self.optimizer, self.momentum, self.weight_decay, self.beta1, self.beta2, self.eps)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of the weights."""
        import torch

        return torch.float32 if self.dtype == "float32" else torch.float64

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Back from :meth:`to_dict`."""
        check_keys("the model", values, cls.__dataclass_fields__)
        if "vocab_size" not in values:
            raise InputError("vocab_size", None, "given")
        return cls(**values)


@dataclass(frozen=True)
class TrainingSettings:
    """How long, on which windows, what is looked at when, and what is written where.

    snapshots       steps to measure at; None: log-spaced
    checkpoint      a file, replaced every ``checkpoint_seconds``, on Ctrl-C and at the end; ``resume`` goes on from it,
                    and one that is there already is refused unless ``overwrite``
    tensorboard     a folder for event files of loss, perplexity and measured numbers
    """

    steps: int | None = knob(None, "Updates; none: as many as the epochs have.")
    epochs: int | None = knob(None, "Passes over the text, instead of steps.")
    batch: int = knob(20, "Windows in a batch, of all processes together.", least=1)
    accumulate: int = knob(1, "Batches whose gradients make one update: that of a batch so many times larger.", least=1)
    length: int = knob(35, "Tokens in a window.", unit="tokens", least=1)
    shuffle: int | None = knob(None, "A seed that shuffles the windows, in each epoch otherwise; none: in order.")
    schedule: str = knob("constant", "How the rates go down, from what they are to the floor.", choices=SCHEDULES)
    warmup: int = knob(0, "Updates in which the rates first rise from 0, along a line.")
    schedule_steps: int | None = knob(None, "When cosine and linear have come down; none: with the last step.", least=1)
    rate_floor: float = knob(0.0, "The share of the rates that stays in the end.", least=0, most=1)
    decay_every: int | None = knob(None, "Updates between two drops of the schedule step.", least=1)
    decay_by: float = knob(0.5, "What such a drop multiplies the rates with.", above=0, most=1)
    validate_every: int | None = knob(None, "Steps between two validations; none: once an epoch.", least=1)
    checkpoint_seconds: float = knob(300.0, "Time between two writings of the file.", unit="seconds", least=0)
    snapshots: Sequence[int] | None = None
    checkpoint: Path | str | None = None
    resume: bool = False
    overwrite: bool = False
    tensorboard: Path | str | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise InputError("steps", self.steps, "given, or epochs instead")
        check(self)
        if self.resume and self.checkpoint is None:
            raise InputError("resume", True, "false without a checkpoint")
        self.rates(self.steps or 0)

    def rates(self, steps: int) -> Schedule:
        """The schedule of a training of so many steps (0: not known yet)."""
        if self.schedule_steps is not None and self.schedule not in ("cosine", "linear"):
            raise InputError("schedule_steps", self.schedule_steps, f"left out with the schedule {self.schedule}")
        if self.rate_floor and self.schedule == "constant":
            raise InputError("rate_floor", self.rate_floor, "left out with the schedule constant")
        last = steps if self.schedule_steps is None else self.schedule_steps
        return Schedule(self.schedule, last, self.warmup, self.rate_floor, self.decay_every, self.decay_by)
