"""Time windows: the times of a run at which statements are judged. Every statement has one of two windows.

The theorems are about training up to and past the transition at t₀, so all windows end at 10 t₀ ("≫" means a factor of
10 throughout), however long the record is.

"t ≫ K²" (Theorem 1) concerns sampled classes, each of which must have been drawn about t/K times, for which t ≫ K ln K
is enough; expected gradients and the flow do not need it. For sampled classes a window begins at 10 K², where the paper
speaks, or at 10 K ln K if the run ends before that. The assumption "many steps" is about its end
(`Evidence.assumptions`). A run shorter than that is judged at its last time; the claim is then not applicable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scansnap.claims.assumptions import MUCH, steps_needed

if TYPE_CHECKING:
    from scansnap.claims.evidence import Array, Evidence

WINDOW_END = MUCH  # in t₀
_FIRST_STEP = MUCH  # a sum over steps differs from its integral by a share of 1/t


@dataclass(frozen=True)
class TimeWindow:
    """From ``first`` t₀′ (0: from the first time after 0) to 10 t₀."""

    first: float

    def select(self, evidence: Evidence) -> Array:
        """Indices of the recorded times inside the window."""
        inside = np.flatnonzero((evidence.t > 0) & (evidence.t <= WINDOW_END * evidence.t_snap))
        inside = inside[evidence.t[inside] >= self._start(evidence)]
        if not evidence.sampled:
            return inside
        for _, least in self._draws(evidence):
            if len(late := inside[evidence.t[inside] >= least]):
                return late
        return inside[-1:]

    def describe(self, evidence: Evidence) -> str:
        """The window of this run as text."""
        low = f"{self.first:g} t₀′ ≤ t" if self.first else "0 < t"
        if self.first and evidence.source == "sgd" and self.first * evidence.t_scan < _FIRST_STEP:
            low = f"{_FIRST_STEP:g} ≤ t"
        if evidence.sampled:
            end = min(float(evidence.t[-1]), WINDOW_END * evidence.t_snap)
            name, least = next((draws for draws in self._draws(evidence) if draws[1] <= end), self._draws(evidence)[-1])
            low = f"{name} ≤ t" if least > self._start(evidence) else low
        return f"{low} ≤ {WINDOW_END:g} t₀"

    @staticmethod
    def _draws(evidence: Evidence) -> tuple[tuple[str, float], ...]:
        """Numbers of steps after which each class has been drawn often, the preferred one first."""
        k = evidence.classes.n_classes
        return (f"{MUCH:g} K²", MUCH * k**2), (f"{MUCH:g} K ln K", MUCH * steps_needed(k))

    def _start(self, evidence: Evidence) -> float:
        if not self.first:
            return 0.0
        start = self.first * evidence.t_scan
        return start if evidence.source == "flow" else max(start, _FIRST_STEP)


# Statements about every moment: Theorem 1 but for γ, Lemma 4, Theorems 2 and 3.
TRAINING = TimeWindow(0.0)
# Statements about γ and B_n through both regimes: Theorem 1(b) and Theorem 4.
TRANSITION = TimeWindow(1 / MUCH)
