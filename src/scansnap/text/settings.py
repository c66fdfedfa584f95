"""How a text model is trained: the settings that both kinds of model share. Loads no torch, so that --help is quick."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from scansnap.checks import InputError, known_keys
from scansnap.dynamics.optimizers import RULES
from scansnap.knobs import check, knob

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
        known_keys("the model", values, cls.__dataclass_fields__)
        if "vocab_size" not in values:
            raise InputError("vocab_size", None, "given")
        return cls(**values)
