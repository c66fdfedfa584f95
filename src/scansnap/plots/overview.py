"""What one run did: attention of the classes over training, logits by fate, entropy and loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from scansnap.plots.style import ATTENTION_MAP, COMMON, DISTINCT, SERIES, styled
from scansnap.results.trajectory import classes_of

MAX_CLASSES = 3


@dataclass(frozen=True)
class ClassPanel:
    """One class's attention over its own context tokens."""

    n: int
    query: int
    next_token: int
    tokens: np.ndarray  # (S,) common tokens first
    n_common: int
    attention: np.ndarray  # (step, S)


@dataclass(frozen=True)
class Overview:
    """The numbers in the figure."""

    title: str
    steps: np.ndarray
    panels: list[ClassPanel]
    z: np.ndarray  # (step, S) change of the first class's logits
    entropy: np.ndarray  # (step, seq_class)
    loss: np.ndarray  # (step,)


def compute(data: xr.Dataset, run: int = 0) -> Overview:
    """From a trajectory that holds attention, z, entropy and loss."""
    single = data.isel(run=run)
    if "head" in single.dims:
        single = single.mean("head")
    classes = classes_of(data)
    panels = []
    for n in range(min(classes.n_classes, MAX_CLASSES)):
        common = classes.common_of(n)
        tokens = np.concatenate([common, classes.distinct(n)])
        attention = single.attention.isel(seq_class=n).sel(token=tokens).values
        panels.append(ClassPanel(n, int(classes.query[n]), int(classes.next_token[n]), tokens, len(common), attention))
    z = single.z.sel(query=panels[0].query, token=panels[0].tokens).values
    rates = rf"$\eta_Y$ = {float(single.eta_y):g},  $\eta_Z$ = {float(single.eta_z):g},  seed {int(single.seed)}"
    more = f",  run {run} of {data.sizes['run']}" if data.sizes["run"] > 1 else ""
    return Overview(rates + more, single.step.values, panels, z - z[0], single.entropy.values, single.loss.values)


def draw(overview: Overview) -> Figure:
    """Heat maps on top, curves below."""
    with styled(9.5, 5.6) as figure:
        rows: Any = figure.subfigures(2, 1, height_ratios=(1.1, 1))
        top, bottom = rows
        _heat_maps(top, overview)
        z_axes, entropy_axes, loss_axes = bottom.subplots(1, 3)
        _logits(z_axes, overview)
        for i in range(min(overview.entropy.shape[1], len(SERIES))):
            entropy_axes.plot(overview.steps, overview.entropy[:, i], color=SERIES[i], label=f"class {i}")
        entropy_axes.set(title="Entropy over distinct tokens", xlabel="step", ylabel="nats")
        entropy_axes.legend(loc="best", ncols=2)
        loss_axes.plot(overview.steps, np.maximum(overview.loss, np.finfo(np.float32).tiny), color="black")
        loss_axes.set(title="Loss", xlabel="step", ylabel="−log α", yscale="log")
        for axes in (z_axes, entropy_axes, loss_axes):
            if overview.steps[-1] > 20:
                axes.set_xscale("symlog", linthresh=1)
            axes.set_xlim(0, max(overview.steps[-1], 1))
        figure.suptitle(overview.title)
    return figure


def _heat_maps(figure: Any, overview: Overview) -> None:
    axes = figure.subplots(1, len(overview.panels), sharey=True, squeeze=False)[0]
    peak = max(panel.attention.max() for panel in overview.panels)
    image: Any = None
    for ax, panel in zip(axes, overview.panels, strict=True):
        image = ax.imshow(panel.attention, aspect="auto", cmap=ATTENTION_MAP, vmin=0, vmax=peak, interpolation="none")
        ax.set_title(f"Class {panel.n}: query {panel.query} → next {panel.next_token}")
        ax.set_xlabel("context token")
        strip = ax.inset_axes((0, 1.0, 1, 0.03))
        colours = [COMMON] * panel.n_common + [DISTINCT] * (len(panel.tokens) - panel.n_common)
        strip.bar(np.arange(len(colours)), 1, width=1, color=colours)
        strip.set(xlim=(-0.5, len(colours) - 0.5), ylim=(0, 1))
        strip.axis("off")
        ax.set_title(ax.get_title(), pad=10)
        shown = np.linspace(0, len(panel.tokens) - 1, min(6, len(panel.tokens))).astype(int)
        ax.set_xticks(shown, [str(panel.tokens[i]) for i in shown])
        ax.spines[:].set_visible(False)
    rows = np.unique(np.linspace(0, len(overview.steps) - 1, min(8, len(overview.steps))).astype(int))
    axes[0].set_yticks(rows, [str(overview.steps[i]) for i in rows])
    axes[0].set_ylabel("step")
    figure.colorbar(image, ax=axes, label="attention  $c_n$", pad=0.01)


def _logits(ax: Any, overview: Overview) -> None:
    panel = overview.panels[0]
    for i in range(len(panel.tokens)):
        colour, name = (COMMON, "common") if i < panel.n_common else (DISTINCT, "distinct")
        first = i in (0, panel.n_common)
        ax.plot(overview.steps, overview.z[:, i], color=colour, linewidth=0.9, alpha=0.8, label=name if first else None)
    ax.axhline(0, color="0.7", linewidth=0.6)
    ax.set(title="Logits of class 0's tokens", xlabel="step", ylabel="z − z(0)")
    ax.legend(loc="best")
