"""Cross-entropy of a linear decoder together with its gradients.

    logits = h Wᵀ    loss = mean −ln softmax(logits)[n]    G = (softmax(logits) − e_n)/N    dh = G W    dW = Gᵀ h

Autograd stores the logits, their log-softmax and the gradients of both, in float32; with M = 33,278 that is most of the
time of a step. Here there are the logits and the softmax, which becomes G in place, in the precision of h.

W has a shape for fast matrix products (logits 1.6 times faster on CPUs; on CUDA bfloat16 needs it):

    columns  d weights, the bias as the weight of a constant input (one more column in three products instead of one
             more pass over G), zeros up to a multiple of 8
    rows     M words, then padding up to a multiple of 64: its bias gives it a probability of 0, so its gradient is 0
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.kernels.cuda import triton_available

ROOM = 8  # columns for the bias
ROWS = 64  # rows come in multiples of this
SMALL = 1e-30  # probabilities above this are exact to the last digits
PADDING_BIAS = -30000.0


class DecoderGradients(NamedTuple):
    loss: Tensor
    h: Tensor  # (N, d), gradient
    weight: Tensor  # (M', d + ROOM), gradient


def decoder_weight(weight: Tensor, bias: Tensor | None) -> Tensor:
    """(M', d + ROOM) from the weights (M, d) and perhaps a bias (M,)."""
    m, d = weight.shape
    padded = weight.new_zeros(-(-m // ROWS) * ROWS, d + ROOM)
    padded[:m, :d] = weight
    padded[m:, d] = PADDING_BIAS
    if bias is not None:
        padded[:m, d] = bias
    return padded


def append_one(h: Tensor) -> Tensor:
    """h with the constant input of the bias, (N, d + ROOM)."""
    return torch.cat([h, h.new_ones(h.shape[0], 1), h.new_zeros(h.shape[0], ROOM - 1)], 1)


class DecoderLoss:
    """Reuses its large buffers on a CPU, where allocating memory costs as much as filling it."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def __call__(self, h: Tensor, weight: Tensor, targets: Tensor) -> DecoderGradients:
        """h (N, d) in the precision to work in, weight (M', d + ROOM), targets (N,).

        On a CPU the gradient of the weight is a buffer that the next call overwrites.
        """
        (n, d), wide = h.shape, weight.shape[0]
        h1, w, at = append_one(h), weight.to(h.dtype), targets[:, None]
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
        if like.is_cuda:  # its allocator reuses memory, and a captured graph needs its own
            return like.new_empty(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < shape[0] * shape[1] or buffer.dtype != like.dtype:
            buffer = self._buffers[name] = like.new_empty(shape[0] * shape[1])
        return buffer[: shape[0] * shape[1]].view(shape)


def _mean_loss(logits: Tensor, right: Tensor, g: Tensor, at: Tensor) -> Tensor:
    """mean −ln p_n from the softmax g, also where p_n underflows; the largest probability of a row never does."""
    wide = torch.promote_types(right.dtype, torch.float32)
    if not right.is_cuda and float(right.min()) > SMALL:  # on CUDA this would wait for the device
        return -right.to(wide).log().mean()
    top, place = logits.max(-1, keepdim=True)
    total = top.to(wide) - g.gather(1, place).to(wide).log()  # ln Σ e^logit
    return (total - logits.gather(1, at).to(wide)).mean()
