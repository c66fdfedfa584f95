"""What a transformer of the original parametrisation is, in full: frozen, checked when made, plain values on the way
out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from scansnap.checks import InputError, choice, known_keys, real, whole
from scansnap.text.transformer.positions import KINDS as POSITIONS
from scansnap.text.updates import Update

NORMS = ("post", "pre", "none")
OBJECTIVES = ("next", "masked")
PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class TransformerSettings:
    """A transformer over a vocabulary and how it is trained. The defaults are the paper's setting for text.

    width          d; feed_forward is the hidden width of the ReLU layer behind attention, 0 leaves it out
    norm           post (after each residual sum), pre (before each sub-layer, and once at the end) or none
    positions      none, sinusoidal, learned (for windows of up to max_length), alibi or rope
    bias           biases of the layers' matrices and of the decoder
    mixing         the matrix W_O behind the heads
    tied           the decoder is the embedding
    scaled         embeddings are multiplied by √d
    objective      next token, or masked tokens: mask_share of each window hidden and told from both sides
    init           embeddings and decoder are U(−init, init)
    optimizer      a registered rule that moves entries on their own, or momentum: sgd with one
    eta            the one learning rate, on the mean loss
    momentum       None: 0.9, but none for sgd; refused where the rule has none
    clip           the gradient is shortened to this norm; None: never
    precision      float32; on CUDA also tf32 products; bf16: products and activations in bfloat16, weights in float32
    """

    vocab_size: int
    layers: int = 1
    width: int = 200
    heads: int = 1
    feed_forward: int = 200
    norm: str = "post"
    residual: bool = True
    positions: str = "sinusoidal"
    max_length: int = 512
    bias: bool = True
    mixing: bool = True
    tied: bool = False
    scaled: bool = True
    dropout: float = 0.2
    objective: str = "next"
    mask_share: float = 0.15
    init: float = 0.1
    optimizer: str = "sgd"
    eta: float = 5.0
    clip: float | None = 0.5
    momentum: float | None = None
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    seed: int = 0
    dtype: str = "float32"
    precision: str = "float32"

    def __post_init__(self) -> None:
        whole("vocab_size", self.vocab_size, least=2)
        for name in ("layers", "width", "heads", "max_length"):
            whole(name, getattr(self, name), least=1)
        whole("feed_forward", self.feed_forward)
        whole("seed", self.seed)
        for name, options in (("norm", NORMS), ("positions", POSITIONS), ("objective", OBJECTIVES),
                              ("dtype", ("float32", "float64")),
                              ("precision", PRECISIONS)):  # fmt: skip
            choice(name, getattr(self, name), options)
        for name in ("residual", "bias", "mixing", "tied", "scaled"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(name, getattr(self, name), "true or false")
        if self.update.momentum:
            object.__setattr__(self, "momentum", self.update.momentum)
        real("dropout", self.dropout, least=0, below=1)
        real("init", self.init, above=0)
        real("eta", self.eta, least=0)
        real("mask_share", self.mask_share, above=0, below=1)
        if self.clip is not None:
            real("clip", self.clip, above=0)
        if self.width % self.heads:
            raise InputError("heads", self.heads, f"a divisor of the width, {self.width}")
        if self.positions == "sinusoidal" and self.width % 2:
            raise InputError("width", self.width, "even with sinusoidal positions")
        if self.positions == "rope" and self.width // self.heads % 2:
            raise InputError("width", self.width, "an even number for each head with rope positions")
        if self.dtype == "float64" and self.precision != "float32":
            raise InputError("precision", self.precision, "float32 (products as they are) with dtype float64")

    @property
    def update(self) -> Update:
        """The rule with its numbers."""
        return Update.of(self.optimizer, self.momentum, self.weight_decay, self.beta1, self.beta2, self.eps)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of the weights."""
        return torch.float32 if self.dtype == "float32" else torch.float64

    @property
    def work_dtype(self) -> torch.dtype:
        """Of products and activations."""
        return torch.bfloat16 if self.precision == "bf16" else self.torch_dtype

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TransformerSettings:
        """Back from :meth:`to_dict`."""
        known_keys("the model", values, cls.__dataclass_fields__)
        if "vocab_size" not in values:
            raise InputError("vocab_size", None, "given")
        return cls(**values)
