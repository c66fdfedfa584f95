"""Layers of the YZ model: forward and exact backward passes, each its own few lines of algebra.

The state of a position is a vector u over the vocabulary. A layer is that of the paper with u for the one-hot token,

    z_ts = u_tᵀ Z u_s     b_t = softmax_s(z_ts)     c_t = Σ_s b_ts u_s     f_t = norm(c_t), with or without u_t added
    h_t = Yᵀ f_t

and between two layers the state becomes u_t ← norm(σ(h_t)), or norm(f_t + σ(h_t)) where there is a residual: a block
of a post-norm transformer whose basis is the vocabulary. With σ = softmax the state is a *soft token*, the layer's own
guess of the next one. In the first layer u is one-hot, and everything happens among the positions of the window
(FirstLayer); above it u is dense (SoftLayer), which costs six products with an (M, M) table, or a factored one, for
each position. The last layer's h are the logits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.dynamics import norms
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import WeightTable
from scansnap.text.yz.window import Mixed, attend, attend_backward, soft, soft_backward


class FirstPass(NamedTuple):
    """What the first layer's backward pass needs."""

    x: Tensor  # (B, T)
    same: Tensor  # (B, T, T)
    mixed: Mixed
    h: Tensor  # (B, T, M)

    @property
    def b(self) -> Tensor:
        return self.mixed.b

    def f(self, like: Tensor) -> Tensor:
        """f over the vocabulary, (B, T, M)."""
        places = self.x[:, None, :].expand_as(self.mixed.f)
        return torch.zeros_like(like).scatter_add_(-1, places, self.mixed.f)


class FirstLayer:
    """The layer that reads tokens."""

    def __init__(self, settings: YZSettings, y: WeightTable, z: WeightTable) -> None:
        self.settings, self.y, self.z = settings, y, z

    def attend(self, x: Tensor, keep: float | None = None, *, uniform: bool = False) -> tuple[Tensor, Mixed]:
        """E and the attention of a batch (B, T), by Z or ``uniform``, as of Z = 0."""
        s = self.settings
        same = (x[:, :, None] == x[:, None, :]).to(s.torch_dtype)
        z = torch.zeros_like(same) if uniform else self.z.pairs(x)
        options = {"norm": s.norm, "residual": s.residual}
        return same, attend(z, same, **options, query_in_keys=s.query_in_keys, keep=keep)

    def forward(self, x: Tensor, keep: float | None = None, *, uniform: bool = False) -> FirstPass:
        same, mixed = self.attend(x, keep, uniform=uniform)
        return FirstPass(x, same, mixed, self.y.votes(x, mixed.f))

    def backward(self, done: FirstPass, dh: Tensor, df: Tensor | None, step: Tensor) -> None:
        """Move both tables; dh and, where f went on to the next layer, df are directions (B, T, M)."""
        s = self.settings
        g = self.y.votes_backward(done.x, done.mixed.f, dh, step)
        if df is not None:
            g = g + df.gather(-1, done.x[:, None, :].expand_as(g))
        dz = attend_backward(g, done.mixed, done.same, norm=s.norm, residual=s.residual)
        self.z.move_pairs(done.x, dz, s.query_in_keys, step)


class SoftPass(NamedTuple):
    """What a soft layer's backward pass needs, (B, T, M) but for b."""

    u: Tensor
    asked: Tensor  # u Z
    b: Tensor  # (B, T, T)
    c: Tensor
    inner: Tensor  # norm(c) where the residual needs it, else c
    v: Tensor  # what the last norm was given
    state: Tensor  # f
    h: Tensor

    def f(self, like: Tensor) -> Tensor:
        return self.state


class SoftLayer:
    """A layer above the first: states are dense."""

    def __init__(self, settings: YZSettings, y: WeightTable, z: WeightTable) -> None:
        self.settings, self.y, self.z = settings, y, z

    def forward(self, u: Tensor, keep: float | None = None) -> SoftPass:
        s = self.settings
        asked = self.z.apply(u)
        b = soft(asked @ u.mT, s.query_in_keys, keep)
        c = b @ u
        inner = norms.apply(s.norm, c) if s.residual == "normed" else c
        v = inner if s.residual == "none" else inner + u
        f = norms.apply(s.norm, v)
        return SoftPass(u, asked, b, c, inner, v, f, self.y.apply(f))

    def backward(self, done: SoftPass, dh: Tensor, df: Tensor | None, step: Tensor) -> Tensor:
        """Move both tables and return the direction of u."""
        s, u = self.settings, done.u
        back = self.y.apply_backward(done.state, dh, step)
        dv = norms.pull_back(s.norm, back if df is None else back + df, done.v, done.state)
        dc = norms.pull_back(s.norm, dv, done.c, done.inner) if s.residual == "normed" else dv
        dz = soft_backward(done.b, dc @ u.mT)
        du = torch.baddbmm(dv, done.b.mT, dc) if s.residual != "none" else done.b.mT @ dc
        du.baddbmm_(dz.mT, done.asked)
        return du.add_(self.z.apply_backward(u, dz @ u, step))


class Between(NamedTuple):
    """The step from one layer to the next."""

    u: Tensor  # (B, T, M)
    activated: Tensor  # σ(h)
    v: Tensor  # what the norm was given


def between(h: Tensor, f: Tensor | None, settings: YZSettings) -> Between:
    """u = norm(σ(h) + f), f None without a residual."""
    a = {"softmax": lambda: torch.softmax(h, -1), "relu": lambda: torch.relu(h), "none": lambda: h}[
        settings.activation
    ]()
    v = a if f is None else a + f
    return Between(norms.apply(settings.norm, v), a, v)


def between_backward(done: Between, du: Tensor, settings: YZSettings) -> tuple[Tensor, Tensor]:
    """Directions of h and of f."""
    dv = norms.pull_back(settings.norm, du, done.v, done.u)
    if settings.activation == "softmax":
        return soft_backward(done.activated, dv), dv
    return (dv * (done.activated > 0), dv) if settings.activation == "relu" else (dv, dv)
