"""How sparse attention is, and which tokens it goes to.

All functions take ``attention`` with the token dimension last, as NumPy arrays, or as DataArrays (then by the dimension
names `seq_class` and ``token``), and return it reduced. ``classes`` are the classes of the attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from scansnap.checks import InputError, check_float, check_integer
from scansnap.classes import SequenceClasses
from scansnap.measure.entropy import entropy_of, masked_entropy

Array = TypeVar("Array", np.ndarray, xr.DataArray)


def entropy(attention: Array) -> Array:
    """−Σ c ln c over all tokens, in nats.

    Examples
    --------
    >>> entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).round(4)
    array([0.6931, 0.    ])
    """
    return _over(("token",), (), entropy_of, attention)


def distinct_entropy(attention: Array, classes: SequenceClasses) -> Array:
    """Entropy of attention over the class's distinct tokens, renormalised (Figure 6); NaN where there are none.

    Examples
    --------
    >>> classes = SequenceClasses.syn_small()
    >>> distinct_entropy(classes.p_context, classes).round(2)
    array([2.15, 2.15])
    """
    mask = distinct_mask(classes)
    return _over(("seq_class", "token"), ("seq_class",), lambda c: masked_entropy(_of(classes, c), mask), attention)


def recall(attention: Array, classes: SequenceClasses, threshold: float | None = None) -> Array:
    """Share of the class's distinct tokens with attention above the threshold (Figures 11 and 12).

    NaN where there are none.

    Parameters
    ----------
    threshold
        Default: 1 / (number of context tokens of all classes), as in the paper.

    Examples
    --------
    >>> classes = SequenceClasses.syn_small()
    >>> recall(classes.p_context, classes, threshold=0.01)
    array([0.9, 0.9])
    """
    if threshold is None:
        threshold = 1 / len(np.unique(np.concatenate([classes.support(n)[0] for n in range(classes.n_classes)])))
    threshold = check_float("threshold", threshold, least=0, most=1)
    mask = distinct_mask(classes)

    def share(c: np.ndarray) -> np.ndarray:
        n = mask.sum(-1)
        return np.where(n > 0, ((_of(classes, c) > threshold) & mask).sum(-1) / np.maximum(n, 1), np.nan)

    return _over(("seq_class", "token"), ("seq_class",), share, attention)


def top_mass(attention: Array, k: int = 1) -> Array:
    """Attention on the k most attended tokens.

    Examples
    --------
    >>> top_mass(np.array([0.1, 0.2, 0.7]), k=2).round(4)
    np.float64(0.9)
    """
    k = check_integer("k", k, least=1)

    def mass(c: np.ndarray) -> np.ndarray:
        if k > c.shape[-1]:
            raise InputError("k", k, f"at most the number of tokens, {c.shape[-1]}")
        return np.partition(c, -k, axis=-1)[..., -k:].sum(-1)

    return _over(("token",), (), mass, attention)


def effective_support(attention: Array) -> Array:
    """e^entropy: the number of tokens that uniform attention of the same entropy would cover.

    Examples
    --------
    >>> effective_support(np.array([0.25, 0.25, 0.25, 0.25])).round(4)
    np.float64(4.0)
    """
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
            "attention", f"shape {attention.shape}", f"shape (…, {shape[0]}, {shape[1]}) (seq_class, token)"
        )
    return attention


def _over(
    core: tuple[str, ...], out: tuple[str, ...], function: Callable[[np.ndarray], np.ndarray], attention: Any
) -> Any:
    """Apply a function that reduces the dimensions ``core`` to ``out``."""
    if isinstance(attention, xr.DataArray):
        return xr.apply_ufunc(function, attention, input_core_dims=[list(core)], output_core_dims=[list(out)])
    return function(np.asarray(attention))
