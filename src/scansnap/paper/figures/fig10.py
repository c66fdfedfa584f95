"""Figure 10: mean entropy of attention on the validation text after training a 1-layer transformer at several rates."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from scansnap.corpus.sources import TITLES, find_corpora
from scansnap.dynamics.device import pick_device
from scansnap.measure.comparison import compare
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared.over_seeds import how, marks, number, paired, paired_steps
from scansnap.paper.shared.run_cache import cached_run
from scansnap.paper.shared.text_runs import TextSetting, describe_seeds, text_setting, train_and_evaluate, transformer
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress, share

TITLE = "Attention entropy against the learning rate on text"
CAPTION = (
    "Entropy of attention over the validation text after training, and the perplexity reached (dots: seeds; bars: 95% "
    "intervals of their mean): a larger learning rate is to give sparser attention."
)

STEPS = {"cuda": 9_000, "cpu": 150}  # of the full figure
ETA, QUICK_ETA = (1.0, 2.0, 3.0, 4.0, 5.0), (1.0, 3.0, 5.0)
NO_CHANGE = math.log(1.05)  # nats; e to the entropy is a number of keys, and 5% more or fewer of them count as none


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """One run for each corpus, rate and seed; on CUDA until about convergence, three passes over WikiText-2."""
    steps = {} if effort.quick else {"steps": STEPS[pick_device(effort.device).type]}
    settings = [text_setting(effort, source, **steps) for source in find_corpora(effort.data)]
    rates = QUICK_ETA if effort.quick else ETA
    todo = [(setting, eta, seed) for setting in settings for seed in setting.seeds for eta in rates]
    rows = []
    for i, (setting, eta, seed) in enumerate(todo):
        key = {"figure": "fig10", "eta": eta, "seed": seed, **setting.key()}
        record = cached_run(effort.cache_folder, key, partial(run, setting, eta, seed, share(progress, i, len(todo))))
        rows.append({"corpus": setting.corpus.title, "eta": eta, "seed": seed,
                     **{name: value.item() for name, value in record.items()}})  # fmt: skip
    table = pd.DataFrame(rows)
    titles = [setting.corpus.title for setting in settings]
    left_out = [title for title in TITLES.values() if not any(own.startswith(title) for own in titles)]
    note = "; ".join([*(setting.note for setting in settings), describe_seeds(settings[0].size.seeds)])
    note += f"; not run: {', '.join(left_out)}" if left_out else ""
    described = {"corpora": [setting.describe() for setting in settings], "not_run": left_out, "eta": list(rates)}
    return Computed(table, {**settings[0].describe(), **described}, findings(table), note)


def run(setting: TextSetting, eta: float, seed: int, progress: Progress | None) -> dict[str, Any]:
    result = train_and_evaluate(transformer(setting, eta=eta, seed=seed), setting, seed=seed, progress=progress)
    return {"entropy": result.entropy[0], "perplexity": result.perplexity, "failed": result.failed}


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """From the smallest rate to the largest, and from each to the next, paired by seed; a failed run never agrees."""
    table = table.assign(entropy=table.entropy.where(~table.failed))
    rates = sorted(table.eta.unique())
    ends = paired(table, "entropy", by=["corpus"], along="eta", low=rates[0], high=rates[-1])
    steps = paired_steps(table, "entropy", by=["corpus"], along="eta")
    note = f"nats, {how(table.seed.nunique())}; less than {NO_CHANGE:.3f}, 5% of the keys attended to, is none"
    several = table.corpus.nunique() > 1
    changes = "; ".join(f"{corpus + ', ' if several else ''}{name}: {number(row)}"
                        for (name, corpus), row in steps.iterrows())  # fmt: skip
    total = "; ".join(f"{corpus + ': ' if several else ''}{number(row)}" for corpus, row in ends.iterrows())
    return (
        Finding.compared(f"Entropy is lower at learning rate {rates[-1]:g} than at {rates[0]:g}", "Figure 10",
                         compare(ends, margin=NO_CHANGE), "falls", "texts", f"{total} ({note})."),
        Finding.compared("Entropy falls at each step to a larger learning rate", "Figure 10",
                         compare(steps, margin=NO_CHANGE), "falls", "steps", f"{changes} ({note})."),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """Entropy in the left panel, perplexity beside it; a failed run is not drawn."""
    table = computed.table[~computed.table.failed]
    corpora = list(table.corpus.unique())
    with styled(6.6, 0.4 + 2.3 * len(corpora)) as figure:
        for panels, corpus in zip(figure.subplots(len(corpora), 2, squeeze=False), corpora, strict=True):
            for ax, (name, label, colour) in zip(panels, (("entropy", "attention entropy (nats)", SERIES[0]),
                                                          ("perplexity", "validation perplexity", SERIES[1])),
                                                 strict=True):  # fmt: skip
                wide = table[table.corpus == corpus].pivot(index="eta", columns="seed", values=name)
                marks(ax, wide.index, wide, colour=colour, beside=0.12, markersize=4)
                ax.set(xlabel=r"learning rate $\eta$", ylabel=label, xticks=sorted(table.eta.unique()))
            panels[0].set_title(corpus)
            panels[0].set_ylim(bottom=0)
    return figure
