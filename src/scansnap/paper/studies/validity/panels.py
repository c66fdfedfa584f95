"""The panels of the figure on validity: maps in the style of the regime maps, blue where it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from scansnap.paper.studies.validity.findings import EXACT, FEW
from scansnap.paper.studies.validity.measured import MOMENTS
from scansnap.plots.regime_map import LABELS

_RANGE = (-5.0, 1.0)  # of log₁₀ of the error
_TRUST = (0.3, float(MOMENTS[-1]))  # in t₀


def error(ax: Any, part: pd.DataFrame, name: str) -> Any:
    """One map of the error, with the estimate's edge and where the paper's B_n is right."""
    x, y, found = _grid(part, name, "error")
    norm = TwoSlopeNorm(vcenter=np.log10(FEW), vmin=_RANGE[0], vmax=_RANGE[1])
    logs = np.clip(np.log10(np.maximum(found, 10 ** _RANGE[0])), *_RANGE)
    image = ax.pcolormesh(x, y, logs, cmap="RdBu_r", norm=norm, shading="nearest")
    _line(ax, x, y, found, EXACT, linewidths=0.7)
    _line(ax, x, y, found, FEW, linewidths=1.5)
    _line(ax, x, y, _grid(part, name, "estimate")[2], FEW, linewidths=1.2, linestyles="dashed")
    theirs = _grid(part, name, "paper")[2]
    if theirs.min() < FEW < theirs.max():
        strip = ax.contourf(x, y, np.log10(theirs), levels=[-300, np.log10(FEW)], colors="none", hatches=["////"])
        strip.set(edgecolor="white", linewidth=0)
        _line(ax, x, y, theirs, FEW, colors="white", linewidths=0.6)
    _finish(ax, part, name)
    return image


def trusted(ax: Any, part: pd.DataFrame, name: str) -> Any:
    """Until when the response trusts itself, in t₀."""
    x, y, found = _grid(part, name, "trusted_until")
    image = ax.pcolormesh(x, y, np.clip(found, *_TRUST), cmap="viridis", norm=LogNorm(*_TRUST), shading="nearest")
    for moment in MOMENTS:
        _line(ax, x, y, found, float(moment), colors="white", linewidths=1.0)
    _finish(ax, part, name)
    ax.set_title("trusted until")
    return image


def bars(figure: Figure, grid: Any, error: Any, trusted: Any) -> None:
    """The two scales, each beside its maps."""
    bar = figure.colorbar(error, ax=grid[:, : len(MOMENTS)], pad=0.01, aspect=40, label="error of z, relative")
    ticks = np.arange(_RANGE[0], _RANGE[1] + 1)
    bar.set_ticks(ticks.tolist(), labels=[f"{100 * 10**tick:g}%" for tick in ticks])
    bar = figure.colorbar(trusted, ax=grid[:, len(MOMENTS) :], pad=0.02, aspect=40, label="t/t₀", extend="max")
    bar.set_ticks([1, 10, 100], labels=["1", "10", "100"])


def key(figure: Figure) -> None:
    """What the lines are."""
    handles = [
        Line2D([], [], color="black", linewidth=1.5, label="error 10%"),
        Line2D([], [], color="black", linewidth=0.7, label="1%"),
        Line2D([], [], color="black", linewidth=1.2, linestyle="--", label="its own estimate 10%"),
        Patch(facecolor="#2166ac", edgecolor="white", hatch="////", label=r"Theorem 4's $B_n$ within 10% until then"),
        Line2D([], [], color="black", marker=".", linestyle="none", label="all assumptions of the paper met"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))


def _grid(part: pd.DataFrame, name: str, value: str) -> tuple[Any, Any, Any]:
    """Both sides, and the values (y, x)."""
    wide = part.assign(overlap=part.overlap.round(9)).pivot(index="overlap", columns=name, values=value)
    return wide.columns.to_numpy(), wide.index.to_numpy(), wide.to_numpy()


def _line(ax: Any, x: Any, y: Any, values: Any, level: float, **style: Any) -> None:
    """Where the values pass a level, between the points in logarithms; nothing where they do not."""
    logs = np.log10(np.clip(values, 1e-300, 1e300))
    if logs.min() < np.log10(level) < logs.max():
        ax.contour(x, y, logs, levels=[np.log10(level)], **{"colors": "black", "linestyles": "solid", **style})


def _finish(ax: Any, part: pd.DataFrame, name: str) -> None:
    met = part[part.assumptions_met]
    ax.plot(met[name], met.overlap, linestyle="none", marker=".", color="black", markersize=2.5, alpha=0.7)
    ax.set(xscale="log", xlabel=LABELS[name], ylim=(0, None))
