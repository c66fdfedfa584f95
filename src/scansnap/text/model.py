"""What the training loop asks of a language model, whatever it is made of."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class LanguageModel(Protocol):
    """A causal model over token ids. Every position of a window is a query; the model updates itself."""

    vocab_size: int
    layers: int
    device: torch.device

    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update on a batch, both (B, T); the mean loss in nats before it, a 0-dim tensor still on the device."""

    def scale_rates(self, factor: float) -> None:
        """All rates to ``factor`` times those of the settings, for a schedule."""

    def logits(self, inputs: Tensor, keep: float | None = None) -> Tensor:
        """(B, T, M), without dropout. ``keep``: attention only to the smallest set of keys with this mass,
        renormalised."""

    def attention(self, inputs: Tensor) -> list[Tensor]:
        """For each layer (B, heads, T, T): row t is how position t attends to the positions up to it."""

    def keys(self, length: int) -> Tensor:
        """(T, T) booleans: which positions each position of a window of this length may look at, in every layer."""

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and optimiser state by name: all that an exact continuation needs, written in place on load."""

    def describe(self) -> dict[str, Any]:
        """The configuration as plain values, with its ``kind``; enough to build the same model again."""
