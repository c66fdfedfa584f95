"""How sparse attention is, and on what it rests.

All functions take attention with the token dimension last, as NumPy arrays or as xarray objects (then by the
dimension names `seq_class` and ``token``), and reduce it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError, check_float, check_integer
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import entropy_of, masked_entropy


def entropy(attention: Any) -> Any:
    """−Σ c ln c over all tokens, in nats."""
    return _over(("token",), (), entropy_of, attention)


def distinct_entropy(attention: Any, classes: SequenceClasses) -> Any:
    """Entropy of attention over the class's distinct tokens, renormalised (Figure 6); NaN where there are none."""
    mask = distinct_mask(classes)
    return _over(("seq_class", "token"), ("seq_class",), lambda c: masked_entropy(_of(classes, c), mask), attention)


def recall(attention: Any, classes: SequenceClasses, threshold: float | None = None) -> Any:
    """Share of the class's distinct tokens with attention above the threshold (Figures 11 and 12).

    Default threshold: 1 / (number of context tokens of all classes), as in the paper. NaN without distinct tokens.
    """
    if threshold is None:
        threshold = 1 / len(np.unique(np.concatenate([classes.support(n)[0] for n in range(classes.n_classes)])))
    threshold = check_float("threshold", threshold, least=0, most=1)
    mask = distinct_mask(classes)

    def share(c: np.ndarray) -> np.ndarray:
        n = mask.sum(-1)
        return np.where(n > 0, ((_of(classes, c) > threshold) & mask).sum(-1) / np.maximum(n, 1), np.nan)

    return _over(("seq_class", "token"), ("seq_class",), share, attention)


def top_mass(attention: Any, k: int = 1) -> Any:
    """Attention on the k most attended tokens."""
    k = check_integer("k", k, least=1)

    def mass(c: np.ndarray) -> np.ndarray:
        if k > c.shape[-1]:
            raise InputError("k", k, f"at most the number of tokens, {c.shape[-1]}")
        return np.partition(c, -k, axis=-1)[..., -k:].sum(-1)

    return _over(("token",), (), mass, attention)


def effective_support(attention: Any) -> Any:
    """e^entropy: the number of tokens that uniform attention of the same entropy would cover."""
    return _over(("token",), (), lambda c: np.exp(entropy_of(c)), attention)


def distinct_mask(classes: SequenceClasses) -> np.ndarray:
    """(K, M), true where the token is distinct to the class."""
    mask = np.zeros((classes.n_classes, classes.vocab_size), dtype=bool)
    for n in range(classes.n_classes):
        mask[n, classes.distinct(n)] = True
    return mask


def _of(classes: SequenceClasses, attention: np.ndarray) -> np.ndarray:
    shape = (classes.n_classes, classes.vocab_size)
    if attention.shape[-2:] != shape:
        raise InputError(
            "attention",
            f"of shape {attention.shape}",
            f"of shape (…, classes, tokens) = (…, {shape[0]}, {shape[1]})",
        )
    return attention


def _over(core: tuple[str, ...], kept: tuple[str, ...], function: Any, attention: Any) -> Any:
    if isinstance(attention, xr.DataArray):
        return xr.apply_ufunc(function, attention, input_core_dims=[list(core)], output_core_dims=[list(kept)])
    return function(np.asarray(attention))
