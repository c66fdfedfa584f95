"""Follow attention through a forward pass: whose product its logits are, and what its output is added to.

    logits = f(q kᵀ)  →  softmax  →  p v  →  projection W_O  →  x + …

Products of two activations, linear maps and additions pass through here. The projection is the first linear map after
an attention whose input has the width of all its heads; parallel modules with one head each share one. The residual
stream is the first tensor that had entered a module before the attention and is added to something afterwards.

    B sequences · H heads · T queries · d width of a head's values · D width of the model
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.probe.capture.call import AttentionCall

PRODUCTS = frozenset({torch.matmul, Tensor.matmul, torch.bmm, Tensor.bmm, torch.baddbmm, Tensor.baddbmm, torch.einsum})
ADDITIONS = frozenset({torch.add, Tensor.add, Tensor.add_})
LINEAR = frozenset({F.linear, torch.addmm, Tensor.addmm})
RECENT = 8  # tensors that entered modules last


class HeadOutput(NamedTuple):
    """What the heads of one attention add to the residual stream: ``values`` times ``weight``, summed over heads."""

    path: str
    number: int
    values: Tensor  # (B, T, H, d) input of the projection
    weight: Tensor  # (H, d, D)
    residual: Tensor | None  # (B, T, D) what the sum is added to; None if nothing is


@dataclass
class _Pending:
    """A captured attention whose projection has not run yet."""

    call: AttentionCall
    width: int | None  # of a head's values


class Dataflow:
    """Follows the operations of one pass; ``emit`` receives the output of each attention."""

    def __init__(self, emit: Callable[[HeadOutput], None]) -> None:
        self.emit = emit
        self.recent: deque[Tensor] = deque(maxlen=RECENT)
        self._factors: tuple[Tensor, Tensor, torch.Size] | None = None  # of the last product
        self._pending: list[_Pending] = []
        self._streams: list[Tensor] = []  # that may be the residual stream
        self._projected: list[HeadOutput] = []

    def enter(self, tensor: Tensor) -> None:
        """A module takes this tensor."""
        if tensor.ndim == 3 and tensor.is_floating_point() and not any(tensor is known for known in self.recent):
            self.recent.append(tensor)

    def factors(self, logits: Tensor) -> tuple[Tensor, Tensor] | None:
        """The queries and keys (…, T, d) whose product has the shape of these logits, if it was the last."""
        if self._factors is None or self._factors[2].numel() != logits.numel():
            return None
        q, k, shape = self._factors
        return (q, k) if shape[-2:] == logits.shape[-2:] else None

    def add_attention(self, call: AttentionCall, value_width: int | None) -> None:
        """An attention was captured."""
        self.finish()
        if self._pending and not are_parallel(self._pending[-1].call, call):
            self._pending = []
        self._pending.append(_Pending(call, value_width))
        self._streams, self._factors = list(self.recent), None

    def before(self, func: Any, args: Any, kwargs: Any, heads_first: bool) -> None:
        """A linear map or an addition is about to run."""
        if func in ADDITIONS:
            if self._projected and len(args) > 1 and isinstance(args[1], Tensor):
                self._add(args[0], args[1])
            return
        if func in LINEAR:
            self._factors = None  # what follows a linear map are not the logits of the product before it
        if self._pending:
            self._project(func, args, kwargs, heads_first)

    def after(self, func: Any, args: Any, kwargs: Any, result: Tensor) -> None:
        """A product of two tensors has run."""
        if func in (torch.baddbmm, Tensor.baddbmm):
            left, right = (*args[1:], *(kwargs[name] for name in ("batch1", "batch2") if name in kwargs))[:2]
        elif func is torch.einsum:
            left, right = _as_matmul(args, result)
        else:
            left, right = (*args, *(kwargs[name] for name in ("other", "mat2") if name in kwargs))[:2]
        if not isinstance(left, Tensor) or not isinstance(right, Tensor) or min(left.ndim, right.ndim) < 3:
            self._factors = None  # a product with a weight
            return
        last = self._pending[-1] if self._pending else None
        if last is not None and last.width is None and _has_shape(left, last.call):
            last.width = right.shape[-1]
        else:
            self._factors = left, right.mT, result.shape

    def finish(self) -> None:
        """Emit what has been projected, and added to nothing."""
        for output in self._projected:
            self.emit(output)
        self._projected = []

    def _project(self, func: Any, args: Any, kwargs: Any, heads_first: bool) -> None:
        x, weight = _linear_map(func, args, kwargs)
        if type(x) is not Tensor or type(weight) not in (Tensor, nn.Parameter) or weight.ndim != 2:
            return
        for some in (self._pending, self._pending[-1:]):
            if any(pending.width is None for pending in some):
                return
            widths = [pending.width or 0 for pending in some]
            n_heads = [pending.call.shape[1] for pending in some]
            b, _, t, _ = some[-1].call.shape
            total = sum(n * width for n, width in zip(n_heads, widths, strict=True))
            if x.shape[-1] != total or x.numel() != b * t * total or weight.shape[0] != total:
                continue
            rows = x.detach().reshape(-1, total)
            is_time_first = heads_first or (x.ndim == 3 and tuple(x.shape[:2]) == (t, b) and b != t)
            rows = rows.view(t, b, total).transpose(0, 1) if is_time_first else rows.view(b, t, total)
            first = 0
            for pending, n, width in zip(some, n_heads, widths, strict=True):
                end, call = first + n * width, pending.call
                values = rows[..., first:end].unflatten(-1, (n, width))
                of_head = weight.detach()[first:end].unflatten(0, (n, width))
                self._projected.append(HeadOutput(call.path, call.number, values, of_head, None))
                first = end
            self._pending = []
            return

    def _add(self, left: Any, right: Tensor) -> None:
        if not isinstance(left, Tensor) or left.shape != right.shape:
            return
        stream = next((t for t in (left, right) if any(t is known for known in self._streams)), None)
        if stream is None:
            return
        b, t = self._projected[0].values.shape[:2]
        residual = stream.detach()
        if residual.ndim == 3 and tuple(residual.shape[:2]) == (t, b) and b != t:
            residual = residual.transpose(0, 1)
        if tuple(residual.shape) == (b, t, self._projected[0].weight.shape[-1]):
            self._projected = [output._replace(residual=residual) for output in self._projected]
        self.finish()


def _has_shape(weights: Tensor, call: AttentionCall) -> bool:
    """Whether these may be the probabilities of an attention."""
    return weights.numel() == math.prod(call.shape) and weights.shape[-2:] == call.shape[-2:]


def _linear_map(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The input and the weight (in, out) of a linear map."""
    if func is F.linear:
        x, weight = (*args, *(kwargs[name] for name in ("input", "weight") if name in kwargs))[:2]
        return x, weight.mT if isinstance(weight, Tensor) and weight.ndim == 2 else None
    if func in (torch.addmm, Tensor.addmm):
        return (*args[1:], *(kwargs[name] for name in ("mat1", "mat2") if name in kwargs))[:2]
    return (*args, kwargs.get("other"))[:2]


def _as_matmul(args: Any, result: Tensor) -> tuple[Any, Any]:
    """The factors of ``einsum`` as those of a matrix product (…, i, d) (…, d, j); None if it is not one."""
    operands = args[1:]
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    if not isinstance(args[0], str) or len(operands) != 2 or "..." in args[0] or "->" not in args[0]:
        return None, None
    inputs, out = args[0].replace(" ", "").split("->")
    first, second = inputs.split(",")
    summed = [letter for letter in first if letter in second and letter not in out]
    if len(summed) != 1 or len(out) < 3:
        return None, None
    if out[-1] in first:  # the factors are in the order of the keys and the queries
        first, second, operands = second, first, operands[::-1]
    shared = [letter for letter in out[:-1] if letter in second]
    own = [letter for letter in out[:-1] if letter not in second]
    if len(own) != 1 or any(letter not in first for letter in shared) or out[-1] not in second:
        return None, None
    with torch._C.DisableTorchFunction():
        left = operands[0].permute([first.index(letter) for letter in (*shared, *own, *summed)])
        right = operands[1].permute([second.index(letter) for letter in (*shared, *summed, out[-1])])
    return left, right


def are_parallel(one: AttentionCall, other: AttentionCall) -> bool:
    """Whether two attentions are heads of one layer, in modules of their own: ``heads.0`` and ``heads.1``.

    They take the same tensor; layers with one head each take different ones.
    """
    if one.input is None or one.input is not other.input:
        return False
    parts = [call.path.rpartition(".") for call in (one, other)]
    numbered = all(part[2].isdigit() for part in parts)
    return numbered and parts[0][0] == parts[1][0] and one.shape == other.shape and one.shape[1] == 1
