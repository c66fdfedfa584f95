"""Corpus, models and run lengths of the figures on real text.

On CUDA everything is the paper's size. On a CPU the vocabulary is cut to the most frequent words and runs are shorter,
as the note below each figure says. Statements about training are tested over seeds; a quick run on a CPU has a single
seed and decides nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scansnap.corpus.corpus import Corpus, load_corpus
from scansnap.corpus.sources import BASIC_ENGLISH, TextSource, find_corpora
from scansnap.dynamics.device import pick_device
from scansnap.paper.figure import Effort
from scansnap.progress import Progress
from scansnap.text.evaluation import attention_statistics, perplexity
from scansnap.text.model import LanguageModel
from scansnap.text.training import Measure, TrainingResult, train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

BATCH, LENGTH = 20, 35
EVALUATION_BATCH = {"cpu": BATCH, "cuda": 200}  # windows evaluated together; on CUDA few take as long as many


@dataclass(frozen=True)
class TextSize:
    """The size of runs for an effort and a kind of device."""

    max_words: int | None  # of the vocabulary; None: all
    steps: int  # of one training run
    seeds: int
    valid_tokens: int  # of the validation stream that are evaluated


SIZES = {  # by (CUDA, quick)
    (False, True): TextSize(1000, 90, 1, 3_000),
    (False, False): TextSize(1000, 180, 3, 5_000),
    (True, True): TextSize(None, 300, 3, 20_000),
    (True, False): TextSize(None, 1500, 5, 60_000),
}


@dataclass(frozen=True)
class TextSetting:
    """A corpus on a device, with the size of the runs."""

    corpus: Corpus
    device: str
    size: TextSize
    note: str

    @property
    def valid(self) -> np.ndarray:
        return self.corpus.valid[: self.size.valid_tokens]

    @property
    def seeds(self) -> range:
        return range(self.size.seeds)

    @property
    def in_order(self) -> bool:
        """Whether training reads the text in order."""
        return self.corpus.title.endswith(f", {BASIC_ENGLISH[:-1]}")

    def key(self) -> dict[str, Any]:
        """What a run in this setting depends on, besides its model and seed."""
        streams = {name: zlib.crc32(self.corpus.split(name).tobytes()) for name in ("train", "valid", "test")}
        return {**self.describe(), "streams": streams, "seeds": None}

    def describe(self) -> dict[str, Any]:
        """For the manifest."""
        return {"corpus": self.corpus.title, "vocab_size": self.corpus.vocab_size, "batch": BATCH, "length": LENGTH,
                "train_tokens": len(self.corpus.train), "valid_tokens": len(self.valid), "steps": self.size.steps,
                "seeds": list(self.seeds), "device": self.device}  # fmt: skip


def text_setting(effort: Effort, source: TextSource | None = None, **changes: Any) -> TextSetting:
    """The first corpus of ``--data`` (or SCANSNAP_DATA, or the standard library's docstrings) at the effort's size."""
    device = pick_device(effort.device)
    base = SIZES[device.type == "cuda", effort.quick]
    size = replace(base, **changes)
    corpus = load_corpus(source or find_corpora(effort.data)[0], max_words=size.max_words)
    smaller = [] if size.max_words is None else [f"{corpus.vocab_size:,} most frequent words"]
    return TextSetting(corpus, device.type, size, "; ".join([corpus.title, *smaller, f"{size.steps} steps"]))


def describe_seeds(n: int) -> str:
    """For a figure's note."""
    return f"{n} seeds" if n > 1 else "1 seed: decides nothing"


def transformer(setting: TextSetting, *, layers: int = 1, eta: float = 5.0, seed: int = 0, **more: Any) -> Transformer:
    """The paper's text model: d = 200, one head, dropout 0.2, SGD with clipping."""
    precision = "bf16" if setting.device == "cuda" else "float32"
    settings = TransformerSettings(vocab_size=setting.corpus.vocab_size, layers=layers, eta=eta, seed=seed,
                                   precision=precision, **more)  # fmt: skip
    return Transformer(settings, setting.device)


def yz_settings(setting: TextSetting, *, layers: int = 1, seed: int = 0, **more: Any) -> YZSettings:
    """Of the YZ model over the setting's vocabulary, full tables; several layers in tf32 on CUDA."""
    precision = "tf32" if setting.device == "cuda" and layers > 1 else "float32"
    return YZSettings(vocab_size=setting.corpus.vocab_size, layers=layers, seed=seed, precision=precision, **more)


def yz(setting: TextSetting, **more: Any) -> YZTransformer:
    """The model of :func:`yz_settings`."""
    return YZTransformer(yz_settings(setting, **more), setting.device)


def trained(model: LanguageModel, setting: TextSetting, *, seed: int | None = 0, measure: Measure | None = None,
            snapshots: Sequence[int] = (), progress: Progress | None = None) -> TrainingResult:  # fmt: skip
    """Train for the setting's steps; windows are shuffled by the seed, or in order. Ctrl-C raises.

    A text in basic_english is read in order, as in the paper.
    """
    order = None if setting.in_order else seed
    return train(model, setting.corpus.train, steps=setting.size.steps, batch=BATCH, length=LENGTH, shuffle=order,
                 measure=measure, snapshots=snapshots, progress=progress)  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """A trained model on the validation text."""

    perplexity: float
    entropy: list[float]  # of attention, by layer
    failed: bool


def train_and_evaluate(
    model: LanguageModel, setting: TextSetting, *, seed: int, progress: Progress | None
) -> Evaluation:
    """Train the model and evaluate it."""
    done = trained(model, setting, seed=seed, progress=progress)
    batch = EVALUATION_BATCH[setting.device]
    statistics = attention_statistics(model, setting.valid, length=LENGTH, batch=batch)
    reached = perplexity(model, setting.valid, length=LENGTH, batch=batch)
    return Evaluation(reached, [float(np.asarray(row["entropy"])) for row in statistics], done.failed_step is not None)
