"""Example sentences: what a sampled query looked at in the first measurement and in the last."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from scansnap.probe.report.heads import Head

NEAR = 24  # tokens before the query that are shown
SEEN = 0.04  # attention from which a token further away is shown, with its neighbours
AROUND = 2
LONGEST = 40  # letters of a word
SPACES = "Ġ▁"  # how tokenizers mark a word's beginning
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # controls, marks of direction, halves of characters


@dataclass(frozen=True)
class Word:
    """A token as it is shown; ``text`` None stands for what is left out."""

    text: str | None
    spaced: bool = True  # stands apart from the word before
    query: bool = False
    first: float = 0.0  # attention
    last: float = 0.0


@dataclass(frozen=True)
class Example:
    """The context of one query of one head."""

    head: Head
    sequence: int
    position: int
    words: list[Word]
    hidden: tuple[float, float]  # attention to what is left out, at first and at last


def example(data: xr.Dataset, head: Head) -> Example | None:
    """Of the later half of the sampled queries the one whose attention changed most; None where there is no sample.

    The first queries of a window see a token or two, between which attention easily changes as much as it can.
    """
    found = _rows(data, head)
    if found is None:
        return None
    first, last, positions, tokens = found
    way = np.where(positions >= np.median(positions), np.abs(last - first).sum(-1), -1.0)  # (sequence, sampled)
    sequence, sampled = np.unravel_index(int(way.argmax()), way.shape)
    position = int(positions[sampled])
    then, now = first[sequence, sampled], last[sequence, sampled]
    name = _names(data, tokens)
    seen = np.maximum(then, now)
    causal = not seen[position + 1 :].any()
    shown = _shown(seen, position, causal)
    texts = {int(i): name(int(sequence), int(i)) for i in shown}
    marked = any(text[:1] in SPACES for text in texts.values() if text)
    words: list[Word] = []
    for i, text in texts.items():
        if i and i - 1 not in texts:
            words.append(Word(None))
        plain, spaced = _plain(text, marked)
        words.append(Word(plain, spaced, i == position, float(then[i]), float(now[i])))
    if not causal and max(texts) + 1 < len(then):
        words.append(Word(None))
    hidden = tuple(max(0.0, float(row.sum() - row[list(texts)].sum())) for row in (then, now))
    return Example(head, int(sequence), position, words, (hidden[0], hidden[1]))


def _rows(data: xr.Dataset, head: Head) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Attention (sequence, sampled, key) at first and last, the queries' positions, and tokens (sequence, key)."""
    if head.kind == "cross" or not {"tokens", "attention_first", "attention_last", "sampled_position"} <= set(data):
        return None
    if "position" not in data["attention_last"].dims:  # of keys that are not these tokens
        return None
    of = {"layer": head.layer, "head": head.head}
    first, last = (data[f"attention_{when}"].isel(of).transpose("sequence", "sampled", "position").values
                   for when in ("first", "last"))  # fmt: skip
    where = data["sampled_position"]
    where = where.isel(layer=head.layer) if "layer" in where.dims else where
    positions = where.values.astype(np.float64)
    tokens = data["tokens"].transpose("sequence", "position").values
    there = np.isfinite(positions) & (positions >= 0) & (positions < tokens.shape[1])  # the rest is padding
    first, last = (np.nan_to_num(rows[:, there], nan=0.0, posinf=0.0, neginf=0.0) for rows in (first, last))
    if not first.size or not last.any():
        return None
    return first, last, positions[there], tokens


def _shown(seen: np.ndarray, position: int, causal: bool) -> list[int]:
    """The query's neighbourhood, and what is looked at further away."""
    after = 0 if causal else NEAR // 2
    near = set(range(max(0, position - NEAR), min(len(seen), position + after + 1)))
    strongest = [int(i) for i in np.argsort(-seen)[:8] if seen[i] >= SEEN]
    around = {j for i in strongest for j in range(i - AROUND, i + AROUND + 1)
              if 0 <= j < len(seen) and (j <= position or not causal)}  # fmt: skip
    return sorted(near | around)


def _names(data: xr.Dataset, tokens: np.ndarray) -> Callable[[int, int], str]:
    """The word at a place of the batch; the number of the token where no words are known."""
    words = data["words"].values if "words" in data.variables else ()

    def name(sequence: int, position: int) -> str:
        token = tokens[sequence, position]
        if not math.isfinite(float(token)):
            return "?"
        number = int(token)
        return str(words[number]) if 0 <= number < len(words) else str(number)

    return name


def _plain(text: str, marked: bool) -> tuple[str, bool]:
    """A token as a reader wants it, and whether it begins a word."""
    inner = text.startswith("##")
    begins = text[:1] in SPACES if marked and text else not inner
    text = text[1:] if text[:1] in SPACES and len(text) > 1 else text[2:] if inner and len(text) > 2 else text
    text = text.replace("\n", "⏎").replace("Ċ", "⏎").replace("\t", "⇥")
    text = "".join("�" if unicodedata.category(letter) in _UNSEEN else letter for letter in text)
    return (text[: LONGEST - 1] + "…" if len(text) > LONGEST else text) or "␣", begins
