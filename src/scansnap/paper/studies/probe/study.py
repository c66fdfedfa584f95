"""Do ordinary language models scan and snap? The probe on transformers' GPT-2 and Llama while they learn text.

Asked is what the paper proves of one layer and the study on words finds of the YZ model: whether attention leaves
common for distinct words, whether and when it freezes, whether deeper layers follow later, what it follows in the end.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort
from scansnap.paper.shared.text_runs import seeds_said
from scansnap.paper.studies.chosen_rates import edges
from scansnap.paper.studies.probe import panels
from scansnap.paper.studies.probe.findings import findings
from scansnap.paper.studies.probe.models import MODELS
from scansnap.paper.studies.probe.runs import ProbeRuns, probe_runs
from scansnap.paper.studies.probe.table import heads_of, table_of
from scansnap.paper.studies.probe.training import CLIP, MOMENTUM, PER_DECADE, WARM_UP
from scansnap.plots.style import styled
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
    chosen = {f"{model}, {optimizer}": one for (model, optimizer), one in runs.chosen.items()}
    rates = {name: one.describe() for name, one in chosen.items()}
    note = (runs.setting.note, seeds_said(runs.setting.size.seeds), edges(chosen))
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
    norm = panels.colours(heads)
    with styled(8.2, 8.0) as figure:
        rows = figure.subplots(4, len(MODELS), height_ratios=(1.1, 1.5, 1.5, 1.2), squeeze=False)
        for i, model in enumerate(MODELS):
            own = heads[heads.model == model]
            panels.loss(rows[0, i], table, model)
            for ax, optimizer in zip(rows[1:3, i], panels.OPTIMIZERS, strict=True):
                panels.dots(ax, own[own.optimizer == optimizer], norm, last)
                ax.set_ylabel(f"layer ({optimizer})" if i == 0 else "")
            panels.correlations(rows[3, i], own, heads)
            rows[0, i].set_xlim(rows[1, i].get_xlim())
            rows[2, i].set_xlabel("training step")
        rows[0, 0].set_ylabel("loss (nats)")
        rows[0, 0].legend()
        rows[3, 0].set_ylabel("rank correlation")
        figure.colorbar(panels.scale(norm), ax=list(rows[1:3, -1]), label="scan index", aspect=40, pad=0.02)
    return figure
