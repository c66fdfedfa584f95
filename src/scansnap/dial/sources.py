"""What data a cell is trained on, by name: ``syn-medium``, ``zipf``, ``textbook``, ``text`` or ``text:WHERE``.

``+bos`` behind it puts a first token that is always the same before every sequence. The name says all, so it stands in
files, and a cell can be made again from it in any process.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, replace

import numpy as np

from scansnap.checks import InputError, check_choice
from scansnap.classes import SequenceClasses
from scansnap.corpus import find_corpus
from scansnap.dial.rungs import Flags

KINDS = ("syn-medium", "zipf", "textbook", "text")
BOS = "+bos"


@dataclass(frozen=True)
class Source:
    """The parts of a name; ``corpus`` is for text alone, a folder, a file or a name that ``find_corpus`` knows."""

    kind: str = "syn-medium"
    corpus: str | None = None
    bos: bool = False

    def __post_init__(self) -> None:
        check_choice("data", self.kind, KINDS)
        if self.corpus is not None and self.kind != "text":
            raise InputError("corpus", self.corpus, f"left out with the data {self.kind}: it is for text")
        if self.kind == "text":
            try:
                find_corpus(self.corpus)  # what is missing is refused before anything is made
            except InputError as error:
                raise error.with_field("corpus") from None

    @property
    def name(self) -> str:
        return self.kind + (f":{self.corpus}" if self.corpus else "") + BOS * self.bos

    @property
    def file(self) -> str:
        """The name as part of a file's."""
        short = f"-{hashlib.sha256(self.corpus.encode()).hexdigest()[:8]}" if self.corpus else ""
        return self.kind + short + BOS * self.bos

    @property
    def options(self) -> str:
        """As on the command line."""
        kind = f" --data {self.kind}" if self.kind != "syn-medium" else ""
        return kind + (f" --corpus {shlex.quote(self.corpus)}" if self.corpus else "") + " --bos" * self.bos

    @property
    def content(self) -> str:
        """Changes with the text that is read; "" where the name decides the data."""
        return find_corpus(self.corpus).fingerprint() if self.kind == "text" else ""

    def changes(self, flags: Flags) -> Flags:
        """A model's flags on these data: a first token has a position, so contexts are finite."""
        return replace(flags, finite=True, bos=True) if self.bos else flags


def named(data: str) -> Source:
    """The source that a name means."""
    if not isinstance(data, str):
        raise InputError("data", data, "one of " + ", ".join(KINDS))
    plain = data.removesuffix(BOS)
    kind, _, corpus = plain.partition(":")
    return Source(kind, corpus or None, plain != data)


def synthetic(kind: str) -> SequenceClasses:
    """Syn-Medium(3); the same with p_n ∝ 1/n; one common token and one query as in ``textbook``."""
    if kind == "textbook":  # with unit vectors for tokens the whole vocabulary of 2014 would be M × M numbers a run
        return SequenceClasses.synthetic(next_per_query=2, common=1, distinct=5, common_weight=0.8, unused=60)
    classes = SequenceClasses.syn_medium(n_queries=3)
    if kind != "zipf":
        return classes
    p = 1 / np.arange(1, classes.n_classes + 1)
    return SequenceClasses(classes.p_context, classes.query, classes.next_token, p / p.sum())
