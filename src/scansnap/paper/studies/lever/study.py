"""Is the query/key learning rate a lever of sparsity? Entropy against the ratio of rates, at equal loss.

From the exact model through those of the ablation study to GPT-2 and Llama: the same question, the same reading, and
predictions that are written down in :mod:`~scansnap.paper.studies.lever.arms`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort
from scansnap.paper.shared.language_models import CLIP, WARM_UP
from scansnap.paper.shared.over_seeds import mean_and_half
from scansnap.paper.shared.text_runs import describe_seeds
from scansnap.paper.studies.chosen_rates import edges
from scansnap.paper.studies.lever import exact
from scansnap.paper.studies.lever.arms import ADAM_SHARE, RATIOS, arms
from scansnap.paper.studies.lever.findings import OWN_RATE, exact_rows, findings, flow_rows, language_rows
from scansnap.paper.studies.lever.runs import SEEDS_SHOWN, LeverRuns, lever_runs
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress, share

TITLE = "The query/key learning rate sets how sparse attention becomes"
CAPTION = (
    "Attention entropy at equal loss against the ratio of the query/key learning rate to that of all other weights "
    "(YZ model: η_Z/η_Y), each model at the base rate chosen for it at ratio 1 (bars: 95% intervals over seeds). First "
    "panel: the exact YZ model; the line is the flow, with nothing fitted. Second: models of the ablation study. Third "
    "and fourth: language models of two layers; grey: the same multiplier on MLP weights."
)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """The exact models first, then the language models, which take most of the time."""
    records = exact.exact_records(effort.quick, SEEDS_SHOWN, effort.cache_folder, share(progress, 0, 10))
    runs = lever_runs(effort, share(progress, 1, 10, 9))
    exact_table = exact_rows(records, RATIOS)
    small = exact_table[(exact_table.case == exact.SMALL.name) & (exact_table.ratio == RATIOS[0])]
    flow = exact.flow_curve(exact.SMALL.eta or 1.0, RATIOS)
    parts = [language_rows(runs.records), exact_table, flow_rows(flow, RATIOS, small.loss_equal.tolist())]
    if runs.own:
        own = language_rows({**runs.records, **runs.own})
        parts.append(own[own.case.isin({arm.name for arm, _, _ in runs.own})].assign(kind=OWN_RATE))
    table = pd.concat(parts, ignore_index=True)
    chosen = {f"{arm.name}, ratio {ratio:.3g}": choice for (arm, ratio), choice in runs.chosen.items()}
    rates = {name: choice.describe() for name, choice in chosen.items()}
    rates |= {case.name: {"eta_y": float(record["eta"])} for case, record in records.items()}
    note = (runs.setting.note, describe_seeds(len(runs.setting.seeds)), edges(chosen))
    return Computed(table, {**described(runs, effort.quick), "rates": rates}, findings(table),
                    "; ".join(filter(None, note)))  # fmt: skip


def described(runs: LeverRuns, quick: bool) -> dict[str, Any]:
    """The sizes, for the manifest."""
    scale = runs.scale
    return {**runs.setting.describe(), "batch": scale.batch, "length": scale.length - 1, "width": scale.width,
            "heads": scale.heads, "layers": 2, "sequences_watched": scale.watched, "clip": CLIP,
            "warm_up_steps": max(1, runs.setting.size.steps // WARM_UP), "schedule": "constant after the warm-up",
            "weight_decay": 0.0, "ratios": list(RATIOS), "arms": [arm.name for arm in arms(quick)],
            "adamw_rate_over_muon": ADAM_SHARE, "exact_steps": exact.STEPS,
            "transformers": version("transformers")}  # fmt: skip


PANELS = (
    ("YZ model", (("YZ, AdamW", 1), (exact.SMALL.name, 0))),
    ("ablation study, SGD", (("finite and all before, SGD", 0), ("embedding and all before, SGD", 1),
                             ("residual and all before, SGD", 2), ("prenorm:layernorm and all before, SGD", 3))),
    ("GPT-2", (("GPT-2, AdamW", 1), ("GPT-2, SGD", 0), ("GPT-2, AdamW, MLP rate", None))),
    ("Llama", (("Llama, AdamW", 1), ("Llama with QK-norm, AdamW", 3), ("Llama, Muon", 2))),
)  # fmt: skip
GREY = "0.6"


def draw(computed: Computed) -> Figure:
    """A panel for each model; the theory's curve in the first."""
    table = computed.table
    with styled(8.2, 3.3) as figure:
        for ax, (title, cases) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            for name, colour in cases:
                _draw_case(ax, table, name, GREY if colour is None else SERIES[colour])
            ax.set(title=title, xscale="log", xlabel="ratio of rates")
            ax.set_xticks([1 / 8, 1, 8], ["1/8", "1", "8"])
            ax.minorticks_off()
            if title == "YZ model":
                flow = table[table.kind == "flow"].groupby("ratio").entropy_equal.mean()
                ax.plot(flow.index, flow, color="black", linestyle="--", linewidth=1.0, label="flow", zorder=4)
                ax.set_ylabel("attention entropy (nats)")
            ax.legend(fontsize=6.5, loc="upper center", bbox_to_anchor=(0.5, -0.24))
    return figure


def _draw_case(ax: Any, table: pd.DataFrame, name: str, colour: str) -> None:
    part = table[table.kind.isin(["lm", "exact"]) & (table.case == name)]
    wide = part.pivot(index="ratio", columns="seed", values="entropy_equal").dropna()
    if len(wide):
        mean, half = mean_and_half(wide.to_numpy())
        label = name.replace(" and all before", "").replace(", SGD", " (SGD)").replace(", AdamW", " (AdamW)")
        ax.errorbar(
            np.asarray(wide.index), mean, yerr=half, color=colour, marker="o", markersize=3.5, capsize=2, label=label
        )
