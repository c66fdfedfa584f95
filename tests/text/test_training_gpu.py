"""Accumulated gradients and schedules on CUDA, through recorded steps; skips itself without it."""

import numpy as np
import pytest
import torch
from small_text import M, stream

from scansnap.text.training import train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
COMMON = {"steps": 9, "length": 7, "shuffle": 1}
PLAIN = {"width": 16, "eta": 1.0, "dropout": 0.0}
KINDS = {
    "transformer": (TransformerSettings, PLAIN, 2e-6),
    "transformer, adam": (TransformerSettings, PLAIN | {"optimizer": "adam", "eta": 0.01}, 1e-5),
    "transformer, bf16": (TransformerSettings, PLAIN | {"precision": "bf16"}, 3e-2),
    "transformer, float64": (TransformerSettings, PLAIN | {"dtype": "float64"}, 1e-13),
    "yz": (YZSettings, {"eta_y": 20.0, "eta_z": 2.0, "residual": "normed"}, None),
    "yz, adam": (YZSettings, {"optimizer": "adam", "eta_y": 0.05, "eta_z": 0.01, "init": "uniform"}, None),
    "yz, 2 layers": (YZSettings, {"layers": 2, "init": "uniform", "residual": "normed", "eta_y": 20.0}, None),
}


def built(kind, **options):
    make, settings, _ = KINDS[kind]
    return (Transformer if make is TransformerSettings else YZTransformer)(make(M, **settings), "cuda", **options)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "yz" not in kind])
def test_accumulated_gradients(kind):
    whole, parts = (train(built(kind), stream(), **(COMMON | options)).losses
                    for options in ({"batch": 6}, {"batch": 2, "accumulate": 3}))  # fmt: skip
    assert np.abs(whole - parts).max() < KINDS[kind][2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_reaches_recorded_steps(kind):
    """A graph replays the current rate, not the one that it was recorded with."""
    options = COMMON | {"batch": 6, "schedule": "cosine", "warmup": 3}
    recorded, plain = (train(built(kind, graphs=graphs), stream(), **options).losses for graphs in (True, False))
    np.testing.assert_array_equal(recorded, plain)
    assert np.abs(recorded - train(built(kind), stream(), **(COMMON | {"batch": 6})).losses).max() > 1e-4
