"""Batches in parts, schedules and a group of one process on CUDA, through recorded steps; skips itself without it."""

import numpy as np
import pytest
import torch
from small_text import stream

from scansnap.text.parallel.group import join
from scansnap.text.train import train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
M = 20
COMMON = {"steps": 9, "length": 7, "shuffle": 1}
ADAM = {"optimizer": "adam", "eta_y": 0.05, "eta_z": 0.01, "init": "uniform"}
KINDS = {
    "transformer": (TransformerSettings, {"width": 16, "feed_forward": 8, "eta": 1.0}, 2e-6),
    "transformer, adam": (TransformerSettings, {"width": 16, "optimizer": "adam", "eta": 0.01}, 1e-5),
    "transformer, masked": (TransformerSettings, {"width": 16, "objective": "masked", "eta": 1.0}, 2e-6),
    "transformer, bf16": (TransformerSettings, {"width": 16, "eta": 1.0, "precision": "bf16"}, 3e-2),
    "transformer, float64": (TransformerSettings, {"width": 16, "eta": 1.0, "dtype": "float64"}, 1e-13),
    "yz": (YZSettings, {"eta_y": 20.0, "eta_z": 2.0, "residual": "normed"}, 2e-6),
    "yz, bf16x3": (YZSettings, {"eta_y": 20.0, "eta_z": 2.0, "precision": "bf16x3"}, 1e-4),
    "yz, momentum": (YZSettings, {"eta_y": 5.0, "eta_z": 0.5, "optimizer": "momentum"}, 2e-6),
    "yz, adam": (YZSettings, ADAM, 1e-5),
    "yz, float64": (YZSettings, {"eta_y": 20.0, "eta_z": 2.0, "dtype": "float64"}, 1e-13),
    "yz, rank 3": (YZSettings, {"rank": 3, **ADAM}, 1e-5),
    "yz, 2 layers": (YZSettings, {"layers": 2, "init": "uniform", "residual": "normed", "eta_y": 20.0}, 1e-5),
}


def built(kind):
    make, options, _ = KINDS[kind]
    return (Transformer if make is TransformerSettings else YZTransformer)(make(M, **options), "cuda")


def losses(kind, **options):
    return train(built(kind), stream(), **(COMMON | options)).losses


@pytest.mark.parametrize("kind", KINDS)
def test_in_parts(kind):
    apart = np.abs(losses(kind, batch=6) - losses(kind, batch=2, accumulate=3)).max()
    print(f"{kind}: {apart:.1e}")
    assert apart < KINDS[kind][2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_reaches_recorded_steps(kind):
    """A graph replays the rate that is there, not the one it was recorded with."""
    plain = built(kind)
    graphless = type(plain)(plain.settings, "cuda", graphs=False)
    options = COMMON | {"batch": 6, "schedule": "cosine", "warmup": 3}
    a, b = (train(model, stream(), **options).losses for model in (plain, graphless))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - losses(kind, batch=6)).max() > 1e-4


@pytest.fixture(scope="module")
def group():
    """One process, through NCCL."""
    import os
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(names)
    made = join(patience=60)
    made.device("cuda")
    yield made
    torch.distributed.destroy_process_group()
    for name in names:
        del os.environ[name]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_one(kind, group):
    apart = np.abs(losses(kind, batch=6) - losses(kind, batch=6, group=group)).max()
    print(f"{kind}: {apart:.1e}")
    assert apart < KINDS[kind][2]
