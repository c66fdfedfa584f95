"""B_n(t) of Theorem 4 twice: the closed form, and its premise integrated numerically; for Figures 3 and 9."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp

from scansnap.paper.figure import Finding
from scansnap.paper.points import Points
from scansnap.theory import gamma, growth, t_snap

POINTS = 281  # along each curve
TOLERANCE = 1e-6  # of the integration against the closed form; the integrator works at 1e-10


def curves(t: np.ndarray, etas: list[tuple[float, float]], *, n_classes: int, vocab_size: int,
           c0: float) -> pd.DataFrame:  # fmt: skip
    """One row for each pair (η_Y, η_Z) and time, with ``t_snap`` of its curve."""
    parts = []
    for eta_y, eta_z in etas:
        size: dict[str, Any] = {"eta_y": eta_y, "n_classes": n_classes, "vocab_size": vocab_size}
        closed = growth(t, eta_z=eta_z, c0=c0, **size)
        stepped = integrate(t, eta_z=eta_z, c0=c0, **size)
        parts.append(pd.DataFrame({"vocab_size": vocab_size, "eta_y": eta_y, "eta_z": eta_z, "t": t, "growth": closed,
                                   "growth_integrated": stepped, "t_snap": t_snap(**size)}))  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def integrate(t: np.ndarray, *, eta_y: float, eta_z: float, n_classes: int, vocab_size: int, c0: float) -> np.ndarray:
    """B_n from the premise of Theorem 4 itself: ż = −(η_Z/C₀) γ(t) e^{4z} for the common token, and Ḃ = −ż."""

    def slope(now: float, z: np.ndarray) -> np.ndarray:
        speed = gamma(now, eta_y=eta_y, n_classes=n_classes, vocab_size=vocab_size)
        return -eta_z / c0 * speed * np.exp(4 * z)

    return -solve_ivp(slope, (0.0, t[-1]), [0.0], method="DOP853", t_eval=t, rtol=1e-10, atol=1e-12).y[0]


def integration_agrees(table: pd.DataFrame) -> Finding:
    """Whether the closed form solves its own premise, curve by curve."""
    gap = (table.growth - table.growth_integrated).abs().groupby([table.vocab_size, table.eta_y, table.eta_z]).max()
    good = int((gap <= TOLERANCE).sum())
    return Finding("The closed form B = ¼ ln(1 + 4Γ/C₀) solves the premise of Theorem 4", "Theorem 4", good, len(gap),
                   "curves", f"Largest difference from numerical integration {gap.max():.1e}.",
                   kind="formula", points=Points.without_noise(gap))  # fmt: skip
