"""1-layer YZ models and 1-layer transformers trained on text: a record of numbers for each seed.

The queries are the text's most frequent words; each is studied with the words that stand before it often. The study of
contextual sparsity uses the same models, so a record holds its numbers too.
"""

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
from scansnap.measure.snap_curves import e_folds
from scansnap.measure.word_attention import MEASURES, QueryWords, deciles, distance, query_words
from scansnap.paper.figure import Effort
from scansnap.paper.shared.run_cache import Record
from scansnap.paper.shared.text_runs import BATCH, LENGTH, TextSetting, text_setting, trained, transformer, yz
from scansnap.paper.studies.chosen_rates import SGD_TRANSFORMER, SGD_YZ, ChosenRates, at_chosen_rates
from scansnap.progress import Progress, share
from scansnap.text.evaluation import attention_statistics, perplexity
from scansnap.text.model import LanguageModel
from scansnap.text.training import log_spaced
from scansnap.text.yz.model import YZTransformer

SIZES: dict[tuple[bool, bool], dict[str, Any]] = {  # by (CUDA, quick)
    (False, True): {"max_words": 1_000, "steps": 600, "seeds": 1, "valid_tokens": 3_000},
    (False, False): {"max_words": 2_000, "steps": 1_200, "seeds": 3, "valid_tokens": 4_000},
    (True, True): {"max_words": None, "steps": 3_000, "seeds": 1, "valid_tokens": 20_000},
    (True, False): {"max_words": None, "steps": 20_000, "seeds": 5, "valid_tokens": 30_000},
}
TRANSFORMER_STEPS = {(False, True): 80, (False, False): 200, (True, True): 3_000, (True, False): 12_000}


@dataclass(frozen=True)
class WordRuns:
    """The records of the runs."""

    text: Text
    chosen: dict[str, ChosenRates]  # by model
    yz: list[Record]  # of :func:`yz_record`, by seed
    transformer: list[Record]  # of :func:`transformer_record`, by seed
    transformer_steps: int

    @property
    def setting(self) -> TextSetting:
        return self.text.setting


def word_runs(effort: Effort, progress: Progress | None = None) -> WordRuns:
    """All runs, computed once for the studies of an effort."""
    return effort.compute_once("words", lambda: train(effort, progress))


def train(effort: Effort, progress: Progress | None) -> WordRuns:
    """Each model at the rates chosen for it."""
    size = (pick_device(effort.device).type == "cuda", effort.quick)
    setting = text_setting(effort, **SIZES[size])
    shorter = replace(setting, size=replace(setting.size, steps=TRANSFORMER_STEPS[size]))
    text = counted_text(setting)
    key: dict[str, Any] = {"folder": effort.cache_folder, "figure": "words", "masses": MASSES}
    yz_rates, yz_records = at_chosen_rates(
        setting, lambda rates, seed: yz(setting, layers=1, seed=seed, **rates), SGD_YZ, partial(yz_record, text),
        progress=share(progress, 0, 2), model="YZ", **key,
    )  # fmt: skip
    rates, transformer_records = at_chosen_rates(
        shorter, lambda rates, seed: transformer(shorter, layers=1, seed=seed, **rates), SGD_TRANSFORMER,
        partial(transformer_record, text), progress=share(progress, 1, 2), model="transformer", **key,
    )  # fmt: skip
    return WordRuns(text, {"YZ": yz_rates, "transformer": rates}, yz_records, transformer_records, shorter.size.steps)


def yz_record(
    text: Text, model: LanguageModel, setting: TextSetting, seed: int, progress: Progress | None
) -> dict[str, Any]:
    """A YZ run of one seed, measured in S steps; NaN from where its training failed.

    steps (S,), gain (S, 11) and entropy (S,) of attention on the validation text; correlation (S, 4), moved, left
    and fold (S,), how far from the first, the last and that of an e-fold ago, means over queries; end (4, Q) and thirds
    (2, Q) by query; z (Q, top) after training; and the sparsity.
    """
    words, last = text.words, setting.size.steps
    thirds = [last // 3, 2 * last // 3]
    steps = sorted({*log_spaced(last), *thirds})
    done = trained(model, setting, seed=seed, measure=partial(measure_model, text), snapshots=steps, progress=progress)
    nothing = {"z": np.full(words.used.shape, np.nan), "gain": np.full(MARKS + 1, np.nan), "entropy": np.nan}
    measured = [done.measured.get(step, nothing) for step in steps]
    z, gain, entropy = (np.stack([values[name] for values in measured]) for name in ("z", "gain", "entropy"))
    c = words.attention(z.astype(np.float64))  # (S, Q, top)
    ranked = [
        [rank_correlation(np.where(words.used, values, np.nan), words.measure(name)) for name in MEASURES]
        for values in z
    ]  # S × 4 × (Q,)
    fold = np.full(len(steps), np.nan)
    start, end = e_folds(steps)
    fold[end] = _mean(distance(c[end], c[start]))
    first, second = (steps.index(step) for step in thirds)
    return {"steps": steps, "gain": gain, "entropy": entropy, "correlation": _mean(ranked),
            "moved": _mean(distance(c, c[0])), "left": _mean(distance(c, c[-1])), "fold": fold, "end": ranked[-1],
            "thirds": np.stack([distance(c[first], c[0]), distance(c[-1], c[second])]), "z": z[-1],
            **key_sparsity(model, text.setting, failed=done.failed_step is not None)}  # fmt: skip


def transformer_record(
    text: Text, model: LanguageModel, setting: TextSetting, seed: int, progress: Progress | None
) -> dict[str, Any]:
    """A transformer of one seed: gain (2, 11) before training and after, and the sparsity."""
    before = attention_on(text, model)["gain"]
    failed = trained(model, setting, seed=seed, progress=progress).failed_step is not None
    after = np.full(MARKS + 1, np.nan) if failed else attention_on(text, model)["gain"]
    return {"gain": np.stack([before, after]), **key_sparsity(model, text.setting, failed=failed)}


def measure_model(text: Text, model: LanguageModel, step: int) -> dict[str, np.ndarray]:
    """Logits z (Q, top) of the queries, and the attention on the validation text."""
    return {"z": logits(text, model), **attention_on(text, model)}


def logits(text: Text, model: LanguageModel) -> np.ndarray:
    """z (Q, top) of the queries."""
    assert isinstance(model, YZTransformer)
    z = model.z[0].matrix()[torch.as_tensor(text.words.queries).to(model.device), : text.top]
    return np.asarray(z.float().cpu().numpy())


def attention_on(text: Text, model: LanguageModel) -> dict[str, np.ndarray]:
    """Attention on the validation text to each group of words, relative to uniform attention, and its entropy."""
    statistics = attention_statistics(model, text.setting.valid, length=LENGTH, groups=text.groups)[0]
    mass, uniform = (np.full(MARKS + 1, np.nan) for _ in range(2))  # the last groups may have no word in a small text
    n = len(np.asarray(statistics["group_mass"]))
    mass[:n], uniform[:n] = statistics["group_mass"], statistics["group_uniform"]
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"gain": mass / uniform, "entropy": np.asarray(statistics["entropy"])}


def _mean(by_query: Any) -> np.ndarray:
    """Over queries, the last dimension; those without a number (a constant has no ranks) are left out."""
    values = np.asarray(by_query, dtype=np.float64)
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(-1) / known.sum(-1))


NAMES = {"distinctness": "distinctness", "idf": "IDF", "pmi": "PMI", "cooccurrence": "co-occurrence"}  # of MEASURES
MARKS = 10  # the group of <unk> and <eos>, behind ten deciles of words
QUERIES, NEXT = 100, 20  # counted pairs: the most frequent queries, each with its most frequent next words
LEAST = 20  # least number of a query's contexts with a word, for the word to count
TOP = 5_000  # words of the contexts


@dataclass(frozen=True)
class Text:
    """The text, the studied queries and the words before them."""

    setting: TextSetting
    words: QueryWords
    groups: np.ndarray  # (M,) decile of each word's distinctness, MARKS, or −1 for none
    top: int


def counted_text(setting: TextSetting) -> Text:
    """Count the contexts of the most frequent words, and sort all words into tenths by their distinctness."""
    corpus = setting.corpus
    marks = (corpus.vocabulary.unk, corpus.vocabulary.eos)
    top = min(TOP, corpus.vocab_size)
    frequent = [word for i, word in enumerate(corpus.words[:top]) if i not in marks][:QUERIES]
    pairs = contexts_of(frequent, corpus, next_per_query=NEXT, top=top, disjoint=False)
    words = query_words(pairs.query, pairs.next_token, pairs.contexts, least=LEAST, leave_out=marks)
    if not len(words.queries):
        raise InputError("data", corpus.title, f"a longer text: no word stands {LEAST} times before a frequent one")
    groups = np.full(corpus.vocab_size, -1)
    groups[:top] = deciles(words.by_word["distinctness"], marks)
    groups[list(marks)] = MARKS
    return Text(setting, words, groups, top)


def contexts_of(queries: list[str], corpus: Corpus, **settings: Any) -> Cooccurrence:
    """Contexts of these queries, or of the first of them if a small text has too few next words for them all."""
    while True:
        try:
            return cooccurrence(corpus, queries=queries, window=LENGTH - 1, **settings)
        except InputError:
            if len(queries) < 2:
                raise
            queries = queries[: len(queries) // 2]


MASSES = (0.5, 0.8, 0.9, 0.95, 0.99)


def key_sparsity(
    model: LanguageModel, setting: TextSetting, masses: Sequence[float] = MASSES, *, failed: bool = False
) -> dict[str, Any]:
    """On the validation text, for each mass of attention.

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
            "perplexity_kept": [perplexity(model, tokens, attention_mass=mass, **options) for mass in masses],
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
