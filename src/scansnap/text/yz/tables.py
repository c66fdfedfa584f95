"""The tables Y and Z of a layer, full or as a product of two factors: products with them, and their updates.

Both kinds answer the same questions. For states that are single tokens x (the first layer):

    block(x, x)         W[x_t, x_s]                    and what its direction does to the table
    votes(x, f)         Σ_s f_ts W[x_s]                likewise

for states u over the vocabulary (the layers above): apply(u) = u W. Every backward function computes the direction of
its input and then moves the table, so each table's direction exists only while it is used. A :class:`TableRows` is a
table as a layer sees it: by the rows of its window's tokens, or whole.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from scansnap.kernels.cuda import triton_available
from scansnap.text.on_cuda import beside
from scansnap.text.table_optimizer import TableOptimizer, add_rows
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.start import Draw
from scansnap.text.yz.window import against


class WeightTable(Protocol):
    """Y or Z of one layer; B windows of T positions, N = B T, M tokens.

    Where it says M for states and votes it is ``width``: entries beyond M are 0.
    """

    eta: Tensor  # 0-dim
    optimizer: TableOptimizer
    width: int

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        """W[row, column] for tokens (B, R) and (B, C) of each window, (B, R, C)."""

    def update_pairs(self, x: Tensor, dz: Tensor, query_in_keys: bool, step: Tensor) -> None:
        """Update by dz (B, T, T), which is that of a query t ≥ 1 and its keys (the first position has but one)."""

    def votes(self, x: Tensor, f: Tensor) -> Tensor:
        """Σ_s f_ts W[x_s] for tokens (B, U) and f (B, T, U), (B, T, M)."""

    def votes_backward(self, x: Tensor, f: Tensor, dh: Tensor, step: Tensor) -> Tensor:
        """Direction of f, (B, T, U), at each of the tokens."""

    def apply(self, u: Tensor) -> Tensor:
        """u W, (B, T, M)."""

    def apply_backward(self, u: Tensor, dout: Tensor, step: Tensor) -> Tensor:
        """Direction of u, (B, T, M)."""

    def matrix(self) -> Tensor:
        """The table itself, (M, M)."""

    def tensors(self) -> dict[str, Tensor]:
        """Values and moments by name."""


class FullTable:
    """W (M, M). ``weight`` and ``moments`` are views without the padding.

    On CUDA it is padded by zeros to whole vectors, rows and columns, and so are states over the vocabulary: products of
    other sizes run at a third of the speed.
    """

    PAD = 16
    PADDED = ("cuda",)  # devices

    def __init__(self, settings: YZSettings, eta: float, draw: Draw, device: torch.device) -> None:
        m = settings.vocab_size
        self.width = -(-m // self.PAD) * self.PAD if device.type in self.PADDED else m
        self.storage = torch.zeros(self.width, self.width, dtype=settings.torch_dtype, device=device)
        self.weight = self.storage[:m, :m]
        if settings.init != "zero":
            self.weight.copy_(draw((m, m)))
        self.optimizer = settings.table_optimizer
        self.stored_moments = self.optimizer.start(self.storage)
        self.moments = {name: moment[:m, :m] for name, moment in self.stored_moments.items()}
        self.eta = torch.full((), eta, dtype=settings.torch_dtype, device=device)
        self.aside: torch.cuda.Stream | None = None  # where it moves while the layers below go on

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.weight[rows[:, :, None], columns[:, None, :]]

    def update_pairs(self, x: Tensor, dz: Tensor, query_in_keys: bool, step: Tensor) -> None:
        length = x.shape[1]
        if self.optimizer.is_plain_sgd and dz.is_cuda and triton_available():
            same = (x[:, :, None] == x[:, None, :]).to(dz.dtype)
            first = same.tril(-1).sum(-1) == 0  # columns of equal tokens are added up at the first of them
            from scansnap.text.yz.fused_votes import add_blocks  # imports Triton

            add_blocks(self.storage, x, x, (dz @ same) * first[:, None, :], self.eta)
            return
        if query_in_keys:
            t, s = torch.tril_indices(length, length, device=x.device)[:, 1:]
        else:
            t, s = torch.tril_indices(length, length, -1, device=x.device)
        entries = (x[:, t] * self.storage.shape[1] + x[:, s]).flatten()  # (B P,) places in the flat table
        moments = {name: moment.view(-1) for name, moment in self.stored_moments.items()}
        self.optimizer.update_rows(
            self.storage.view(-1), entries, dz[:, t, s].flatten(), moments, eta=self.eta, step=step
        )

    def votes(self, x: Tensor, f: Tensor) -> Tensor:
        out = torch.empty(*f.shape[:-1], self.width, dtype=f.dtype, device=f.device)
        for w in in_turn(x, self.width):
            torch.bmm(f[w], _rows(self.storage, x[w]), out=out[w])
        return out

    def votes_backward(self, x: Tensor, f: Tensor, dh: Tensor, step: Tensor) -> Tensor:
        g = torch.empty_like(f)
        for w in in_turn(x, self.width):
            g[w] = against(dh[w], _rows(self.storage, x[w]))
        if self.optimizer.is_plain_sgd:  # window by window, after every window has read the old table
            for w in in_turn(x, self.width):
                d = torch.bmm((f[w] * self.eta).mT, dh[w])
                add_rows(self.storage, x[w].flatten(), d.flatten(0, 1))
        else:
            d = torch.bmm(f.mT, dh).flatten(0, 1)
            self.optimizer.update_rows(self.storage, x.flatten(), d, self.stored_moments, eta=self.eta, step=step)
        return g

    def apply(self, u: Tensor) -> Tensor:
        return u @ self.storage

    def apply_backward(self, u: Tensor, dout: Tensor, step: Tensor) -> Tensor:
        du = dout @ self.storage.mT
        with beside(self.aside, u, dout):
            left, right = u.flatten(0, 1).mT, dout.flatten(0, 1)
            if left.is_cuda:
                left = left.contiguous()  # tf32 products of two transposed tables take a third longer
            if self.optimizer.is_plain_sgd:
                self.storage.addmm_(left, right * self.eta)  # no direction of the size of the table
            else:
                self.optimizer.update(self.storage, left @ right, self.stored_moments, eta=self.eta, step=step)
        return du

    def matrix(self) -> Tensor:
        return self.weight

    def tensors(self) -> dict[str, Tensor]:
        return {"": self.weight, **{f".{name}": moment for name, moment in self.moments.items()}}


class LowRankTable:
    """W = L Rᵀ with factors (M, r)."""

    STRETCH = 2048  # words that one product over the vocabulary sums on CUDA: few outputs leave most of it idle else

    def __init__(self, settings: YZSettings, eta: float, draw: Draw, device: torch.device) -> None:
        assert settings.rank is not None
        shape = (settings.vocab_size, settings.rank)
        self.width = settings.vocab_size
        self.left, self.right = (draw(shape).to(device, copy=True) for _ in range(2))
        self.optimizer = settings.table_optimizer
        self.left_moments, self.right_moments = self.optimizer.start(self.left), self.optimizer.start(self.right)
        self.eta = torch.full((), eta, dtype=settings.torch_dtype, device=device)

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        return _rows(self.left, rows) @ _rows(self.right, columns).mT

    def update_pairs(self, x: Tensor, dz: Tensor, query_in_keys: bool, step: Tensor) -> None:
        if x.shape[1] == 1:
            return
        left, right = dz @ _rows(self.right, x), dz.mT @ _rows(self.left, x)  # (B, T, r)
        queries, seen = slice(1, None), slice(None) if query_in_keys else slice(-1)
        for factor, moments, d, at in ((self.left, self.left_moments, left, queries),
                                       (self.right, self.right_moments, right, seen)):  # fmt: skip
            self.optimizer.update_rows(
                factor, x[:, at].flatten(), d[:, at].flatten(0, 1), moments, eta=self.eta, step=step
            )

    def votes(self, x: Tensor, f: Tensor) -> Tensor:
        return self._from_rank(f @ _rows(self.left, x))

    def votes_backward(self, x: Tensor, f: Tensor, dh: Tensor, step: Tensor) -> Tensor:
        rows = _rows(self.left, x)  # (B, T, r)
        back = self._to_rank(dh)  # (B, T, r)
        g = back @ rows.mT
        right = dh.flatten(0, 1).mT @ (f @ rows).flatten(0, 1)  # (M, r)
        left = (f.mT @ back).flatten(0, 1)  # (N, r)
        self.optimizer.update_rows(self.left, x.flatten(), left, self.left_moments, eta=self.eta, step=step)
        self.optimizer.update(self.right, right, self.right_moments, eta=self.eta, step=step)
        return g

    def apply(self, u: Tensor) -> Tensor:
        return self._from_rank(u @ self.left)

    def apply_backward(self, u: Tensor, dout: Tensor, step: Tensor) -> Tensor:
        inside, back = u @ self.left, self._to_rank(dout)  # (B, T, r)
        du = back @ self.left.mT
        left = u.flatten(0, 1).mT @ back.flatten(0, 1)
        right = dout.flatten(0, 1).mT @ inside.flatten(0, 1)
        self.optimizer.update(self.left, left, self.left_moments, eta=self.eta, step=step)
        self.optimizer.update(self.right, right, self.right_moments, eta=self.eta, step=step)
        return du

    def _from_rank(self, inside: Tensor) -> Tensor:
        """From (B, T, r) to (B, T, M); on CUDA rows begin at whole vectors, as products like it."""
        if not inside.is_cuda:
            return inside @ self.right.mT
        m, flat = len(self.right), inside.flatten(0, 1)
        wide = flat.new_empty(len(flat), -(-m // FullTable.PAD) * FullTable.PAD)[:, :m]
        return torch.mm(flat, self.right.mT, out=wide).unflatten(0, inside.shape[:2])

    def _to_rank(self, d: Tensor) -> Tensor:
        """From (B, T, M) to (B, T, r)."""
        if not d.is_cuda or len(self.right) < 2 * self.STRETCH:
            return d @ self.right
        flat, n = d.flatten(0, 1), len(self.right) // self.STRETCH
        cut = n * self.STRETCH
        parts = flat[:, :cut].unflatten(1, (n, -1)).transpose(0, 1)  # (n, N, stretch)
        found = torch.bmm(parts, self.right[:cut].view(n, self.STRETCH, -1)).sum(0)
        return found.addmm_(flat[:, cut:], self.right[cut:]).view(*d.shape[:2], -1)

    def matrix(self) -> Tensor:
        return self.left @ self.right.mT

    def tensors(self) -> dict[str, Tensor]:
        parts = {".left": (self.left, self.left_moments), ".right": (self.right, self.right_moments)}
        found = {}
        for name, (factor, moments) in parts.items():
            found[name] = factor
            found |= {f"{name}.{moment}": value for moment, value in moments.items()}
        return found


def _rows(table: Tensor, x: Tensor) -> Tensor:
    """Rows of tokens (B, T), (B, T, …): copied whole, as indexing does not."""
    return table.index_select(0, x.flatten()).view(*x.shape, -1)


class TableRows(NamedTuple):
    """A table whose rows are those of tokens (B, R) of each window; None: all."""

    table: WeightTable
    rows: Tensor | None = None

    def apply(self, u: Tensor) -> Tensor:
        """u W, (B, T, M)."""
        return self.table.apply(u) if self.rows is None else self.table.votes(self.rows, u)

    def apply_backward(self, u: Tensor, dout: Tensor, step: Tensor) -> Tensor:
        """Direction of u; the table moves."""
        if self.rows is None:
            return self.table.apply_backward(u, dout, step)
        return self.table.votes_backward(self.rows, u, dout, step)


_CACHE_FLOATS = 1 << 21  # of the rows that are worked on together on a CPU


def in_turn(x: Tensor, columns: int) -> list[slice]:
    """On a CPU a few windows at a time, whose rows of this length fit the cache; all at once on CUDA."""
    some = len(x) if x.is_cuda else max(1, _CACHE_FLOATS // (x.shape[1] * columns))
    return [slice(w, w + some) for w in range(0, len(x), some)]
