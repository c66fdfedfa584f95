"""Where a theorem holds: its margin over two parameters, one panel for each of its claims."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from scansnap.plots.style import styled

LABELS = {"ratio": r"$\eta_Y/\eta_Z$", "overlap": r"overlap $f_n^\top f_{n'}$ at the start", "n_classes": "classes K",
          "vocab_size": "vocabulary M", "eta_y": r"$\eta_Y$", "distinct": "distinct tokens per class"}  # fmt: skip


def draw(data: xr.Dataset) -> Figure:
    """Blue holds, red fails, white is the edge (the black line); dots: all assumptions of the
    paper are met; plus signs: only those that its statements need.

    Grey: the claim has nothing to measure there; crossed out: there are no such classes.
    """
    claims = data.claim.values
    with styled(3.3 * len(claims) + 0.9, 3.3) as figure:
        panels = figure.subplots(1, len(claims), sharey=True, squeeze=False)
        image = _row(panels[0], data, claims, labelled=True)
        for ax, name in zip(panels[0], claims, strict=True):
            ax.set_title(str(name))
        if data.attrs["left_out"]:
            figure.suptitle(f"crossed out: {data.attrs['left_out']}", fontsize="small")
        figure.colorbar(image, ax=panels, label="margin  (1 exact, 0 edge)", pad=0.01)
    return figure


def draw_both(data: xr.Dataset, flow: xr.Dataset) -> Figure:
    """The flow's map above, that by SGD below, its mean over seeds; the flow's edge is the dashed line there.

    Hatched: the interval over seeds contains 0, so the sign is undecided.
    """
    claims = [name for name in flow.claim.values if name in data.claim.values]
    with styled(3.3 * len(claims) + 1.2, 6.2) as figure:
        panels = figure.subplots(2, len(claims), sharex=True, sharey=True, squeeze=False)
        image = _row(panels[0], flow, claims, labelled=False)
        _row(panels[1], data, claims, labelled=True)
        for above, below, name in zip(*panels, claims, strict=True):
            above.set_title(f"{name}\nexact flow")
            below.set_title(f"SGD: {data.attrs['sgd']}", fontsize="small")
            sgd, exact = data.sel(claim=name), flow.margin.sel(claim=name).values
            undecided = ((sgd.low < 0) & (sgd.high >= 0)).values
            if undecided.any():
                below.contourf(
                    data.x, data.y, undecided.astype(float), levels=[0.5, 1.5], colors="none", hatches=["////"]
                )
            if np.isfinite(exact).any() and np.nanmin(exact) < 0 < np.nanmax(exact):
                below.contour(flow.x, flow.y, exact, levels=[0], colors="black", linewidths=1.2, linestyles="dashed")
        if data.attrs["left_out"]:
            figure.suptitle(f"crossed out: {data.attrs['left_out']}", fontsize="small")
        figure.colorbar(image, ax=panels, label="margin  (1 exact, 0 edge)", pad=0.01)
    return figure


def _row(panels: Any, data: xr.Dataset, claims: Any, labelled: bool) -> Any:
    """A panel for each of the claims."""
    norm = TwoSlopeNorm(vcenter=0, vmin=-1, vmax=1)
    image: Any = None
    for ax, name in zip(panels, claims, strict=True):
        margin = data.margin.sel(claim=name).values
        image = ax.pcolormesh(data.x, data.y, np.clip(margin, -1, 1), cmap="RdBu", norm=norm, shading="nearest")
        values = margin[np.isfinite(margin)]
        if values.size and values.min() < 0 < values.max():
            ax.contour(data.x, data.y, margin, levels=[0], colors="black", linewidths=1.2)
        for which, mark in (
            (data.paper_assumptions_met, {"marker": ".", "color": "black", "markersize": 1.6, "alpha": 0.6}),
            (
                data.assumptions_met & ~data.paper_assumptions_met,
                {"marker": "+", "color": "black", "markersize": 2.5, "markeredgewidth": 0.4, "alpha": 0.6},
            ),
            (~data.possible, {"marker": "x", "color": "0.5", "markersize": 4}),
        ):
            yy, xx = np.nonzero(which.values)
            ax.plot(data.x.values[xx], data.y.values[yy], linestyle="none", **mark)
        if labelled:
            ax.set_xlabel(LABELS[data.attrs["x"]])
        ax.set_facecolor("0.85")
        if data.attrs["x_log"]:
            ax.set_xscale("log")
        if data.attrs["y_log"]:
            ax.set_yscale("log")
    panels[0].set_ylabel(LABELS[data.attrs["y"]])
    return image
