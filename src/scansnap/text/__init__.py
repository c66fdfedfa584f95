"""Language models for real text: the original transformer and the YZ model over a whole vocabulary."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scansnap.corpus.corpus import load_corpus as load_corpus
    from scansnap.text.evaluation import evaluate as evaluate
    from scansnap.text.explanation import explain as explain
    from scansnap.text.model_files import load_model as load_model
    from scansnap.text.prediction import predict as predict
    from scansnap.text.settings import TrainingSettings as TrainingSettings
    from scansnap.text.training import train as train
    from scansnap.text.transformer.model import Transformer as Transformer
    from scansnap.text.transformer.settings import TransformerSettings as TransformerSettings
    from scansnap.text.yz.model import YZTransformer as YZTransformer
    from scansnap.text.yz.settings import YZSettings as YZSettings

_MODULES = {
    "Transformer": "scansnap.text.transformer.model",
    "TransformerSettings": "scansnap.text.transformer.settings",
    "TrainingSettings": "scansnap.text.settings",
    "YZSettings": "scansnap.text.yz.settings",
    "YZTransformer": "scansnap.text.yz.model",
    "evaluate": "scansnap.text.evaluation",
    "explain": "scansnap.text.explanation",
    "load_corpus": "scansnap.corpus.corpus",
    "load_model": "scansnap.text.model_files",
    "predict": "scansnap.text.prediction",
    "train": "scansnap.text.training",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'scansnap.text' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)  # on first use: most of them import torch
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
