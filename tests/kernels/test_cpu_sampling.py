"""Every build of the CPU sampler against torch, number by number: sequences share vectors, whatever their number.

The walk in lanes and the squeeze in lanes are held to ``scansnap.sampling.counts``, where they stand in torch.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from scansnap.kernels.cpu import library, sampling
from scansnap.sampling.counts import SamplingTable, sample_classes, sample_counts
from scansnap.sampling.philox import Purpose, uniforms

pytestmark = pytest.mark.skipif(not library.available(), reason="the kernels were not compiled")

LEVELS = ("default", "avx2", "avx512")  # each includes the ones before
SEEDS = np.array([0, 5, 2**45 + 7, 2**63 - 1])


@pytest.fixture(params=LEVELS, autouse=True)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each build that this processor can run, in the place of the one chosen by itself."""
    path, capability = library.find("sampling", request.param), torch.backends.cpu.get_cpu_capability().lower()
    best = LEVELS.index(capability) if capability in LEVELS else 0
    if path is None or LEVELS.index(request.param) > best:
        pytest.skip(f"no build for {request.param}, or a processor without it")
    build = ctypes.CDLL(str(path))
    monkeypatch.setattr(library, "load", lambda name: build)
    return str(request.param)


def table() -> SamplingTable:
    """Uneven classes; one token may take nearly all, the last may be all that is left, and slots may be empty."""
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.full(9, 0.6), size=7)
    p[1] = [0.9, 0.05, 0, 0, 0.05, 0, 0, 0, 0]
    p[2] = [0, 0, 1, 0, 0, 0, 0, 0, 0]
    return SamplingTable(rng.dirichlet(np.ones(7)), p / p.sum(1, keepdims=True))


@pytest.mark.parametrize("length", [1, 13, 127, 700, 10**6])
@pytest.mark.parametrize("batch_size", [1, 2, 7, 8, 9, 33])
def test_the_counts_are_those_of_torch(batch_size: int, length: int) -> None:
    """Short walks, walks beside rejections in one vector, rejections alone; vectors across steps and seeds."""
    steps = np.arange(3, 3 + 200 // batch_size)
    cls, counts = sampling.sample(table(), SEEDS, steps, batch_size, length)
    places = torch.from_numpy(SEEDS), torch.from_numpy(steps)
    expected = sample_classes(table(), *places, batch_size)
    assert_array_equal(cls, expected)
    assert_array_equal(counts, sample_counts(table(), expected, *places, length).float())
    assert (counts.sum(-1) == length).all()


@pytest.mark.parametrize("columns", [1, 5, 8, 17])
def test_the_uniforms_are_those_of_torch(columns: int) -> None:
    steps, majors, minors = np.array([0, 2**31]), np.array([4, 2**32 - 1, 0]), np.arange(columns) * 1000
    u, v = sampling.uniforms(SEEDS, Purpose.INIT_Z, steps, majors, minors)
    seed, step, major, minor = (torch.from_numpy(a) for a in (SEEDS, steps, majors, minors))
    expected = uniforms(seed[:, None, None, None], Purpose.INIT_Z, step[:, None, None], major[:, None], minor)
    assert_array_equal(u, expected[0])
    assert_array_equal(v, expected[1])
