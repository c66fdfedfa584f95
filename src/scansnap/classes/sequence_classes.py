"""Sequence classes: the data distribution of the paper (Section 3.2).

Class n is a context distribution P(·|n), a query token m = ψ(n) and a next token; it is drawn with
probability p_n. Ω(l) = {n : P(l|n) > 0}. A token is *distinct* if |Ω(l)| = 1 and *common* if |Ω(l)| > 1;
the *local* versions count only the classes that share the query (what matters with a residual connection).

The support is stored sparsely, one row of tokens and probabilities per class, so large vocabularies cost nothing;
``p_context`` computes the dense (K, M) table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.checks import InputError, check_choice, check_integer
from scansnap.checks.arrays import (
    FloatArray,
    IntArray,
    class_row,
    distribution,
    numbers,
    per_class,
    table_rows,
    token_ids,
    token_words,
)
from scansnap.classes import presets, toml
from scansnap.settings import check_arguments, settings_of
from scansnap.storage import check_writable, put


class _Support(NamedTuple):
    """The context tokens of each class and their probabilities, in place of a table."""

    tokens: list[IntArray]
    probs: list[FloatArray]
    vocab_size: int


class SequenceClasses:
    """K sequence classes over a vocabulary of M tokens.

    Parameters
    ----------
    p_context
        P(l|n), the probability of each context token in each class: shape (K, M), dense or sparse. Rows sum to 1.
    query
        Token id of the query of each class, shape (K,).
    next_token
        Token id that follows in each class, shape (K,).
    p_class
        Probability of each class, shape (K,); equal by default.
    words
        The word of each token id, for display only.
    shared_next
        Whether several classes may have the same next token.

    Examples
    --------
    >>> classes = SequenceClasses(p_context=[[0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0]], query=[3, 3], next_token=[1, 2])
    >>> classes.common, classes.distinct(0)
    (array([0]), array([1]))
    """

    words: tuple[str, ...] | None  # words[l] is how token l reads, where that is known; it decides no number

    def __init__(
        self,
        p_context: Any,
        query: ArrayLike,
        next_token: ArrayLike,
        p_class: ArrayLike | None = None,
        words: Sequence[str] | None = None,
        *,
        shared_next: bool = False,
    ) -> None:
        tokens, probs, vocab_size = p_context if isinstance(p_context, _Support) else table_rows(p_context)
        n_classes = len(tokens)
        if n_classes == 0:
            raise InputError("p_context", "0 classes", "a table with at least one class")
        if not isinstance(shared_next, bool):
            raise InputError("shared_next", shared_next, "true or false")
        if n_classes > vocab_size and not shared_next:
            raise InputError("the number of classes", n_classes, f"at most the vocabulary size {vocab_size}")
        rows = [class_row(n, ids, p) for n, (ids, p) in enumerate(zip(tokens, probs, strict=True))]
        self.vocab_size = vocab_size
        self.words = None if words is None else token_words(words, vocab_size)
        self.n_classes = n_classes
        self.query = _frozen(per_class("query", query, n_classes, vocab_size))
        self.next_token = _frozen(per_class("next_token", next_token, n_classes, vocab_size))
        if not shared_next:
            self.need_one_class_per_next_token("the theory")
        if p_class is None:
            self.p_class = _frozen(np.full(n_classes, 1.0 / n_classes))
        else:
            p = numbers("p_class", p_class)
            if p.shape != (n_classes,):
                raise InputError("p_class", f"of shape {p.shape}", f"one number for each of the {n_classes} classes")
            self.p_class = _frozen(distribution("p_class", p))
        self._indptr = _frozen(np.concatenate([[0], np.cumsum([len(ids) for ids, _ in rows])]).astype(np.int64))
        self._tokens = _frozen(np.concatenate([ids for ids, _ in rows]))
        self._probs = _frozen(np.concatenate([p for _, p in rows]))
        self._set_sharing()

    @classmethod
    def from_support(
        cls,
        tokens: Sequence[ArrayLike],
        probs: Sequence[ArrayLike],
        *,
        vocab_size: int,
        query: ArrayLike,
        next_token: ArrayLike,
        p_class: ArrayLike | None = None,
        words: Sequence[str] | None = None,
        shared_next: bool = False,
    ) -> SequenceClasses:
        """Build from the context tokens of each class and their probabilities, without a dense table.

        Parameters
        ----------
        tokens
            Token ids in the context of each class, K rows.
        probs
            Their probabilities, K rows.
        vocab_size
            Number of tokens M.
        query, next_token, p_class, words, shared_next
            As for `SequenceClasses`.

        Examples
        --------
        >>> tokens, probs = [[0, 1], [0, 2]], [[0.5, 0.5], [0.3, 0.7]]
        >>> classes = SequenceClasses.from_support(tokens, probs, vocab_size=6, query=[3, 3], next_token=[4, 5])
        >>> classes.p_context[1]
        array([0.3, 0. , 0.7, 0. , 0. , 0. ])
        """
        if len(tokens) != len(probs):
            raise InputError("probs", f"{len(probs)} rows", f"one row for each of the {len(tokens)} rows of tokens")
        vocab_size = check_integer("vocab_size", vocab_size, least=1, most=2**31)
        ids = [token_ids(f"tokens of class {n}", row, vocab_size) for n, row in enumerate(tokens)]
        values = [numbers(f"probabilities of class {n}", row) for n, row in enumerate(probs)]
        return cls(_Support(ids, values, vocab_size), query, next_token, p_class, words, shared_next=shared_next)

    def _set_sharing(self) -> None:
        """|Ω(l)| of every support entry, over all classes and over the classes with the same query."""
        _, where, times = np.unique(self._tokens, return_inverse=True, return_counts=True)
        self._sharing = times[where]
        query = np.repeat(self.query, np.diff(self._indptr))
        _, where, times = np.unique(query * self.vocab_size + self._tokens, return_inverse=True, return_counts=True)
        self._local_sharing = times[where]

    # --- what is in it -----------------------------------------------------------------------------------

    @property
    def shares_next(self) -> bool:
        """Whether a next token belongs to several classes, so that the query is no function ψ of it."""
        return len(np.unique(self.next_token)) < self.n_classes

    def need_one_class_per_next_token(self, who: str) -> None:
        """Refuse classes that share a next token, where ``who`` needs the query to be a function ψ of it."""
        unique, times = np.unique(self.next_token, return_counts=True)
        if (times > 1).any():
            twice, n = unique[times > 1][0], times[times > 1][0]
            needs = f"({who} needs one class per next token; shared_next and a sampler do not)"
            raise InputError("next_token", f"{twice} for {n} classes", f"different for each class {needs}")

    def support(self, n: int) -> tuple[IntArray, FloatArray]:
        """Context tokens of class n (ascending) and their probabilities, all above 0."""
        row = self._row(n)
        return self._tokens[row], self._probs[row]

    @property
    def p_context(self) -> FloatArray:
        """P(l|n) as a dense (K, M) array."""
        dense = np.zeros((self.n_classes, self.vocab_size))
        dense[np.repeat(np.arange(self.n_classes), np.diff(self._indptr)), self._tokens] = self._probs
        return dense

    @property
    def support_sizes(self) -> IntArray:
        """Number of context tokens of each class."""
        return cast(IntArray, np.diff(self._indptr))

    @property
    def queries(self) -> IntArray:
        """The different query tokens, ascending."""
        return np.unique(self.query)

    @property
    def common(self) -> IntArray:
        """Common tokens: context tokens of more than one class."""
        return np.unique(self._tokens[self._sharing > 1])

    def distinct(self, n: int, local: bool = False) -> IntArray:
        """Distinct tokens of class n; ``local``: distinct among the classes with the same query."""
        row = self._row(n)
        sharing = self._local_sharing if local else self._sharing
        return self._tokens[row][sharing[row] == 1]

    def common_of(self, n: int, local: bool = False) -> IntArray:
        """Common tokens in the context of class n; ``local``: common among the classes with the same query."""
        row = self._row(n)
        sharing = self._local_sharing if local else self._sharing
        return self._tokens[row][sharing[row] > 1]

    def _row(self, n: int) -> slice:
        n = check_integer("the class number", n, least=0, most=self.n_classes - 1)
        return slice(int(self._indptr[n]), int(self._indptr[n + 1]))

    def __eq__(self, other: object) -> bool:
        """Whether the numbers are the same; how tokens read does not matter."""
        if not isinstance(other, SequenceClasses):
            return NotImplemented
        return self.vocab_size == other.vocab_size and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("_indptr", "_tokens", "_probs", "query", "next_token", "p_class")
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = self.support_sizes
        tokens = f"{sizes[0]}" if sizes.min() == sizes.max() else f"{sizes.min()}-{sizes.max()}"
        distinct = np.array([np.count_nonzero(self._sharing[self._row(n)] == 1) for n in range(self.n_classes)])
        per_class = f"{distinct[0]}" if distinct.min() == distinct.max() else f"{distinct.min()}-{distinct.max()}"
        return (
            f"SequenceClasses(n_classes={self.n_classes}, vocab_size={self.vocab_size}, "
            f"n_queries={len(self.queries)}, tokens_per_class={tokens}, "
            f"common={len(self.common)}, distinct_per_class={per_class})"
        )

    # --- presets -----------------------------------------------------------------------------------------

    @classmethod
    def syn_small(cls) -> SequenceClasses:
        """Syn-Small of Figures 4 and 5: two classes with a query each, 10 common and 10 distinct tokens.

        Examples
        --------
        >>> SequenceClasses.syn_small().n_classes
        2
        """
        return cls.synthetic(n_queries=2, next_per_query=1)

    @classmethod
    def syn_medium(cls, n_queries: presets.Queries = 1) -> SequenceClasses:
        """Syn-Medium of Figures 6, 11 and 12: two next tokens per query, 10 tokens common to all classes.

        Parameters
        ----------
        n_queries
            Number of queries.

        Examples
        --------
        >>> SequenceClasses.syn_medium(n_queries=3).n_classes
        6
        """
        return cls.synthetic(n_queries=n_queries, next_per_query=2)

    @classmethod
    def textbook(cls) -> SequenceClasses:
        """Classes that meet every assumption of the theorems: one query, one common token, many unused tokens.

        Examples
        --------
        >>> SequenceClasses.textbook().common
        array([0])
        """
        return cls.synthetic(n_queries=1, next_per_query=2, common=1, distinct=5, common_weight=0.8, unused=2000)

    @classmethod
    def bundled_words(cls) -> SequenceClasses:
        """Six classes in English words: three queries with two next words each. The numbers are invented.

        Examples
        --------
        >>> len(SequenceClasses.bundled_words().queries)
        3
        """
        return cls.from_toml(Path(__file__).with_name("words.toml"))

    @classmethod
    @check_arguments
    def synthetic(
        cls,
        n_queries: presets.Queries = 1,
        next_per_query: presets.NextPerQuery = 2,
        common: presets.Common = 10,
        common_per_query: presets.CommonPerQuery = 0,
        distinct: presets.Distinct = 10,
        common_weight: presets.CommonWeight = 1.0,
        distinct_weights: presets.DistinctWeights = None,
        unused: presets.Unused = 0,
    ) -> SequenceClasses:
        """Synthetic classes as in the paper.

        Token ids are in the order: common to all classes, common to the classes of one query, distinct, queries,
        next tokens, unused.

        Parameters
        ----------
        n_queries
            Number of queries.
        next_per_query
            Number of classes that share a query.
        common
            Number of tokens in the context of every class.
        common_per_query
            Number of tokens that only the classes of one query share, for each query.
        distinct
            Number of distinct tokens of each class.
        common_weight
            Unnormalised probability of each common token.
        distinct_weights
            Unnormalised probabilities of the distinct tokens of a class; by default evenly spaced from 0.1 to 1.
        unused
            Number of tokens that occur in no context; they only enlarge the vocabulary.

        Examples
        --------
        >>> SequenceClasses.synthetic(n_queries=2, common=3, distinct=4, unused=100).support_sizes
        array([7, 7, 7, 7])
        """
        return cls.from_support(**presets.synthetic(n_queries, next_per_query, common, common_per_query, distinct,
                                                    common_weight, distinct_weights, unused))  # fmt: skip

    @classmethod
    @check_arguments
    def zipf(
        cls,
        vocab: presets.Vocab = 1000,
        classes: presets.Classes = 10,
        exponent: presets.Exponent = 1.0,
        overlap: presets.Overlap = 0.5,
        seed: presets.Shuffle = 0,
    ) -> SequenceClasses:
        """Classes of one query whose context tokens have Zipf frequencies, rank^(−exponent).

        Half of the context tokens of a class are common to all classes and half are distinct. With overlap 0 all are
        distinct, with overlap 1 all are common.

        Parameters
        ----------
        vocab
            Number of tokens M.
        classes
            Number of classes K.
        exponent
            Exponent of the frequencies.
        overlap
            Probability of the common tokens.
        seed
            Seed that assigns ranks to tokens. Each class has its own ranks for the common tokens.

        Examples
        --------
        >>> classes = SequenceClasses.zipf(vocab=100, classes=4, overlap=0.3)
        >>> round(float(classes.p_context[0, classes.common].sum()), 6)
        0.3
        """
        return cls.from_support(**presets.zipf(vocab, classes, exponent, overlap, seed))

    @classmethod
    def preset(cls, name: str, /, **settings: Any) -> SequenceClasses:
        """Return a preset by its name on the command line.

        Parameters
        ----------
        name
            Name of the preset, for example ``"syn-medium"``.
        **settings
            Settings of the preset; docs/settings.md lists them.

        Examples
        --------
        >>> SequenceClasses.preset("syn-medium", n_queries=3) == SequenceClasses.syn_medium(n_queries=3)
        True
        """
        make = PRESETS[check_choice("preset", name, PRESETS)]
        allowed = settings_of(make)
        for key, value in settings.items():
            if key not in allowed:
                options = "one of " + ", ".join(allowed) if allowed else "left out: it has no settings"
                raise InputError(f"the setting {key!r} of preset {name}", value, options)
        return make(**settings)

    @classmethod
    def from_corpus(cls, corpus: Any = None, **settings: Any) -> SequenceClasses:
        """Return the classes (query, next word) of a text. Token ids are ranks by frequency.

        Parameters
        ----------
        corpus
            A corpus, a path, or a name such as ``"stdlib"``; see `scansnap.text.load_corpus`.
        **settings
            ``queries`` (number of frequent words, or the words), ``next_per_query`` (classes per query), ``top``
            (vocabulary size), ``window`` (context length in tokens), ``cross_eos`` (whether contexts cross line ends)
            and ``split``.

        Examples
        --------
        >>> from pathlib import Path
        >>> _ = Path("text.txt").write_text("the end of time and the end of days\\n" * 50)
        >>> SequenceClasses.from_corpus("text.txt", queries=["of"]).n_classes
        2
        """
        from scansnap.corpus.cooccurrence import of_text

        return cls(**of_text(corpus, **settings).table())

    # --- files -------------------------------------------------------------------------------------------

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> SequenceClasses:
        """Read classes from a TOML file: explicit ``[[class]]`` tables, or a preset and its settings.

        Parameters
        ----------
        path
            The file.

        Examples
        --------
        >>> from pathlib import Path
        >>> _ = Path("classes.toml").write_text('preset = "syn-small"')
        >>> SequenceClasses.from_toml("classes.toml") == SequenceClasses.syn_small()
        True
        """
        return cls.from_table(toml.classes_table(path), where=fspath(path))

    @classmethod
    def from_table(cls, table: dict[str, Any], where: str) -> SequenceClasses:
        """Return classes from a parsed TOML table; ``where`` is its name in error messages."""
        if "preset" in table:
            return cls.preset(table["preset"], **{k: v for k, v in table.items() if k != "preset"})
        return cls.from_support(**toml.explicit(table, where))

    def to_toml(self, path: str | PathLike[str]) -> None:
        """Write the classes to a TOML file. `from_toml` reads back exactly the same numbers and words."""
        put(check_writable("the TOML file", Path(path)), self.as_toml())

    def as_toml(self, *, words: bool = True) -> str:
        """Return the classes as TOML text, with or without the words."""
        rows = ({"query": int(self.query[n]), "next_token": int(self.next_token[n]), "p_class": self.p_class[n].item(),
                 "tokens": tokens.tolist(), "p_context": probs.tolist()}
                for n in range(self.n_classes) for tokens, probs in [self.support(n)])  # fmt: skip
        return toml.dumps(self.vocab_size, rows, self.words if words else None, self.shares_next)


PRESETS: dict[str, Callable[..., SequenceClasses]] = {
    "syn-small": SequenceClasses.syn_small,
    "syn-medium": SequenceClasses.syn_medium,
    "textbook": SequenceClasses.textbook,
    "synthetic": SequenceClasses.synthetic,
    "zipf": SequenceClasses.zipf,
    "words": SequenceClasses.bundled_words,
}


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
