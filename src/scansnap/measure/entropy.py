"""Attention from its logits, and the entropy of distributions, both along the last axis of NumPy arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from scansnap.checks.arrays import FloatArray


def attention_of(p: ArrayLike, z: ArrayLike) -> FloatArray:
    """c_l ∝ p_l e^{z_l}: attention of tokens with counts or frequencies p and logits z; 0 where p is 0.

    The largest exponent is that of a token with p > 0, so that logits of any size are safe.
    `scansnap.dynamics.yz.attention_of` is the same for torch.
    """
    p = np.asarray(p)
    logit = np.where(p > 0, z, -np.inf)
    weight = p * np.exp(logit - logit.max(-1, keepdims=True))
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def entropy_of(p: np.ndarray) -> np.ndarray:
    """−Σ p ln p, in nats."""
    return entr(p).sum(-1)


def masked_entropy(attention: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Entropy of attention restricted to a mask and renormalised; NaN where nothing is left."""
    masked = np.where(mask, attention, 0.0)
    total = masked.sum(-1, keepdims=True)
    p = np.divide(masked, total, out=np.zeros_like(masked), where=total > 0)
    return np.where(total[..., 0] > 0, entropy_of(p), np.nan)
