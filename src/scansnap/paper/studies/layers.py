"""Depth on text: perplexity and attention of transformers and YZ models of 1 to 5 layers, with and without residual."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.dynamics.device import pick_device
from scansnap.measure.comparison import Statement, compare
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared.over_seeds import how, marks, mean_and_half, paired
from scansnap.paper.shared.run_cache import cached_run
from scansnap.paper.shared.text_runs import (
    TextSetting,
    describe_seeds,
    text_setting,
    train_and_evaluate,
    transformer,
    yz_settings,
)
from scansnap.paper.studies.chosen_rates import (
    ADAM_TRANSFORMER,
    ADAM_YZ,
    ChosenRates,
    RateChoice,
    choose_on_text,
    edges,
)
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress, share
from scansnap.text.model import LanguageModel
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.tables import InitialTables

TITLE = "Depth on text: transformers and YZ models"
CAPTION = (
    "Validation perplexity and attention entropy (mean of the layers) after the same number of Adam steps, each model, "
    "depth and residual at the rate chosen for it; dots: seeds, bars: 95% intervals of their mean. Grey: guessing by "
    "word frequency alone. Is YZ behind the embedding model, does it get worse with depth, and what does the residual "
    "connection do?"
)

LAYERS, QUICK_LAYERS = (1, 2, 3, 5), (1, 2, 3)
SIZES: dict[tuple[bool, bool], dict[str, Any]] = {  # by (CUDA, quick)
    (False, True): {"max_words": 300, "steps": 40, "seeds": 1, "valid_tokens": 3_000},
    (False, False): {"max_words": 300, "steps": 60, "seeds": 3, "valid_tokens": 3_000},
    (True, True): {"max_words": 5_000, "steps": 200, "seeds": 1, "valid_tokens": 20_000},
    (True, False): {"max_words": 5_000, "steps": 600, "seeds": 5, "valid_tokens": 20_000},
}
WIDTH = {"cuda": 200, "cpu": 100}  # of the transformer; the paper's is 200
MODELS = ("transformer", "YZ")
GRID = {"transformer": ADAM_TRANSFORMER, "YZ": ADAM_YZ}
NO_CHANGE = math.log(1.02)  # of perplexity: two percent more or less count as none
SLIDES = "The authors' slides"


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """One run for each model, depth, residual and seed, all with the same number of steps; rates chosen beforehand."""
    setting = text_setting(effort, **SIZES[pick_device(effort.device).type == "cuda", effort.quick])
    depths = QUICK_LAYERS if effort.quick and setting.device != "cuda" else LAYERS
    cases = [(kind, n, residual) for n in depths for residual in (True, False) for kind in MODELS]
    rounds = len(cases) * (1 + len(setting.seeds))  # choosing costs as much as a seed
    chosen: dict[str, ChosenRates] = {}
    start: dict[int, InitialTables] = {}
    for i, case in enumerate(cases):
        chosen[_named(*case)] = choose_on_text(
            setting, partial(build, setting, *case, start=start), GRID[case[0]], folder=effort.cache_folder,
            progress=share(progress, i, rounds), model=case[0], layers=case[1], residual=case[2],
        )  # fmt: skip
    rows = []
    for i, (seed, case) in enumerate(product(setting.seeds, cases)):
        rates = chosen[_named(*case)].rates
        key = {"figure": "layers", "model": case[0], "layers": case[1], "residual": case[2], "seed": seed, **rates}
        make = partial(run, setting, case, rates, seed, start, share(progress, len(cases) + i, rounds))
        record = cached_run(effort.cache_folder, {**key, **setting.key()}, make)
        rows.append({**key, **{name: value.item() for name, value in record.items()}})
    table = pd.DataFrame(rows).drop(columns="figure")
    unigram = guessing(setting)
    parts = (f"{setting.note} of Adam", describe_seeds(setting.size.seeds), edges(chosen))
    settings = {**setting.describe(), "layers": list(depths), "optimizer": "adam", "width": WIDTH[setting.device],
                "rates": {name: choice.describe() for name, choice in chosen.items()},
                "unigram_perplexity": unigram}  # fmt: skip
    return Computed(table, settings, findings(table), "; ".join(filter(None, parts)), {"unigram": unigram})


def run(
    setting: TextSetting,
    case: tuple[str, int, bool],
    rates: RateChoice,
    seed: int,
    start: dict[int, InitialTables],
    progress: Progress | None,
) -> dict[str, Any]:
    result = train_and_evaluate(build(setting, *case, rates, seed, start), setting, seed=seed, progress=progress)
    return {"perplexity": result.perplexity, "entropy": float(np.mean(result.entropy)),
            "entropy_first": result.entropy[0], "entropy_last": result.entropy[-1],
            "failed": result.failed}  # fmt: skip


def build(
    setting: TextSetting,
    kind: str,
    layers: int,
    residual: bool,
    rates: RateChoice,
    seed: int,
    start: dict[int, InitialTables] | None = None,
) -> LanguageModel:
    """A model of the comparison. Adam for both: plain SGD brings YZ less far in so few steps.

    start  initial tables by seed, which YZ models of all depths share
    """
    if kind == "transformer":
        width = WIDTH[setting.device]
        return transformer(setting, layers=layers, residual=residual, optimizer="adam", seed=seed, width=width,
                           feed_forward=width, **rates)  # fmt: skip
    settings = yz_settings(setting, layers=layers, residual="normed" if residual else "none", init="uniform",
                           optimizer="adam", seed=seed, **rates)  # fmt: skip
    start = {} if start is None else start
    if seed not in start:  # one at a time: seeds come one after the other
        start.clear()
        start[seed] = InitialTables(settings, setting.device)
    return YZTransformer(settings, setting.device, initial_tables=start[seed])


def guessing(setting: TextSetting) -> float:
    """Validation perplexity of the training text's word frequencies, each word counted once more than it occurs."""
    counts = np.bincount(setting.corpus.train, minlength=setting.corpus.vocab_size) + 1.0
    return float(np.exp(-np.log(counts / counts.sum())[setting.valid[1:]].mean()))


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """What the authors' slides say, on the logarithm of perplexity, paired by seed; a failed run never agrees."""
    table = table.assign(nats=np.log(table.perplexity.where(~table.failed)))
    only = table[table.model == "YZ"]
    depths = [int(n) for n in sorted(table.layers.unique())]
    deepest, middle = depths[-1], min(3, depths[-1])

    def counted(says: str, statement: Statement, cases: str, what: str, part: pd.DataFrame, by: list[str], along: str,
                low: Any, high: Any) -> Finding:  # fmt: skip
        """How perplexity changes from low to high of ``along``, for each case of ``by``."""
        family = paired(part, "nats", by=by, along=along, low=low, high=high)
        rows = zip(family.index, family.to_numpy(), strict=True)
        changes = "; ".join(f"{_case(by, case)}: {_percent(row)}" for case, row in rows)
        detail = (
            f"Perplexity {what}, {changes} ({how(family.shape[1])}; less than {math.expm1(NO_CHANGE):.0%} is none)."
        )
        return Finding.compared(says, SLIDES, compare(family, margin=NO_CHANGE), statement, cases, detail)

    beyond = f"YZ gets worse beyond 3 layers, from 3 to {deepest}"
    return (
        counted("YZ trains on text, behind the embedding model", "rises", "settings", "of YZ against the transformer",
                table, ["layers", "residual"], "model", "transformer", "YZ"),
        counted("YZ is worse without its residual connection", "rises", "depths", "without against with", only,
                ["layers"], "residual", True, False),
        counted(beyond, "rises", "settings", f"of {deepest} layers against 3", only, ["residual"], "layers", 3, deepest)
        if deepest > 3
        else Finding("YZ gets worse beyond 3 layers", SLIDES, 0, 0, "settings", "No model here has more."),
        counted(f"YZ does not get worse up to {middle} layers", "does not rise", "settings",
                f"of {middle} layers against {depths[0]}", only, ["residual"], "layers", depths[0], middle),
    )  # fmt: skip


def _named(kind: str, layers: int, residual: bool) -> str:
    return f"{kind} {layers}{'' if residual else ' without residual'}"


def _case(by: list[str], case: Any) -> str:
    values = dict(zip(by, case if isinstance(case, tuple) else (case,), strict=True))
    words = [f"{values['layers']} layer{'s' if values['layers'] > 1 else ''}"] if "layers" in values else []
    if "residual" in values:
        words.append("with residual" if values["residual"] else "without residual")
    return ", ".join(words)


def _percent(nats: np.ndarray) -> str:
    """Differences of logarithms over seeds as a percentage: the mean, and the wider half of its interval."""
    change = compare(nats)
    mean, high = (100 * math.expm1(float(x[0])) for x in (change.mean, change.high))
    if not math.isfinite(mean):
        return "a run failed"
    width = f" ± {high - mean:.1f}" if math.isfinite(high) else ""
    return f"{mean:+.1f}{width}%".replace("-", "−")


def draw(computed: Computed) -> Figure:
    """Perplexity and entropy over depth; colours are models, dashes stand for no residual."""
    table = computed.table[~computed.table.failed & np.isfinite(computed.table.perplexity)]
    panels_of = (("perplexity", "validation perplexity"), ("entropy", "attention entropy (nats)"))
    shown = [*table.perplexity, computed.extra["unigram"]]
    with styled(7.8, 3.4) as figure:
        panels = figure.subplots(1, 2)
        for ax, (name, label) in zip(panels, panels_of, strict=True):
            for i, ((kind, residual), part) in enumerate(table.groupby(["model", "residual"], sort=False)):
                colour = SERIES[MODELS.index(kind)]
                wide = part.pivot(index="layers", columns="seed", values=name)  # NaN, and no mean, where a run failed
                if name == "perplexity":
                    mean, half = mean_and_half(wide)
                    shown += [end for end in (*(mean - half), *(mean + half)) if end > table.perplexity.min() / 2]
                marks(ax, wide.index + 0.12 * (i - 1.5), wide, colour=colour, beside=0.05,
                      linestyle="-" if residual else "--", markerfacecolor=colour if residual else "white",
                      label=f"{kind}, {'residual' if residual else 'no residual'}")  # fmt: skip
            ax.set(xlabel="layers", ylabel=label, xticks=sorted(table.layers.unique()))
        panels[0].axhline(computed.extra["unigram"], color="0.6", linewidth=0.9, zorder=0, label="word frequencies")
        panels[0].set_yscale("log")
        _plain_ticks(panels[0], shown)
        panels[1].set_ylim(bottom=0)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def _plain_ticks(ax: Any, values: list[float]) -> None:
    """A logarithmic axis over less than two decades wants numbers people read."""
    low, high = 0.93 * min(values), 1.07 * max(values)
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)):
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [step * 10.0**e for e in exponents for step in steps if low <= step * 10.0**e <= high]
        if len(ticks) >= 4:
            break
    ax.set_ylim(low, high)
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
