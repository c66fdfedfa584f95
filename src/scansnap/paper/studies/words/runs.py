"""The runs: 1-layer YZ models and 1-layer transformers on the text, a record of numbers for each seed.

The study of contextual sparsity looks at the same models, so a record holds what it needs too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from scansnap.dynamics.device import pick_device
from scansnap.measure.ranks import rank_correlation
from scansnap.measure.snap.definition import e_folds
from scansnap.measure.word_attention import MEASURES, distance
from scansnap.paper.figure import Effort
from scansnap.paper.shared.run_cache import Record
from scansnap.paper.shared.text_runs import LENGTH, TextSetting, text_setting, trained, transformer, yz
from scansnap.paper.studies.chosen_rates import SGD_TRANSFORMER, SGD_YZ, Chosen, at_chosen_rates
from scansnap.paper.studies.key_sparsity import MASSES, key_sparsity
from scansnap.paper.studies.words.text import MARKS, Text, counted_text
from scansnap.progress import Progress, share
from scansnap.text.evaluation import attention_statistics
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
    """What is left of the runs."""

    text: Text
    chosen: dict[str, Chosen]  # by model
    yz: list[Record]  # of :func:`yz_record`, by seed
    transformer: list[Record]  # of :func:`transformer_record`, by seed
    transformer_steps: int

    @property
    def setting(self) -> TextSetting:
        return self.text.setting


def word_runs(effort: Effort, progress: Progress | None = None) -> WordRuns:
    """All runs, made once for the studies of an effort."""
    return effort.once("words", lambda: train(effort, progress))


def train(effort: Effort, progress: Progress | None) -> WordRuns:
    """Each model at the rates chosen for it."""
    size = (pick_device(effort.device).type == "cuda", effort.quick)
    setting = text_setting(effort, **SIZES[size])
    shorter = replace(setting, size=replace(setting.size, steps=TRANSFORMER_STEPS[size]))
    text = counted_text(setting)
    told: dict[str, Any] = {"folder": effort.kept, "figure": "words", "masses": MASSES}
    yz_rates, of_yz = at_chosen_rates(
        setting, lambda rates, seed: yz(setting, layers=1, seed=seed, **rates), SGD_YZ, partial(yz_record, text),
        progress=share(progress, 0, 2), model="YZ", **told,
    )  # fmt: skip
    rates, of_transformer = at_chosen_rates(
        shorter, lambda rates, seed: transformer(shorter, layers=1, seed=seed, **rates), SGD_TRANSFORMER,
        partial(transformer_record, text), progress=share(progress, 1, 2), model="transformer", **told,
    )  # fmt: skip
    return WordRuns(text, {"YZ": yz_rates, "transformer": rates}, of_yz, of_transformer, shorter.size.steps)


def yz_record(
    text: Text, model: LanguageModel, setting: TextSetting, seed: int, progress: Progress | None
) -> dict[str, Any]:
    """A YZ run of one seed, looked at in S steps; NaN from where its training failed.

    steps (S,), gain (S, 11) and entropy (S,) of attention on the validation text; correlation (S, 4), moved, left
    and fold (S,), how far from the first, the last and that of an e-fold ago, means over queries; end (4, Q) and thirds
    (2, Q) by query; z (Q, top) after training; and the sparsity.
    """
    words, last = text.words, setting.size.steps
    thirds = [last // 3, 2 * last // 3]
    steps = sorted({*log_spaced(last), *thirds})
    done = trained(model, setting, seed=seed, measure=partial(look, text), snapshots=steps, progress=progress)
    nothing = {"z": np.full(words.used.shape, np.nan), "gain": np.full(MARKS + 1, np.nan), "entropy": np.nan}
    seen = [done.measured.get(step, nothing) for step in steps]
    z, gain, entropy = (np.stack([one[name] for one in seen]) for name in ("z", "gain", "entropy"))
    c = words.attention(z.astype(np.float64))  # (S, Q, top)
    ranked = [
        [rank_correlation(np.where(words.used, one, np.nan), words.measure(name)) for name in MEASURES] for one in z
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


def look(text: Text, model: LanguageModel, step: int) -> dict[str, np.ndarray]:
    """Logits z (Q, top) of the queries, and the attention on the validation text."""
    return {"z": logits(text, model), **attention_on(text, model)}


def logits(text: Text, model: LanguageModel) -> np.ndarray:
    """z (Q, top) of the queries."""
    assert isinstance(model, YZTransformer)
    z = model.z[0].matrix()[torch.as_tensor(text.words.queries).to(model.device), : text.top]
    return np.asarray(z.float().cpu().numpy())


def attention_on(text: Text, model: LanguageModel) -> dict[str, np.ndarray]:
    """Attention on the validation text to each group of words, relative to uniform attention, and its entropy."""
    found = attention_statistics(model, text.setting.valid, length=LENGTH, groups=text.groups)[0]
    mass, uniform = (np.full(MARKS + 1, np.nan) for _ in range(2))  # the last groups may have no word in a small text
    n = len(np.asarray(found["group_mass"]))
    mass[:n], uniform[:n] = found["group_mass"], found["group_uniform"]
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"gain": mass / uniform, "entropy": np.asarray(found["entropy"])}


def _mean(by_query: Any) -> np.ndarray:
    """Over queries, the last dimension; those without a number (a constant has no ranks) are left out."""
    values = np.asarray(by_query, dtype=np.float64)
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(-1) / known.sum(-1))
