"""YZ language models as one would write them in torch: the baselines of yz_text.py, which runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[Tensor, Tensor], Tensor]


def keys_of(length: int, device: torch.device) -> Tensor:
    """Every position looks at those before it, the first at itself."""
    t = torch.arange(length, device=device)
    return (t < t[:, None]) | (t + t[:, None] == 0)


def one_layer(y: Tensor, z: Tensor, eta_y: float, eta_z: float) -> Step:
    """Lemma 1 written straight down for full tables: rows gathered, batched products, index_add."""

    def step(x: Tensor, target: Tensor) -> Tensor:
        n, m = x.numel(), len(y)
        b = torch.softmax(z[x[:, :, None], x[:, None, :]].masked_fill(~keys_of(x.shape[1], x.device), -torch.inf), -1)
        same = (x[:, :, None] == x[:, None, :]).to(y.dtype)
        size = (b * (b @ same)).sum(-1, keepdim=True).sqrt()
        f = b / size
        rows = y[x]
        log_alpha = torch.log_softmax(f @ rows, -1)
        loss = -log_alpha.gather(-1, target[..., None]).mean()
        e = -log_alpha.exp()
        e.scatter_add_(-1, target[..., None], torch.ones_like(size))
        e /= n
        g = e @ rows.mT
        dc = (g - (f @ same) * (f * g).sum(-1, keepdim=True)) / size
        dz = b * (dc - (b * dc).sum(-1, keepdim=True))
        y.index_add_(0, x.flatten(), (f.mT @ e).flatten(0, 1), alpha=eta_y)
        z.view(-1).index_add_(0, (x[:, :, None] * m + x[:, None, :]).flatten(), dz.flatten(), alpha=eta_z)
        return loss

    return step


def unit(v: Tensor) -> Tensor:
    return v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)


class PlainYZ(nn.Module):
    """Any number of layers (several with a residual), full or of a rank; states over the vocabulary, autograd."""

    def __init__(self, m: int, layers: int, rank: int | None) -> None:
        super().__init__()
        self.layers, self.rank = layers, rank

        def table() -> nn.ParameterList:
            if rank is None:
                return nn.ParameterList([torch.zeros(m, m)])
            return nn.ParameterList([torch.randn(m, rank) / (m * rank) ** 0.25 for _ in range(2)])

        self.y, self.z = (nn.ModuleList([table() for _ in range(layers)]) for _ in range(2))

    def times(self, u: Tensor, w: Any) -> Tensor:
        return u @ w[0] if self.rank is None else u @ w[0] @ w[1].mT

    def forward(self, x: Tensor) -> Tensor:
        keys, one = keys_of(x.shape[1], x.device), x[..., None]
        first: Any = self.z[0]
        logit = first[0][one, x[:, None, :]] if self.rank is None else first[0][x] @ first[1][x].mT
        b = torch.softmax(logit.masked_fill(~keys, -torch.inf), -1)
        if self.layers == 1:  # f by position: nothing but the logits is of the vocabulary's size
            same = (one == x[:, None, :]).to(b.dtype)
            f = b / (b * (b @ same)).sum(-1, keepdim=True).sqrt()
            return self.times_rows(f, x, self.y[0])
        u = torch.zeros(*x.shape, len(first[0]), device=x.device).scatter(-1, one, 1.0)
        f = unit(unit(b @ u) + u)
        for i in range(1, self.layers):
            u = unit(f + torch.softmax(self.times(f, self.y[i - 1]), -1))
            b = torch.softmax((self.times(u, self.z[i]) @ u.mT).masked_fill(~keys, -torch.inf), -1)
            f = unit(unit(b @ u) + u)
        return self.times(f, self.y[-1])

    def times_rows(self, f: Tensor, x: Tensor, w: Any) -> Tensor:
        return f @ w[0][x] if self.rank is None else f @ w[0][x] @ w[1].mT


def by_autograd(
    m: int, device: torch.device, compiled: bool, *, layers: int = 1, rank: int | None = None,
    optimizer: str = "sgd",
) -> Step:  # fmt: skip
    """Updates by autograd and a fused optimiser of torch; ``compiled``: loss and gradients by torch.compile."""
    with device:
        model = PlainYZ(m, layers, rank)
    kind, rate = (torch.optim.Adam, 1e-2) if optimizer == "adam" else (torch.optim.SGD, 10.0)
    move = kind(model.parameters(), lr=rate, fused=True)

    def loss_of(x: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x).flatten(0, 1), target.flatten())

    loss_of = torch.compile(loss_of) if compiled else loss_of

    def step(x: Tensor, target: Tensor) -> Tensor:
        loss = loss_of(x, target)
        loss.backward()
        move.step()
        move.zero_grad()
        return loss.detach()

    return step
