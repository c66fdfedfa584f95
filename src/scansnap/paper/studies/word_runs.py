"""The models behind the figures on words and on contextual sparsity, trained once for both; only numbers are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from scansnap.checks import InputError
from scansnap.corpus.cooccurrence import Cooccurrence, cooccurrence
from scansnap.corpus.corpus import Corpus
from scansnap.dynamics.device import pick_device
from scansnap.measure.ranks import rank_correlation
from scansnap.measure.word_attention import MEASURES, QueryWords, deciles, distance, query_words
from scansnap.paper.figure import Effort
from scansnap.paper.studies.chosen_rates import SGD_TRANSFORMER, SGD_YZ, Chosen, Rates, choose_on_text
from scansnap.paper.studies.kept_runs import Record, kept
from scansnap.paper.studies.text_runs import BATCH, LENGTH, TextSetting, share, text_setting, trained, transformer, yz
from scansnap.progress import Progress
from scansnap.text.evaluate import attention_statistics, perplexity
from scansnap.text.model import LanguageModel
from scansnap.text.train import log_spaced
from scansnap.text.yz.model import YZTransformer

MASSES = (0.5, 0.8, 0.9, 0.95, 0.99)
MARKS = 10  # the group of <unk> and <eos>, behind ten deciles of words
QUERIES, NEXT = 100, 20  # pairs that are counted: the most frequent queries, each with its most frequent next words
LEAST = 20  # a word is looked at with a query when it stands in so many of its contexts
SIZES: dict[tuple[bool, bool], dict[str, Any]] = {  # by (CUDA, quick)
    (False, True): {"max_words": 1_000, "steps": 600, "seeds": 1, "valid_tokens": 3_000},
    (False, False): {"max_words": 2_000, "steps": 1_200, "seeds": 3, "valid_tokens": 4_000},
    (True, True): {"max_words": None, "steps": 3_000, "seeds": 1, "valid_tokens": 20_000},
    (True, False): {"max_words": None, "steps": 20_000, "seeds": 5, "valid_tokens": 30_000},
}
TRANSFORMER_STEPS = {(False, True): 80, (False, False): 200, (True, True): 3_000, (True, False): 12_000}
TOP = 5_000  # words of the contexts


@dataclass(frozen=True)
class Text:
    """The text, the queries that are looked at and what stands before them."""

    setting: TextSetting
    words: QueryWords
    groups: np.ndarray  # (M,) decile of each word's distinctness, MARKS, or −1 for none
    top: int


@dataclass(frozen=True)
class WordRun:
    """What is left of the runs. A seed's record is that of :func:`yz_record` or :func:`transformer_record`."""

    text: Text
    chosen: dict[str, Chosen]  # by model
    yz: list[Record]  # by seed
    transformer: list[Record]
    transformer_steps: int

    @property
    def setting(self) -> TextSetting:
        return self.text.setting

    @property
    def sparsity(self) -> pd.DataFrame:
        """Rows of both models and all seeds, see :func:`sparsity_rows`."""
        records = {"YZ, 1 layer": self.yz, "transformer, 1 layer": self.transformer}
        rows = [sparsity_rows(record, name, seed) for name, runs in records.items()
                for seed, record in zip(self.setting.seeds, runs, strict=True)]  # fmt: skip
        return pd.concat(rows, ignore_index=True)


_made: dict[tuple[Any, ...], WordRun] = {}  # the last one only


def word_run(effort: Effort, progress: Progress | None = None) -> WordRun:
    """Train 1-layer YZ models and 1-layer transformers; a second call with the same effort answers at once."""
    key = (effort.quick, effort.device, effort.data)
    if key not in _made:
        made = _word_run(effort, progress)
        _made.clear()
        _made[key] = made
    return _made[key]


def _word_run(effort: Effort, progress: Progress | None) -> WordRun:
    size = (pick_device(effort.device).type == "cuda", effort.quick)
    setting = text_setting(effort, **SIZES[size])
    text = counted_text(setting)
    shorter = replace(setting, size=replace(setting.size, steps=TRANSFORMER_STEPS[size]))
    kinds = (("YZ", setting, SGD_YZ, yz, yz_record), ("transformer", shorter, SGD_TRANSFORMER, transformer,
                                                      transformer_record))  # fmt: skip
    rounds = 1 + setting.size.seeds  # choosing costs as much as a seed
    chosen: dict[str, Chosen] = {}
    records: dict[str, list[Record]] = {}
    for i, (name, where, grid, model, record) in enumerate(kinds):
        told = share(progress, i, len(kinds))
        build = partial(_built, model, where)
        chosen[name] = choose_on_text(where, build, grid, folder=effort.kept, progress=share(told, 0, rounds),
                                      figure="words", model=name)  # fmt: skip
        rates = chosen[name].rates
        records[name] = [
            kept(effort.kept, {"figure": "words", "model": name, "seed": seed, "masses": MASSES, **rates,
                               **where.key()},
                 partial(record, text, where, build, rates, seed, share(told, 1 + seed, rounds)))
            for seed in setting.seeds
        ]  # fmt: skip
    return WordRun(text, chosen, records["YZ"], records["transformer"], shorter.size.steps)


def _built(model: Any, setting: TextSetting, rates: Rates, seed: int) -> LanguageModel:
    made: LanguageModel = model(setting, seed=seed, **rates)
    return made


def counted_text(setting: TextSetting) -> Text:
    """Count the contexts of the most frequent words, and sort all words into tenths by their distinctness."""
    corpus = setting.corpus
    marks = (corpus.vocabulary.unk, corpus.vocabulary.eos)
    top = min(TOP, corpus.vocab_size)
    frequent = [word for i, word in enumerate(corpus.words[:top]) if i not in marks][:QUERIES]
    pairs = counted(corpus, frequent, next_per_query=NEXT, top=top, window=LENGTH - 1, disjoint=False)
    words = query_words(pairs.query, pairs.next_token, pairs.contexts, least=LEAST, leave_out=marks)
    if not len(words.queries):
        raise InputError("data", corpus.title, f"a longer text: no word stands {LEAST} times before a frequent one")
    groups = np.full(corpus.vocab_size, -1)
    groups[:top] = deciles(words.by_word["distinctness"], marks)
    groups[list(marks)] = MARKS
    return Text(setting, words, groups, top)


def yz_record(text: Text, setting: TextSetting, build: Any, rates: Rates, seed: int,
              progress: Progress | None) -> dict[str, Any]:  # fmt: skip
    """A YZ run of one seed; NaN from where its training failed.

    steps (S,), gain (S, 11) and entropy (S,) of attention on the validation text; correlation (S, 4), moved and left
    (S,), means over queries; end (4, Q) and thirds (2, Q) by query; z (Q, top) after training; and the sparsity.
    """
    at, words = torch.as_tensor(text.words.queries), text.words
    last = setting.size.steps
    thirds = [last // 3, 2 * last // 3]
    steps = sorted({*log_spaced(last), *thirds})

    def look(model: LanguageModel, step: int) -> dict[str, np.ndarray]:
        assert isinstance(model, YZTransformer)
        z = model.z[0].matrix()[at.to(model.device), : text.top]
        return {"z": z.float().cpu().numpy(), **attention_on(model, text)}

    model = build(rates, seed)
    done = trained(model, setting, seed=seed, measure=look, snapshots=steps, progress=progress)
    seen = done.measured
    nothing = {"z": np.full(words.used.shape, np.nan), "gain": np.full(MARKS + 1, np.nan), "entropy": np.nan}
    z, gain, entropy = (np.stack([seen.get(s, nothing)[name] for s in steps]) for name in ("z", "gain", "entropy"))
    c = words.attention(z.astype(np.float64))  # (S, Q, top)
    ranked = [
        [rank_correlation(np.where(words.used, one, np.nan), words.measure(name)) for name in MEASURES] for one in z
    ]  # S × 4 × (Q,)
    first, second = (steps.index(s) for s in thirds)
    return {"steps": steps, "gain": gain, "entropy": entropy, "correlation": _mean(ranked),
            "moved": _mean(distance(c, c[0])), "left": _mean(distance(c, c[-1])), "end": ranked[-1],
            "thirds": np.stack([distance(c[first], c[0]), distance(c[-1], c[second])]), "z": z[-1],
            **sparsity(model, text.setting, failed=done.failed_step is not None)}  # fmt: skip


def _mean(by_query: Any) -> np.ndarray:
    """Over queries, the last dimension; those without a number (a constant has no ranks) are left out."""
    values = np.asarray(by_query, dtype=np.float64)
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(-1) / known.sum(-1))


def transformer_record(text: Text, setting: TextSetting, build: Any, rates: Rates, seed: int,
                       progress: Progress | None) -> dict[str, Any]:  # fmt: skip
    """A transformer of one seed: gain (2, 11) before training and after, and the sparsity."""
    model = build(rates, seed)
    before = attention_on(model, text)["gain"]
    failed = trained(model, setting, seed=seed, progress=progress).failed_step is not None
    after = np.full(MARKS + 1, np.nan) if failed else attention_on(model, text)["gain"]
    return {"gain": np.stack([before, after]), **sparsity(model, text.setting, failed=failed)}


def attention_on(model: LanguageModel, text: Text) -> dict[str, np.ndarray]:
    """Attention on the validation text to each group of words, relative to uniform attention, and its entropy."""
    found = attention_statistics(model, text.setting.valid, length=LENGTH, groups=text.groups)[0]
    mass, uniform = (np.full(MARKS + 1, np.nan) for _ in range(2))  # the last groups may have no word in a small text
    n = len(np.asarray(found["group_mass"]))
    mass[:n], uniform[:n] = found["group_mass"], found["group_uniform"]
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"gain": mass / uniform, "entropy": np.asarray(found["entropy"])}


def counted(corpus: Corpus, queries: list[str], **settings: Any) -> Cooccurrence:
    """Contexts of these queries, or of the first of them if a small text has too few next words for them all."""
    while True:
        try:
            return cooccurrence(corpus, queries=queries, **settings)
        except InputError:
            if len(queries) < 2:
                raise
            queries = queries[: len(queries) // 2]


def sparsity(
    model: LanguageModel, setting: TextSetting, masses: Sequence[float] = MASSES, *, failed: bool = False
) -> dict[str, Any]:
    """How few keys carry each mass and what leaving the rest out costs, on the validation text.

    masses (m,), share_needed and keys_needed (m, layers), perplexity (all keys), perplexity_kept (m,); NaN where the
    training failed
    """
    if failed:
        by_layer = np.full((len(masses), model.layers), np.nan)
        return {"masses": masses, "perplexity": np.nan, "perplexity_kept": np.full(len(masses), np.nan),
                "share_needed": by_layer, "keys_needed": by_layer}  # fmt: skip
    tokens = setting.valid
    options: dict[str, Any] = {"length": LENGTH, "batch": BATCH}
    needed = [attention_statistics(model, tokens, mass=mass, **options) for mass in masses]
    return {"masses": masses, "perplexity": perplexity(model, tokens, **options),
            "perplexity_kept": [perplexity(model, tokens, keep=mass, **options) for mass in masses],
            **{name: [[row[name] for row in rows] for rows in needed] for name in ("share_needed", "keys_needed")},
            }  # fmt: skip


def sparsity_rows(record: Record, name: str, seed: int) -> pd.DataFrame:
    """One row for each mass and layer (from 1): share_needed, keys_needed, perplexity (all keys), perplexity_kept."""
    share_needed, keys_needed = record["share_needed"], record["keys_needed"]
    return pd.DataFrame([{"model": name, "seed": seed, "mass": mass, "layer": layer + 1,
                          "share_needed": share_needed[i, layer], "keys_needed": keys_needed[i, layer],
                          "perplexity": float(record["perplexity"]), "perplexity_kept": record["perplexity_kept"][i]}
                         for i, mass in enumerate(record["masses"].tolist())
                         for layer in range(share_needed.shape[1])])  # fmt: skip
