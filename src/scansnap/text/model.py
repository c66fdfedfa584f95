"""The interface of a language model, and attention restricted to the keys that carry most of it."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class LanguageModel(Protocol):
    """A model over token ids in which every position of a window is a query; it updates itself."""

    vocab_size: int
    layers: int
    device: torch.device

    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update on a batch, both (B, T); the mean loss before it in nats, a 0-dim tensor on the device."""

    def scale_rates(self, factor: float) -> None:
        """Set all rates to ``factor`` times those of the settings, for a schedule."""

    def logits(self, inputs: Tensor, attention_mass: float | None = None) -> Tensor:
        """(B, T, M), without dropout; ``attention_mass`` as in `sparsify_attention`."""

    def attention(self, inputs: Tensor) -> list[Tensor]:
        """For each layer (B, heads, T, T): row t is the attention of position t to the positions up to it."""

    def key_mask(self, length: int) -> Tensor:
        """(T, T) booleans: the positions that each position of a window may attend to, in every layer."""

    def tensors(self) -> dict[str, Tensor]:
        """Parameters, moments and the number of updates by name; loading writes them in place."""

    def describe(self) -> dict[str, Any]:
        """The configuration as plain values, with its ``kind``; enough to build the same model again."""


def top_mass_mask(attention: Tensor, mass: float) -> Tensor:
    """Booleans (…, T): the smallest set of keys that carries at least this mass in each row (…, T)."""
    ordered, position = attention.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(attention, dtype=torch.bool).scatter(-1, position, before < mass)


def sparsify_attention(attention: Tensor, mass: float) -> Tensor:
    """Attention to the smallest set of keys with this mass, renormalised."""
    sparse = attention * top_mass_mask(attention, mass)
    return sparse / sparse.sum(-1, keepdim=True)
