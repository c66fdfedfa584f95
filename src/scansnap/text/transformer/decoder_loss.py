"""Cross-entropy of a linear decoder with its gradients, in one go.

    logits = h Wᵀ    loss = mean −ln softmax(logits)[n]    G = (softmax(logits) − e_n)/N    dh = G W    dW = Gᵀ h

An automatic gradient keeps the logits, their log-softmax and the gradients of both, in float32; with M = 33,278 that is
most of the time of a step. Here there are the logits and the softmax, which becomes G in place, in the precision of h.

W is kept in a shape that matrix products like (logits 1.6 times faster on CPUs; on CUDA bfloat16 needs it):

    columns  d weights, the bias as the weight of a constant input (one more column in three products instead of one
    more
             pass over G), zeros up to a multiple of 8
    rows     M words, then words that never come up to a multiple of 64: their bias gives them a share of 0,
             so their gradient is 0 and they stay as they are
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.kernels.cuda import triton_available

ROOM = 8  # columns for the bias
ROWS = 64  # rows come in multiples of this
SMALL = 1e-30  # shares above this are exact to the last digits
NEVER = -30000.0  # bias of words that never come


class DecoderGradients(NamedTuple):
    loss: Tensor
    h: Tensor  # (N, d), gradient
    weight: Tensor  # (M', d + ROOM), gradient


def decoder_weight(weight: Tensor, bias: Tensor | None) -> Tensor:
    """(M', d + ROOM) from the weights (M, d) and perhaps a bias (M,)."""
    m, d = weight.shape
    found = weight.new_zeros(-(-m // ROWS) * ROWS, d + ROOM)
    found[:m, :d] = weight
    found[m:, d] = NEVER
    if bias is not None:
        found[:m, d] = bias
    return found


def with_one(h: Tensor) -> Tensor:
    """The input of the bias beside h: (N, d + ROOM)."""
    return torch.cat([h, h.new_ones(h.shape[0], 1), h.new_zeros(h.shape[0], ROOM - 1)], 1)


class DecoderLoss:
    """Keeps its large buffers from step to step on a CPU, where fresh memory costs as much as filling it."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def __call__(self, h: Tensor, weight: Tensor, targets: Tensor) -> DecoderGradients:
        """h (N, d) in the precision to work in, weight (M', d + ROOM), targets (N,).

        On a CPU the gradient of the weight lies in a buffer that the next call overwrites.
        """
        (n, d), wide = h.shape, weight.shape[0]
        h1, w, at = with_one(h), weight.to(h.dtype), targets[:, None]
        logits = torch.mm(h1, w.T, out=self._buffer("logits", (n, wide), h))  # (N, M')
        if h.is_cuda and h.dtype != torch.float64 and triton_available():
            from scansnap.text.transformer.cross_entropy_triton import cross_entropy_

            loss, g = cross_entropy_(logits, targets).mean(), logits
        else:
            g = torch.softmax(logits, -1, out=self._buffer("softmax", (n, wide), h))  # it sums in float32
            right = g.gather(1, at)
            loss = _mean_loss(logits, right, g, at).to(weight.dtype)
            g.scatter_(1, at, right - 1)
        # g is N·G
        dw = torch.mm(g.T, h1 / n, out=self._buffer("weight", (wide, d + ROOM), h))
        return DecoderGradients(loss, (g @ w[:, :d]) / n, dw)

    def _buffer(self, name: str, shape: tuple[int, int], like: Tensor) -> Tensor:
        if like.is_cuda:  # its allocator keeps memory by itself, and a recorded graph wants its own
            return like.new_empty(shape)
        kept = self._kept.get(name)
        if kept is None or kept.numel() < shape[0] * shape[1] or kept.dtype != like.dtype:
            kept = self._kept[name] = like.new_empty(shape[0] * shape[1])
        return kept[: shape[0] * shape[1]].view(shape)


def _mean_loss(logits: Tensor, right: Tensor, g: Tensor, at: Tensor) -> Tensor:
    """mean −ln p_n from the softmax g, also where p_n is too small for a number; the largest share of a row never
    is."""
    wide = torch.promote_types(right.dtype, torch.float32)
    if not right.is_cuda and float(right.min()) > SMALL:  # on CUDA a look at it would make everyone wait
        return -right.to(wide).log().mean()
    top, place = logits.max(-1, keepdim=True)
    total = top.to(wide) - g.gather(1, place).to(wide).log()  # ln Σ e^logit
    return (total - logits.gather(1, at).to(wide)).mean()
