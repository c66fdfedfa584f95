"""What a perplexity is per: token, word or character, so that models with other tokens can be compared.

A text has its nats whatever it was cut into, but as many tokens as the cuts make: a perplexity per token compares only
models with the same tokens. Per word and per character the same nats are divided by numbers that belong to the text.
Every token but the first is predicted, and every word but the first; a line's end is a word. Where a text has words
that a vocabulary does not know, <unk> is predicted in their place, which is easier: ``unknown`` says how many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scansnap.corpus.vocabulary import Tokens, Vocabulary, split_words


@dataclass(frozen=True)
class TextSize:
    """A text in several units."""

    tokens: int
    words: int  # line ends too
    characters: int = 0  # with single blanks and line feeds; 0: not counted
    unknown: int = 0  # tokens that are <unk>

    def per_word(self, perplexity: float) -> float:
        """The perplexity per word, from that per token."""
        nats = self._nats(perplexity) / max(self.words - 1, 1)
        return math.exp(nats) if nats < 700 else math.inf

    def bits_per_character(self, perplexity: float) -> float:
        """log₂ of 1/p of the text for each of its characters, from the perplexity per token."""
        return self._nats(perplexity) / math.log(2) / self.characters

    def _nats(self, perplexity: float) -> float:
        return math.log(perplexity) * (self.tokens - 1)


def encoded(vocabulary: Vocabulary, blocks: Iterable[str]) -> tuple[Tokens, TextSize]:
    """The ids of a text given in blocks of whole lines, and its size in all units."""
    parts: list[Tokens] = [np.zeros(0, np.int32)]
    words = characters = 0
    for block in blocks:
        parts.append(vocabulary.encode(block))
        words += len(split_words(block))
        characters += sum(len(" ".join(line.split())) for line in block.split("\n")) + block.count("\n")
    tokens = np.concatenate(parts)
    return tokens, TextSize(len(tokens), words, characters, int((tokens == vocabulary.unk).sum()))
