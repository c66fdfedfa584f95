"""Entropy of distributions along the last axis; both the simulation's record and the measures need it."""

from __future__ import annotations

import numpy as np
from scipy.special import entr


def entropy_of(p: np.ndarray) -> np.ndarray:
    """−Σ p ln p, in nats."""
    return entr(p).sum(-1)


def masked_entropy(attention: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Entropy of attention restricted to a mask and renormalised; NaN where nothing is left."""
    kept = np.where(mask, attention, 0.0)
    total = kept.sum(-1, keepdims=True)
    p = np.divide(kept, total, out=np.zeros_like(kept), where=total > 0)
    return np.where(total[..., 0] > 0, entropy_of(p), np.nan)
