"""The update of a transformer's weights, in place and without a look at the device: clip, then SGD, momentum or Adam.

The gradient of the embedding has a row for each token of the batch, not for each of the vocabulary, so SGD moves
these rows alone. Equal tokens add up through E, E_ij = [x_i = x_j]: s = E g gives each of them the same sum,

    ‖dU‖² = Σ_i s_i · g_i          U[x_i] ← U[x_i] − η s_i

the same value written for each occurrence. No shape depends on the data and no order on chance, as a graph recorded on
CUDA and an exact continuation need; scattered sums on CUDA have neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scansnap.text.transformer.settings import TransformerSettings

MOST_ROWS = 2048  # tokens in a batch up to which E is cheaper than a gradient for the whole vocabulary
TINY = 1e-6  # of the clip, as in torch


@dataclass
class Rows:
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


class Update:
    """Moves named weights. Moments lie beside them under ``name.momentum``, ``name.mean``, ``name.square``."""

    def __init__(self, settings: TransformerSettings, weights: dict[str, Tensor]) -> None:
        self.settings = settings
        kinds = {"sgd": (), "momentum": ("momentum",), "adam": ("mean", "square")}[settings.optimizer]
        self.moments = {f"{name}.{kind}": torch.zeros_like(w) for name, w in weights.items() for kind in kinds}
        first = next(iter(weights.values()))
        self.corrections = torch.ones(
            2, dtype=first.dtype, device=first.device
        )  # of Adam's moments, for the step to come

    def prepare(self, step: int) -> None:
        """Set what depends on the number of the update, counted from 1; outside of a recorded graph."""
        s = self.settings
        if s.optimizer == "adam":
            self.corrections.copy_(torch.tensor([1 - s.beta1**step, 1 - s.beta2**step], dtype=self.corrections.dtype))

    def __call__(self, weights: dict[str, Tensor], gradients: dict[str, Tensor | Rows]) -> None:
        """One step along −gradient; weights (float32 or float64) and gradients (perhaps bfloat16) by the same names."""
        scale = self._scale(weights, gradients)
        for name, g in gradients.items():
            w = weights[name]
            if isinstance(g, Rows):
                w.index_copy_(0, g.tokens, w[g.tokens].addcmul_(g.sums, scale, value=-self.settings.eta))
            else:
                self._move(name, w, g, scale)

    def _scale(self, weights: dict[str, Tensor], gradients: dict[str, Tensor | Rows]) -> Tensor:
        """What the gradient is multiplied with to have a norm of ``clip`` at most."""
        dtype = next(iter(weights.values())).dtype
        if self.settings.clip is None:
            return self.corrections.new_ones(())
        squares = [g.squared() if isinstance(g, Rows) else torch.linalg.vector_norm(g, dtype=dtype).square()
                   for g in gradients.values()]  # fmt: skip
        return (self.settings.clip / (torch.stack(squares).sum().sqrt() + TINY)).clamp_(max=1.0)

    def _move(self, name: str, w: Tensor, g: Tensor, scale: Tensor) -> None:
        s = self.settings
        if s.optimizer == "sgd":
            w.addcmul_(g, scale, value=-s.eta)
        elif s.optimizer == "momentum":
            w.sub_(self.moments[f"{name}.momentum"].mul_(s.momentum).addcmul_(g, scale), alpha=s.eta)
        else:
            g = g.to(w.dtype) * scale
            mean = self.moments[f"{name}.mean"].lerp_(g, 1 - s.beta1)
            square = self.moments[f"{name}.square"].mul_(s.beta2).addcmul_(g, g, value=1 - s.beta2)
            w.sub_((mean / self.corrections[0]).div_((square / self.corrections[1]).sqrt_().add_(s.eps)), alpha=s.eta)
