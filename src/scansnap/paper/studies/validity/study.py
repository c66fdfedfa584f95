"""Where the linear response of the flow is right, where it says so itself, and where the paper's B_n is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from scansnap.paper.figure import Computed, Effort, Finding, Points
from scansnap.paper.studies.validity.measured import AXES, ETA_Y, FULL, GENERAL, MOMENTS, OVERLAP, QUICK, swept
from scansnap.plots.regime_map import LABELS
from scansnap.plots.style import styled
from scansnap.progress import Progress

TITLE = "Where the linear response holds"
CAPTION = (
    "Error of the linear response's z against the exact flow, largest over tokens relative to the largest |z|, at t₀, "
    "10 t₀ and 100 t₀. Blue below a tenth, red above (black line; thin: 1%); dashed: where its own estimate passes a "
    "tenth. Hatched: Theorem 4's B_n is within a tenth of the flow's until then, its C₀ taken from the earliest times. "
    "Dots: every assumption of the paper is met. Right: until when the response trusts itself."
)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Both maps; a row is a setting at a time."""
    table = by_moment(swept(effort, progress))
    return Computed(table, described(effort), findings(table), noted(effort))


def by_moment(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the maps, one for each of MOMENTS."""
    rows = rows[rows.part != GENERAL]
    columns = ["part", "ratio", "vocab_size", "n_classes", "overlap", "assumptions_met", "trusted_until"]
    names = ("error", "estimate", "paper")
    parts = [
        rows[columns].assign(moment=moment, **{name: rows[f"{name}_{moment}"] for name in names}) for moment in MOMENTS
    ]
    return pd.concat(parts, ignore_index=True)


def described(effort: Effort) -> dict[str, Any]:
    """The settings, for the manifest."""
    size = QUICK if effort.quick else FULL
    return {"eta_y": ETA_Y, "overlap": list(OVERLAP), "axes": {name: list(span) for name, span in AXES.items()},
            "points": {**size.across, "overlap": size.up}, "moments": list(MOMENTS), "trust": FEW}  # fmt: skip


def noted(effort: Effort) -> str:
    size = QUICK if effort.quick else FULL
    return f"quick: maps of {' and '.join(f'{n} × {size.up}' for n in size.across.values())}" if effort.quick else ""


def draw(computed: Computed) -> Figure:
    """A row for each map, a column for each time, and how long it is trusted."""
    table = computed.table
    with styled(11.0, 5.6) as figure:
        grid = figure.subplots(len(AXES), len(MOMENTS) + 1, sharey=True, sharex="row")
        for name, axes in zip(AXES, grid, strict=True):
            part = table[table.part == name]
            for ax, moment in zip(axes, MOMENTS, strict=False):
                error = draw_error(ax, part[part.moment == moment], name)
                ax.set_title("t₀" if moment == 1 else f"{moment} t₀")
            trusted = draw_trusted(axes[-1], part[part.moment == MOMENTS[0]], name)
            axes[0].set_ylabel("overlap at the start")
        draw_colour_bars(figure, grid, error, trusted)
        draw_legend(figure)
    return figure


FEW = 0.1  # the edge: response() trusts itself below it, and the paper's equations must hold to a tenth
EXACT = 0.01
_INTEGRATED = 1e-5  # errors below are those of the integration
_CASES = "settings and times"


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """From the rows of :func:`~scansnap.paper.studies.validity.study.by_moment`."""
    met, trusted = table[table.assumptions_met], table[table.trusted_until > table.moment]
    rest = table[~(table.trusted_until > table.moment)]
    resolved = trusted[trusted.error > _INTEGRATED]
    share = resolved.estimate / resolved.error
    return (
        Finding("Where every assumption of the paper is met the linear response is right to 1%", "Ours",
                int((met.error <= EXACT).sum()), len(met), _CASES, f"Largest error of z: {_largest(met, 'error')}.",
                points=Points.without_noise(met.error)),
        Finding("Where it trusts itself the linear response is right to a tenth", "Ours",
                int((trusted.error <= FEW).sum()), len(trusted), _CASES,
                f"Trusted at {len(trusted)} of {len(table)}; largest error there: {_largest(trusted, 'error')}. Of the "
                f"{len(rest)} others {int((rest.error <= FEW).sum())} are right to a tenth as well.",
                points=Points.without_noise(trusted.error)),
        Finding("Where it trusts itself its estimate is at least half of its error", "Ours",
                int((share >= 0.5).sum()), len(resolved), _CASES,
                f"Estimate over error: {share.min():.2g} to {share.max():.2g}, median {share.median():.2g}."
                if len(resolved) else "", points=Points.without_noise(share)),
        Finding("Theorem 4's B_n, its C₀ from the earliest times, is right to a tenth where every assumption is met",
                "Theorem 4", int((met.paper <= FEW).sum()), len(met), _CASES,
                f"Smallest error until then: {_least(met, 'paper')}; on the whole map it is right to a tenth at "
                f"{int((table.paper <= FEW).sum())} of {len(table)}, of overlap up to "
                f"{table.overlap[table.paper <= FEW].max():.2g}.", points=Points.without_noise(met.paper)),
    )  # fmt: skip


def _largest(part: pd.DataFrame, name: str) -> str:
    return _at_moments(part.groupby("moment")[name].max())


def _least(part: pd.DataFrame, name: str) -> str:
    return _at_moments(part.groupby("moment")[name].min())


def _at_moments(values: pd.Series) -> str:
    words = [f"{values[m]:.2g} at {'' if m == 1 else f'{m} '}t₀" for m in MOMENTS if m in values.index]
    return ", ".join(words) or "none"


_RANGE = (-5.0, 1.0)  # of log₁₀ of the error
_TRUST = (0.3, float(MOMENTS[-1]))  # in t₀


def draw_error(ax: Any, part: pd.DataFrame, name: str) -> Any:
    """One map of the error, with the estimate's edge and where the paper's B_n is right."""
    x, y, errors = _grid(part, name, "error")
    norm = TwoSlopeNorm(vcenter=np.log10(FEW), vmin=_RANGE[0], vmax=_RANGE[1])
    logs = np.clip(np.log10(np.maximum(errors, 10 ** _RANGE[0])), *_RANGE)
    image = ax.pcolormesh(x, y, logs, cmap="RdBu_r", norm=norm, shading="nearest")
    _line(ax, x, y, errors, EXACT, linewidths=0.7)
    _line(ax, x, y, errors, FEW, linewidths=1.5)
    _line(ax, x, y, _grid(part, name, "estimate")[2], FEW, linewidths=1.2, linestyles="dashed")
    paper_errors = _grid(part, name, "paper")[2]
    if paper_errors.min() < FEW < paper_errors.max():
        strip = ax.contourf(x, y, np.log10(paper_errors), levels=[-300, np.log10(FEW)], colors="none", hatches=["////"])
        strip.set(edgecolor="white", linewidth=0)
        _line(ax, x, y, paper_errors, FEW, colors="white", linewidths=0.6)
    _finish(ax, part, name)
    return image


def draw_trusted(ax: Any, part: pd.DataFrame, name: str) -> Any:
    """Until when the response trusts itself, in t₀."""
    x, y, until = _grid(part, name, "trusted_until")
    image = ax.pcolormesh(x, y, np.clip(until, *_TRUST), cmap="viridis", norm=LogNorm(*_TRUST), shading="nearest")
    for moment in MOMENTS:
        _line(ax, x, y, until, float(moment), colors="white", linewidths=1.0)
    _finish(ax, part, name)
    ax.set_title("trusted until")
    return image


def draw_colour_bars(figure: Figure, grid: Any, error: Any, trusted: Any) -> None:
    """The two scales, each beside its maps."""
    bar = figure.colorbar(error, ax=grid[:, : len(MOMENTS)], pad=0.01, aspect=40, label="error of z, relative")
    ticks = np.arange(_RANGE[0], _RANGE[1] + 1)
    bar.set_ticks(ticks.tolist(), labels=[f"{100 * 10**tick:g}%" for tick in ticks])
    bar = figure.colorbar(trusted, ax=grid[:, len(MOMENTS) :], pad=0.02, aspect=40, label="t/t₀", extend="max")
    bar.set_ticks([1, 10, 100], labels=["1", "10", "100"])


def draw_legend(figure: Figure) -> None:
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
