"""By how much Theorems 2(a), 3 and 4 fail, and whether the decoder's memory predicts it.

Measured is what their claims measure on the exact flow; predicted is what the same claims measure on the path of
attention that the memory equation, or the linear response, gives. R² is about the line y = x, not about a fitted one:
1 − Σ(measured − predicted)²/Σ(measured − mean)². No parameter is fitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.checks.arrays import FloatArray
from scansnap.paper.figure import Computed, Effort, Finding, Points
from scansnap.paper.studies.validity.measured import GENERAL, THEOREMS, WRONG, swept
from scansnap.paper.studies.validity.study import described, noted
from scansnap.plots.style import HEADLINE, SERIES, styled
from scansnap.progress import Progress

TITLE = "The theorems' deviations, predicted by the memory"
CAPTION = (
    "By how much a theorem of the paper is off up to 10 t₀, in every setting of both maps: on the exact flow, and as "
    "predicted with nothing fitted, above by the memory of the decoder in closed form, below by the linear response. "
    "Blue: every assumption of the paper is met; R² is of these, about the line y = x. Orange: the same settings with "
    "the drive alone, without the memory (what lies further out is drawn at the edge). Grey: other settings, pale "
    "where the response does not trust itself; triangles: several common tokens and queries."
)
STATEMENTS = {"2a": r"one $\xi_n$ per class", "3": r"$r(t) = r(0)\chi(t)$", "4": r"$B_n(t)$"}
NAMES = {"2a": "Theorem 2(a)", "3": "Theorem 3", "4": "Theorem 4"}
ROWS = {"memory": "the memory", "response": "the response"}  # of the figure
CONTROLS = {"wrong": f"η_Z/η_Y {WRONG:g} times too large", "no_memory": "the drive alone"}
CLOSE = 0.1  # of the measured deviation: predicted is the same
LOST = 10.0  # a control leaves this many times more unexplained, "≫" being a factor of ten throughout
FOURTH = 4  # place of its headline
UNTIL = 10  # in t₀: the end of all claims
MARGIN = 1.3  # room around what is drawn at the edge


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """A row is a theorem in a setting."""
    table = by_theorem(swept(effort, progress))
    scores = {NAMES[name]: explained(table, name) for name in THEOREMS}
    return Computed(table, {**described(effort), "r_squared": scores}, findings(table), noted(effort))


def by_theorem(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the sweep, one for each theorem."""
    columns = ["part", "classes", "ratio", "vocab_size", "n_classes", "overlap", "assumptions_met", "trusted_until"]
    parts = [
        rows[columns].assign(theorem=name, **{by: rows[f"{name}_{by}"] for by in ("measured", *ROWS, *CONTROLS)})
        for name in THEOREMS
    ]
    return pd.concat(parts, ignore_index=True)


@np.errstate(all="ignore")
def r_squared(measured: FloatArray, predicted: FloatArray) -> float:
    """About the line y = x: 1 is exact, 0 as good as the mean of what was measured, −∞ what is not a number."""
    left = np.sum((measured - predicted) ** 2) / np.sum((measured - measured.mean()) ** 2)
    return float(1 - left) if np.isfinite(left) else -np.inf


def explained(table: pd.DataFrame, theorem: str) -> dict[str, dict[str, float]]:
    """R² of each prediction, of the deviations and of their logarithms.

    ``met``: every assumption of the theorem is met. For the two predictions also ``trusted``, the settings of the maps
    in which the response trusts itself, and ``maps``, all of them.
    """
    rows = table[table.theorem == theorem]
    maps = rows[rows.part != GENERAL]
    among = {"met": rows[rows.assumptions_met], "trusted": maps[maps.trusted_until > UNTIL], "maps": maps}
    result: dict[str, dict[str, float]] = {}
    for by in (*ROWS, *CONTROLS):
        result[by] = {}
        for name, part in among.items():
            if name != "met" and by in CONTROLS:
                continue
            measured, predicted = part["measured"].to_numpy(), part[by].to_numpy()
            with np.errstate(all="ignore"):
                logs = r_squared(np.log(measured), np.log(predicted))
            result[by] |= {name: r_squared(measured, predicted), f"{name}_log": logs}
    return result


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Each theorem by the memory, the controls, and what the response predicts elsewhere."""
    met = table[table.assumptions_met]
    r2 = {name: explained(table, name) for name in THEOREMS}
    result = [_predicted(met[met.theorem == name], name, r2[name]) for name in THEOREMS]
    left = {(name, by): 1 - r2[name][by]["met"] for name in THEOREMS for by in CONTROLS}  # unexplained
    lost = [share >= LOST * (1 - r2[name]["memory"]["met"]) for (name, _), share in left.items()]
    ratios = "; ".join(f"{NAMES[name]}: {_times(r2[name], 'no_memory')} and {_times(r2[name], 'wrong')} times"
                     for name in THEOREMS)  # fmt: skip
    result.append(Finding(
        f"Without the memory, or with one {WRONG:g} times too strong, the prediction is lost", "Control", sum(lost),
        len(lost), "predictions", f"Counted where 1 − R² is at least {LOST:g} times the memory's. It is, for "
        f"{CONTROLS['no_memory']} and {CONTROLS['wrong']}, {ratios}.",
        points=Points.without_noise(list(left.values()), tuple(f"{NAMES[name]}, {CONTROLS[by]}" for name, by in left)),
    ))  # fmt: skip
    beyond = table[~table.assumptions_met & (table.trusted_until > UNTIL)]
    maps = beyond.part != GENERAL
    for says, rows in (
        ("Where they are not met the response predicts the deviations, as long as it trusts itself", beyond[maps]),
        ("So it does with several common tokens and queries", beyond[~maps]),
    ):
        close = _close(rows.measured, rows.response)
        counted = ", ".join(f"{NAMES[name]} {int(close[rows.theorem == name].sum())} of "
                            f"{int((rows.theorem == name).sum())}" for name in THEOREMS)  # fmt: skip
        result.append(Finding(f"{says}, to {CLOSE:.0%}", "Ours", int(close.sum()), len(rows), "theorems and settings",
                             f"{counted}.", points=Points.without_noise(rows.response / rows.measured)))  # fmt: skip
    return tuple(result)


def _predicted(rows: pd.DataFrame, name: str, of: dict[str, dict[str, float]]) -> Finding:
    """Of one theorem where its assumptions are met."""
    controls = "; ".join(f"{words} {of[by]['met']:.2g} ({of[by]['met_log']:.2g})" for by, words in CONTROLS.items())
    return Finding(
        f"Where its assumptions are met {NAMES[name]} fails by what the memory predicts, to {CLOSE:.0%} of it", "Ours",
        int(_close(rows.measured, rows.memory).sum()), len(rows), "settings",
        f"R² about y = x, nothing fitted (of logarithms): {of['memory']['met']:.4f} ({of['memory']['met_log']:.4f}), "
        f"deviations {rows.measured.min():.2g} to {rows.measured.max():.2g}; by the response "
        f"{of['response']['met']:.4f} ({of['response']['met_log']:.4f}); {controls}. On all of both maps, met or "
        f"not, {of['memory']['maps']:.3f} ({of['memory']['maps_log']:.3f}).",
        points=Points.without_noise(rows.memory / rows.measured), headline=FOURTH if name == "4" else 0,
    )  # fmt: skip


def _times(of: dict[str, dict[str, float]], control: str) -> str:
    """How much more a control leaves unexplained; rounding leaves no memory at 1 exactly."""
    return f"{(1 - of[control]['met']) / max(1 - of['memory']['met'], 1e-16):.2g}"


def _close(measured: pd.Series, predicted: pd.Series) -> pd.Series:
    return (predicted - measured).abs() <= CLOSE * measured.abs()


def draw(computed: Computed) -> Figure:
    """A column for each theorem, a row for each prediction, and the line on which it is what was measured."""
    with styled(10.4, 7.2) as figure:
        grid = figure.subplots(len(ROWS), len(THEOREMS), sharex="col", sharey="col")
        for by, axes in zip(ROWS, grid, strict=True):
            for ax, name in zip(axes, THEOREMS, strict=True):
                _scatter(ax, computed.table[computed.table.theorem == name], by)
                of = explained(computed.table, name)
                text = f"R² = {of[by]['met']:.4f}\nof logarithms {of[by]['met_log']:.4f}"
                if by == "memory":
                    text += f"\ndrive alone {of['no_memory']['met']:.2g}"
                    text += f"\n{WRONG:g} times too strong {of['wrong']['met']:.2g}"
                ax.text(0.04, 0.96, text.replace("-", "−"), transform=ax.transAxes, va="top", fontsize=8)
                ax.set_xlabel(f"deviation predicted by {ROWS[by]}")
                ax.tick_params(labelbottom=True)  # which a shared axis hides, though its label stays
            axes[0].set_ylabel("deviation measured on the flow")
            axes[-1].legend(loc="lower right", fontsize=7, reverse=True)
        grid[0, -1].set_gid(HEADLINE)
        for ax, name in zip(grid[0], THEOREMS, strict=True):
            ax.set_title(f"{NAMES[name]}: {STATEMENTS[name]}")
    return figure


def _scatter(ax: Any, rows: pd.DataFrame, by: str) -> None:
    maps, met, sure = rows.part != GENERAL, rows.assumptions_met, rows.trusted_until > UNTIL
    groups: list[tuple[pd.DataFrame, str, dict[str, Any]]] = [
        (rows[maps & ~met & ~sure], by, {"color": "0.85", "label": "not trusted by itself"}),
        (rows[maps & ~met & sure], by, {"color": "0.6", "label": "assumptions not met"}),
    ]
    if by == "response":
        groups.append((rows[~maps & sure], by, {"color": SERIES[2], "marker": "^", "label": "Syn-Small, Syn-Medium"}))
    else:
        groups.append((rows[met], "no_memory", {"color": SERIES[1], "marker": "x", "label": "the drive alone"}))
    groups.append((rows[met], by, {"color": SERIES[0], "label": "assumptions met"}))
    low, high = rows.measured.min() / 2, rows.measured.max() * 2
    for part, which, style in groups:
        at = part[which].clip(low, high)
        ax.plot(at, part.measured, **{"linestyle": "none", "marker": "o", "markersize": 3.2, **style})
    limits = low / MARGIN, high * MARGIN
    ax.plot(limits, limits, color="black", linewidth=0.9, zorder=0)
    ax.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
