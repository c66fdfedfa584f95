"""The tables Y and Z of a layer, full or as a product of two factors: products with them, and their updates.

For states that are single tokens x (the first layer):

    block(x, x)         W[x_t, x_s]
    votes(x, f)         Σ_s f_ts W[x_s]

for states u over the vocabulary (the layers above): apply(u) = u W. Every backward function computes the direction of
its input and then updates the table, so the direction of a table exists only while it is used. A `TableRows` is
the table as a layer uses it: the rows of its window's tokens, or all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from scansnap.kernels.cuda import triton_available
from scansnap.text.cuda import on_stream
from scansnap.text.table_optimizer import TableOptimizer, add_rows
from scansnap.text.yz.settings import YZSettings

Draw = Callable[[tuple[int, int]], Tensor]  # initial values of a table or of a factor


class WeightTable(Protocol):
    """Y or Z of one layer; B windows of T positions, N = B T, M tokens.

    States and votes have ``width`` entries instead of M; those beyond M are 0.
    """

    eta: Tensor  # 0-dim
    optimizer: TableOptimizer
    width: int

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        """W[row, column] for tokens (B, R) and (B, C) of each window, (B, R, C)."""

    def update_pairs(self, x: Tensor, dz: Tensor, query_in_keys: bool, step: Tensor) -> None:
        """Update by dz (B, T, T), of queries t ≥ 1 and their keys (the first position has only one)."""

    def votes(self, x: Tensor, f: Tensor) -> Tensor:
        """Σ_s f_ts W[x_s] for tokens (B, U) and f (B, T, U), (B, T, M)."""

    def votes_backward(self, x: Tensor, f: Tensor, dh: Tensor, step: Tensor) -> Tensor:
        """Direction of f, (B, T, U); the table is updated."""

    def apply(self, u: Tensor) -> Tensor:
        """u W, (B, T, M)."""

    def apply_backward(self, u: Tensor, dout: Tensor, step: Tensor) -> Tensor:
        """Direction of u, (B, T, M); the table is updated."""

    def matrix(self) -> Tensor:
        """The table itself, (M, M)."""

    def tensors(self) -> dict[str, Tensor]:
        """Values and moments by name."""


class FullTable:
    """W (M, M). ``weight`` and ``moments`` are views without the padding.

    On CUDA its rows and columns, and states over the vocabulary, are padded by zeros to whole vectors: products of
    other sizes run at a third of the speed.
    """

    PAD = 16
    PADDED_DEVICES = ("cuda",)

    def __init__(self, settings: YZSettings, eta: float, draw: Draw, device: torch.device) -> None:
        m = settings.vocab_size
        self.width = -(-m // self.PAD) * self.PAD if device.type in self.PADDED_DEVICES else m
        self.storage = torch.zeros(self.width, self.width, dtype=settings.torch_dtype, device=device)
        self.weight = self.storage[:m, :m]
        if settings.init != "zero":
            self.weight.copy_(draw((m, m)))
        self.optimizer = settings.table_optimizer
        self.stored_moments = self.optimizer.start(self.storage)
        self.moments = {name: moment[:m, :m] for name, moment in self.stored_moments.items()}
        self.eta = torch.full((), eta, dtype=settings.torch_dtype, device=device)
        self.stream: torch.cuda.Stream | None = None  # for its update, beside the backward pass of the layers below

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.weight[rows[:, :, None], columns[:, None, :]]

    def update_pairs(self, x: Tensor, dz: Tensor, query_in_keys: bool, step: Tensor) -> None:
        length = x.shape[1]
        if self.optimizer.is_plain_sgd and dz.is_cuda and triton_available():
            same = (x[:, :, None] == x[:, None, :]).to(dz.dtype)
            is_first = same.tril(-1).sum(-1) == 0  # columns of equal tokens are summed at the first of them
            from scansnap.text.yz.fused_votes import add_blocks  # imports Triton

            add_blocks(self.storage, x, x, (dz @ same) * is_first[:, None, :], self.eta)
            return
        if query_in_keys:
            t, s = torch.tril_indices(length, length, device=x.device)[:, 1:]
        else:
            t, s = torch.tril_indices(length, length, -1, device=x.device)
        entries = (x[:, t] * self.storage.shape[1] + x[:, s]).flatten()  # (B P,) indices in the flat table
        moments = {name: moment.view(-1) for name, moment in self.stored_moments.items()}
        self.optimizer.update_rows(
            self.storage.view(-1), entries, dz[:, t, s].flatten(), moments, eta=self.eta, step=step
        )

    def votes(self, x: Tensor, f: Tensor) -> Tensor:
        out = torch.empty(*f.shape[:-1], self.width, dtype=f.dtype, device=f.device)
        for w in window_slices(x, self.width):
            torch.bmm(f[w], _rows(self.storage, x[w]), out=out[w])
        return out

    def votes_backward(self, x: Tensor, f: Tensor, dh: Tensor, step: Tensor) -> Tensor:
        g = torch.empty_like(f)
        for w in window_slices(x, self.width):
            g[w] = multiply_states(dh[w], _rows(self.storage, x[w]))
        if self.optimizer.is_plain_sgd:  # window by window, after all windows have read the old table
            for w in window_slices(x, self.width):
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
        with on_stream(self.stream, u, dout):
            left, right = u.flatten(0, 1).mT, dout.flatten(0, 1)
            if left.is_cuda:
                left = left.contiguous()  # tf32 products of two transposed tables are a third slower
            if self.optimizer.is_plain_sgd:
                self.storage.addmm_(left, right * self.eta)  # without a direction of the size of the table
            else:
                self.optimizer.update(self.storage, left @ right, self.stored_moments, eta=self.eta, step=step)
        return du

    def matrix(self) -> Tensor:
        return self.weight

    def tensors(self) -> dict[str, Tensor]:
        return {"": self.weight, **{f".{name}": moment for name, moment in self.moments.items()}}


class LowRankTable:
    """W = L Rᵀ with factors (M, r)."""

    STRETCH = 2048  # words that one product sums on CUDA: longer sums with few outputs leave most of the device idle

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
        queries, keys = slice(1, None), slice(None) if query_in_keys else slice(-1)
        for factor, moments, d, at in ((self.left, self.left_moments, left, queries),
                                       (self.right, self.right_moments, right, keys)):  # fmt: skip
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
        """From (B, T, r) to (B, T, M); on CUDA with rows of whole vectors, for faster products."""
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
        product = torch.bmm(parts, self.right[:cut].view(n, self.STRETCH, -1)).sum(0)
        return product.addmm_(flat[:, cut:], self.right[cut:]).view(*d.shape[:2], -1)

    def matrix(self) -> Tensor:
        return self.left @ self.right.mT

    def tensors(self) -> dict[str, Tensor]:
        parts = {".left": (self.left, self.left_moments), ".right": (self.right, self.right_moments)}
        tensors = {}
        for name, (factor, moments) in parts.items():
            tensors[name] = factor
            tensors |= {f"{name}.{moment}": value for moment, value in moments.items()}
        return tensors


def _rows(table: Tensor, x: Tensor) -> Tensor:
    """Rows of tokens (B, T), (B, T, …); ``index_select`` copies whole rows, and indexing does not."""
    return table.index_select(0, x.flatten()).view(*x.shape, -1)


class TableRows(NamedTuple):
    """A table whose rows are those of tokens (B, R) of each window; None: all."""

    table: WeightTable
    rows: Tensor | None = None

    def apply(self, u: Tensor) -> Tensor:
        """u W, (B, T, M)."""
        return self.table.apply(u) if self.rows is None else self.table.votes(self.rows, u)

    def apply_backward(self, u: Tensor, dout: Tensor, step: Tensor) -> Tensor:
        """Direction of u; the table is updated."""
        if self.rows is None:
            return self.table.apply_backward(u, dout, step)
        return self.table.votes_backward(self.rows, u, dout, step)


_CACHE_FLOATS = 1 << 21  # of the rows that a CPU processes together


def window_slices(x: Tensor, columns: int) -> list[slice]:
    """On a CPU a few windows at a time, whose rows of this length fit the cache; all at once on CUDA."""
    n = len(x) if x.is_cuda else max(1, _CACHE_FLOATS // (x.shape[1] * columns))
    return [slice(w, w + n) for w in range(0, len(x), n)]


def multiply_states(a: Tensor, b: Tensor) -> Tensor:
    """a bᵀ of each window, (B, T, U), for states (B, T, M) and (B, U, M): few outputs and long sums.

    Libraries are slow at it (for 5,000 words, nine of them took a quarter of a step of five layers), so tf32 on CUDA
    has its own kernel.
    """
    if a.is_cuda and a.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32 and triton_available():
        from scansnap.text.yz import states_triton as kernels  # imports Triton

        if a.shape == b.shape and a.shape[-1] > 2 * kernels.STRETCH and a.shape[1] <= kernels.LONGEST:
            product: Tensor = kernels.against(a, b)
            return product
    return a @ b.mT


class InitialTables:
    """Initial values of one seed on a device, shared by models of any depth.

    Layers are drawn one after the other, so those of a deeper model begin with those of a shallower one. At 5,000 words
    drawing a table takes as long as a hundred steps, so the tables of a deeper model are drawn during a training.
    """

    AHEAD = 4  # tables: two layers

    def __init__(self, settings: YZSettings, device: str | torch.device) -> None:
        self.settings, self.device = settings, device
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.drawn: list[Tensor] = []
        self._pending: list[Future[Tensor]] = []
        self._pool = ThreadPoolExecutor(1)  # it does nothing on the device, which may be capturing a graph

    def draw(self) -> Draw:
        """The tables of one model, from the first on."""
        numbers = count()

        def next_table(shape: tuple[int, int]) -> Tensor:
            i = next(numbers)
            while len(self.drawn) + len(self._pending) <= i + self.AHEAD:
                self._pending.append(self._pool.submit(self.settings.draw, shape, self.generator))
            if i == len(self.drawn):
                self.drawn.append(self._pending.pop(0).result().to(self.device))
            return self.drawn[i]

        return next_table

    def fits(self, settings: YZSettings) -> bool:
        """Whether a model of these settings has these initial values."""
        names = ("vocab_size", "rank", "init", "seed", "dtype")
        return all(getattr(settings, name) == getattr(self.settings, name) for name in names)
