"""The T → ∞ population flow and the frozen decoder's, integrated far past the snap."""

from scansnap.dynamics.flow.events import Crossing, EntropyBelow, FateFlip
from scansnap.dynamics.flow.integrate import flow

__all__ = ["Crossing", "EntropyBelow", "FateFlip", "flow"]
