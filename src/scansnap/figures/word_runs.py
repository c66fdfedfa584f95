"""The models behind the figures on words and on contextual sparsity, trained once for both; only numbers are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from scansnap.checks import InputError
from scansnap.corpus.cooccurrence import Cooccurrence, cooccurrence
from scansnap.corpus.corpus import Corpus
from scansnap.dynamics.device import pick_device
from scansnap.figures.figure import Effort, Progress
from scansnap.figures.text_runs import BATCH, LENGTH, TextSetting, text_setting, trained, transformer, yz
from scansnap.measure.word_attention import QueryWords, deciles, query_words
from scansnap.models.evaluate import attention_statistics, perplexity
from scansnap.models.model import LanguageModel
from scansnap.models.training import log_spaced
from scansnap.models.yz_transformer import YZTransformer

MASSES = (0.5, 0.8, 0.9, 0.95, 0.99)
MARKS = 10  # the group of <unk> and <eos>, behind ten deciles of words
BLOCKS = 5  # pieces of the validation text, for an uncertainty
QUERIES, NEXT = 100, 20  # pairs that are counted: the most frequent queries, each with its most frequent next words
LEAST = 20  # a word is looked at with a query when it stands in so many of its contexts
SIZES: dict[tuple[bool, bool], dict[str, Any]] = {  # by (CUDA, quick)
    (False, True): {"max_words": 1_000, "steps": 900, "valid_tokens": 5_000},
    (False, False): {"max_words": 2_000, "steps": 3_000, "valid_tokens": 10_000},
    (True, True): {"max_words": None, "steps": 3_000, "valid_tokens": 20_000},
    (True, False): {"max_words": None, "steps": 20_000, "valid_tokens": 60_000},
}
TRANSFORMER_STEPS = {(False, True): 200, (False, False): 800, (True, True): 3_000, (True, False): 12_000}
TOP = 5_000  # words of the contexts
ETA = 3.0
# η_Y, η_Z for vocabularies up to a size. Full vocabulary: a ratio of 10. Small ones diverge at η_Y = 300 and have few
# steps: of (30, 3), (30, 30), (30, 100) on 1,000 words and (60, 60) on 3,000, all looked at, (30, 30) was taken because
# at (30, 3) attention had hardly moved after 500 steps (total variation 0.04). What is found depends on it: there
# attention still followed co-occurrence (rank correlation +0.12) rather than IDF (−0.09). η_Y ≫ η_Z does not hold.
RATES = ((2_000, 30.0, 30.0), (None, 300.0, 30.0))


@dataclass(frozen=True)
class WordRun:
    """What is left of the run."""

    setting: TextSetting
    eta_y: float
    eta_z: float
    pairs: Cooccurrence
    words: QueryWords
    groups: np.ndarray  # (M,) decile of each word's distinctness, MARKS, or −1 for none
    steps: np.ndarray  # (S,)
    z: np.ndarray  # (S, Q, top) logits of the queries
    gain: np.ndarray  # (S, BLOCKS, 11) attention to each group relative to uniform attention
    entropy: np.ndarray  # (S, BLOCKS)
    transformer_steps: int
    transformer_gain: np.ndarray  # (2, BLOCKS, 11) before training and after
    sparsity: pd.DataFrame  # see :func:`sparsity_rows`


_made: dict[tuple[Any, ...], WordRun] = {}  # the last one only


def word_run(effort: Effort, progress: Progress | None = None) -> WordRun:
    """Train the 1-layer YZ model and the 1-layer transformer; a second call with the same effort answers at once."""
    key = (effort.quick, effort.device, effort.data)
    if key not in _made:
        made = _word_run(effort, progress)
        _made.clear()
        _made[key] = made
    return _made[key]


def _word_run(effort: Effort, progress: Progress | None) -> WordRun:
    cuda = pick_device(effort.device).type == "cuda"
    setting = text_setting(effort, **SIZES[cuda, effort.quick])
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
    at = torch.as_tensor(words.queries)

    def gains(model: LanguageModel) -> dict[str, np.ndarray]:
        blocks = [attention_statistics(model, block, length=LENGTH, groups=groups)[0]
                  for block in np.array_split(setting.valid, BLOCKS)]  # fmt: skip
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = [np.asarray(b["group_mass"]) / np.asarray(b["group_uniform"]) for b in blocks]
        return {"gain": np.stack(gain), "entropy": np.array([b["entropy"] for b in blocks])}

    def look(model: LanguageModel, step: int) -> dict[str, np.ndarray]:
        assert isinstance(model, YZTransformer)
        z = model.z[0].matrix()[at.to(model.device), :top]
        return {"z": z.float().cpu().numpy(), **gains(model)}

    eta_y, eta_z = next((y, z) for size, y, z in RATES if size is None or corpus.vocab_size <= size)
    later = TRANSFORMER_STEPS[cuda, effort.quick]
    total = setting.size.steps + later

    def told(before: int) -> Progress | None:
        return None if progress is None else (lambda done, _: progress(before + done, total))

    model: LanguageModel = yz(setting, eta_y=eta_y, eta_z=eta_z)
    thirds = [setting.size.steps // 3, 2 * setting.size.steps // 3]
    seen = trained(model, setting, seed=0, measure=look, snapshots=[*log_spaced(setting.size.steps), *thirds],
                   progress=told(0))  # fmt: skip
    steps = sorted(seen.measured)
    z, gain, entropy = (np.stack([seen.measured[s][name] for s in steps]) for name in ("z", "gain", "entropy"))
    tables = [sparsity_rows(model, setting, "YZ, 1 layer")]
    del model  # its tables, before the next model's

    shorter = text_setting(effort, **{**SIZES[cuda, effort.quick], "steps": later})
    model = transformer(shorter, eta=ETA)
    before = gains(model)["gain"]
    trained(model, shorter, seed=0, progress=told(setting.size.steps))
    tables.append(sparsity_rows(model, setting, "transformer, 1 layer"))
    return WordRun(setting, eta_y, eta_z, pairs, words, groups, np.array(steps), z, gain, entropy, later,
                   np.stack([before, gains(model)["gain"]]), pd.concat(tables, ignore_index=True))  # fmt: skip


def counted(corpus: Corpus, queries: list[str], **settings: Any) -> Cooccurrence:
    """Contexts of these queries, or of the first of them if a small text has too few next words for them all."""
    while True:
        try:
            return cooccurrence(corpus, queries=queries, **settings)
        except InputError:
            if len(queries) < 2:
                raise
            queries = queries[: len(queries) // 2]


def sparsity_rows(model: LanguageModel, setting: TextSetting, name: str, masses: Sequence[float] = MASSES) -> Any:
    """How few keys carry each mass and what leaving the rest out costs, for each piece of the validation text.

    One row for each mass, layer (from 1) and block: share_needed, keys_needed, perplexity (all keys), perplexity_kept.
    """
    rows = []
    for block, tokens in enumerate(np.array_split(setting.valid, BLOCKS)):
        whole = perplexity(model, tokens, length=LENGTH, batch=BATCH)
        for mass in masses:
            needed = attention_statistics(model, tokens, length=LENGTH, batch=BATCH, mass=mass)
            kept = perplexity(model, tokens, length=LENGTH, batch=BATCH, keep=mass)
            for layer, row in enumerate(needed):
                rows.append({"model": name, "block": block, "mass": mass, "layer": layer + 1,
                             "share_needed": row["share_needed"], "keys_needed": row["keys_needed"],
                             "perplexity": whole, "perplexity_kept": kept})  # fmt: skip
    return pd.DataFrame(rows)
