"""The update of a transformer's weights, in place and without waiting for the device: clip, then a registered rule.

The gradient of the embedding has a row for each token of the batch, not for each of the vocabulary, so plain SGD
updates these rows alone. Equal tokens are summed by E, E_ij = [x_i = x_j]: s = E g gives each of them the same sum,

    ‖dU‖² = Σ_i s_i · g_i          U[x_i] ← U[x_i] − η s_i

the same value written for each occurrence. Shapes do not depend on the data, and the order of sums is fixed, as a
captured CUDA graph and an exact continuation need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from scansnap.text.transformer.settings import TransformerSettings

MAX_ROWS = 2048  # tokens of a batch up to which E is cheaper than a gradient for the whole vocabulary
CLIP_EPS = 1e-6  # as in torch


@dataclass
class RowGradient:
    """The gradient of some rows of a table."""

    tokens: Tensor  # (N,)
    rows: Tensor  # g (N, d)

    def __post_init__(self) -> None:
        self.sums = (self.tokens[:, None] == self.tokens[None, :]).to(self.rows.dtype) @ self.rows  # s (N, d)

    def squared(self) -> Tensor:
        return (self.sums * self.rows).sum()


def dense_rows(tokens: Tensor, rows: Tensor, size: int) -> Tensor:
    """The gradient (size, d) of a whole table, summed in a fixed order."""
    return torch.ops.aten.embedding_dense_backward(rows, tokens, size, -1, False)


class ClippedOptimizer:
    """Updates named weights; ``moments`` are by name of the weight, then by name of the moment."""

    def __init__(self, settings: TransformerSettings, weights: dict[str, Tensor]) -> None:
        self.optimizer, self.settings = settings.table_optimizer, settings
        self.moments = {name: self.optimizer.start(w) for name, w in weights.items()}
        first = next(iter(weights.values()))
        self.eta = torch.full((), settings.eta, dtype=first.dtype, device=first.device)
        self.factor = torch.ones_like(self.eta)  # of a schedule
        self.step = torch.zeros((), dtype=torch.float64, device=first.device)

    def scale_rates(self, factor: float) -> None:
        """Set the rate to ``factor`` times that of the settings; outside of a captured graph."""
        self.factor.fill_(factor)
        self.eta.fill_(self.settings.eta * factor)

    def prepare(self, step: int) -> None:
        """Set the number of the update, counted from 0; outside of a captured graph."""
        self.step.fill_(step)

    def __call__(self, weights: dict[str, Tensor], gradients: Mapping[str, Tensor | RowGradient]) -> None:
        """One step along −gradient; weights (float32 or float64) and gradients (perhaps bfloat16) by the same names."""
        scale = self._scale(gradients)
        scheduled = scale * self.factor
        for name, g in gradients.items():
            w = weights[name]
            if isinstance(g, RowGradient):
                w.index_copy_(0, g.tokens, w[g.tokens].addcmul_(g.sums, scheduled, value=-self.settings.eta))
            elif self.optimizer.is_plain_sgd:
                w.addcmul_(g, scheduled, value=-self.settings.eta)
            else:
                self.optimizer.update(w, g.to(w.dtype).mul_(-scale), self.moments[name], eta=self.eta, step=self.step)

    def _scale(self, gradients: Mapping[str, Tensor | RowGradient]) -> Tensor:
        """The factor that reduces the gradient to a norm of at most ``clip``."""
        if self.settings.clip is None:
            return self.eta.new_ones(())
        squares = [
            g.squared() if isinstance(g, RowGradient) else torch.linalg.vector_norm(g, dtype=self.eta.dtype).square()
            for g in gradients.values()
        ]
        return (self.settings.clip / (torch.stack(squares).sum().sqrt() + CLIP_EPS)).clamp_(max=1.0)
