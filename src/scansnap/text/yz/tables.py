"""The tables Y and Z of a layer, full or as a product of two factors: products with them, and their updates.

Both kinds answer the same questions. For states that are single tokens x (the first layer):

    pairs(x)            W[x_t, x_s]                    and what its direction does to the table
    votes(x, f)         Σ_s f_ts W[x_s]                likewise

for states u over the vocabulary (the layers above): apply(u) = u W. Every backward function computes the direction of
its input and then moves the table, so each table's direction exists only while it is used.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from scansnap.text.updates import Update, add_rows
from scansnap.text.yz.settings import YZSettings


class WeightTable(Protocol):
    """Y or Z of one layer; B windows of T positions, N = B T, M tokens."""

    eta: Tensor  # 0-dim
    update: Update

    def pairs(self, x: Tensor) -> Tensor:
        """W[x_t, x_s], (B, T, T)."""

    def move_pairs(self, x: Tensor, dz: Tensor, query_in_keys: bool, step: Tensor) -> None:
        """Update by dz (B, T, T), which is that of a query t ≥ 1 and its keys (the first position has but one)."""

    def votes(self, x: Tensor, f: Tensor) -> Tensor:
        """Σ_s f_ts W[x_s], (B, T, M)."""

    def votes_backward(self, x: Tensor, f: Tensor, dh: Tensor, step: Tensor) -> Tensor:
        """Direction of f, (B, T, T), at the token of each position."""

    def apply(self, u: Tensor) -> Tensor:
        """u W, (B, T, M)."""

    def apply_backward(self, u: Tensor, dout: Tensor, step: Tensor) -> Tensor:
        """Direction of u, (B, T, M)."""

    def matrix(self) -> Tensor:
        """The table itself, (M, M)."""

    def tensors(self) -> dict[str, Tensor]:
        """Values and moments by name."""


class FullTable:
    """W (M, M). On CUDA rows are padded to whole vectors; ``weight`` and ``moments`` are views without the padding."""

    PAD = 16

    def __init__(self, settings: YZSettings, eta: float, generator: torch.Generator, device: torch.device) -> None:
        m = settings.vocab_size
        columns = -(-m // self.PAD) * self.PAD if device.type == "cuda" else m
        self.storage = torch.zeros(m, columns, dtype=settings.torch_dtype, device=device)
        self.weight = self.storage[:, :m]
        if settings.init != "zero":
            self.weight.copy_(settings.draw((m, m), generator))
        self.update = settings.update
        self.stored_moments = self.update.moments(self.storage)
        self.moments = {name: moment[:, :m] for name, moment in self.stored_moments.items()}
        self.eta = torch.full((), eta, dtype=settings.torch_dtype, device=device)

    def pairs(self, x: Tensor) -> Tensor:
        return self.weight[x[:, :, None], x[:, None, :]]

    def move_pairs(self, x: Tensor, dz: Tensor, query_in_keys: bool, step: Tensor) -> None:
        length = x.shape[1]
        if query_in_keys:
            t, s = torch.tril_indices(length, length, device=x.device)[:, 1:]
        else:
            t, s = torch.tril_indices(length, length, -1, device=x.device)
        entries = (x[:, t] * self.storage.shape[1] + x[:, s]).flatten()  # (B P,) places in the flat table
        moments = {name: moment.view(-1) for name, moment in self.stored_moments.items()}
        self.update.move_rows(self.storage.view(-1), entries, dz[:, t, s].flatten(), moments, self.eta, step)

    def _rows(self, x: Tensor) -> Tensor:
        return self.weight.index_select(0, x.flatten()).view(*x.shape, -1)  # copies whole rows, as indexing does not

    def votes(self, x: Tensor, f: Tensor) -> Tensor:
        out = torch.empty(*x.shape, self.weight.shape[1], dtype=f.dtype, device=f.device)
        for w in in_turn(x, self.weight.shape[1]):
            torch.bmm(f[w], self._rows(x[w]), out=out[w])
        return out

    def votes_backward(self, x: Tensor, f: Tensor, dh: Tensor, step: Tensor) -> Tensor:
        g = torch.empty_like(f)
        for w in in_turn(x, self.weight.shape[1]):
            torch.bmm(dh[w], self._rows(x[w]).mT, out=g[w])
        if self.update.linear:  # window by window, after every window has read the old table
            for w in in_turn(x, self.weight.shape[1]):
                d = torch.bmm((f[w] * self.eta).mT, dh[w])
                add_rows(self.weight, x[w].flatten(), d.flatten(0, 1))
        else:
            d = torch.bmm(f.mT, dh).flatten(0, 1)
            self.update.move_rows(self.weight, x.flatten(), d, self.moments, self.eta, step)
        return g

    def apply(self, u: Tensor) -> Tensor:
        return u @ self.weight

    def apply_backward(self, u: Tensor, dout: Tensor, step: Tensor) -> Tensor:
        du = dout @ self.weight.mT
        left, right = u.flatten(0, 1).mT, dout.flatten(0, 1)
        if self.update.linear:
            self.weight.addmm_(left, right * self.eta)  # no direction of the size of the table
        else:
            self.update.move(self.weight, left @ right, self.moments, self.eta, step)
        return du

    def matrix(self) -> Tensor:
        return self.weight

    def tensors(self) -> dict[str, Tensor]:
        return {"": self.weight, **{f".{name}": moment for name, moment in self.moments.items()}}


class LowRankTable:
    """W = L Rᵀ with factors (M, r)."""

    def __init__(self, settings: YZSettings, eta: float, generator: torch.Generator, device: torch.device) -> None:
        assert settings.rank is not None
        shape = (settings.vocab_size, settings.rank)
        self.left = settings.draw(shape, generator).to(device)
        self.right = settings.draw(shape, generator).to(device)
        self.update = settings.update
        self.left_moments, self.right_moments = self.update.moments(self.left), self.update.moments(self.right)
        self.eta = torch.full((), eta, dtype=settings.torch_dtype, device=device)

    def pairs(self, x: Tensor) -> Tensor:
        return self.left[x] @ self.right[x].mT

    def move_pairs(self, x: Tensor, dz: Tensor, query_in_keys: bool, step: Tensor) -> None:
        if x.shape[1] == 1:
            return
        left, right = dz @ self.right[x], dz.mT @ self.left[x]  # (B, T, r)
        queries, seen = slice(1, None), slice(None) if query_in_keys else slice(-1)
        for factor, moments, d, at in ((self.left, self.left_moments, left, queries),
                                       (self.right, self.right_moments, right, seen)):  # fmt: skip
            self.update.move_rows(factor, x[:, at].flatten(), d[:, at].flatten(0, 1), moments, self.eta, step)

    def votes(self, x: Tensor, f: Tensor) -> Tensor:
        return f @ self.left[x] @ self.right.mT

    def votes_backward(self, x: Tensor, f: Tensor, dh: Tensor, step: Tensor) -> Tensor:
        rows = self.left[x]  # (B, T, r)
        back = dh @ self.right  # (B, T, r)
        g = back @ rows.mT
        right = dh.flatten(0, 1).mT @ (f @ rows).flatten(0, 1)  # (M, r)
        left = (f.mT @ back).flatten(0, 1)  # (N, r)
        self.update.move_rows(self.left, x.flatten(), left, self.left_moments, self.eta, step)
        self.update.move(self.right, right, self.right_moments, self.eta, step)
        return g

    def apply(self, u: Tensor) -> Tensor:
        return u @ self.left @ self.right.mT

    def apply_backward(self, u: Tensor, dout: Tensor, step: Tensor) -> Tensor:
        inside, back = u @ self.left, dout @ self.right  # (B, T, r)
        du = back @ self.left.mT
        left = u.flatten(0, 1).mT @ back.flatten(0, 1)
        right = dout.flatten(0, 1).mT @ inside.flatten(0, 1)
        self.update.move(self.left, left, self.left_moments, self.eta, step)
        self.update.move(self.right, right, self.right_moments, self.eta, step)
        return du

    def matrix(self) -> Tensor:
        return self.left @ self.right.mT

    def tensors(self) -> dict[str, Tensor]:
        parts = {".left": (self.left, self.left_moments), ".right": (self.right, self.right_moments)}
        found = {}
        for name, (factor, moments) in parts.items():
            found[name] = factor
            found |= {f"{name}.{moment}": value for moment, value in moments.items()}
        return found


_CACHE_FLOATS = 1 << 21  # of the rows that are worked on together on a CPU


def in_turn(x: Tensor, columns: int) -> list[slice]:
    """On a CPU a few windows at a time, whose rows of this length fit the cache; all at once on CUDA."""
    some = len(x) if x.is_cuda else max(1, _CACHE_FLOATS // (x.shape[1] * columns))
    return [slice(w, w + some) for w in range(0, len(x), some)]
