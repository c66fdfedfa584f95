"""Figure 10: mean entropy of attention on the validation text after training a 1-layer transformer at several rates."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
from matplotlib.figure import Figure

from scansnap.figures import paired
from scansnap.figures.figure import Computed, Effort, Finding, Progress
from scansnap.figures.style import SERIES, styled
from scansnap.figures.text_runs import BATCH, LENGTH, share, text_setting, trained, transformer
from scansnap.models.evaluate import attention_statistics, perplexity

TITLE = "Attention entropy against the learning rate on text"
CAPTION = (
    "Entropy of attention over the validation text after training (mean ± standard deviation over seeds), and the "
    "perplexity reached: a larger learning rate is to give sparser attention."
)

STEPS = {"cuda": 9_000, "cpu": 300}  # of the full figure
ETA, QUICK_ETA = (1.0, 2.0, 3.0, 4.0, 5.0), (1.0, 3.0, 5.0)


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """One run for each rate and seed; on CUDA until about convergence, three passes over WikiText-2."""
    setting = text_setting(effort)
    if not effort.quick:
        setting = text_setting(effort, steps=STEPS[setting.device])
    rates = QUICK_ETA if effort.quick else ETA
    rows = []
    todo = [(eta, seed) for eta in rates for seed in range(setting.size.seeds)]
    for i, (eta, seed) in enumerate(todo):
        model = transformer(setting, eta=eta, seed=seed)
        done = trained(model, setting, seed=seed, progress=share(progress, i, len(todo)))
        seen = attention_statistics(model, setting.valid, length=LENGTH)[0]
        rows.append({"corpus": setting.corpus.title, "eta": eta, "seed": seed, "entropy": seen["entropy"],
                     "perplexity": perplexity(model, setting.valid, length=LENGTH, batch=BATCH),
                     "failed": done.failed_step is not None})  # fmt: skip
    table = pd.DataFrame(rows)
    note = f"{setting.note}; {setting.size.seeds} seed{'s' * (setting.size.seeds > 1)}"
    return Computed(table, {**setting.describe(), "eta": list(rates)}, findings(table), note)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Neighbouring rates, paired by seed where there are several; a failed run never agrees."""
    table = table.assign(entropy=table.entropy.where(~table.failed), all=0)
    rates = sorted(table.eta.unique())
    seeds = table.seed.nunique()
    falls, said = 0, []
    for low, high in pairwise(rates):
        change = paired.change(table, "entropy", by=["all"], along="eta", low=low, high=high)
        falls += int((paired.falls(change) if seeds > 1 else change["mean"] < 0).sum())
        said.append(f"{low:g} to {high:g}: {change['mean'].iloc[0]:+.3f}".replace("-", "−"))
    ends = paired.change(table, "entropy", by=["all"], along="eta", low=rates[0], high=rates[-1]).iloc[0]
    error = f" ± {ends['error']:.3f}" if seeds > 1 else ""
    overall = bool(ends["mean"] < (-paired.ERRORS * ends["error"] if seeds > 1 else 0))
    counted = (
        f"beyond {paired.ERRORS:g} standard errors over {seeds} seeds" if seeds > 1 else "one seed: no uncertainty"
    )
    return (
        Finding(f"Entropy is lower at learning rate {rates[-1]:g} than at {rates[0]:g}", "Figure 10", int(overall), 1,
                "corpora", f"{ends['mean']:+.3f}{error} nats ({counted}).".replace("-", "−")),
        Finding("Entropy falls at each step to a larger learning rate", "Figure 10", falls, len(rates) - 1, "steps",
                f"{'; '.join(said)} ({counted})."),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """Entropy on the left axis' panel, perplexity beside it."""
    table = computed.table
    with styled(6.6, 2.7) as figure:
        panels = figure.subplots(1, 2)
        for ax, (name, label, colour) in zip(panels, (("entropy", "attention entropy (nats)", SERIES[0]),
                                                      ("perplexity", "validation perplexity", SERIES[1])),
                                             strict=True):  # fmt: skip
            grouped = table.groupby("eta")[name]
            spread = grouped.std().fillna(0.0)
            ax.errorbar(spread.index, grouped.mean(), yerr=spread, color=colour, marker="o", markersize=4, capsize=3)
            ax.plot(table.eta, table[name], ".", color=colour, alpha=0.35, markersize=4)
            ax.set(xlabel=r"learning rate $\eta$", ylabel=label, xticks=sorted(table.eta.unique()))
        panels[0].set_title(table.corpus.iloc[0])
        panels[0].set_ylim(bottom=0)
    return figure
