"""Products of states over the vocabulary within each window: B windows, T positions, states (B, T, M).

They have few outputs and long sums, or short sums and many outputs; libraries are slow at both (on 5,000 words 9 of the
first kind took a quarter of a step of five layers). On CUDA and in tf32 they are kernels of our own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scansnap.kernels.cuda import triton_available


def _long(u: Tensor) -> bool:
    """Whether states are so long that products in a window are better made by kernels of our own, which are in tf32."""
    if not (u.is_cuda and u.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32 and triton_available()):
        return False
    from scansnap.text.yz.states_triton import LONGEST, STRETCH  # imports Triton

    return u.shape[-1] > 2 * STRETCH and u.shape[1] <= LONGEST


def against(a: Tensor, b: Tensor) -> Tensor:
    """a bᵀ of each window, (B, T, U), for states (B, T, M) and (B, U, M)."""
    if not _long(a) or a.shape != b.shape:
        return a @ b.mT
    from scansnap.text.yz import states_triton  # imports Triton

    found: Tensor = states_triton.against(a, b)
    return found


def mixed(b: Tensor, u: Tensor) -> Tensor:
    """b u of each window, (B, T, M)."""
    if not _long(u):
        return b @ u
    from scansnap.text.yz import states_triton  # imports Triton

    found: Tensor = states_triton.mix(b, u)
    return found


def mixed_backward(b: Tensor, dc: Tensor, dz: Tensor, asked: Tensor, dv: Tensor | None) -> Tensor:
    """bᵀ dc + dzᵀ asked (+ dv): directions of u as it is read, as a key and by the residual."""
    if _long(dc):
        from scansnap.text.yz import states_triton  # imports Triton

        found: Tensor = states_triton.mix(b, dc, dz, asked, dv, turned=True)
        return found
    du = b.mT @ dc if dv is None else torch.baddbmm(dv, b.mT, dc)
    return du.baddbmm_(dz.mT, asked)
