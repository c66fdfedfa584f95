"""The film of a run: which steps it holds, and how it grows thinner instead of larger."""

from __future__ import annotations

import numpy as np

EVERY_UNTIL = 50  # a frame at every step so far, then at every 2%


class Film:
    """Vectors by step, thinned evenly in log step when they outgrow their bytes; first and last always stay."""

    def __init__(self, most_bytes: float) -> None:
        self.most_bytes = most_bytes
        self.steps: list[int] = []
        self.rows: list[np.ndarray] = []
        self._ratio = 1 / EVERY_UNTIL / 2

    def add(self, step: int, row: np.ndarray) -> None:
        if self.steps and self.steps[-1] >= step:
            return
        self.steps.append(step)
        self.rows.append(row)
        while len(self.rows) * row.nbytes > self.most_bytes and len(self.rows) > 4:
            self._thin()

    def _thin(self) -> None:
        self._ratio *= 1.3
        kept = [0]
        for i in range(1, len(self.steps) - 1):
            if self.steps[i] >= self.steps[kept[-1]] * (1 + self._ratio) + 0.5:
                kept.append(i)
        kept.append(len(self.steps) - 1)
        self.steps = [self.steps[i] for i in kept]
        self.rows = [self.rows[i] for i in kept]

    def after(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Steps (n,) and values (n, floats) of the frames later than ``step``."""
        first = int(np.searchsorted(self.steps, step, side="right"))
        width = len(self.rows[0]) if self.rows else 0
        rows = np.array(self.rows[first:]).reshape(-1, width)
        return np.array(self.steps[first:], dtype=np.uint32), rows


def next_scheduled(step: int) -> int:
    """The first step after ``step`` whose frame every film holds, however fast the run is."""
    if step < EVERY_UNTIL:
        return step + 1
    at = EVERY_UNTIL
    while at <= step:
        at = max(at + 1, -(-at * 51 // 50))
    return at
