"""Make the golden trajectories again: ``python tests/golden/make.py`` rewrites the files beside it.

Small, seeded, float64. They pin what the code computes: a refactor must reproduce them, and a change that is meant
to alter numbers must say so by changing them. The engine is the general one (plain torch), so that what decides is
the mathematics and not the order of sums in a kernel.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

import scansnap as ss

FOLDER = Path(__file__).parent
DIGITS = 15  # significant; the comparison allows for the last few

RATES = ss.grid(eta_z=[0.5, 2.0], ratio=[1.0, 5.0], seed=[0, 1])
TINY = {"n_queries": 2, "next_per_query": 2, "common": 2, "common_weight": 1.0, "distinct": 2,
        "distinct_weights": [0.5, 1.0]}  # fmt: skip

SIMULATIONS: dict[str, dict[str, Any]] = {
    "sgd": {"momentum": 0.9, "init": "uniform"},
    "adam": {"optimizer": "adam", "init": "zero"},
    "tokens": {"sampling": "tokens", "position_bias": 0.1, "init": "uniform"},
    "infinite": {"context": math.inf, "batch_size": None, "init": "zero"},
    "residual": {"residual": "normed", "query_in_keys": True, "heads": 2, "init": "uniform"},
}


def simulation(name: str) -> dict[str, list[float]]:
    """Entropy, loss and logits of a few runs of one setting."""
    classes = ss.SequenceClasses.synthetic(**TINY)
    options = {"batch_size": 16, "context": 16, "momentum": 0.0, **SIMULATIONS[name]}
    data = ss.simulate(classes, RATES, steps=12, record=[0, 3, 12], dtype="float64", device="cpu", engine="general",
                       **options)  # fmt: skip
    last = data.isel(step=-1, run=[0, 5])
    return {
        "loss": _numbers(data.loss),
        "entropy": _numbers(data.entropy.mean("seq_class")),
        "z": _numbers(last.z.sel(token=classes.support(0)[0])),
        "attention": _numbers(last.attention.isel(seq_class=0).sel(token=classes.support(0)[0])),
    }


def flow() -> dict[str, list[float]]:
    """The exact flow of Syn-Small, past the snap."""
    data = ss.flow(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=0.2, t=[1, 30, 1000], rtol=1e-12, device="cpu")
    return {"loss": _numbers(data.loss), "entropy": _numbers(data.entropy), "z": _numbers(data.z.isel(query=0))}


def theory() -> dict[str, list[float]]:
    """The closed forms."""
    t = np.array([0.1, 10.0, 1e3, 1e6])
    size = {"eta_y": 0.7, "n_classes": 10, "vocab_size": 1000}
    return {
        "h": _numbers(ss.theory.h(t, eta_y=0.7, vocab_size=1000)),
        "gamma": _numbers(ss.theory.gamma(t, **size)),
        "growth": _numbers(ss.theory.growth(t, eta_z=0.3, c0=0.5, **size)),
        "t": _numbers([ss.theory.t_scan(**size), ss.theory.t_snap(**size)]),
    }


def everything() -> dict[str, dict[str, list[float]]]:
    """All of it by file name."""
    return {**{name: simulation(name) for name in SIMULATIONS}, "flow": flow(), "theory": theory()}


def _numbers(values: Any) -> list[float]:
    return [float(f"{x:.{DIGITS}g}") for x in np.asarray(values, dtype=float).ravel()]


if __name__ == "__main__":
    for name, numbers in everything().items():
        (FOLDER / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
        print(f"{name}.json: {sum(map(len, numbers.values()))} numbers")
