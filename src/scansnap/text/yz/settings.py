"""What a YZ language model is, in full: frozen, checked when made, and plain values on the way out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from scansnap.checks import InputError, choice, known_keys, real, whole
from scansnap.dynamics.norms import NORMS
from scansnap.dynamics.settings import RESIDUALS
from scansnap.dynamics.settings import Model as OneLayer
from scansnap.text.updates import Update

ACTIVATIONS = ("softmax", "relu", "none")
PRECISIONS = ("float32", "bf16x3", "tf32")


@dataclass(frozen=True)
class YZSettings:
    """A YZ model over a vocabulary and how it is trained.

    layers         each with its own tables Y and Z
    rank           None: full tables (M, M); r: Y = A Bᵀ and Z = C Dᵀ with factors (M, r)
    norm           l2 (f = v/‖v‖), none, or a registered one that is not dense: states are kept by position
    residual       none (f = norm(c)), normed (f = norm(norm(c) + u)), plain (f = norm(c + u)); u is the query's state
    query_in_keys  a position attends to itself as well
    activation     between layers: softmax, relu or none
    init           zero, uniform (each entry of a table U(−1/√M, 1/√M)) or normal(std). The factors of a low-rank
                   table are drawn so that the entries of the table have that variance.
    optimizer      a registered rule that moves entries on their own, or momentum: sgd with one; lazy where a batch
                   touches few rows, see :mod:`scansnap.text.updates`
    momentum       None: 0.9, but none for sgd; refused where the rule has none
    eta_y, eta_z   rates on the mean loss, one number or one for each layer
    precision      of products on CUDA: float32; bf16x3, three products of halved numbers in the fused kernels (faster,
                   five decimal digits; float32 elsewhere); or tf32 (three digits)
    """

    vocab_size: int
    layers: int = 1
    rank: int | None = None
    norm: str = "l2"
    residual: str = "none"
    query_in_keys: bool = False
    activation: str = "softmax"
    init: str = "zero"
    optimizer: str = "sgd"
    eta_y: float | Sequence[float] = 100.0
    eta_z: float | Sequence[float] = 10.0
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
        whole("layers", self.layers, least=1)
        if self.rank is not None:
            whole("rank", self.rank, least=1, most=self.vocab_size)
        choice("norm", self.norm, [name for name, norm in NORMS.items() if not norm.dense])
        choice("residual", self.residual, RESIDUALS)
        choice("activation", self.activation, ACTIVATIONS)
        choice("dtype", self.dtype, ("float32", "float64"))
        choice("precision", self.precision, PRECISIONS)
        whole("seed", self.seed)
        if not isinstance(self.query_in_keys, bool):
            raise InputError("query_in_keys", self.query_in_keys, "true or false")
        if self.update.momentum:
            object.__setattr__(self, "momentum", self.update.momentum)
        for name in ("eta_y", "eta_z"):
            object.__setattr__(self, name, self._rates(name))
        OneLayer(init=self.init)
        if self.init == "zero" and self.rank is not None:
            raise InputError(
                "init", self.init, "uniform or normal(std) with a rank: from two zero factors nothing moves"
            )
        if self.init == "zero" and self.layers > 1 and self.residual == "none":
            raise InputError("init", self.init, "uniform or normal(std) with several layers and no residual: from "
                             "zero all positions have the same state, and keep it")  # fmt: skip

    def _rates(self, name: str) -> tuple[float, ...]:
        given = getattr(self, name)
        if isinstance(given, Sequence) and not isinstance(given, str):
            if len(given) != self.layers:
                raise InputError(name, given, f"one number, or one for each of the {self.layers} layers")
            return tuple(real(name, eta, least=0) for eta in given)
        return (real(name, given, least=0),) * self.layers

    @property
    def rates(self) -> list[tuple[float, float]]:
        """η_Y and η_Z of each layer."""
        return list(zip(self._rates("eta_y"), self._rates("eta_z"), strict=True))

    @property
    def update(self) -> Update:
        """The rule with its numbers."""
        return Update.of(self.optimizer, self.momentum, self.weight_decay, self.beta1, self.beta2, self.eps)

    @property
    def torch_dtype(self) -> torch.dtype:
        return torch.float32 if self.dtype == "float32" else torch.float64

    def draw(self, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
        """Initial values of a table or of a factor of one, drawn on the CPU: the same on every device."""
        kind, scale = OneLayer(init=self.init).init_scale(self.vocab_size)
        if kind == "zero":
            return torch.zeros(shape, dtype=self.torch_dtype)
        std = scale / math.sqrt(3) if kind == "uniform" else scale
        if self.rank is not None:
            std = math.sqrt(std / math.sqrt(self.rank))  # then the r products of two factors have variance std²
        drawn = torch.empty(shape, dtype=self.torch_dtype)
        if kind == "uniform":
            return drawn.uniform_(-std * math.sqrt(3), std * math.sqrt(3), generator=generator)
        return drawn.normal_(0, std, generator=generator)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> YZSettings:
        """Back from :meth:`to_dict`."""
        known_keys("the model", values, cls.__dataclass_fields__)
        if "vocab_size" not in values:
            raise InputError("vocab_size", None, "given")
        return cls(**values)
