"""The update of a transformer's weights, in place and without a look at the device: clip, then a registered rule.

The gradient of the embedding has a row for each token of the batch, not for each of the vocabulary, so plain SGD moves
these rows alone. Equal tokens add up through E, E_ij = [x_i = x_j]: s = E g gives each of them the same sum,

    ‖dU‖² = Σ_i s_i · g_i          U[x_i] ← U[x_i] − η s_i

the same value written for each occurrence. No shape depends on the data and no order on chance, as a graph recorded on
CUDA and an exact continuation need; scattered sums on CUDA have neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from scansnap.text.transformer.settings import TransformerSettings

MOST_ROWS = 2048  # tokens in a batch up to which E is cheaper than a gradient for the whole vocabulary
TINY = 1e-6  # of the clip, as in torch


@dataclass
class RowGradient:
    """A gradient of some rows of a table."""

    tokens: Tensor  # (N,)
    each: Tensor  # g (N, d)

    def __post_init__(self) -> None:
        self.sums = (self.tokens[:, None] == self.tokens[None, :]).to(self.each.dtype) @ self.each  # s (N, d)

    def squared(self) -> Tensor:
        return (self.sums * self.each).sum()


def dense_rows(tokens: Tensor, each: Tensor, size: int) -> Tensor:
    """The gradient (size, d) of a whole table, in an order that is always the same."""
    return torch.ops.aten.embedding_dense_backward(each, tokens, size, -1, False)


class ClippedOptimizer:
    """Moves named weights; ``moments`` are by name of the weights, then by their own."""

    def __init__(self, settings: TransformerSettings, weights: dict[str, Tensor]) -> None:
        self.optimizer, self.settings = settings.table_optimizer, settings
        self.moments = {name: self.optimizer.start(w) for name, w in weights.items()}
        first = next(iter(weights.values()))
        self.eta = torch.full((), settings.eta, dtype=first.dtype, device=first.device)
        self.factor = torch.ones_like(self.eta)  # of a schedule
        self.step = torch.zeros((), dtype=torch.float64, device=first.device)

    def scale_rates(self, factor: float) -> None:
        """The rate to ``factor`` times that of the settings; outside of a recorded graph."""
        self.factor.fill_(factor)
        self.eta.fill_(self.settings.eta * factor)

    def prepare(self, step: int) -> None:
        """Set the number of the update, counted from 0; outside of a recorded graph."""
        self.step.fill_(step)

    def __call__(self, weights: dict[str, Tensor], gradients: Mapping[str, Tensor | RowGradient]) -> None:
        """One step along −gradient; weights (float32 or float64) and gradients (perhaps bfloat16) by the same names."""
        scale = self._scale(gradients)
        slowed = scale * self.factor
        for name, g in gradients.items():
            w = weights[name]
            if isinstance(g, RowGradient):
                w.index_copy_(0, g.tokens, w[g.tokens].addcmul_(g.sums, slowed, value=-self.settings.eta))
            elif self.optimizer.is_plain_sgd:
                w.addcmul_(g, slowed, value=-self.settings.eta)
            else:
                self.optimizer.update(w, g.to(w.dtype).mul_(-scale), self.moments[name], eta=self.eta, step=self.step)

    def _scale(self, gradients: Mapping[str, Tensor | RowGradient]) -> Tensor:
        """What the gradient is multiplied with to have a norm of ``clip`` at most."""
        if self.settings.clip is None:
            return self.eta.new_ones(())
        squares = [
            g.squared() if isinstance(g, RowGradient) else torch.linalg.vector_norm(g, dtype=self.eta.dtype).square()
            for g in gradients.values()
        ]
        return (self.settings.clip / (torch.stack(squares).sum().sqrt() + TINY)).clamp_(max=1.0)
