"""By how much Theorems 2(a), 3 and 4 fail, and whether the decoder's memory predicts it.

Measured is what their claims measure on the exact flow; predicted is what the same claims measure on the path of
attention that the memory equation, or the linear response, gives. R² is about the line y = x, not about a fitted one:
1 − Σ(measured − predicted)²/Σ(measured − mean)². No parameter is fitted.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.checks.arrays import FloatArray
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.studies.validity.measured import THEOREMS
from scansnap.paper.studies.validity.predicted import WRONG
from scansnap.paper.studies.validity.settings import GENERAL
from scansnap.paper.studies.validity.study import described, noted
from scansnap.paper.studies.validity.sweep import swept
from scansnap.paper.style import SERIES, styled
from scansnap.progress import Progress

TITLE = "The theorems' deviations, predicted by the memory"
CAPTION = (
    "For every setting of both maps, by how much a theorem of the paper is off up to 10 t₀: on the exact flow, and as "
    "predicted by the memory of the decoder with nothing fitted. Blue: every assumption of the paper is met; R² is of "
    "these, about the line y = x. Orange: the same settings with the drive alone, without the memory. Grey: other "
    "settings of the maps, pale where the linear response does not trust itself."
)
STATEMENTS = {"2a": "Theorem 2(a): ż/f² equal", "3": "Theorem 3: r = r(0)χ", "4": "Theorem 4: B_n"}
PREDICTED = ("memory", "response", "wrong", "no_memory")
CONTROLS = {"wrong": f"η_Z/η_Y {WRONG:g} times too large", "no_memory": "the drive alone"}
CLOSE = 0.1  # of the measured deviation: predicted is the same
LOST = 10.0  # a control leaves this many times more unexplained, "≫" being a factor of ten throughout
UNTIL = 10  # in t₀: the claims look no further


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """A row is a theorem in a setting."""
    table = by_theorem(swept(effort, progress))
    told = {name: explained(table, name) for name in THEOREMS}
    return Computed(table, {**described(effort), "r_squared": told}, findings(table), noted(effort))


def by_theorem(rows: pd.DataFrame) -> pd.DataFrame:
    kept = ["part", "classes", "ratio", "vocab_size", "n_classes", "overlap", "assumptions_met", "trusted_until"]
    parts = [
        rows[kept].assign(theorem=name, **{by: rows[f"{name}_{by}"] for by in ("measured", *PREDICTED)})
        for name in THEOREMS
    ]
    return pd.concat(parts, ignore_index=True)


@np.errstate(all="ignore")
def r_squared(measured: FloatArray, predicted: FloatArray) -> float:
    """About the line y = x: 1 is exact, 0 as good as the mean of what was measured, −∞ what is not a number."""
    left = np.sum((measured - predicted) ** 2) / np.sum((measured - measured.mean()) ** 2)
    return float(1 - left) if np.isfinite(left) else -np.inf


def explained(table: pd.DataFrame, theorem: str) -> dict[str, float]:
    """R² by prediction where the theorem's assumptions are met, of the deviations and of their logarithms; the memory's
    on both maps as well."""
    rows = table[table.theorem == theorem]
    met, maps = rows[rows.assumptions_met], rows[rows.part != GENERAL]
    found = {}
    for by in PREDICTED:
        found[by] = r_squared(met.measured.to_numpy(), met[by].to_numpy())
        with np.errstate(all="ignore"):
            found[f"{by}_log"] = r_squared(np.log(met.measured.to_numpy()), np.log(met[by].to_numpy()))
    found["memory_maps"] = r_squared(maps.measured.to_numpy(), maps.memory.to_numpy())
    with np.errstate(all="ignore"):
        found["memory_maps_log"] = r_squared(np.log(maps.measured.to_numpy()), np.log(maps.memory.to_numpy()))
    return found


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Each theorem by the memory, the controls, and what the response predicts elsewhere."""
    met = table[table.assumptions_met]
    r2 = {name: explained(table, name) for name in THEOREMS}
    found = []
    for name in THEOREMS:
        rows, of = met[met.theorem == name], r2[name]
        close = _close(rows.measured, rows.memory)
        lines = "; ".join(f"{words} {of[by]:.2g}" for by, words in CONTROLS.items())
        found.append(Finding(
            f"Where its assumptions are met {STATEMENTS[name].partition(':')[0]} fails by what the memory predicts, to "
            f"{CLOSE:.0%} of it", "Ours", int(close.sum()), len(rows), "settings",
            f"R² about y = x, nothing fitted: {of['memory']:.4f} (of logarithms {of['memory_log']:.4f}), deviations "
            f"{rows.measured.min():.2g} to {rows.measured.max():.2g}; by the response {of['response']:.4f}; {lines}. "
            f"On both maps, assumptions or not: {of['memory_maps']:.3f} ({of['memory_maps_log']:.3f}).",
        ))  # fmt: skip
    lost = {(name, by): 1 - r2[name][by] >= LOST * (1 - r2[name]["memory"]) for name in THEOREMS for by in CONTROLS}
    found.append(Finding(
        "Without the memory, or with a wrong one, the prediction is lost", "Control", sum(lost.values()), len(lost),
        "predictions", f"Counted where 1 − R² is at least {LOST:g} times the memory's.",
    ))  # fmt: skip
    beyond = table[~table.assumptions_met & (table.trusted_until > UNTIL)]
    for says, rows in (
        ("Where they are not met the response predicts the deviations, as long as it trusts itself",
         beyond[beyond.part != GENERAL]),
        ("So it does with several common tokens and queries", beyond[beyond.part == GENERAL]),
    ):  # fmt: skip
        close = _close(rows.measured, rows.response)
        each = ", ".join(f"{STATEMENTS[name].partition(':')[0]} {int(close[rows.theorem == name].sum())} of "
                         f"{int((rows.theorem == name).sum())}" for name in THEOREMS)  # fmt: skip
        found.append(Finding(f"{says}, to {CLOSE:.0%}", "Ours", int(close.sum()), len(rows), "theorems and settings",
                             f"{each}."))  # fmt: skip
    return tuple(found)


def _close(measured: pd.Series, predicted: pd.Series) -> pd.Series:
    return (predicted - measured).abs() <= CLOSE * measured.abs()


def draw(computed: Computed) -> Figure:
    """A panel for each theorem: predicted against measured, and the line on which they are equal."""
    table = computed.table[computed.table.part != GENERAL]
    with styled(10.4, 3.9) as figure:
        for ax, name in zip(figure.subplots(1, len(THEOREMS)), THEOREMS, strict=True):
            rows = table[table.theorem == name]
            met, sure = rows.assumptions_met, rows.trusted_until > UNTIL
            groups = (
                (rows[~met & ~sure], "memory", {"color": "0.85", "label": "assumptions not met, not trusted"}),
                (rows[~met & sure], "memory", {"color": "0.6", "label": "assumptions not met"}),
                (rows[met], "no_memory", {"color": SERIES[1], "marker": "x", "label": "the drive alone"}),
                (rows[met], "memory", {"color": SERIES[0], "label": "memory, assumptions met"}),
            )
            low, high = rows.measured.min() / 2, rows.measured.max() * 2
            for part, by, style in groups:
                at = part[by].clip(low, high)  # what is beyond lies on the edge
                ax.plot(at, part.measured, **{"linestyle": "none", "marker": "o", "markersize": 3.2, **style})
            ax.plot([low, high], [low, high], color="black", linewidth=0.9, zorder=0)
            of = explained(computed.table, name)
            text = f"R² = {of['memory']:.4f}\nlogarithms {of['memory_log']:.4f}\ndrive alone {of['no_memory']:.2g}"
            ax.text(0.04, 0.96, text, transform=ax.transAxes, va="top", fontsize=8)
            ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), title=STATEMENTS[name],
                   xlabel="predicted deviation", ylabel="measured deviation")  # fmt: skip
        handles, labels = ax.get_legend_handles_labels()
        ax.legend(handles[::-1], labels[::-1], loc="lower right", fontsize=7)
    return figure
