"""Settings of a YZ language model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scansnap.checks import InputError, check_integer
from scansnap.dynamics.norms import NORMS
from scansnap.dynamics.settings import INIT, RESIDUALS
from scansnap.dynamics.settings import ModelConfig as OneLayer
from scansnap.settings import setting
from scansnap.text.settings import TextSettings

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class YZSettings(TextSettings):
    """A YZ model over a vocabulary: f = norm(c), with the query's state u as the residual.

    The factors of a low-rank table are drawn so that the entries of the table have the variance of ``init``. With
    bf16x3 the fused kernels split numbers in two and use three products: faster, five decimal digits.

    Examples
    --------
    >>> settings = YZSettings(vocab_size=1000, eta_y=100.0, eta_z=10.0, residual="normed")
    >>> settings.rates
    [(100.0, 10.0)]
    """

    rank: int | None = setting(None, "Rank of the tables Y = A Bᵀ and Z = C Dᵀ; none: full tables.", least=1)
    norm: str = setting(
        "l2", "Norm after attention.",
        choices=lambda: [name for name, norm in NORMS.items() if not norm.dense])  # fmt: skip
    residual: str = setting(
        "none", "Residual connection: add the query's state to the normed or plain attention output.", choices=RESIDUALS
    )
    query_in_keys: bool = setting(False, "Let a position attend to itself.")
    activation: str = setting("softmax", "The activation between layers.", choices=("softmax", "relu", "none"))
    init: str = setting("zero", "Initial tables: zero, uniform within ±1/√M, or normal(std).", accepts=INIT)
    eta_y: float | Sequence[float] = setting(
        100.0, "Learning rate of Y on the mean loss: a number, or one per layer.", least=0, multiple=True
    )
    eta_z: float | Sequence[float] = setting(
        10.0, "Learning rate of Z on the mean loss: a number, or one per layer.", least=0, multiple=True
    )
    precision: str = setting(
        "float32", "Precision of products on CUDA; bf16x3 keeps five decimal digits, tf32 three.",
        choices=("float32", "bf16x3", "tf32"))  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is not None:
            check_integer("rank", self.rank, least=1, most=self.vocab_size)
        for name in ("eta_y", "eta_z"):
            object.__setattr__(self, name, self._rates(name))
        OneLayer(init=self.init)
        if self.init == "zero" and self.rank is not None:
            raise InputError(
                "init", self.init, "uniform or normal(std) with a rank", "the gradient of two zero factors is 0"
            )
        if self.init == "zero" and self.layers > 1 and self.residual == "none":
            raise InputError("init", self.init, "uniform or normal(std) with several layers and no residual",
                             "from zero, all positions keep the same state")  # fmt: skip

    def _rates(self, name: str) -> tuple[float, ...]:
        rates = getattr(self, name)
        if not isinstance(rates, tuple):
            return (rates,) * self.layers
        if len(rates) != self.layers:
            raise InputError(name, rates, f"one number, or one for each of the {self.layers} layers")
        return rates

    @property
    def rates(self) -> list[tuple[float, float]]:
        """η_Y and η_Z of each layer."""
        return list(zip(self._rates("eta_y"), self._rates("eta_z"), strict=True))

    def draw(self, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
        """Initial values of a table or of a factor of one, drawn on the CPU: the same on every device."""
        import torch

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
