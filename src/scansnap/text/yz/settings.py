"""What a YZ language model is, in full."""

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
    """A YZ model over a vocabulary and how it is trained: f = norm(c), with the query's state u as the residual.

    The factors of a low-rank table are drawn so that the entries of the table have the variance that ``init`` says.
    bf16x3 is three products of halved numbers in the fused kernels: faster, five decimal digits, float32 elsewhere.
    """

    rank: int | None = setting(None, "Tables of this rank, Y = A Bᵀ and Z = C Dᵀ; none: full ones.", least=1)
    norm: str = setting(
        "l2", "What follows attention: a norm that is not dense, as states are kept by position.",
        choices=lambda: [name for name, norm in NORMS.items() if not norm.dense])  # fmt: skip
    residual: str = setting(
        "none", "Adds the query's state to what attention read, after its norm or as it is.", choices=RESIDUALS
    )
    query_in_keys: bool = setting(False, "Whether a position attends to itself as well.")
    activation: str = setting("softmax", "What stands between layers.", choices=("softmax", "relu", "none"))
    init: str = setting("zero", "Initial tables: zero, uniform within ±1/√M, or normal(std).", accepts=INIT)
    eta_y: float | Sequence[float] = setting(
        100.0, "Rate of Y on the mean loss, one number or one for each layer.", least=0, multiple=True
    )
    eta_z: float | Sequence[float] = setting(
        10.0, "Rate of Z on the mean loss, one number or one for each layer.", least=0, multiple=True
    )
    precision: str = setting(
        "float32", "Of products on CUDA; bf16x3 keeps five decimal digits, tf32 three.",
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
                "init", self.init, "uniform or normal(std) with a rank: from two zero factors nothing moves"
            )
        if self.init == "zero" and self.layers > 1 and self.residual == "none":
            raise InputError("init", self.init, "uniform or normal(std) with several layers and no residual: from "
                             "zero all positions have the same state, and keep it")  # fmt: skip

    def _rates(self, name: str) -> tuple[float, ...]:
        given = getattr(self, name)
        if not isinstance(given, tuple):
            return (given,) * self.layers
        if len(given) != self.layers:
            raise InputError(name, given, f"one number, or one for each of the {self.layers} layers")
        return given

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
