"""The heads in the report: verdicts, numbers, and example sentences with attention before and after training."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from scansnap.measure.snap_curves import NOT_YET
from scansnap.probe.findings.verdicts import OTHER, VERDICT_WORDS
from scansnap.probe.report.curves import values_of

WORDS = (*VERDICT_WORDS.values(), OTHER, "undecided")  # the first one of a head gives its colour
UNJUDGED = "not judged"
DERIVED = ("scan_index", "scan_low", "scan_high", "t_snap", "t_snap_ln", "frozenness_ln")
LAST = (
    "entropy_rel",
    "max_logit",
    "output_share",
    "sink",
    "previous",
    "induction",
)  # quantities of the last measurement, in the table


@dataclass(frozen=True)
class HeadSummary:
    """One head of one attention layer."""

    layer: int
    head: int
    path: str
    call: int
    kind: str
    words: tuple[str, ...]
    numbers: dict[str, float]  # NaN if missing
    reasons: dict[str, str]  # why there is no t_snap or t_snap_ln
    details: str  # the numbers behind the verdict, in one line

    @property
    def name(self) -> str:
        return f"layer {self.layer} · head {self.head}"

    @property
    def colour(self) -> str:
        return next((word for word in WORDS if word in self.words), UNJUDGED).replace(" ", "-")

    @property
    def verdict(self) -> str:
        return " and ".join(self.words) or UNJUDGED

    @property
    def snap(self) -> float:
        """The step at which to mark the snap; NaN without one."""
        times = [self.numbers[name] for name in ("t_snap_ln", "t_snap") if math.isfinite(self.numbers[name])]
        return times[0] if times and "snaps" in self.words else math.nan

    def time(self, name: str) -> str:
        """A snapping time, or the reason why there is none."""
        value, reason = self.numbers[name], self.reasons[name]
        return step_words(value) if math.isfinite(value) else "still moving" if reason == NOT_YET else reason or "–"


def heads_of(data: xr.Dataset) -> list[HeadSummary]:
    """All heads with measurements; layers may have fewer heads than the data has room for."""
    heads = []
    judged = _by_head(data, "verdict")
    numbers = {name: _by_head(data, name) for name in DERIVED}
    texts_by_name = {name: _by_head(data, name) for name in ("t_snap_reason", "t_snap_ln_reason", "verdict_numbers")}
    ends = {name: _first_and_last(values_of(data, name)) for name in LAST}
    for layer, head in np.argwhere(_is_measured(data)).tolist():
        verdict = "" if judged is None else str(judged[layer, head])
        texts = {name: "" if values is None else str(values[layer, head]) for name, values in texts_by_name.items()}
        reasons = {name: texts[f"{name}_reason"] for name in ("t_snap", "t_snap_ln")}
        values_of_head = {
            name: math.nan if values is None else float(values[layer, head]) for name, values in numbers.items()
        }
        for name, pair in ends.items():
            values_of_head[f"{name}_first"], values_of_head[name] = (math.nan, math.nan) if pair is None else (
                float(pair[0][layer, head]), float(pair[1][layer, head]))  # fmt: skip
        words = tuple(word for word in WORDS if re.search(rf"\b{word}\b", verdict))
        call = int(_label(data, "call", layer, 0))
        heads.append(HeadSummary(layer, head, _text(data, "path", layer), call, _text(data, "kind", layer), words,
                                 values_of_head, reasons, texts["verdict_numbers"]))  # fmt: skip
    return heads


def counts(heads: Sequence[HeadSummary]) -> dict[str, int]:
    """The number of heads with each word; a head may have several."""
    return {word: sum(word in head.words for head in heads) for word in WORDS}


def most_scanning(heads: Sequence[HeadSummary], moved: np.ndarray | None, n: int) -> tuple[list[HeadSummary], bool]:
    """The heads with the greatest scan index; without one, those whose attention moved furthest, and False."""
    known = [head for head in heads if math.isfinite(head.numbers["scan_index"])]
    if known:
        return sorted(known, key=lambda head: -head.numbers["scan_index"])[:n], True
    if moved is None:
        return list(heads[:n]), False
    _, last = _first_and_last(moved) or (None, moved[-1])
    far = {(head.layer, head.head): float(np.nan_to_num(last[head.layer, head.head])) for head in heads}
    return sorted(heads, key=lambda head: -far[head.layer, head.head])[:n], False


def _is_measured(data: xr.Dataset) -> np.ndarray:
    """(layer, head): whether anything was measured of it."""
    measured = np.zeros((data.sizes.get("layer", 0), data.sizes.get("head", 0)), bool)
    for name in ("n_queries", "entropy", "entropy_rel", "moved"):
        values = values_of(data, name)
        if values is not None:
            measured |= np.isfinite(values).any(0)
    return measured


def _by_head(data: xr.Dataset, name: str) -> np.ndarray | None:
    """By layer and head; at the last step of a variable with steps."""
    if name not in data or not {"layer", "head"} <= set(data[name].dims):
        return None
    array = data[name]
    if "step" in array.dims:
        if not array.sizes["step"]:
            return None
        array = array.isel(step=-1)
    return array.transpose("layer", "head").values


def _first_and_last(values: np.ndarray | None) -> tuple[np.ndarray, np.ndarray] | None:
    """The first finite value of each head, and that of the last measurement."""
    if values is None or not len(values):
        return None
    first = np.isfinite(values).argmax(0)
    return np.take_along_axis(values, first[None], 0)[0], values[-1]


def step_words(step: float) -> str:
    """With thin spaces between the thousands."""
    return f"{step:,.0f}".replace(",", "\u2009")


def _label(data: xr.Dataset, name: str, layer: int, default: Any) -> Any:
    return data[name].values[layer] if name in data.variables else default


def _text(data: xr.Dataset, name: str, layer: int) -> str:
    return str(_label(data, name, layer, ""))


NEAR = 24  # tokens before the query that are shown
FAR = 0.04  # attention above which a token further away is shown, with its neighbours
AROUND = 2
LONGEST = 40  # letters of a word
SPACES = "Ġ▁"  # how tokenizers mark the beginning of a word
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # controls, marks of direction, halves of characters


@dataclass(frozen=True)
class ExampleWord:
    """A token in a sentence; ``text`` None is a gap."""

    text: str | None
    spaced: bool = True  # after a space
    query: bool = False
    first: float = 0.0  # attention
    last: float = 0.0


@dataclass(frozen=True)
class ExampleSentence:
    """The context of one query of one head."""

    head: HeadSummary
    sequence: int
    position: int
    words: list[ExampleWord]
    hidden: tuple[float, float]  # attention to omitted tokens, at first and at last


def make_example(data: xr.Dataset, head: HeadSummary) -> ExampleSentence | None:
    """The query with the largest change of attention in the later half of the samples; None without samples.

    Early queries see only a few tokens, so that their attention changes easily.
    """
    rows = _rows(data, head)
    if rows is None:
        return None
    first, last, positions, tokens = rows
    change = np.where(positions >= np.median(positions), np.abs(last - first).sum(-1), -1.0)  # (sequence, sampled)
    sequence, sampled = np.unravel_index(int(change.argmax()), change.shape)
    position = int(positions[sampled])
    before, after = first[sequence, sampled], last[sequence, sampled]
    name = _names(data, tokens)
    largest = np.maximum(before, after)
    causal = not largest[position + 1 :].any()
    shown = _shown(largest, position, causal)
    texts = {int(i): name(int(sequence), int(i)) for i in shown}
    marked = any(text[:1] in SPACES for text in texts.values() if text)
    words: list[ExampleWord] = []
    for i, text in texts.items():
        if i and i - 1 not in texts:
            words.append(ExampleWord(None))
        plain, spaced = _plain(text, marked)
        words.append(ExampleWord(plain, spaced, i == position, float(before[i]), float(after[i])))
    if not causal and max(texts) + 1 < len(before):
        words.append(ExampleWord(None))
    hidden = tuple(max(0.0, float(row.sum() - row[list(texts)].sum())) for row in (before, after))
    return ExampleSentence(head, int(sequence), position, words, (hidden[0], hidden[1]))


def _rows(data: xr.Dataset, head: HeadSummary) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Attention (sequence, sampled, key) at first and last, the queries' positions, and tokens (sequence, key)."""
    if head.kind == "cross" or not {"tokens", "attention_first", "attention_last", "sampled_position"} <= set(data):
        return None
    if "position" not in data["attention_last"].dims:  # the keys are not these tokens
        return None
    of = {"layer": head.layer, "head": head.head}
    first, last = (data[f"attention_{when}"].isel(of).transpose("sequence", "sampled", "position").values
                   for when in ("first", "last"))  # fmt: skip
    where = data["sampled_position"]
    where = where.isel(layer=head.layer) if "layer" in where.dims else where
    positions = where.values.astype(np.float64)
    tokens = data["tokens"].transpose("sequence", "position").values
    valid = np.isfinite(positions) & (positions >= 0) & (positions < tokens.shape[1])  # without padding
    first, last = (np.nan_to_num(rows[:, valid], nan=0.0, posinf=0.0, neginf=0.0) for rows in (first, last))
    if not first.size or not last.any():
        return None
    return first, last, positions[valid], tokens


def _shown(largest: np.ndarray, position: int, causal: bool) -> list[int]:
    """Indices of tokens near the query, and of those further away with much attention."""
    after = 0 if causal else NEAR // 2
    near = set(range(max(0, position - NEAR), min(len(largest), position + after + 1)))
    strongest = [int(i) for i in np.argsort(-largest)[:8] if largest[i] >= FAR]
    around = {j for i in strongest for j in range(i - AROUND, i + AROUND + 1)
              if 0 <= j < len(largest) and (j <= position or not causal)}  # fmt: skip
    return sorted(near | around)


def _names(data: xr.Dataset, tokens: np.ndarray) -> Callable[[int, int], str]:
    """The word at a position of the batch; the token id without words."""
    words = data["words"].values if "words" in data.variables else ()

    def name(sequence: int, position: int) -> str:
        token = tokens[sequence, position]
        if not math.isfinite(float(token)):
            return "?"
        number = int(token)
        return str(words[number]) if 0 <= number < len(words) else str(number)

    return name


def _plain(text: str, marked: bool) -> tuple[str, bool]:
    """A token as readable text, and whether it begins a word."""
    inner = text.startswith("##")
    begins = text[:1] in SPACES if marked and text else not inner
    text = text[1:] if text[:1] in SPACES and len(text) > 1 else text[2:] if inner and len(text) > 2 else text
    text = text.replace("\n", "⏎").replace("Ċ", "⏎").replace("\t", "⇥")
    text = "".join("�" if unicodedata.category(letter) in _INVISIBLE else letter for letter in text)
    return (text[: LONGEST - 1] + "…" if len(text) > LONGEST else text) or "␣", begins
