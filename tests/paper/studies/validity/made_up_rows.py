"""Rows as the sweep has them, made up: a map on which all is as it should be, to be broken by the tests."""

from __future__ import annotations

import numpy as np
import pandas as pd

from scansnap.paper.studies.validity.measured import GENERAL, MOMENTS, THEOREMS


def sound_rows() -> pd.DataFrame:
    """Both maps of 3 × 3 and two general settings. The response is off by 0.1% per t₀^½, and the paper by half; each
    deviation is predicted to 1% by the memory, and not by the controls."""
    rows = []
    for part, across in (("ratio", (1.0, 30.0, 1000.0)), ("vocab_size", (20, 500, 10_000))):
        for overlap in (0.05, 0.3, 0.8):
            for x in across:
                met = overlap == 0.3 and x >= 30 and x != 500
                rows.append(_row(part, x, overlap, met))
    rows += [_row(GENERAL, ratio, 0.7, met=False) for ratio in (30.0, 300.0)]
    return pd.DataFrame(rows)


def _row(part: str, x: float, overlap: float, met: bool) -> dict:
    ratio, m = (50.0, x) if part == "vocab_size" else (x, 2000)
    row = {"part": part, "classes": "syn-small" if part == GENERAL else "symmetric", "ratio": ratio, "vocab_size": m,
           "n_classes": 2, "overlap": overlap, "assumptions_met": met,
           "trusted_until": 5.0 if overlap > 0.7 else np.inf}  # fmt: skip
    for moment in MOMENTS:
        error = 1e-3 * moment**0.5 * (100 if overlap > 0.7 else 0.9)
        row |= {f"error_{moment}": error, f"estimate_{moment}": 1.1 * error,
                f"paper_{moment}": 0.05 if overlap < 0.1 else 0.5}  # fmt: skip
    for i, theorem in enumerate(THEOREMS):
        size = (i + 1) * overlap * 10 / ratio * m**0.1
        found = {"measured": size, "response": 1.01 * size, "memory": 0.99 * size, "wrong": 3 * size, "no_memory": 0.01}
        row |= {f"{theorem}_{by}": value for by, value in found.items()}
    return row
