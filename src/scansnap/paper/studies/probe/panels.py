"""The panels of the figure, each drawn from its rows of the table."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import TwoSlopeNorm

from scansnap.paper.shared.over_seeds import band, marks, mean_and_half
from scansnap.paper.studies.probe.findings import NAMES, YZ
from scansnap.paper.studies.probe.table import over_heads
from scansnap.plots.style import SERIES

OPTIMIZERS = {"AdamW": SERIES[0], "SGD": SERIES[1]}
SCAN = matplotlib.colormaps["RdBu"]  # red: to common words, blue: to distinct ones


def loss(ax: Any, table: pd.DataFrame, model: str) -> None:
    """On the validation text."""
    part = table[(table.kind == "loss") & (table.model == model) & (table.step > 0)]
    for name, colour in OPTIMIZERS.items():
        wide = part[part.optimizer == name].pivot(index="step", columns="seed", values="value")
        band(ax, wide.index, wide, colour=colour, label=name)
    ax.set(title=model, xscale="log", ylim=_around(table[table.kind == "loss"].value))


def colours(heads: pd.DataFrame) -> TwoSlopeNorm:
    """The same for all panels; white where attention turns neither way."""
    most = np.nanmax([heads.scan_index.abs().max(), 1e-3])
    return TwoSlopeNorm(0.0, -most, most)


def dots(ax: Any, heads: pd.DataFrame, norm: TwoSlopeNorm, last: float) -> None:
    """Each head at the time of its greatest speed in ln t, layers as rows; behind the end those still to come."""
    n_heads, n_seeds = heads["head"].max() + 1, heads.seed.max() + 1
    place = (heads["head"] * n_seeds + heads.seed + 0.5) / (n_heads * n_seeds) - 0.5
    x = heads.t_fastest_ln.replace({np.inf: _never(last), 0.0: 1.0})
    y = heads.layer + 1 + 0.7 * place
    for marker, own in (("o", heads.snaps == 1), (">", heads.snaps != 1)):
        ax.scatter(x[own], y[own], c=SCAN(norm(heads.scan_index[own])), s=14, linewidths=0.4, edgecolors="0.3",
                   marker=marker, zorder=3)  # fmt: skip
    still = x.isna() & heads.scan_index.notna()
    ax.plot(np.full(still.sum(), 0.65), y[still], "x", color="0.55", markersize=3, markeredgewidth=0.7)
    ax.axvline(1.4 * last, color="0.75", linewidth=0.8, linestyle=":")
    if np.isinf(heads.t_fastest_ln).any():
        ax.annotate("not yet", (_never(last), 1), xycoords=("data", "axes fraction"), ha="center", va="bottom",
                    fontsize=7, color="0.45")  # fmt: skip
    layers = np.arange(1, int(heads.layer.max()) + 2)
    for layer in layers[::2]:
        ax.axhspan(layer - 0.5, layer + 0.5, color="0.96", zorder=0)
    ax.set(xscale="log", xlim=(0.5, 1.5 * _never(last)), ylim=(0.5, layers[-1] + 0.5), yticks=layers)


def _around(values: Any) -> tuple[float, float]:
    """Limits that leave a little room."""
    shown = np.asarray(values, dtype=np.float64)
    low, high = (float(end) for end in np.quantile(shown[np.isfinite(shown)], (0, 1)))
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def _never(last: float) -> float:
    """Where heads stand whose time has not come."""
    return 2.2 * last


def correlations(ax: Any, heads: pd.DataFrame, of_all: pd.DataFrame) -> None:
    """What attention follows in the end, beside the YZ model's; limits hold those of all models."""
    for i, (name, yz) in enumerate(YZ.items()):
        ranks = over_heads(heads, name, ["optimizer"])
        for j, (optimizer, colour) in enumerate(OPTIMIZERS.items()):
            if optimizer in ranks.index:
                marks(ax, [i + 0.24 * (j - 0.5)], ranks.loc[[optimizer]], colour=colour, beside=0.07, linestyle="none")
        ax.plot([i - 0.35, i + 0.35], [yz, yz], color="0.45", linewidth=1.2, linestyle="--", zorder=1)
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ends = [mean + side * half for name in YZ for mean, half in [mean_and_half(over_heads(of_all, name))]
            for side in (-1, 1)]  # fmt: skip
    ax.set(xlim=(-0.6, len(YZ) - 0.4), ylim=_around([*YZ.values(), *np.ravel(ends)]))
    ax.set_xticks(range(len(YZ)), list(NAMES.values()), fontsize=7.5)


def scale(norm: TwoSlopeNorm) -> ScalarMappable:
    """For the colour bar."""
    return ScalarMappable(norm, SCAN)
