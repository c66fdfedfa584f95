"""The examples of the doors: each is run as a user runs it, and says what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def said(tmp_path):
    def run(name: str) -> str:
        done = subprocess.run([sys.executable, EXAMPLES / name], cwd=tmp_path, capture_output=True, text=True,
                              check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert list(tmp_path.iterdir()) == []
        return done.stdout

    return run


def test_own_optimizer(said) -> None:
    numbers = [[float(n) for n in re.findall(r"\d+\.\d+", line)] for line in said("own_optimizer.py").splitlines()]
    assert len(numbers) == 3
    for loss, after, *_ in numbers:
        assert after < loss
    assert numbers[0] != numbers[1] != numbers[2]


def test_own_module(said) -> None:
    loss, difference = said("own_module.py").splitlines()
    before, after = map(float, re.findall(r"\d+\.\d+", loss))
    assert after < before
    assert float(difference.rsplit(" ", 1)[1]) < 1e-10


def test_own_data(said) -> None:
    *_, same, loss = said("own_data.py").splitlines()
    assert same == "seed 1 alone gives the same data: True"
    before, after, entropy = map(float, re.findall(r"\d+\.\d+", loss))
    assert before > 2 * entropy
    assert entropy - 0.02 < after < entropy + 0.05
