"""The words that a query attends to, and the next words that each of them votes for.

A prediction is Σ_l f_l Y[l]: every context word l votes with its row of Y, weighted by the attention f ∝ k_l e^{z_ml}
of the query m. With a context, k are its counts, and words are ranked by attention. Without one, k is the frequency of
each word in text, and words are ranked by z, which training has learned, and not by frequency.

A transformer is read through the tables that its weights imply (`scansnap.text.transformer.implied_yz`).
``exact`` says whether the model has other paths, which the tables leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError, check_integer
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.dynamics import norms
from scansnap.measure.entropy import attention_of, entropy_of
from scansnap.text.model import LanguageModel
from scansnap.text.transformer.implied_yz import ImpliedYZ
from scansnap.text.transformer.model import Transformer
from scansnap.text.yz.model import YZTransformer


@dataclass(frozen=True)
class AttendedWord:
    """A word that the query attends to."""

    word: str
    count: float  # k: in the context, or per thousand words of text
    z: float  # attention logit
    attention: float  # c, share of all attention
    votes: tuple[tuple[str, float], ...]  # next words with the largest entries of its row of Y


@dataclass(frozen=True)
class Explanation:
    """What a query attends to and predicts."""

    query: str
    context: tuple[str, ...] | None
    attended: tuple[AttendedWord, ...]  # the strongest first
    own: tuple[tuple[str, float], ...]  # votes of the query itself, which a residual connection adds; else empty
    predicted: tuple[tuple[str, float], ...]  # next words with their probabilities
    entropy: float  # of attention over words, nats
    uniform_entropy: float  # of the counts alone, as of Z = 0
    exact: bool  # whether the words explain all that the model computes


class ExplainedTables(Protocol):
    """Rows of Y and Z."""

    exact: bool

    def z(self, m: int) -> Tensor:
        """Attention logits of query m for every word, (M,)."""

    def y(self, tokens: Sequence[int]) -> Tensor:
        """Votes of some words for every word, (n, M)."""


def explain(
    model: LanguageModel,
    vocabulary: Vocabulary,
    query: str,
    context: str | None = None,
    *,
    top: int = 10,
    votes: int = 5,
) -> Explanation:
    """List the words that a query attends to most, each with the next words that it votes for most.

    Parameters
    ----------
    model
        A model of one layer, with one head if it is a transformer.
    vocabulary
        The words of the model.
    query
        The word that attends.
    context
        A text before the query. None: any text, in which words are as frequent as in training.
    top
        How many words to list.
    votes
        How many next words to list for each of them.

    Returns
    -------
    Explanation
        ``attended`` has the words, ``predicted`` the next words with their probabilities.

    Examples
    --------
    >>> import numpy as np, scansnap as ss
    >>> from scansnap.corpus.vocabulary import build
    >>> vocabulary, ids = build(["the cat sat on the mat\\n"] * 50, min_count=1)
    >>> model = ss.text.YZTransformer(ss.text.YZSettings(len(vocabulary), eta_y=20, eta_z=2))
    >>> run = ss.text.train(model, ids, steps=20, batch=4, length=7)
    >>> explanation = ss.text.explain(model, vocabulary, "mat", "the cat sat on the", top=2)
    >>> len(explanation.attended), explanation.predicted[0][0]
    (2, '<eos>')
    """
    check_integer("top", top, least=1)
    check_integer("votes", votes, least=1)
    m = vocabulary.id(query)
    tables = tables_of(model)
    ids = None if context is None else _encode_context(vocabulary, context)
    k = vocabulary.counts / vocabulary.counts.sum() if ids is None else np.bincount(ids, minlength=len(vocabulary))
    z = tables.z(m).double().cpu().numpy()
    present = np.flatnonzero(k)
    c = np.zeros(len(vocabulary))
    c[present] = attention_of(k[present], z[present])
    ranked = present[np.argsort(-(z if ids is None else c)[present], kind="stable")][:top]
    rows = tables.y(ranked.tolist()).double().cpu().numpy()
    counts = k if ids is not None else 1000 * k
    attended = tuple(
        AttendedWord(vocabulary.words[i], float(counts[i]), float(z[i]), float(c[i]), _best(row, vocabulary, votes))
        for i, row in zip(ranked.tolist(), rows, strict=True)
    )
    has_residual = model.describe().get("residual") in ("normed", "plain")
    own = _best(tables.y([m])[0].double().cpu().numpy(), vocabulary, votes) if has_residual else ()
    p = _next_word_probabilities(model, tables, m, c, ids)
    words = None if ids is None else tuple(vocabulary.words[token] for token in ids)
    return Explanation(query, words, attended, own, _best(p, vocabulary, top), float(entropy_of(c)),
                       float(entropy_of(k / k.sum())), tables.exact)  # fmt: skip


def tables_of(model: LanguageModel) -> ExplainedTables:
    """The rows of Y and Z of a one-layer model with one head."""
    if model.layers != 1:
        raise InputError("model", f"a model of {model.layers} layers", "a model of one layer")
    if isinstance(model, YZTransformer):
        return _OwnTables(model)
    assert isinstance(model, Transformer)
    if model.settings.heads != 1:
        raise InputError("model", f"a model with {model.settings.heads} heads", "a model with one head")
    return _ImpliedTables(model.to_yz())


class _OwnTables:
    exact = True

    def __init__(self, model: YZTransformer) -> None:
        self.model = model

    def z(self, m: int) -> Tensor:
        return self._rows(self.model.z[0], [m])[0]

    def y(self, tokens: Sequence[int]) -> Tensor:
        return self._rows(self.model.y[0], tokens)

    def _rows(self, table: object, tokens: Sequence[int]) -> Tensor:
        one_hot = torch.zeros(1, len(tokens), self.model.vocab_size, dtype=self.model.settings.torch_dtype)
        one_hot[0, torch.arange(len(tokens)), torch.tensor(tokens)] = 1
        return table.apply(one_hot.to(self.model.device))[0]  # type: ignore[attr-defined]


class _ImpliedTables:
    def __init__(self, implied: ImpliedYZ) -> None:
        self.implied, self.exact = implied, implied.exact

    def z(self, m: int) -> Tensor:
        return self.implied.keys[0] @ self.implied.queries[0, m]

    def y(self, tokens: Sequence[int]) -> Tensor:
        return self.implied.values[0, torch.tensor(tokens)] @ self.implied.out[0].mT + self.implied.constant


def _encode_context(vocabulary: Vocabulary, text: str) -> np.ndarray:
    tokens = vocabulary.encode(text)
    if not len(tokens):
        raise InputError("context", text, "at least one word")
    return tokens


def _next_word_probabilities(
    model: LanguageModel, tables: ExplainedTables, m: int, c: np.ndarray, context: np.ndarray | None
) -> np.ndarray:
    """The model's own probabilities after a context, else those of f made from c."""
    if context is not None:
        inputs = torch.tensor([[*context.tolist(), m]], device=model.device)
        return torch.softmax(model.logits(inputs)[0, -1].double(), 0).cpu().numpy()
    description = model.describe()
    norm, residual = description["norm"] if description["kind"] == "yz" else "none", description["residual"]
    v = norms.apply(norm, torch.from_numpy(c)).numpy() if residual == "normed" else c
    if residual in ("normed", "plain"):
        v = v + np.eye(1, len(c), m)[0]
    f = norms.apply(norm, torch.from_numpy(v)).numpy()
    used = np.flatnonzero(f)
    logits = np.zeros(len(c))
    for part in np.array_split(used, max(1, len(used) // 2000)):  # a few thousand rows of Y at a time
        logits += f[part] @ tables.y(part.tolist()).double().cpu().numpy()
    return np.exp(logits - np.logaddexp.reduce(logits))


def _best(values: np.ndarray, vocabulary: Vocabulary, n: int) -> tuple[tuple[str, float], ...]:
    best = np.argsort(-values, kind="stable")[:n]
    return tuple((vocabulary.words[i], float(values[i])) for i in best)
