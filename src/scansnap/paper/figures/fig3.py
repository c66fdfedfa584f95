"""Figure 3: the growth factor χ_l(t) at fixed η_Z for several η_Y (Theorems 3 and 4)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.points import Points
from scansnap.paper.shared.growth_curves import POINTS, curves, integration_agrees
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress

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
