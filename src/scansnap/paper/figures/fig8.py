"""Figure 8: h by its step-wise recursion against the continuous-time closed form (Lemmas 5 to 8)."""

from __future__ import annotations

import math

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
    "(lines). Right: their difference over long times, in units of one first step η_Y/M, and the leading order of its "
    "modified equation (dashed). Both are formulas; nothing is trained."
)

PANELS = ((50, (0.1, 0.2, 0.5, 1.0, 2.0)), (1000, (0.2, 0.5, 1.0, 2.0, 4.0)))  # M, η_Y
STEPS, LAST, QUICK_LAST = 100, 100_000, 10_000  # all steps up to STEPS, and PER_DECADE a decade up to the last
PER_DECADE = 20
VANISHES = -1 / 2  # d ln gap/d ln s over the last decade, at most; of a gap that stays it is 0


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """A row for each vocabulary, rate and step."""
    parts, last = [], QUICK_LAST if effort.quick else LAST
    later = np.geomspace(STEPS, last, round(PER_DECADE * math.log10(last / STEPS)) + 1).round().astype(int)
    s = np.unique([*range(STEPS + 1), *later])
    sizes, rates = (
        np.array(column) for column in zip(*((m, eta_y) for m, etas in PANELS for eta_y in etas), strict=True)
    )
    stepped = h_recursion(last, eta_y=rates, vocab_size=sizes)[s]  # (step, curve)
    for i, (vocab_size, eta_y) in enumerate(zip(sizes.tolist(), rates.tolist(), strict=True)):
        parts.append(pd.DataFrame({"vocab_size": vocab_size, "eta_y": eta_y, "s": s, "h_recursion": stepped[:, i],
                                   "h": h(s, eta_y=eta_y, vocab_size=vocab_size)}))  # fmt: skip
    table = pd.concat(parts, ignore_index=True)
    settings = {"vocab_size": [m for m, _ in PANELS], "eta_y": [list(etas) for _, etas in PANELS], "steps": last}
    return Computed(table, settings, findings(table), f"quick: to step {last:,}" if effort.quick else "")


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Lemma 7 bounds the difference for η_Y < 1; larger rates are outside the lemma."""
    gap = (table.h_recursion - table.h).groupby([table.vocab_size, table.eta_y]).agg(["min", "max"]).reset_index()
    gap["bound"] = 2 * gap.eta_y / gap.vocab_size
    gap["inside"] = (gap["min"] >= -1e-15) & (gap["max"] <= gap.bound)
    inside, outside = gap[gap.eta_y < 1], gap[gap.eta_y >= 1]

    def worst(part: pd.DataFrame) -> str:
        return f"Largest difference {(part['max'] / part.bound).max():.2f} of the bound."

    slope = (
        table[table.s >= table.s.max() / 10].groupby(["vocab_size", "eta_y"]).apply(_slope).reset_index(name="slope")
    )
    final = (table.h_recursion - table.h)[table.s == table.s.max()]
    return (
        Finding("0 ≤ recursion − closed form ≤ 2η_Y/M for η_Y < 1", "Lemma 7", int(inside.inside.sum()), len(inside),
                "curves", worst(inside), kind="formula", points=_points(inside, inside["max"] / inside.bound)),
        Finding("The same bound for η_Y ≥ 1, which the lemma leaves out", "ours", int(outside.inside.sum()),
                len(outside), "curves", worst(outside), kind="formula",
                points=_points(outside, outside["max"] / outside.bound)),
        Finding("The difference goes to zero", "Figure 8, Lemma 7", int((slope.slope < VANISHES).sum()), len(slope),
                "curves", f"Counted where its slope d ln/d ln s over the last decade is below −½: "
                f"−{-slope.slope.min():.3f} to −{-slope.slope.max():.3f} at s up to {table.s.max():,}, as of ln s/s. "
                f"The largest there is {final.max():.1e}.", kind="formula", points=_points(slope, slope.slope)),
    )  # fmt: skip


def _slope(curve: pd.DataFrame) -> float:
    """d ln(recursion − closed form)/d ln s; NaN, which never counts, where they cross."""
    gap = curve.h_recursion - curve.h
    return float(np.polyfit(np.log(curve.s), np.log(gap), 1)[0]) if (gap > 0).all() else math.nan


def _points(curves: pd.DataFrame, values: pd.Series) -> Points:
    cases = tuple(f"M = {m}, η_Y = {eta_y:g}" for m, eta_y in zip(curves.vocab_size, curves.eta_y, strict=True))
    return Points.without_noise(values, cases)


def draw(computed: Computed) -> Figure:
    """Steps for the recursion, thin black lines for the closed form; on the right their difference."""
    with styled(9.6, 3.0) as figure:
        *left, right = figure.subplots(1, len(PANELS) + 1)
        for ax, style, (vocab_size, panel) in zip(left, ("-", ":"), computed.table.groupby("vocab_size"), strict=True):
            for colour, (eta_y, curve) in zip(SERIES, panel.groupby("eta_y"), strict=False):
                later = curve[curve.s > 0]
                gap = (later.h_recursion - later.h) * vocab_size / eta_y
                right.plot(later.s, gap, color=colour, linestyle=style, linewidth=1.6)
                y = (vocab_size - 1 + np.exp(vocab_size * later.h)) / vocab_size
                right.plot(later.s, np.log(y) / (2 * y), color="black", linewidth=0.6, linestyle="--")
                curve = curve[curve.s <= STEPS]
                label = rf"$\eta_Y$ = {eta_y:g}"
                ax.step(curve.s, curve.h_recursion, where="post", color=colour, label=label, linewidth=1.8, alpha=0.7)
                ax.plot(curve.s, curve.h, color="black", linewidth=0.8, linestyle="--")
            ax.set(title=f"M = {vocab_size}", xlabel="s", ylabel="h(s)", xlim=(0, STEPS), ylim=(0, None))
            ax.legend(loc="lower right", fontsize=7)
        right.set(xscale="log", yscale="log", xlabel="s", title="difference, in first steps",
                  ylabel=r"$(h^* - h)\,M/\eta_Y$")  # fmt: skip
        right.plot([], [], color="0.4", label=f"M = {PANELS[0][0]}")
        right.plot([], [], color="0.4", linestyle=":", label=f"M = {PANELS[1][0]}")
        right.legend(loc="lower left", fontsize=7)
    return figure
