"""The generators behind the presets of sequence classes, and what can be set in them."""

from __future__ import annotations

from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from scansnap.checks import InputError
from scansnap.checks.arrays import FloatArray, numbers
from scansnap.settings import Page, SettingSpec

Queries = Annotated[int, SettingSpec("Number of query tokens; each has its own row of attention logits.", least=1,
                              page=Page("Queries", low=1, high=16, cap="classes"))]  # fmt: skip
NextPerQuery = Annotated[int, SettingSpec("Number of classes (next tokens) of each query.", least=1,
                                   page=Page("Next tokens per query", low=1, high=8, cap="classes"))]  # fmt: skip
Common = Annotated[int, SettingSpec("Number of tokens in the context of every class.",
                             page=Page("Common tokens", low=0, high=40, cap="tokens"))]  # fmt: skip
CommonPerQuery = Annotated[int, SettingSpec("Number of tokens that only the classes of one query share.",
                                     page=Page("Common per query", low=0, high=20, cap="tokens"))]  # fmt: skip
Distinct = Annotated[int, SettingSpec("Number of tokens that occur in one class only.",
                               page=Page("Distinct tokens", low=0, high=40, cap="tokens"))]  # fmt: skip
CommonWeight = Annotated[float, SettingSpec(
    "Weight of a common token; the most frequent distinct token has weight 1.", above=0,
    page=Page("Weight of common tokens", low=0.1, high=10.0, log=True, least=1e-6, most=1e6))]  # fmt: skip
DistinctWeights = Annotated[ArrayLike | None, SettingSpec(
    "Weight of each distinct token; none: evenly spaced from 0.1 to 1.", kind="text", accepts="finite numbers above 0",
    page=Page("Weights of distinct tokens", words={"none": "even"}))]  # fmt: skip
Unused = Annotated[int, SettingSpec("Number of tokens that occur in no context.",
                             page=Page("Unused tokens", low=0, high=2000, cap="tokens"))]  # fmt: skip
Vocab = Annotated[int, SettingSpec("Number of tokens.", least=3,
                            page=Page("Vocabulary", "M", 50, 2000, log=True, cap="tokens"))]  # fmt: skip
Classes = Annotated[int, SettingSpec("Number of classes; they share one query.", least=1,
                              page=Page("Classes", "K", 2, 20))]  # fmt: skip
Exponent = Annotated[float, SettingSpec("Exponent of the token frequencies, rank^(−exponent).", least=0,
                                 page=Page("Zipf exponent", low=0.0, high=2.0, most=10.0))]  # fmt: skip
Overlap = Annotated[float, SettingSpec("Probability of the common tokens.", least=0, most=1,
                                page=Page("Overlap", low=0.0, high=1.0))]  # fmt: skip
Shuffle = Annotated[int, SettingSpec("Seed that assigns frequencies to tokens.", page=Page("Shuffle", most=2**53 - 1))]


def synthetic(
    n_queries: int, next_per_query: int, common: int, common_per_query: int, distinct: int, common_weight: float,
    distinct_weights: ArrayLike | None, unused: int,
) -> dict[str, Any]:  # fmt: skip
    """What ``SequenceClasses.from_support`` takes, for its ``synthetic``."""
    if common + common_per_query + distinct == 0:
        raise InputError("common + common_per_query + distinct", 0, "at least 1, so that contexts are not empty")
    if distinct_weights is None:
        weights = np.linspace(0.1, 1.0, distinct)
    else:
        weights = numbers("distinct_weights", distinct_weights)
        if weights.shape != (distinct,):
            raise InputError("distinct_weights", f"of shape {weights.shape}", f"{distinct} numbers")
        if not (np.isfinite(weights) & (weights > 0)).all():
            raise InputError("distinct_weights", weights, "finite floats > 0")
    k = n_queries * next_per_query
    first_distinct = common + common_per_query * n_queries
    first_query = first_distinct + distinct * k
    shared = np.full(common + common_per_query, common_weight)
    probs = np.concatenate([shared, weights])
    probs = probs / probs.sum()
    tokens = []
    for n in range(k):
        m = n // next_per_query
        own_common = common + m * common_per_query + np.arange(common_per_query)
        own = first_distinct + n * distinct + np.arange(distinct)
        tokens.append(np.concatenate([np.arange(common), own_common, own]))
    return {
        "tokens": tokens, "probs": [probs] * k, "vocab_size": first_query + n_queries + k + unused,
        "query": first_query + np.arange(k) // next_per_query, "next_token": first_query + n_queries + np.arange(k),
    }  # fmt: skip


def zipf(vocab: int, classes: int, exponent: float, overlap: float, seed: int) -> dict[str, Any]:
    """The same, for its ``zipf``."""
    n_shared = 0 if overlap == 0 else vocab - classes - 1 if overlap == 1 else (vocab - classes - 1) // (classes + 1)
    n_own = 0 if overlap == 1 else (vocab - classes - 1 - n_shared) // classes
    if n_shared + n_own <= 0 or (0 < overlap < 1 and n_shared <= 0):
        need = 2 * classes + 2 if 0 < overlap < 1 else classes + 2 if overlap == 1 else 2 * classes + 1
        raise InputError("vocab", vocab, f"at least {need} for {classes} classes at overlap {overlap:g}")
    rng = np.random.default_rng(seed)
    ids = rng.permutation(vocab)
    shared, own, last = np.split(ids, [n_shared, n_shared + classes * n_own])
    p_shared = overlap * _zipf_weights(n_shared, exponent)
    p_own = (1 - overlap) * _zipf_weights(n_own, exponent)
    tokens = [np.concatenate([rng.permutation(shared), row]) for row in own.reshape(classes, n_own)]
    return {
        "tokens": tokens, "probs": [np.concatenate([p_shared, p_own])] * classes, "vocab_size": vocab,
        "query": np.full(classes, last[0]), "next_token": last[1 : 1 + classes],
    }  # fmt: skip


def _zipf_weights(n: int, exponent: float) -> FloatArray:
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return cast(FloatArray, weights / weights.sum()) if n else weights
