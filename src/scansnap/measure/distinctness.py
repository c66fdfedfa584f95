"""How much a word tells about the class it stands in: the paper's hard notion, and soft ones for real text.

The paper knows two kinds of context tokens: distinct (|Ω(l)| = 1) and common. In text nearly every frequent word
stands in every class now and then, so one asks for degrees. With P(l) = Σ_n p_n P(l|n) and P(n|l) = p_n P(l|n)/P(l):

* entropy of P(n|l): 0 for a distinct token, that of p for a word that is equally likely in all classes;
* PMI(l; n) = ln P(l|n)/P(l) = ln P(n|l)/p_n: how much more often l stands in class n than anywhere;
* IDF = ln K/|Ω(l)| and TF-IDF = P(l|n) · IDF, with the classes as the documents.

Local to a query: the same among its classes only, with p renormalised over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from scansnap.checks import InputError
from scansnap.checks.arrays import FloatArray, IntArray, distribution, numbers
from scansnap.classes import SequenceClasses


@dataclass(frozen=True, eq=False)
class Distinctness:
    """How much the words of a context tell about the class, for K classes and M words. `distinctness` makes it.

    Values by word are NaN if the word occurs in no class.

    Attributes
    ----------
    p_context
        P(l|n), sparse, shape (K, M), positive where stored.
    p_class
        Probability of each class, shape (K,).

    Examples
    --------
    >>> words = distinctness([[5, 5, 0], [5, 0, 5]])
    >>> words.entropy.round(3), words.occurrences
    (array([0.693, 0.   , 0.   ]), array([2, 1, 1]))
    """

    p_context: Any
    p_class: FloatArray

    @cached_property
    def occurrences(self) -> IntArray:
        """|Ω(l)|, the number of classes in which the word occurs: (M,)."""
        return np.bincount(self.p_context.indices, minlength=self.p_context.shape[1])

    @cached_property
    def p_word(self) -> FloatArray:
        """P(l), the word's share of all contexts: (M,)."""
        return self._by_word(self._joint)

    @cached_property
    def entropy(self) -> FloatArray:
        """H(n|l) = −Σ_n P(n|l) ln P(n|l) in nats: (M,)."""
        posterior = self._posterior
        terms = np.zeros_like(posterior)
        np.log(posterior, out=terms, where=posterior > 0)
        # adding 0 turns the −0 of a sure posterior into 0; the last bit may fall below
        return self._seen(np.maximum(-self._by_word(posterior * terms), 0.0) + 0.0)

    @cached_property
    def normalised_entropy(self) -> FloatArray:
        """H(n|l)/ln K, between 0 and 1; 0 where there is only one class."""
        n_classes = self.p_context.shape[0]
        return self.entropy / np.log(n_classes) if n_classes > 1 else self.entropy

    @cached_property
    def idf(self) -> FloatArray:
        """ln K/|Ω(l)|: (M,)."""
        return self._seen(np.log(self.p_context.shape[0] / np.maximum(self.occurrences, 1)))

    @cached_property
    def pmi(self) -> Any:
        """PMI(l; n) in nats, (K, M) sparse; entries that are not stored are −∞."""
        return self._like(np.log(self.p_context.data / self.p_word[self.p_context.indices]))

    @cached_property
    def tf_idf(self) -> Any:
        """P(l|n) · IDF(l): (K, M) sparse."""
        return self._like(self.p_context.data * self.idf[self.p_context.indices])

    @cached_property
    def conditional_entropy(self) -> float:
        """Σ_l P(l) H(n|l) in nats, the mean entropy over words."""
        return float(np.nansum(self.p_word * self.entropy))

    @cached_property
    def mutual_information(self) -> float:
        """I(l; n) = Σ P(l, n) PMI(l; n) ≥ 0 in nats."""
        return float(self._joint @ self.pmi.data)

    @cached_property
    def _row(self) -> IntArray:
        return np.repeat(np.arange(self.p_context.shape[0]), np.diff(self.p_context.indptr))

    @cached_property
    def _joint(self) -> FloatArray:  # P(l, n) at the stored entries
        return self.p_class[self._row] * self.p_context.data

    @cached_property
    def _posterior(self) -> FloatArray:  # P(n|l) at the stored entries
        return self._joint / self.p_word[self.p_context.indices]

    def _by_word(self, values: FloatArray) -> FloatArray:
        sums = np.bincount(self.p_context.indices, weights=values, minlength=self.p_context.shape[1])
        return sums.astype(np.float64, copy=False)

    def _seen(self, by_word: FloatArray) -> FloatArray:
        return np.where(self.occurrences > 0, by_word, np.nan)

    def _like(self, data: FloatArray) -> Any:
        return sparse.csr_array((data, self.p_context.indices, self.p_context.indptr), shape=self.p_context.shape)


def distinctness(
    data: Any, *, query: int | None = None, p_class: ArrayLike | None = None, queries: ArrayLike | None = None
) -> Distinctness:
    """Compute how distinct the context tokens of classes are.

    Parameters
    ----------
    data
        Sequence classes, or a table of counts of shape (K, M), dense or sparse.
    query
        Only the classes of this query token; by default all.
    p_class
        Probability of each row of a table, shape (K,); by default proportional to its sum.
    queries
        Query token of each row of a table, shape (K,).

    Returns
    -------
    Distinctness

    Examples
    --------
    >>> words = distinctness(SequenceClasses.syn_small())
    >>> int(words.occurrences.max()), round(words.mutual_information, 3)
    (2, 0.246)
    """
    if isinstance(data, SequenceClasses):
        if p_class is not None or queries is not None:
            raise InputError("p_class and queries", "given", "left out with sequence classes, which know them")
        indptr = np.concatenate([[0], np.cumsum(data.support_sizes)])
        rows = [data.support(n) for n in range(data.n_classes)]
        indices, values = (np.concatenate(part) for part in zip(*rows, strict=True))
        table = sparse.csr_array((values, indices, indptr), shape=(data.n_classes, data.vocab_size))
        p, of = data.p_class, data.query
    else:
        table = _counts(data)
        p = distribution("p_class", numbers("p_class", p_class)) if p_class is not None else table.sum(axis=1)
        of = np.full(table.shape[0], -1) if queries is None else np.asarray(queries)
        for field, per_row in (("p_class", p), ("queries", of)):
            if per_row.shape != (table.shape[0],):
                raise InputError(field, f"of shape {per_row.shape}", f"one for each of the {table.shape[0]} rows")
    if query is not None:
        selected = np.flatnonzero(of == query)
        if not len(selected):
            raise InputError("query", query, f"one of the query tokens, {', '.join(map(str, np.unique(of)[:10]))}")
        table, p = table[selected], p[selected]
    drawn = np.flatnonzero(p > 0)  # a class that is never drawn tells nothing
    if not len(drawn):
        raise InputError("p_class", p, "above 0 for at least one class")
    table, p = table[drawn], p[drawn]
    totals = table.sum(axis=1)
    if (totals == 0).any():
        raise InputError("the table", f"empty in row {drawn[totals == 0][0]}", "above 0 somewhere in each row")
    share = table.data / np.repeat(totals, np.diff(table.indptr))
    return Distinctness(sparse.csr_array((share, table.indices, table.indptr), shape=table.shape), p / p.sum())


def _counts(data: Any) -> Any:
    table = sparse.csr_array(data if sparse.issparse(data) else numbers("the table", data)).astype(np.float64)
    if table.ndim != 2:
        raise InputError("the table", f"of shape {table.shape}", "a table of shape (classes, vocabulary)")
    table.sum_duplicates()
    table.eliminate_zeros()
    if not np.isfinite(table.data).all() or (table.data < 0).any():
        raise InputError("the table", "with a negative or non-finite number", "counts or probabilities")
    return table
