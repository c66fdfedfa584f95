"""Layers of the YZ model: forward and exact backward passes, each its own few lines of algebra.

The state of a position is a vector u over the vocabulary. A layer is that of the paper with u for the one-hot token,

    z_ts = u_tᵀ Z u_s     b_t = softmax_s(z_ts)     c_t = Σ_s b_ts u_s     f_t = norm(c_t), with or without u_t added
    h_t = Yᵀ f_t

and between two layers the state becomes u_t ← norm(σ(h_t)), or norm(f_t + σ(h_t)) where there is a residual: a block
of a post-norm transformer whose basis is the vocabulary. With σ = softmax the state is a *soft token*, the layer's own
guess of the next one. In the first layer u is one-hot, and everything happens among the positions of the window
(TokenLayer). Above it (StateLayer) u is dense, which costs six products with an (M, M) table, or a factored one, for
each position. The last layer's h are the logits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.dynamics import norms
from scansnap.kernels.cuda import triton_available
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import WeightTable
from scansnap.text.yz.window import AttentionActivations, against, attend, attend_backward, soft, soft_backward


class TokenActivations(NamedTuple):
    """What the first layer's backward pass needs."""

    x: Tensor  # (B, T)
    same: Tensor  # (B, T, T)
    mixed: AttentionActivations

    @property
    def b(self) -> Tensor:
        return self.mixed.b

    @property
    def f(self) -> Tensor:
        """Weights of positions, (B, T, T)."""
        return self.mixed.f

    def on_tokens(self) -> Tensor:
        """f summed over equal tokens, at the first position of each, (B, T, T)."""
        first = self.same.tril(-1).sum(-1) == 0  # no earlier position holds this token
        return (self.f @ self.same) * first[:, None, :]

    def on_vocabulary(self, width: int) -> Tensor:
        """f over the vocabulary, (B, T, M), or as wide as tables are."""
        places = self.x[:, None, :].expand_as(self.f)
        return self.f.new_zeros(*self.f.shape[:-1], width).scatter_add_(-1, places, self.f)


class TokenLayer:
    """The attention of the layer that reads tokens."""

    def __init__(self, settings: YZSettings, z: WeightTable) -> None:
        self.settings, self.z = settings, z

    def forward(self, x: Tensor, keep: float | None = None, *, uniform: bool = False) -> TokenActivations:
        """Of a batch (B, T), by Z or ``uniform``, as of Z = 0."""
        s = self.settings
        same = (x[:, :, None] == x[:, None, :]).to(s.torch_dtype)
        z = torch.zeros_like(same) if uniform else self.z.block(x, x)
        options = {"norm": s.norm, "residual": s.residual}
        return TokenActivations(x, same, attend(z, same, **options, query_in_keys=s.query_in_keys, keep=keep))

    def backward(self, done: TokenActivations, g: Tensor, step: Tensor) -> None:
        """Move Z by the direction g (B, T, T) of f, at the token of each position."""
        s = self.settings
        dz = attend_backward(g, done.mixed, done.same, norm=s.norm, residual=s.residual)
        self.z.update_pairs(done.x, dz, s.query_in_keys, step)


class StateActivations(NamedTuple):
    """What a soft layer's backward pass needs, (B, T, M) but for b."""

    u: Tensor
    asked: Tensor  # u Z
    b: Tensor  # (B, T, T)
    inner: Tensor  # norm(c) where the residual needs it, else c
    of_inner: Tensor  # what that norm's backward pass needs
    f: Tensor
    of_f: Tensor  # likewise


class StateLayer:
    """The attention of a layer above the first."""

    def __init__(self, settings: YZSettings, z: WeightTable) -> None:
        self.settings, self.z = settings, z

    def forward(self, u: Tensor, keep: float | None = None) -> StateActivations:
        """Of states over the vocabulary."""
        s = self.settings
        asked = self.z.apply(u)
        b = soft(against(asked, u), s.query_in_keys, keep)
        c = b @ u
        inner, of_inner = normed(s.norm, c) if s.residual == "normed" else (c, c)
        return StateActivations(
            u, asked, b, inner, of_inner, *normed(s.norm, inner, None if s.residual == "none" else u)
        )

    def backward(self, done: StateActivations, g: Tensor, step: Tensor) -> Tensor:
        """Move Z by the direction g of f, and return that of u."""
        s, u = self.settings, done.u
        dv = normed_backward(s.norm, g, done.f, done.of_f)
        dc = normed_backward(s.norm, dv, done.inner, done.of_inner) if s.residual == "normed" else dv
        dz = soft_backward(done.b, against(dc, u))
        du = torch.baddbmm(dv, done.b.mT, dc) if s.residual != "none" else done.b.mT @ dc
        du.baddbmm_(dz.mT, done.asked)
        return du.add_(self.z.apply_backward(u, dz @ u, step))


def normed(name: str, a: Tensor, b: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """norm(a + b) over the last dimension, and what its backward pass needs."""
    if name == "l2" and a.is_cuda and a.dtype == torch.float32 and triton_available():
        from scansnap.text.yz.states_triton import unit  # imports Triton

        f, size = unit(a, b)
        return f, size
    v = a if b is None else a + b
    return norms.apply(name, v), v


def normed_backward(name: str, g: Tensor, f: Tensor, kept: Tensor) -> Tensor:
    """Direction of a + b from that of f; ``kept`` came with f."""
    if kept.ndim < f.ndim:
        from scansnap.text.yz.states_triton import unit_backward  # imports Triton

        dv: Tensor = unit_backward(g, f, kept)
        return dv
    return norms.pull_back(name, g, kept, f)


class Transition(NamedTuple):
    """The step from one layer to the next."""

    activated: Tensor  # σ(h)
    u: Tensor  # (B, T, M)
    of_u: Tensor  # what its norm's backward pass needs


def activate(h: Tensor, settings: YZSettings) -> Tensor:
    """σ(h)."""
    return {"softmax": lambda: torch.softmax(h, -1), "relu": lambda: torch.relu(h), "none": lambda: h}[
        settings.activation
    ]()


def activate_backward(activated: Tensor, d: Tensor, settings: YZSettings) -> Tensor:
    """Direction of h."""
    if settings.activation == "softmax":
        if d.is_cuda and d.dtype == torch.float32 and triton_available():
            from scansnap.text.yz import states_triton  # imports Triton

            dh: Tensor = states_triton.soft_backward(activated, d)
            return dh
        return soft_backward(activated, d)
    return d * (activated > 0) if settings.activation == "relu" else d


def between(h: Tensor, f: Tensor | None, settings: YZSettings) -> Transition:
    """u = norm(σ(h) + f), f None without a residual; h may be changed."""
    if settings.activation == "softmax" and h.shape[-1] > settings.vocab_size:
        h[..., settings.vocab_size :] = -torch.inf  # no tokens
    a = activate(h, settings)
    return Transition(a, *normed(settings.norm, a, f))


def between_backward(done: Transition, du: Tensor, settings: YZSettings) -> tuple[Tensor, Tensor]:
    """Directions of h and of f."""
    dv = normed_backward(settings.norm, du, done.u, done.of_u)
    return activate_backward(done.activated, dv, settings), dv
