"""A trained model together with its words: what ``scansnap text train`` leaves behind and everything else opens.

Both are in one file, ``NAME.safetensors``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from scansnap.checks import InputError
from scansnap.corpus.vocabulary import Vocabulary
from scansnap.text.model import LanguageModel
from scansnap.text.model_files import CheckpointHeader, build_for, load_checkpoint, read_header, read_vocabulary
from scansnap.text.record import TrainingResult

SUFFIX = ".safetensors"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model one can ask about words."""

    model: LanguageModel
    vocabulary: Vocabulary
    header: CheckpointHeader
    measured: dict[str, dict[int, float]]  # numbers measured in training, by name and step

    @property
    def title(self) -> str:
        """In words: what it is and how far it was trained."""
        told = self.model.describe()
        kind = "YZ model" if told["kind"] == "yz" else "Transformer"
        kind = f"Prediction of a {kind}" if told.get("listening") else kind
        layers = f"{self.model.layers} layer{'s' if self.model.layers > 1 else ''}"
        return f"{kind}, {layers}, {len(self.vocabulary):,} {self.vocabulary.unit}, {self.header.step:,} steps"


def open_trained(path: Path, device: str | torch.device = "cpu") -> TrainedModel:
    """The model of a checkpoint with its words."""
    header = read_header(path)
    vocabulary = read_vocabulary(path)
    model = build_for(path, device)
    if model.vocab_size != len(vocabulary):
        raise InputError("the vocabulary", f"{len(vocabulary)} words", f"the model's {model.vocab_size} words")
    _, record = load_checkpoint(path, model)
    done = TrainingResult.from_tensors(header.step, header.step, record)
    measured = {"perplexity": done.valid} if done.valid else {}
    for step, found in done.measured.items():
        for name, value in found.items():
            if not isinstance(value, np.ndarray):
                measured.setdefault(name, {})[step] = float(value)
    return TrainedModel(model, vocabulary, header, measured)
