"""Do ordinary language models scan and snap? The probe on transformers' GPT-2 and Llama while they learn text.

Does attention leave common for distinct words, does it freeze and when, do deeper layers follow later, and what does
attention follow in the end? The paper proves this of one layer, and the study on words measures it in the YZ model.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort
from scansnap.paper.shared.language_models import CLIP, MOMENTUM, WARM_UP
from scansnap.paper.shared.over_seeds import band, marks, mean_and_half
from scansnap.paper.shared.text_runs import describe_seeds
from scansnap.paper.studies.chosen_rates import edges
from scansnap.paper.studies.probe.findings import NAMES, YZ, findings, heads_of, over_heads, table_of
from scansnap.paper.studies.probe.runs import ProbeRuns, probe_runs
from scansnap.paper.studies.probe.training import MODELS, PER_DECADE
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress

TITLE = "Do GPT-2 and Llama scan and snap?"
CAPTION = (
    "Models of the library transformers, trained from scratch on text with a probe in the loop; columns are models. "
    "Top: loss on the validation text (bands: 95% intervals over seeds). Middle: every head of every seed where its "
    "attention moves fastest per unit of ln t, layers as rows from the first at the bottom; dots have snapped, "
    "triangles go on moving, those behind the dotted line faster than ever, crosses at the left have not moved. Blue "
    "heads have turned to distinct words, red ones to common words. Bottom: rank correlation of attention with three "
    "measures of its keys after training, mean over heads; dashed: the YZ model's on WikiText-2."
)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Every model with every optimiser and seed in one table; rates chosen beforehand by the loss."""
    runs = probe_runs(effort, progress)
    table = table_of(runs.records)
    chosen = {f"{model}, {optimizer}": choice for (model, optimizer), choice in runs.chosen.items()}
    rates = {name: choice.describe() for name, choice in chosen.items()}
    note = (runs.setting.note, describe_seeds(runs.setting.size.seeds), edges(chosen))
    return Computed(table, {**described(runs), "rates": rates}, findings(table), "; ".join(filter(None, note)))


def described(runs: ProbeRuns) -> dict[str, Any]:
    """The sizes, for the manifest."""
    scale = runs.scale
    return {**runs.setting.describe(), "batch": scale.batch, "length": scale.length, "models": list(MODELS),
            "width": scale.width, "heads": scale.heads, "sequences_watched": scale.watched, "clip": CLIP,
            "momentum": MOMENTUM, "warm_up_steps": max(1, runs.setting.size.steps // WARM_UP),
            "schedule": "constant after the warm-up", "measurements_per_decade": PER_DECADE,
            "transformers": version("transformers")}  # fmt: skip


def draw(computed: Computed) -> Figure:
    """Loss, heads by layer for each optimiser, correlations; a column for each model."""
    table = computed.table
    heads, last = heads_of(table), float(table.step.max())
    norm = colour_norm(heads)
    with styled(8.2, 8.0) as figure:
        rows = figure.subplots(4, len(MODELS), height_ratios=(1.1, 1.5, 1.5, 1.2), squeeze=False)
        for i, model in enumerate(MODELS):
            of_model = heads[heads.model == model]
            draw_loss(rows[0, i], table, model)
            for ax, optimizer in zip(rows[1:3, i], OPTIMIZERS, strict=True):
                draw_heads(ax, of_model[of_model.optimizer == optimizer], norm, last)
                ax.set_ylabel(f"layer ({optimizer})" if i == 0 else "")
            draw_correlations(rows[3, i], of_model, heads)
            rows[0, i].set_xlim(rows[1, i].get_xlim())
            rows[2, i].set_xlabel("training step")
        rows[0, 0].set_ylabel("loss (nats)")
        rows[0, 0].legend(loc="best")
        rows[3, 0].set_ylabel("rank correlation")
        figure.colorbar(colour_scale(norm), ax=list(rows[1:3, -1]), label="scan index", aspect=40, pad=0.02)
    return figure


OPTIMIZERS = {"AdamW": SERIES[0], "SGD": SERIES[1]}
SCAN = matplotlib.colormaps["RdBu"]  # red: to common words, blue: to distinct ones


def draw_loss(ax: Any, table: pd.DataFrame, model: str) -> None:
    """On the validation text."""
    part = table[(table.kind == "loss") & (table.model == model) & (table.step > 0)]
    for name, colour in OPTIMIZERS.items():
        wide = part[part.optimizer == name].pivot(index="step", columns="seed", values="value")
        band(ax, wide.index, wide, colour=colour, label=name)
    ax.set(title=model, xscale="log", ylim=_around(table[table.kind == "loss"].value))


def colour_norm(heads: pd.DataFrame) -> TwoSlopeNorm:
    """The same for all panels; white where attention turns neither way."""
    most = np.nanmax([heads.scan_index.abs().max(), 1e-3])
    return TwoSlopeNorm(0.0, -most, most)


def draw_heads(ax: Any, heads: pd.DataFrame, norm: TwoSlopeNorm, last: float) -> None:
    """Each head at the time of its greatest speed in ln t, layers as rows; still accelerating heads behind the end."""
    n_heads, n_seeds = heads["head"].max() + 1, heads.seed.max() + 1
    offset = (heads["head"] * n_seeds + heads.seed + 0.5) / (n_heads * n_seeds) - 0.5
    x = heads.t_fastest_ln.replace({np.inf: _never(last), 0.0: 1.0})
    y = heads.layer + 1 + 0.7 * offset
    for marker, marked in (("o", heads.snaps == 1), (">", heads.snaps != 1)):
        ax.scatter(x[marked], y[marked], c=SCAN(norm(heads.scan_index[marked])), s=14, linewidths=0.4, edgecolors="0.3",
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
    """Limits with a margin."""
    shown = np.asarray(values, dtype=np.float64)
    low, high = (float(end) for end in np.quantile(shown[np.isfinite(shown)], (0, 1)))
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def _never(last: float) -> float:
    """The position of heads that are still accelerating."""
    return 2.2 * last


def draw_correlations(ax: Any, heads: pd.DataFrame, of_all: pd.DataFrame) -> None:
    """What attention follows in the end, beside the YZ model's; all models share the limits."""
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


def colour_scale(norm: TwoSlopeNorm) -> ScalarMappable:
    """For the colour bar."""
    return ScalarMappable(norm, SCAN)
