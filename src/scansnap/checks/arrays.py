"""Checks of the arrays that describe sequence classes: tables, token ids and distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.checks import InputError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

SUM_TOLERANCE = 1e-6  # how far a probability row may be from 1: float32 input passes, a mistake does not


def table_rows(p_context: Any) -> tuple[list[IntArray], list[FloatArray], int]:
    """Tokens and values of each row of a dense or SciPy-sparse (K, M) table without its zeros, and M."""
    if type(p_context).__module__.startswith("scipy.sparse"):
        table = p_context.tocsr(copy=True)
        table.sum_duplicates()
        spans = [slice(a, b) for a, b in zip(table.indptr[:-1], table.indptr[1:], strict=True)]
        values = numbers("p_context", table.data)
        return (
            [table.indices[span].astype(np.int64) for span in spans],
            [values[span] for span in spans],
            table.shape[1],
        )
    dense = numbers("p_context", p_context)
    if dense.ndim != 2:
        raise InputError("p_context", f"of shape {dense.shape}", "a table of shape (classes, vocabulary)")
    tokens = [np.flatnonzero(~(row == 0)) for row in dense]  # keeps NaN, which is refused later
    return tokens, [row[ids] for row, ids in zip(dense, tokens, strict=True)], dense.shape[1]


def class_row(n: int, ids: IntArray, probs: FloatArray) -> tuple[IntArray, FloatArray]:
    """One class's tokens, ascending, and its checked distribution without zero entries."""
    if ids.shape != probs.shape or ids.ndim != 1:
        raise InputError(f"class {n}", f"{ids.size} tokens and {probs.size} probabilities", "as many of both")
    order = np.argsort(ids, kind="stable")
    ids, probs = ids[order], probs[order]
    if (np.diff(ids) == 0).any():
        raise InputError(f"tokens of class {n}", int(ids[1:][np.diff(ids) == 0][0]), "listed once each")
    keep = ~(probs == 0)  # keeps NaN, which is refused next
    # Checked last: the sum that decides about rescaling is then the same when the row is read back from a file.
    return ids[keep].astype(np.int64), distribution(f"P(·|{n})", probs[keep])


def distribution(field: str, p: FloatArray) -> FloatArray:
    """Check a probability vector; rescale it only when it is off by more than rounding, so files round-trip."""
    if not np.isfinite(p).all():
        raise InputError(field, p[~np.isfinite(p)][0].item(), "finite probabilities")
    if (p < 0).any():
        raise InputError(field, p.min().item(), "probabilities of at least 0")
    if not (p > 0).any():
        raise InputError(field, "empty", "a distribution with at least one probability above 0")
    total = p.sum().item()
    if abs(total - 1) > SUM_TOLERANCE:
        raise InputError(f"the sum of {field}", total, f"1 (to within {SUM_TOLERANCE:g})")
    return p / total if abs(total - 1) > 1e-12 else p


def per_class(field: str, value: ArrayLike, n_classes: int, vocab_size: int) -> IntArray:
    ids = token_ids(field, value, vocab_size)
    if ids.shape != (n_classes,):
        raise InputError(field, f"of shape {ids.shape}", f"one token id for each of the {n_classes} classes")
    return ids


def token_ids(field: str, value: ArrayLike, vocab_size: int) -> IntArray:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise InputError(field, value, "whole token ids") from None
    if array.size and array.dtype.kind not in "iu":
        raise InputError(field, value, "whole token ids")
    bad = (array < 0) | (array >= vocab_size)
    if bad.any():
        raise InputError(field, int(array[bad].flat[0]), f"token ids from 0 to {vocab_size - 1}")
    return array.astype(np.int64)


def token_words(words: Any, vocab_size: int) -> tuple[str, ...]:
    """Check the words of the tokens: different texts, one per token."""
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise InputError("words", words, f"a list of {vocab_size} words, one for each token")
    if len(words) != vocab_size:
        raise InputError("words", f"{len(words)} words", f"one for each of the {vocab_size} tokens")
    token_of: dict[str, int] = {}
    for token, word in enumerate(words):
        if not isinstance(word, str):
            raise InputError(f"the word of token {token}", word, "text")
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise InputError(f"the word of token {token}", word, "text without half characters (lone surrogates)")
        if word in token_of:
            raise InputError(f"the word of token {token}", word, f"another than that of token {token_of[word]}")
        token_of[word] = token
    return tuple(token_of)


def numbers(field: str, value: Any) -> FloatArray:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise InputError(field, value, "rows of equal length") from None
    if array.size and array.dtype.kind not in "iuf":
        raise InputError(field, value, "numbers")
    return array.astype(np.float64)
