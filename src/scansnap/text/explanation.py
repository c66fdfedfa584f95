"""What a query word attends to, and which next words each of them votes for: a YZ model is a readable language model.

A prediction is Σ_l f_l Y[l]: every context word l votes with its row of Y, weighted by the attention f ∝ k_l e^{z_ml}
of the query m. With a context, k are its counts. Without one, k is how frequent each word is, the context of a text
drawn at random; words are then ranked by z, what training has made of them, and not by how frequent they are.

A transformer is read through the tables its weights imply (:mod:`scansnap.text.transformer.implied_yz`), which leaves
out its other paths; ``exact`` says whether there are any.
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
    """One word the query looks at."""

    word: str
    count: float  # k: in the context, or how many in a thousand words of text
    z: float  # attention logit
    attention: float  # c, of all attention
    votes: tuple[tuple[str, float], ...]  # next words with the largest entries of its row of Y


@dataclass(frozen=True)
class Explanation:
    """Everything about one query."""

    query: str
    context: tuple[str, ...] | None
    attended: tuple[AttendedWord, ...]  # the strongest first
    own: tuple[tuple[str, float], ...]  # votes of the query itself, which a residual connection adds; else empty
    predicted: tuple[tuple[str, float], ...]  # next words with their probabilities
    entropy: float  # of attention over words, nats
    uniform_entropy: float  # of the counts alone, before anything was learned
    exact: bool  # the words shown are all that the model computes with


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
    """The ``top`` words that ``query`` attends to, each with the next words it votes for most."""
    check_integer("top", top, least=1)
    check_integer("votes", votes, least=1)
    m = vocabulary.id(query)
    tables = tables_of(model)
    given = None if context is None else _context(vocabulary, context)
    k = vocabulary.counts / vocabulary.counts.sum() if given is None else np.bincount(given, minlength=len(vocabulary))
    z = tables.z(m).double().cpu().numpy()
    seen = np.flatnonzero(k)
    c = np.zeros(len(vocabulary))
    c[seen] = attention_of(k[seen], z[seen])
    ranked = seen[np.argsort(-(z if given is None else c)[seen], kind="stable")][:top]
    rows = tables.y(ranked.tolist()).double().cpu().numpy()
    counts = k if given is not None else 1000 * k
    attended = tuple(
        AttendedWord(vocabulary.words[i], float(counts[i]), float(z[i]), float(c[i]), _best(row, vocabulary, votes))
        for i, row in zip(ranked.tolist(), rows, strict=True)
    )
    residual = model.describe().get("residual") in ("normed", "plain")
    own = _best(tables.y([m])[0].double().cpu().numpy(), vocabulary, votes) if residual else ()
    p = _next(model, tables, m, c, given)
    shown = None if given is None else tuple(vocabulary.words[token] for token in given)
    return Explanation(query, shown, attended, own, _best(p, vocabulary, top), float(entropy_of(c)),
                       float(entropy_of(k / k.sum())), tables.exact)  # fmt: skip


def tables_of(model: LanguageModel) -> ExplainedTables:
    """The rows of Y and Z of a one-layer model with one head."""
    if model.layers != 1:
        raise InputError("the model", f"of {model.layers} layers", "of one layer (only there words vote for words)")
    if isinstance(model, YZTransformer):
        return _OwnTables(model)
    assert isinstance(model, Transformer)
    if model.settings.heads != 1:
        raise InputError("the model", f"with {model.settings.heads} heads", "with one head")
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


def _context(vocabulary: Vocabulary, text: str) -> np.ndarray:
    tokens = vocabulary.encode(text)
    if not len(tokens):
        raise InputError("context", text, "at least one word")
    return tokens


def _next(model: LanguageModel, tables: ExplainedTables, m: int, c: np.ndarray, given: np.ndarray | None) -> np.ndarray:
    """Probabilities of the next word: the model's own after a context, else of f made from c."""
    if given is not None:
        inputs = torch.tensor([[*given.tolist(), m]], device=model.device)
        return torch.softmax(model.logits(inputs)[0, -1].double(), 0).cpu().numpy()
    told = model.describe()
    norm = told["norm"] if told["kind"] == "yz" else "none"
    inner = norms.apply(norm, torch.from_numpy(c)).numpy() if told["residual"] == "normed" else c
    own = told["residual"] in ("normed", "plain")
    v = inner + np.eye(1, len(c), m)[0] if own else c
    f = norms.apply(norm, torch.from_numpy(v)).numpy()
    used = np.flatnonzero(f)
    logits = np.zeros(len(c))
    for part in np.array_split(used, max(1, len(used) // 2000)):  # a few thousand rows of Y at a time
        logits += f[part] @ tables.y(part.tolist()).double().cpu().numpy()
    return np.exp(logits - np.logaddexp.reduce(logits))


def _best(values: np.ndarray, vocabulary: Vocabulary, n: int) -> tuple[tuple[str, float], ...]:
    best = np.argsort(-values, kind="stable")[:n]
    return tuple((vocabulary.words[i], float(values[i])) for i in best)
