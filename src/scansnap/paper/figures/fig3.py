"""Figure 3: the growth factor χ_l(t) at fixed η_Z for several η_Y (Theorems 3 and 4).

Figures 3 and 9 draw the closed form of B_n(t) and compare it with a numerical integration of its premise.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp

from scansnap.paper.figure import Computed, Effort, Finding, Points
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress
from scansnap.theory import gamma, growth, t_snap

TITLE = "Growth factor over time, η_Z fixed"
CAPTION = (
    "The growth factor χ_l of the dominant token, at its upper bound e^{2B}: a smaller η_Y means a later transition "
    "(dotted, t₀) and a larger growth factor, hence sparser attention. Drawn from the formula, without runs. The paper "
    "does not state C₀ = ρ₀⁴/K; ρ₀ = ½ gives its vertical axis."
)

ETA_Y, ETA_Z = (0.5, 1.0, 2.0, 5.0), 0.5
N_CLASSES, VOCAB_SIZE, RHO_0, T_END = 10, 1000, 0.5, 700.0


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """The closed form on a grid of times, and the same by integration."""
    c0 = RHO_0**4 / N_CLASSES
    times = np.linspace(0, T_END, POINTS)
    table = curves(times, [(y, ETA_Z) for y in ETA_Y], n_classes=N_CLASSES, vocab_size=VOCAB_SIZE, c0=c0)
    table["chi"] = np.exp(2 * table.growth)
    settings = {"eta_y": list(ETA_Y), "eta_z": ETA_Z, "n_classes": N_CLASSES, "vocab_size": VOCAB_SIZE,
                "rho_0": RHO_0, "c0": c0, "t_end": T_END}  # fmt: skip
    return Computed(table, settings, (*findings(table), integration_agrees(table)))


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """What Section 6 says about the curves, for each pair of neighbouring η_Y."""
    by_rate = {float(eta_y): part for eta_y, part in table.groupby("eta_y")}
    rates = sorted(by_rate)
    bends = [bend(by_rate[eta_y]) for eta_y in rates]
    ends = [float(by_rate[eta_y].chi.iloc[-1]) for eta_y in rates]
    pairs = len(rates) - 1
    later = sum(a > b for a, b in pairwise(bends) if np.isfinite(a))  # a curve that never bends has no transition
    larger = sum(a > b for a, b in pairwise(ends) if np.isfinite(a))
    in_t0 = [b / by_rate[r].t_snap.iloc[0] for b, r in zip(bends, rates, strict=True)]
    near = sum(0.5 <= b <= 1 for b in in_t0)
    cases = tuple(f"η_Y = {r:g}" for r in rates)
    shown = ", ".join(f"{b:.0f}" for b in bends)
    return (
        Finding("A smaller η_Y gives a later transition", "Section 6", later, pairs, "neighbouring rates",
                f"χ slows to half its top speed at t = {shown} for η_Y = {', '.join(f'{r:g}' for r in rates)}.",
                kind="formula", points=Points.without_noise(bends, cases)),
        Finding("A smaller η_Y gives a larger growth factor after the transition", "Section 6", larger, pairs,
                "neighbouring rates", f"χ({T_END:g}) = {', '.join(f'{e:.0f}' for e in ends)}.", kind="formula",
                points=Points.without_noise(ends, cases)),
        Finding("t₀ marks the transition: χ slows down between t₀/2 and t₀", "Theorem 4", near, len(rates), "curves",
                kind="formula", points=Points.without_noise(in_t0, cases)),
    )  # fmt: skip


def bend(curve: pd.DataFrame) -> float:
    """When χ has slowed to half of its largest speed."""
    t, speed = curve.t.to_numpy(), np.gradient(curve.chi.to_numpy(), curve.t.to_numpy())
    top = int(np.argmax(speed))
    slow = np.flatnonzero(speed[top:] <= speed[top] / 2)
    return float(t[top + slow[0]]) if len(slow) else np.inf


def draw(computed: Computed) -> Figure:
    """One line for each η_Y, with its t₀ dotted."""
    with styled(5.2, 3.5) as figure:
        ax = figure.subplots()
        for colour, (eta_y, curve) in zip(SERIES, computed.table.groupby("eta_y"), strict=False):
            ax.plot(curve.t, curve.chi, color=colour, label=rf"$\eta_Y$ = {eta_y:g}")
            ax.axvline(curve.t_snap.iloc[0], color=colour, linestyle=":")
        s = computed.settings
        ax.set(xlabel="t", ylabel=r"growth factor  $\chi_{l}(t)$", xlim=(0, T_END), ylim=(0, None),
               title=rf"$\eta_Z$ = {s['eta_z']:g},  K = {s['n_classes']},  M = {s['vocab_size']}")  # fmt: skip
        ax.legend(title="dotted: $t_0$", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


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
