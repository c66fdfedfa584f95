"""Small sweeps for the tests, and how two stores are compared."""

from __future__ import annotations

import hashlib
from pathlib import Path

SMALL = """
[classes]
preset = "syn-medium"
n_queries = [1, 2]
[grid]
eta_z = [0.5, 1]
ratio = [1, 2, 5]
seed = "0:3"
[run]
steps = 6
batch_size = 16
context = 32
momentum = 0.9
init = "uniform"
record = [0, 3, 6]
variables = ["loss", "entropy", "z"]
[measure]
recall = {}
top_mass = { k = 2 }
[groups]
runs = 4
"""


def write(folder: Path, text: str = SMALL, **changes: str) -> Path:
    """A sweep file, with some words replaced."""
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    return path


def contents(store: Path) -> dict[str, str]:
    """Every file of a store with a digest of its bytes."""
    files = sorted(place for place in store.rglob("*") if place.is_file())
    return {str(place.relative_to(store)): hashlib.sha256(place.read_bytes()).hexdigest() for place in files}


def marks(store: Path) -> int:
    """How many groups are marked as done."""
    return sum(place.name.isdecimal() for place in store.glob("classes-*/done/c/*"))
