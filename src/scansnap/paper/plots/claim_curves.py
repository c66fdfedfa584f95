"""What claims look like: measured against predicted, one panel for each claim that has a curve."""

from __future__ import annotations

import math
import textwrap

import numpy as np
from matplotlib.figure import Figure

from scansnap.claims.claim import Claim, Report
from scansnap.paper.style import DISTINCT, styled

COLOURS = {"holds": "#009E73", "fails": "#D55E00", "undecided": "#8250DF", "not applicable": "0.45"}
PANELS_PER_ROW = 4


def compute(report: Report) -> list[Claim]:
    """The claims that have something to draw."""
    return [claim for claim in report if claim.curve is not None]


def draw(claims: list[Claim]) -> Figure:
    """Predicted as a dashed line; the title's colour is the verdict."""
    rows = math.ceil(len(claims) / PANELS_PER_ROW)
    with styled(3.1 * min(PANELS_PER_ROW, len(claims)), 2.6 * rows) as figure:
        for i, claim in enumerate(claims):
            ax = figure.add_subplot(rows, min(PANELS_PER_ROW, len(claims)), i + 1)
            curve = claim.curve
            assert curve is not None  # compute() kept only those
            ax.plot(curve.x, curve.measured, color=DISTINCT, label="measured")
            ax.plot(curve.x, np.broadcast_to(curve.predicted, curve.x.shape), "--", color="black", linewidth=1,
                    label="predicted")  # fmt: skip
            ax.set(xlabel=curve.x_label, ylabel=textwrap.fill(curve.y_label, 30))
            ax.yaxis.label.set_fontsize(7.5)
            if curve.log_x:
                ax.set_xscale("log")
            if curve.log_y:
                ax.set_yscale("log")
            observed = f" (measured: {claim.observed})" if claim.status == "not applicable" else ""
            kind = "" if claim.kind == "measured" else f", {claim.kind}"
            title = textwrap.fill(f"{claim.reference}{kind}: {claim.status}{observed}", 40)
            ax.set_title(title, color=COLOURS[claim.status], fontsize=8)
            seen = np.append(curve.measured, curve.predicted)
            if np.ptp(seen) < 1e-6 * np.abs(seen).max():  # equal to the eye: do not magnify the rounding
                ax.set_ylim(*sorted((0.9 * seen.mean(), 1.1 * seen.mean())))
            if i == 0:
                ax.legend()
    return figure
