"""Layers of the YZ model: forward passes and exact backward passes.

The state of a position is a vector u over the vocabulary. A layer is that of the paper with u for the one-hot token:

    z_ts = u_tᵀ Z u_s     b_t = softmax_s(z_ts)     c_t = Σ_s b_ts u_s     f_t = norm(c_t), with or without u_t added
    h_t = Yᵀ f_t

Between two layers the state becomes u_t ← norm(σ(h_t)), or norm(f_t + σ(h_t)) with a residual connection: a block of a
post-norm transformer whose basis is the vocabulary. With σ = softmax, u_t is a distribution over next tokens.

In the first layer (`TokenLayer`) u is one-hot. The token-level attention c_l = k_l e^{z_ml} / Σ is stored as
weights b of *positions*; those of one token sum to its c. Norms are those of the token-level vector, ‖c‖² =
Σ_{s,s'} b_s b_s' [x_s = x_s'] = bᵀ E b, so nothing of size M is needed, and equal tokens count as one, as in the paper.
The first position has no earlier keys and attends to itself: c = e_m, f = e_m, and its row of z has no gradient.

In the layers above (`StateLayer`) u is dense, which costs six products with an (M, M) table, or with its
factors, for each position. The h of the last layer are the logits.

    B windows · T positions · t the query's position · s the key's · M vocabulary
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.dynamics import norms
from scansnap.kernels.cuda import triton_available
from scansnap.text.model import sparsify_attention
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import WeightTable, multiply_states


def key_mask(length: int, query_in_keys: bool, device: torch.device) -> Tensor:
    """The keys s that a query t may attend to, (T, T) booleans."""
    t = torch.arange(length, device=device)
    mask = t <= t[:, None] if query_in_keys else t < t[:, None]
    return mask | (t + t[:, None] == 0)


def masked_softmax(z: Tensor, query_in_keys: bool, attention_mass: float | None = None) -> Tensor:
    """b, the softmax of logits (B, T, T) over the keys of each query; see ``sparsify_attention`` for the mass."""
    mask = key_mask(z.shape[-1], query_in_keys, z.device)
    b = torch.softmax(z.masked_fill(~mask, -torch.inf), dim=-1)
    return b if attention_mass is None else sparsify_attention(b, attention_mass)


def softmax_backward(b: Tensor, db: Tensor) -> Tensor:
    """dz = (diag(b) − b bᵀ) db."""
    return b * (db - (b * db).sum(-1, keepdim=True))


class AttentionActivations(NamedTuple):
    """From attention to f, as weights of positions (B, T, T)."""

    b: Tensor  # attention
    inner: Tensor  # norm(c) if the residual is normed, else c
    v: Tensor  # the input of the last norm
    f: Tensor


def attend(
    z: Tensor, same: Tensor, *, norm: str, residual: str, query_in_keys: bool, attention_mass: float | None = None
) -> AttentionActivations:
    """``same`` is E (B, T, T), 1 where two positions hold the same token."""
    b = masked_softmax(z, query_in_keys, attention_mass)
    inner = norms.apply(norm, b, lambda v: v @ same) if residual == "normed" else b
    v = inner if residual == "none" else inner + torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    return AttentionActivations(b, inner, v, norms.apply(norm, v, lambda v: v @ same))


def attend_backward(g: Tensor, a: AttentionActivations, same: Tensor, *, norm: str, residual: str) -> Tensor:
    """dz from g (B, T, T): g_ts = (Y (e_n − α_t)) at token x_s, the direction of f at that token."""
    d = norms.pull_back(norm, g, a.v, a.f, lambda v: v @ same)
    if residual == "normed":
        d = norms.pull_back(norm, d, a.b, a.inner, lambda v: v @ same)
    return softmax_backward(a.b, d)


class TokenActivations(NamedTuple):
    """What the backward pass of the first layer needs."""

    x: Tensor  # (B, T)
    same: Tensor  # (B, T, T)
    attention: AttentionActivations

    @property
    def b(self) -> Tensor:
        return self.attention.b

    @property
    def f(self) -> Tensor:
        """Weights of positions, (B, T, T)."""
        return self.attention.f

    def f_by_token(self) -> Tensor:
        """f summed over equal tokens, at the first position of each, (B, T, T)."""
        is_first = self.same.tril(-1).sum(-1) == 0  # no earlier position holds this token
        return (self.f @ self.same) * is_first[:, None, :]

    def f_over_vocabulary(self, width: int) -> Tensor:
        """f over the vocabulary, (B, T, M), or as wide as the tables are."""
        index = self.x[:, None, :].expand_as(self.f)
        return self.f.new_zeros(*self.f.shape[:-1], width).scatter_add_(-1, index, self.f)


class TokenLayer:
    """The attention of the first layer, which reads tokens."""

    def __init__(self, settings: YZSettings, z: WeightTable) -> None:
        self.settings, self.z = settings, z

    def forward(self, x: Tensor, attention_mass: float | None = None, *, uniform: bool = False) -> TokenActivations:
        """For a batch (B, T), by Z or with ``uniform`` attention, as of Z = 0."""
        s = self.settings
        same = (x[:, :, None] == x[:, None, :]).to(s.torch_dtype)
        z = torch.zeros_like(same) if uniform else self.z.block(x, x)
        attention = attend(z, same, norm=s.norm, residual=s.residual, query_in_keys=s.query_in_keys,
                           attention_mass=attention_mass)  # fmt: skip
        return TokenActivations(x, same, attention)

    def backward(self, saved: TokenActivations, g: Tensor, step: Tensor) -> None:
        """Update Z by the direction g (B, T, T) of f, at the token of each position."""
        s = self.settings
        dz = attend_backward(g, saved.attention, saved.same, norm=s.norm, residual=s.residual)
        self.z.update_pairs(saved.x, dz, s.query_in_keys, step)


class StateActivations(NamedTuple):
    """What the backward pass of a layer above the first needs, (B, T, M) but for b."""

    u: Tensor
    uz: Tensor  # u Z
    b: Tensor  # (B, T, T)
    inner: Tensor  # norm(c) if the residual is normed, else c
    inner_saved: Tensor  # for the backward pass of that norm
    f: Tensor
    f_saved: Tensor  # likewise


class StateLayer:
    """The attention of a layer above the first."""

    def __init__(self, settings: YZSettings, z: WeightTable) -> None:
        self.settings, self.z = settings, z

    def forward(self, u: Tensor, attention_mass: float | None = None) -> StateActivations:
        """For states over the vocabulary."""
        s = self.settings
        uz = self.z.apply(u)
        b = masked_softmax(multiply_states(uz, u), s.query_in_keys, attention_mass)
        c = b @ u
        inner, inner_saved = apply_norm(s.norm, c) if s.residual == "normed" else (c, c)
        f, f_saved = apply_norm(s.norm, inner, None if s.residual == "none" else u)
        return StateActivations(u, uz, b, inner, inner_saved, f, f_saved)

    def backward(self, saved: StateActivations, g: Tensor, step: Tensor) -> Tensor:
        """Update Z by the direction g of f, and return that of u."""
        s, u = self.settings, saved.u
        dv = norm_backward(s.norm, g, saved.f, saved.f_saved)
        dc = norm_backward(s.norm, dv, saved.inner, saved.inner_saved) if s.residual == "normed" else dv
        dz = softmax_backward(saved.b, multiply_states(dc, u))
        du = torch.baddbmm(dv, saved.b.mT, dc) if s.residual != "none" else saved.b.mT @ dc
        du.baddbmm_(dz.mT, saved.uz)
        return du.add_(self.z.apply_backward(u, dz @ u, step))


def apply_norm(name: str, a: Tensor, b: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """norm(a + b) over the last dimension, and what its backward pass needs."""
    if name == "l2" and a.is_cuda and a.dtype == torch.float32 and triton_available():
        from scansnap.text.yz.states_triton import unit  # imports Triton

        f, size = unit(a, b)
        return f, size
    v = a if b is None else a + b
    return norms.apply(name, v), v


def norm_backward(name: str, g: Tensor, f: Tensor, saved: Tensor) -> Tensor:
    """Direction of a + b from that of f = norm(a + b); `apply_norm` returned ``saved``."""
    if saved.ndim < f.ndim:
        from scansnap.text.yz.states_triton import unit_backward  # imports Triton

        dv: Tensor = unit_backward(g, f, saved)
        return dv
    return norms.pull_back(name, g, saved, f)


class Transition(NamedTuple):
    """The step from one layer to the next."""

    activated: Tensor  # σ(h)
    u: Tensor  # (B, T, M)
    u_saved: Tensor  # for the backward pass of its norm


def transition(h: Tensor, f: Tensor | None, settings: YZSettings) -> Transition:
    """u = norm(σ(h) + f), with f None without a residual; h may be overwritten."""
    if settings.activation == "softmax" and h.shape[-1] > settings.vocab_size:
        h[..., settings.vocab_size :] = -torch.inf  # padding, no tokens
    activated = h
    if settings.activation != "none":
        activated = torch.softmax(h, -1) if settings.activation == "softmax" else torch.relu(h)
    return Transition(activated, *apply_norm(settings.norm, activated, f))


def transition_backward(saved: Transition, du: Tensor, settings: YZSettings) -> tuple[Tensor, Tensor]:
    """Directions of h and of f."""
    dv = norm_backward(settings.norm, du, saved.u, saved.u_saved)
    if settings.activation != "softmax":
        return dv * (saved.activated > 0) if settings.activation == "relu" else dv, dv
    if dv.is_cuda and dv.dtype == torch.float32 and triton_available():
        from scansnap.text.yz import states_triton  # imports Triton

        return states_triton.soft_backward(saved.activated, dv), dv
    return softmax_backward(saved.activated, dv), dv
