"""Attention, loss, norms and MLP of many small transformers by step.c: float32 on the CPU, forward and backward.

Without it a step of the ablation study takes 1.65 times as long (``benchmarks/dial.py --plan``, every 14th cell).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from scansnap.kernels.cpu import library

VECTOR, TILE = 16, 4  # floats in a vector of step.c, and rows in a tile; attention weights are padded to both
NORMS, ACTS = ("none", "layernorm", "rmsnorm"), ("linear", "relu", "gelu")  # in the order of step.c


def takes(x: Tensor) -> bool:
    """Whether the kernel supports this tensor."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and library.find("step") is not None


def attend(parts: tuple[Tensor, ...], bias: Tensor, turn: Tensor | None, place: Tensor | None) -> Tensor:
    """softmax(q kᵀ + bias) v of every run, head and sequence, (R, B, Q, H, i): heads side by side.

    parts  q, k and v (R, H or 1, B, n, i); or fewer, the last of which has those that are left side by side: (R, B, n,
           2 or 3, H, i), as one product makes them
    bias   (R or 1, H or 1, B or 1, Q, S) without a gradient; −∞ where a key is not seen
    turn   RoPE: (T, i), the cosines of every position's angles and then their sines, for entries j and i/2 + j
    place  (R or 1, B, Q) positions of the queries; None: the last ones
    """
    out: Tensor = _Attention.apply(bias, turn, place, *parts)
    return out


def cross_entropy(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Σ weight ln(1 + Σ_{j≠n} e^{l_j − l_n}) of the rows of each run, (R,), from logits (R, B, Q, M)."""
    out: Tensor = _CrossEntropy.apply(logits, target, weight)
    return out


def gelu(x: Tensor) -> Tensor:
    """x Φ(x); the same pass computes and stores its derivative."""
    out: Tensor = _Gelu.apply(x)
    return out


def product(x: Tensor, matrix: Tensor) -> Tensor:
    """x (R, n, k) times each run's matrix (R, k, m)."""
    out: Tensor = _Product.apply(x, matrix)
    return out


def normed(kind: str, x: Tensor) -> Tensor:
    """LayerNorm or RMSNorm over the last dimension, without a gain; it must be whole vectors."""
    out: Tensor = _Norm.apply(x, NORMS.index(kind))
    return out


def takes_mlp(x: Tensor, inside: Tensor) -> bool:
    """Whether `mlp` can do these rows (R, n, d), with a first matrix (R, d, h): in whole vectors and tiles."""
    return takes(x) and x.shape[-1] % VECTOR == 0 == inside.shape[-1] % VECTOR and x.shape[1] >= TILE


def mlp(x: Tensor, first: Tensor, second: Tensor, *, norm: str, act: str, past: bool) -> Tensor:
    """[x +] act(norm(x) first) second of every run: x (R, n, d), first (R, d, h), second (R, h, d)."""
    how = NORMS.index(norm), ACTS.index(act), int(past)
    out: Tensor = _Mlp.apply(x, first, second, how)
    return out


class _Rows(ctypes.Structure):
    """``rows`` of step.c."""

    _fields_ = [("at", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("run", "head", "sequence", "row"))]


class _Shape(ctypes.Structure):
    """``shape`` of step.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("n_heads", "n_sequences", "n_queries", "n_keys", "width", "depth")),
        *((name, _Rows) for name in ("q", "k", "v", "out", "dq", "dk", "dv", "bias")),
        ("turn", ctypes.c_void_p), ("place", ctypes.c_void_p), ("place_run", ctypes.c_int64),
        ("place_sequence", ctypes.c_int64), ("weights", ctypes.c_void_p),
    ]  # fmt: skip


def heads(parts: Sequence[Tensor]) -> list[Tensor]:
    """q, k and v, (R, H or 1, B, n, i) each, as views of what `attend` takes."""
    *first, last = parts
    return [*first, *((last,) if len(first) == 2 else (part.permute(0, 3, 1, 2, 4) for part in last.unbind(3)))]


def _rows(x: Tensor | None) -> _Rows:
    """Where the rows of (R, H, B, n, i) are; what is the same for all has stride 0."""
    if x is None:
        return _Rows(None, 0, 0, 0, 0)
    steps = [0 if n == 1 else step for n, step in zip(x.shape, x.stride(), strict=True)]
    return _Rows(x.data_ptr(), *steps[:4])


def _dense(x: Tensor) -> Tensor:
    """Entries of a row beside each other."""
    return x if x.stride(-1) == 1 else x.contiguous()


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bias: Tensor, turn: Tensor | None, place: Tensor | None, *tensors: Tensor) -> Tensor:
        parts = tuple(_dense(part) for part in tensors)
        q, k, v = heads(parts)
        n_runs, n_heads, n_sequences, n_queries, _ = q.shape
        rows, keys = (-(-n // whole) * whole for n, whole in ((n_queries, TILE), (k.shape[3], VECTOR)))
        out = torch.empty(n_runs, n_sequences, n_queries, n_heads, v.shape[4])
        weights = torch.empty(n_runs, n_heads, n_sequences, rows, keys)
        constants = _dense(bias), turn, place, weights
        ctx.save_for_backward(*constants, *parts)
        _call("attend", q, k, v, out, [None] * 3, *constants)
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        bias, turn, place, weights, *parts = ctx.saved_tensors
        q, k, v = heads(parts)
        slopes: list[Tensor | None] = [torch.empty_like(part) for part in parts]
        if len(parts) == 3:  # k and v may be the same for all heads, and without a gradient
            each = (q, k.expand(-1, q.shape[1], -1, -1, -1), v.expand(-1, q.shape[1], -1, -1, -1))
            needed = (True, *ctx.needs_input_grad[4:])
            slopes = [torch.empty_like(part) if own else None for part, own in zip(each, needed, strict=True)]
        head_slopes = slopes if len(parts) == 3 else heads(slopes)  # type: ignore[arg-type]
        _call("attend_back", q, k, v, _dense(slope), head_slopes, bias, turn, place, weights)
        shared = [s.sum(1, keepdim=True) if s is not None and s.shape != p.shape else s
                  for p, s in zip(parts, slopes, strict=True)]  # fmt: skip
        return None, None, None, *shared


def _call(
    name: str, q: Tensor, k: Tensor, v: Tensor, out: Tensor, slopes: Any, bias: Tensor, turn: Tensor | None,
    place: Tensor | None, weights: Tensor,
) -> None:  # fmt: skip
    by_head = out.permute(0, 3, 1, 2, 4)
    shape = _Shape(
        q.shape[1], q.shape[2], q.shape[3], k.shape[3], q.shape[4], v.shape[4], *map(_rows, (q, k, v, by_head)),
        *map(_rows, slopes), _rows(bias), None if turn is None else turn.data_ptr(),
        None if place is None else place.data_ptr(), 0 if place is None or len(place) == 1 else place.stride(0),
        0 if place is None else place.stride(1), weights.data_ptr(),
    )  # fmt: skip
    units = q.shape[0] * q.shape[1] * q.shape[2]
    _run(name, units, 64, ctypes.byref(shape))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(x, matrix)
        return _times(x, matrix)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, matrix = ctx.saved_tensors
        first, second = ctx.needs_input_grad
        return _times(slope, matrix.mT) if first else None, _times(x.mT, slope) if second else None


def _times(a: Tensor, b: Tensor) -> Tensor:
    """a (R, n, k) times b (R, k, m), either of them the same for all runs."""
    (_, n, k), m, runs = a.shape, b.shape[2], max(len(a), len(b))
    if n < TILE:
        return a @ b
    out = torch.empty(runs, n, m)
    operands = [x for t in (a, b) for x in (_at(t), 0 if len(t) == 1 else t.stride(0), *t.stride()[1:])]
    _run("product", runs, 4, n, k, m, *operands, _at(out))
    return out


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        n_runs, n = len(logits), logits.shape[-1]
        logits = logits.contiguous()
        target, weight = (x.expand(logits.shape[:-1]).contiguous() for x in (target, weight))
        loss, slope = torch.empty(n_runs), torch.empty_like(logits)
        pointers = map(_at, (logits, target, weight, loss, slope))
        _run("cross_entropy", n_runs, 4, target[0].numel(), n, *pointers)
        ctx.save_for_backward(slope)
        return loss

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return slope * outer.reshape(-1, *[1] * (slope.ndim - 1)), None, None


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        y, slope = torch.empty_like(x), torch.empty_like(x)
        _run("gelu", x.numel(), VECTOR << 12, *map(_at, (x, y, slope)))
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return outer * slope


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kind: int) -> Tensor:
        x = x.contiguous()
        y, scale = torch.empty_like(x), torch.empty(x.shape[:-1])
        _run("norm", scale.numel(), 64, kind, x.shape[-1], *map(_at, (x, y, scale)))
        ctx.kind = kind
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None]:
        y, scale = ctx.saved_tensors
        outer, dx = outer.contiguous(), torch.empty_like(y)
        _run("norm_slope", scale.numel(), 64, ctx.kind, y.shape[-1], *map(_at, (y, scale, outer, dx)))
        return dx, None


class _Mlp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, first: Tensor, second: Tensor, how: tuple[int, int, int]) -> Tensor:
        x, first, second = (t.contiguous() for t in (x, first, second))
        (runs, n, d), h = x.shape, first.shape[2]
        y, scale = (torch.empty(runs, n, d), torch.empty(runs, n)) if how[0] else (torch.empty(0), torch.empty(0))
        inside, slope = (torch.empty(runs, n, h) for _ in range(2))
        saved, out = (x, first, second, y, scale, inside, slope), torch.empty_like(x)
        _run("mlp", runs, 1, *how, n, d, h, *map(_at, (*saved, out)))
        ctx.how = how
        ctx.save_for_backward(*saved)
        return out

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        (runs, n, d), h = saved[0].shape, saved[1].shape[2]
        outer, slopes = outer.contiguous(), [torch.empty_like(t) for t in saved[:3]]
        _run("mlp_back", runs, 1, *ctx.how, n, d, h, *map(_at, (*saved, outer, *slopes)))
        return *slopes, None


def _run(name: str, total: int, chunk: int, *arguments: Any) -> None:
    """A function of step.c over [0, total), on as many threads as torch would use."""
    function = _function(name)
    if torch.get_num_threads() > 1:
        library.in_threads(function, total, arguments, chunk)
    elif function(0, total, *arguments):  # one of many short calls: nothing is wrapped
        raise MemoryError("not enough memory for the scratch tables of a run")


@cache
def _function(name: str) -> Any:
    number, at, head = ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(_Shape)
    strided = [at, number, number, number]
    takes: dict[str, list[Any]] = {
        "attend": [head], "attend_back": [head], "product": [number, number, number, *strided, *strided, at],
        "cross_entropy": [number, number, *[at] * 5], "gelu": [at] * 3, "norm": [number, number, *[at] * 3],
        "norm_slope": [number, number, *[at] * 4], "mlp": [*[number] * 6, *[at] * 8],
        "mlp_back": [*[number] * 6, *[at] * 11],
    }  # fmt: skip
    function = getattr(library.load("step"), name)
    function.argtypes = [number, number, *takes[name]]
    return function


def _at(x: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.data_ptr())
