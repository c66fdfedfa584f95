"""The T → ∞ population flow and the frozen decoder's, integrated far past the snap."""

from scansnap.dynamics.flow.integrate import flow

__all__ = ["flow"]
