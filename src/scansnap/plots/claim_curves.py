"""What claims look like: measured against predicted, one panel for each claim that has a curve.

Claims that fail come first and larger, with what holds instead on the same axes: three curves.
"""

from __future__ import annotations

import math
import re
import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from scansnap.claims.claim import Claim, format_error
from scansnap.claims.report import Report
from scansnap.plots.style import DISTINCT, FILES_ONLY, HEADLINE, styled

COLOURS = {"holds": "#009E73", "fails": "#D55E00", "undecided": "#8250DF", "not applicable": "0.45"}
INSTEAD = COLOURS["holds"]
PANELS_PER_ROW = 4
LARGE_PER_ROW = 3
_SMALL, _LARGE = (3.1, 2.6), (4.2, 3.4)  # inches of a panel


def compute(report: Report) -> list[Claim]:
    """The claims that have something to draw."""
    return [claim for claim in report if claim.curve is not None]


def draw(claims: list[Claim], headline: str = "") -> Figure:
    """Predicted as a dashed line; the title's colour is the verdict. First what has something that holds instead.

    headline  the claim whose panel stands for all of them
    """
    large = [claim for claim in claims if claim.alternative is not None and claim.alternative.y is not None]
    small = [claim for claim in claims if claim not in large]
    parts = [
        (some, min(per_row, len(some)), size)
        for some, per_row, size in ((large, LARGE_PER_ROW, _LARGE), (small, PANELS_PER_ROW, _SMALL)) if some
    ]  # fmt: skip
    heights = [math.ceil(len(some) / columns) * size[1] for some, columns, size in parts]
    with styled(max(columns * size[0] for _, columns, size in parts), sum(heights)) as figure:
        folders = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0]
        for folder, (some, columns, _) in zip(folders, parts, strict=True):
            folder.set_gid(FILES_ONLY if some is small and large else None)
            if some is large:
                folder.suptitle("What fails, and what holds instead", fontweight="bold", fontsize=11)
            _panels(folder, some, columns, headline)
    return figure


def _panels(folder: SubFigure, claims: list[Claim], columns: int, headline: str) -> None:
    rows = math.ceil(len(claims) / columns)
    for i, claim in enumerate(claims):
        ax = folder.add_subplot(rows, columns, i + 1)
        ax.set_gid(HEADLINE if claim.name == headline else None)
        curve, instead = claim.curve, claim.alternative
        assert curve is not None  # compute() returns only these
        predicted = np.broadcast_to(curve.predicted, curve.x.shape)
        shown = np.ones(len(curve.x), dtype=bool)
        large = False
        if instead is not None and instead.x is not None and instead.y is not None and len(instead.x):
            large = True
            shown = (curve.x >= instead.x.min()) & (curve.x <= instead.x.max())
            ax.plot(instead.x, instead.y, color=INSTEAD, linewidth=6, alpha=0.4, solid_capstyle="round",
                    label=f"ours: {instead.claim.name}")  # fmt: skip
        ax.plot(curve.x[shown], curve.measured[shown], color=DISTINCT, label="measured")
        ax.plot(curve.x[shown], predicted[shown], "--", color="black", linewidth=1.4 if large else 1,
                label="the paper" if large else "predicted")  # fmt: skip
        ax.set(xlabel=maths(curve.x_label), ylabel=maths(textwrap.fill(curve.y_label, 30)))
        ax.yaxis.label.set_fontsize(9 if large else 7.5)
        ax.set(xscale="log" if curve.log_x else "linear", yscale="log" if curve.log_y else "linear")
        for axis in (ax.xaxis, ax.yaxis):
            _few_ticks(axis)
        _title(ax, claim, large)
        curves = np.append(curve.measured, predicted)
        if np.ptp(curves) < 1e-6 * np.abs(curves).max():  # equal to the eye: do not magnify the rounding
            ax.set_ylim(*sorted((0.9 * curves.mean(), 1.1 * curves.mean())))
        if i == 0 or large:
            ax.legend(loc="best")


def _few_ticks(axis: Axis) -> None:
    """Small panels need few ticks, and ticks are most of the drawing time."""
    low, high = axis.get_view_interval()
    if axis.get_scale() == "linear":
        axis.set_major_locator(MaxNLocator(4))
    elif high > 30 * low:  # within a decade ticks between powers of ten are needed
        axis.set_major_locator(LogLocator(numticks=5))
        axis.set_minor_locator(NullLocator())


def _title(ax: Axes, claim: Claim, large: bool) -> None:
    """The verdict in its colour; below it what holds instead."""
    observed = f" (measured: {claim.observed})" if claim.status == "not applicable" else ""
    kind = "" if claim.kind in ("measured", "ours") else f", {claim.kind}"
    title = textwrap.fill(f"{claim.reference}{kind}: {claim.status}{observed}", 40 if large else 34)
    instead = claim.alternative
    if not large or instead is None:
        ax.set_title(title, color=COLOURS[claim.status], fontsize=8)
        return
    ours = instead.verdict
    if instead.error is not None and instead.paper_error is not None:
        ours += f"\n{format_error(instead.error)} off; the paper {format_error(instead.paper_error)}"
    ax.set_title(title, color=COLOURS[claim.status], fontsize=10, pad=30)
    ax.annotate(
        ours, (0.5, 1.0), (0, 4), xycoords="axes fraction", textcoords="offset points", ha="center", va="bottom",
        color=COLOURS[instead.claim.status], fontsize=9,
    )  # fmt: skip


def maths(text: str) -> str:
    """B_n and η_Z with their index below."""
    return re.sub(r"(?<![A-Za-z_$])([A-Za-zα-ω])_([A-Za-z]{1,2}\b|\d)", r"$\1_{\2}$", text)
