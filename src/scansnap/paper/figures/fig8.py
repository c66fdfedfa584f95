"""Figure 8: h by its step-wise recursion against the continuous-time closed form (Lemmas 5 to 8)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort, Finding, Points
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress
from scansnap.theory import h, h_recursion

TITLE = "h step by step and in closed form"
CAPTION = (
    "h after s visits of a class: the step-wise recursion (steps) and the closed form with the Wright omega function "
    "(lines). They differ by less than one step, however long the run. Both are formulas; nothing is trained."
)

PANELS = ((50, (0.1, 0.2, 0.5, 1.0, 2.0), 100), (1000, (0.2, 0.5, 1.0, 2.0, 4.0), 100))  # M, η_Y, steps


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """A row for each vocabulary, rate and step."""
    parts = []
    for vocab_size, rates, steps in PANELS:
        s = np.arange(steps + 1)
        stepped = h_recursion(steps, eta_y=np.array(rates), vocab_size=vocab_size)  # (step, rate)
        for i, eta_y in enumerate(rates):
            parts.append(pd.DataFrame({"vocab_size": vocab_size, "eta_y": eta_y, "s": s, "h_recursion": stepped[:, i],
                                       "h": h(s, eta_y=eta_y, vocab_size=vocab_size)}))  # fmt: skip
    table = pd.concat(parts, ignore_index=True)
    settings = {"vocab_size": [p[0] for p in PANELS], "eta_y": [list(p[1]) for p in PANELS], "steps": PANELS[0][2]}
    return Computed(table, settings, findings(table))


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Lemma 7 bounds the difference for η_Y < 1; larger rates are outside the lemma."""
    gap = (table.h_recursion - table.h).groupby([table.vocab_size, table.eta_y]).agg(["min", "max"]).reset_index()
    gap["bound"] = 2 * gap.eta_y / gap.vocab_size
    gap["inside"] = (gap["min"] >= -1e-15) & (gap["max"] <= gap.bound)
    inside, outside = gap[gap.eta_y < 1], gap[gap.eta_y >= 1]

    def worst(part: pd.DataFrame) -> str:
        return f"Largest difference {(part['max'] / part.bound).max():.2f} of the bound."

    def points(part: pd.DataFrame) -> Points:
        cases = tuple(f"M = {m}, η_Y = {eta_y:g}" for m, eta_y in zip(part.vocab_size, part.eta_y, strict=True))
        return Points.without_noise(part["max"] / part.bound, cases)

    return (
        Finding("0 ≤ recursion − closed form ≤ 2η_Y/M for η_Y < 1", "Lemma 7", int(inside.inside.sum()), len(inside),
                "curves", worst(inside), kind="formula", points=points(inside)),
        Finding("The same bound for η_Y ≥ 1, which the lemma leaves out", "ours", int(outside.inside.sum()),
                len(outside), "curves", worst(outside), kind="formula", points=points(outside)),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """Steps for the recursion, thin black lines for the closed form."""
    with styled(7.2, 2.9) as figure:
        panels = list(computed.table.groupby("vocab_size"))
        for ax, (vocab_size, panel) in zip(figure.subplots(1, len(panels)), panels, strict=True):
            for colour, (eta_y, curve) in zip(SERIES, panel.groupby("eta_y"), strict=False):
                label = rf"$\eta_Y$ = {eta_y:g}"
                ax.step(curve.s, curve.h_recursion, where="post", color=colour, label=label, linewidth=1.8, alpha=0.7)
                ax.plot(curve.s, curve.h, color="black", linewidth=0.8, linestyle="--")
            ax.set(title=f"M = {vocab_size}", xlabel="s", ylabel="h(s)", xlim=(0, panel.s.max()), ylim=(0, None))
            ax.legend(loc="lower right", title="steps; dashed: closed form", fontsize=7, title_fontsize=7)
    return figure
