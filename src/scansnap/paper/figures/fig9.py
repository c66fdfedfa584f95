"""Figure 9: the growth exponent B_n(t) with η_Y/η_Z fixed: its value at t₀ does not depend on the rates."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort, Finding, Points
from scansnap.paper.figures.fig3 import POINTS, curves, integration_agrees
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress
from scansnap.theory import growth

TITLE = "Growth exponent, ratio of the rates fixed"
CAPTION = (
    "B_n(t) for several η_Z with η_Y/η_Z fixed: larger rates snap earlier (dotted, t₀), at the same B_n(t₀) (dots); "
    "from there on the larger rate is ahead, so attention is sparser. Drawn from the formula, without runs."
)

ETA_Z = (0.5, 1.0, 2.0, 4.0, 8.0)
PANELS = ((10.0, 100, 5.0), (1.0, 10_000, 50.0))  # ratio, vocabulary, end of the time axis
N_CLASSES, C0 = 1, 1.0
SAME = 1e-9  # relative spread below which values at t₀ are equal


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Both panels; a row is a time on a curve."""
    parts = []
    for ratio, vocab_size, t_end in PANELS:
        part = curves(np.linspace(0, t_end, POINTS), [(ratio * z, z) for z in ETA_Z], n_classes=N_CLASSES,
                      vocab_size=vocab_size, c0=C0)  # fmt: skip
        rates = part.t_snap, part.eta_y, part.eta_z
        part["growth_at_t_snap"] = [
            growth(t, eta_y=y, eta_z=z, n_classes=N_CLASSES, vocab_size=vocab_size, c0=C0)
            for t, y, z in zip(*rates, strict=True)
        ]
        part.insert(0, "ratio", ratio)
        parts.append(part)
    table = pd.concat(parts, ignore_index=True)
    settings = {"eta_z": list(ETA_Z), "ratio": [p[0] for p in PANELS], "vocab_size": [p[1] for p in PANELS],
                "n_classes": N_CLASSES, "c0": C0}  # fmt: skip
    return Computed(table, settings, (*findings(table), integration_agrees(table)))


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Equal at t₀; ordered by η_Z at the end."""
    apart: dict[str, float] = {}  # B_n(t₀) over that of the panel's first curve
    rises: dict[str, float] = {}  # of the final B_n, from one η_Z to the next
    spread = 0.0
    for ratio, panel in table.groupby("ratio"):
        curves_ = panel.groupby("eta_z")
        at_snap, last = curves_.growth_at_t_snap.first(), curves_.growth.last()
        spread = max(spread, float((at_snap.max() - at_snap.min()) / at_snap.mean()))
        apart |= {f"ratio {ratio:g}, η_Z = {eta_z:g}": b for eta_z, b in (at_snap / at_snap.iloc[0]).items()}
        rises |= {f"ratio {ratio:g}, η_Z = {a:g} to {b:g}": last[b] - last[a] for a, b in pairwise(last.index)}
    equal = sum(abs(b - 1) <= SAME for b in apart.values())
    ordered = sum(rise > 0 for rise in rises.values())
    return (
        Finding("B_n(t₀) depends on the ratio of the rates only", "Appendix F", equal, len(apart), "curves",
                f"Algebra: t₀ ∝ 1/η_Y cancels η_Y. Relative spread {spread:.0e}.", kind="formula",
                points=Points.without_noise(list(apart.values()), tuple(apart))),
        Finding("With the ratio fixed, a larger η_Z ends with a larger B_n", "Appendix F", ordered, len(rises),
                "neighbouring rates", kind="formula",
                points=Points.without_noise(list(rises.values()), tuple(rises))),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """One panel for each ratio."""
    with styled(7.2, 2.9) as figure:
        panels = list(computed.table.groupby("ratio", sort=False))
        for ax, (ratio, panel) in zip(figure.subplots(1, len(panels)), panels, strict=True):
            for colour, (eta_z, curve) in zip(SERIES, panel.groupby("eta_z"), strict=False):
                eta_y, t_0 = curve.eta_y.iloc[0], curve.t_snap.iloc[0]
                label = rf"$\eta_Z$ = {eta_z:g}, $\eta_Y$ = {eta_y:g}"
                ax.plot(curve.t, curve.growth, color=colour, label=label)
                ax.axvline(t_0, color=colour, linestyle=":", linewidth=1)
                ax.plot(t_0, curve.growth_at_t_snap.iloc[0], "o", color=colour, markersize=4)
            ax.set(title=rf"$\eta_Y/\eta_Z$ = {ratio:g},  M = {panel.vocab_size.iloc[0]}", xlabel="t",
                   ylabel=r"$B_n(t)$", xlim=(0, panel.t.max()), ylim=(0, None))  # fmt: skip
            ax.legend(loc="lower right", fontsize=7, frameon=True, framealpha=1, edgecolor="none")
    return figure
