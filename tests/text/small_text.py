"""A text that can be learnt, and small models of it."""

import numpy as np

from scansnap.text.model_files import build_untrained, load_checkpoint
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

M = 20


def stream(n=400, seed=0):
    """A noisy cycle: the next token is mostly the one above."""
    rng = np.random.default_rng(seed)
    tokens = np.zeros(n, np.int32)
    for t in range(1, n):
        tokens[t] = (tokens[t - 1] + 1) % M if rng.random() < 0.8 else rng.integers(M)
    return tokens


def transformer(**options):
    arguments = {"width": 16, "feed_forward": 8, "eta": 1.0, "dropout": 0.2}
    return Transformer(TransformerSettings(M, **(arguments | options)))


def yz(**options):
    return YZTransformer(YZSettings(M, **({"eta_y": 20.0, "eta_z": 2.0} | options)))


def open_model(path):
    """The model and the header of a checkpoint, with or without a vocabulary."""
    model = build_untrained(path)
    return model, load_checkpoint(path, model)[0]
