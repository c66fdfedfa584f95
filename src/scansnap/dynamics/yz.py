"""The 1-layer transformer in its Y, Z form: forward pass and exact gradients (Lemma 1), in count form.

Only the counts k of the context tokens matter, so nothing here knows the sequence length T; T = ∞ is the same
code with k_l = P(l|n), and a position bias is a real-valued count. Everything is batched over runs.

    R runs · H heads · B samples · K classes · S slots of a class
    L rows of Y · J columns of Y · Q queries · M tokens

A class's *slots* are the tokens that can enter its f (see `scansnap.dynamics.engines.layout`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.dynamics import norms
from scansnap.dynamics.engines.layout import TableLayout
from scansnap.dynamics.settings import ModelConfig
from scansnap.dynamics.update import decoder_input


class CountBatch(NamedTuple):
    """Sampled sequences: their classes, token counts by slot, and weights in the mean (summing to 1)."""

    cls: Tensor  # (R, B)
    counts: Tensor  # (R, B, S)
    weight: Tensor  # (R, B)


@dataclass(frozen=True)
class Tables:
    """The layout's index tables on one device."""

    slots: Tensor  # (K, S)
    slot_row: Tensor  # (K, S)
    slot_query: Tensor  # (K, S)
    target: Tensor  # (K,)
    multiplicity: Tensor  # (J,)
    class_query: Tensor  # (K,)

    @classmethod
    def of(cls, layout: TableLayout, device: torch.device, dtype: torch.dtype) -> Tables:
        index = {name: torch.as_tensor(getattr(layout, name), device=device)
                 for name in ("slots", "slot_row", "target", "class_query")}  # fmt: skip
        real = {name: torch.as_tensor(getattr(layout, name), device=device, dtype=dtype)
                for name in ("slot_query", "multiplicity")}  # fmt: skip
        return cls(**index, **real)


class Forward(NamedTuple):
    """Everything between the tables and the loss, by the names of the symbol table."""

    heads: Tensor  # (R, H, B, S) attention of each head
    attention: Tensor  # (R, B, S)    c, their mean
    inner: Tensor  # (R, B, S)    norm(c), where the residual needs it
    f: Tensor  # (R, B, S)
    log_alpha: Tensor  # (R, B, J)    of the whole lumped column, where there is one


class Gradients(NamedTuple):
    """Mean loss of the batch and its ascent directions (minus the gradients)."""

    loss: Tensor  # (R,)
    dy: Tensor  # (R, L, J)
    dz: Tensor  # (R, H, Q, M)


def attention_of(counts: Tensor, logit: Tensor) -> Tensor:
    """c_l ∝ k_l e^{z_l} along the last axis; 0 where k is 0. In place: memory for the result alone."""
    c = torch.where(counts > 0, logit, -torch.inf)
    c -= c.amax(-1, keepdim=True)
    c.exp_().mul_(counts)
    return c.div_(c.sum(-1, keepdim=True))


def forward(y: Tensor, z: Tensor, batch: CountBatch, tables: Tables, model: ModelConfig) -> Forward:
    """c_l ∝ k_l e^{z_ml}, f = norm(c) or its residual form, α = softmax(Yᵀf)."""
    z_class = z[:, :, tables.class_query[:, None], tables.slots]  # (R, H, K, S)
    logit = torch.take_along_dim(z_class, batch.cls[:, None, :, None], dim=2)  # (R, H, B, S)
    heads = attention_of(batch.counts[:, None], logit)  # (R, H, B, S)
    c = heads.mean(1)  # (R, B, S)
    if model.residual == "none":
        inner = c
        f = norms.apply(model.norm, c)
    else:
        e_m = tables.slot_query[batch.cls]  # (R, B, S)
        inner = norms.apply(model.norm, c) if model.residual == "normed" else c
        f = norms.apply(model.norm, inner + e_m)
    logits = to_rows(f, batch, tables, y.shape[1]) @ y  # (R, B, J)
    return Forward(heads, c, inner, f, torch.log_softmax(logits + tables.multiplicity.log(), dim=-1))


def gradients(
    y: Tensor, z: Tensor, batch: CountBatch, tables: Tables, model: ModelConfig, update: str = "gradient"
) -> Gradients:
    """Lemma 1, and its analogues for the other norms, the residual and several heads.

    With ``update="modified"`` dy is that of Eq. 26; the batch is then the K classes in their order.
    """
    heads, c, inner, f, log_alpha = forward(y, z, batch, tables, model)
    n = tables.target[batch.cls][..., None]  # (R, B, 1) column of the next token
    loss = -(batch.weight * log_alpha.gather(-1, n)[..., 0]).sum(-1)  # (R,)

    r = -log_alpha.exp().scatter(-1, n, 0.0)
    r = r.scatter(-1, n, -r.sum(-1, keepdim=True))  # (R, B, J)  e_n − α, with 1 − α_n as the sum of the others
    r = r * batch.weight[..., None]
    f_rows = to_rows(f, batch, tables, y.shape[1])  # (R, B, L)
    dy = decoder_input(f_rows, update).mT @ (r / tables.multiplicity)  # dY = f (e_n − α)ᵀ

    g = (r @ y.mT).gather(-1, tables.slot_row[batch.cls])  # (R, B, S)   Y (e_n − α)
    if model.residual == "none":
        dc = norms.pull_back(model.norm, g, c, f)
    else:
        dc = norms.pull_back(model.norm, g, inner + tables.slot_query[batch.cls], f)
        if model.residual == "normed":
            dc = norms.pull_back(model.norm, dc, c, inner)
    dc = dc[:, None] / z.shape[1]  # every head contributes 1/H of c
    dlogit = heads * (dc - (heads * dc).sum(-1, keepdim=True))  # (R, H, B, S)   (diag(c) − c cᵀ) dc
    return Gradients(loss, dy, _to_z(dlogit, z, batch, tables))


def to_rows(f: Tensor, batch: CountBatch, tables: Tables, n_rows: int) -> Tensor:
    """f by rows of Y instead of slots of its class, (R, B, L)."""
    rows = torch.zeros(*f.shape[:-1], n_rows, dtype=f.dtype, device=f.device)
    return rows.scatter_add_(-1, tables.slot_row[batch.cls], f)  # padded slots add 0


def _to_z(dlogit: Tensor, z: Tensor, batch: CountBatch, tables: Tables) -> Tensor:
    """Sum over the samples of a class, then over the classes of a query: row m of Z gets all of ψ⁻¹(m)."""
    r, h, _, s = dlogit.shape
    k, m = len(tables.slots), z.shape[-1]
    by_class = torch.zeros(r, h, k, s, dtype=z.dtype, device=z.device)
    by_class.scatter_add_(2, batch.cls[:, None, :, None].expand_as(dlogit), dlogit)
    place = (tables.class_query[:, None] * m + tables.slots).flatten()  # (K S,)
    return torch.zeros_like(z).flatten(2).index_add_(2, place, by_class.flatten(2)).view_as(z)
