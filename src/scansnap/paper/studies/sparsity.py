"""Contextual sparsity on text: how few keys carry the attention, and what leaving the others out costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.dynamics.device import pick_device
from scansnap.measure.comparison import compare
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared.over_seeds import how, mean_and_half, percent
from scansnap.paper.shared.text_runs import TextSetting, describe_seeds, trained, transformer
from scansnap.paper.studies.chosen_rates import SGD_TRANSFORMER, at_chosen_rates, edges
from scansnap.paper.studies.words.runs import MASSES, key_sparsity, sparsity_rows, word_runs
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress, share
from scansnap.text.model import LanguageModel

TITLE = "Contextual sparsity on text"
CAPTION = (
    "Of the words before a position, the share that carries 50 to 99% of its attention, and how much perplexity on the "
    "validation text rises when all others are dropped at inference, in every layer at once (dots: seeds; bars: 95% "
    "intervals of their mean). Dashed: what uniform attention would need."
)

DEEP = 3
DEEP_STEPS = {(False, True): 40, (False, False): 100, (True, True): 2_000, (True, False): 8_000}  # by (CUDA, quick)
COST = 0.01  # how much perplexity may rise and still be the same
FEW = 0.5  # a set of keys is small below this share of them
MASS = 0.95


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """The models of the figure on words, and deeper transformers."""
    runs = word_runs(effort, share(progress, 0, 2))
    steps = DEEP_STEPS[pick_device(effort.device).type == "cuda", effort.quick]
    deep = replace(runs.setting, size=replace(runs.setting.size, steps=steps))
    chosen, deep_records = at_chosen_rates(
        deep, lambda rates, seed: transformer(deep, layers=DEEP, seed=seed, **rates), SGD_TRANSFORMER, deep_record,
        progress=share(progress, 1, 2), folder=effort.cache_folder, figure="sparsity", layers=DEEP, masses=MASSES,
    )  # fmt: skip
    name = f"transformer, {DEEP} layers"
    records = {"YZ, 1 layer": runs.yz, "transformer, 1 layer": runs.transformer, name: deep_records}
    tables = [sparsity_rows(record, model, seed) for model, by_seed in records.items()
              for seed, record in zip(deep.seeds, by_seed, strict=True)]  # fmt: skip
    table = pd.concat(tables, ignore_index=True)
    every = {**runs.chosen, name: chosen}
    settings = {**runs.setting.describe(), "deep_layers": DEEP, "deep_steps": steps,
                "transformer_steps": runs.transformer_steps,
                "rates": {kind: choice.describe() for kind, choice in every.items()}}  # fmt: skip
    text, yz_steps = runs.setting.note.rsplit("; ", 1)
    note = (text, f"YZ {yz_steps}, transformers {runs.transformer_steps} and {steps}",
            describe_seeds(runs.setting.size.seeds), edges(every))  # fmt: skip
    return Computed(table, settings, findings(table), "; ".join(filter(None, note)))


def deep_record(model: LanguageModel, setting: TextSetting, seed: int, progress: Progress | None) -> dict[str, Any]:
    done = trained(model, setting, seed=seed, progress=progress)
    return key_sparsity(model, setting, failed=done.failed_step is not None)


def cost(table: pd.DataFrame) -> pd.DataFrame:
    """By model, mass and seed: the share of keys needed (mean of the layers) and the relative rise of perplexity."""
    comparison = table.groupby(["model", "mass", "seed"], sort=False, as_index=False).agg(
        share_needed=("share_needed", lambda column: column.mean(skipna=False)),
        whole=("perplexity", "first"), kept=("perplexity_kept", "first"),
    )  # fmt: skip
    return comparison.assign(rise=comparison.kept / comparison.whole - 1)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """For each model, judged over seeds."""
    at = cost(table)
    at = at[np.isclose(at.mass, MASS)]
    shares, rises = (at.pivot(index="model", columns="seed", values=v) for v in ("share_needed", "rise"))
    over = how(at.seed.nunique())
    few = "; ".join(f"{name}: {percent(row, signed=False)}" for name, row in shares.iterrows())
    cheap = "; ".join(f"{name}: {percent(row)}" for name, row in rises.iterrows())
    return (
        Finding.compared(f"Few keys, less than {FEW:.0%} of them, carry {MASS:.0%} of the attention",
                         "The authors' slides", compare(shares - FEW), "falls", "models", f"{few} ({over})."),
        Finding.compared(f"The keys with {MASS:.0%} of the attention suffice: perplexity rises by less than {COST:.0%} "
                         "without the others", "The authors' slides", compare(rises - COST), "falls", "models",
                         f"{cheap} ({over})."),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """Keys needed over mass, and the rise of perplexity against the keys used."""
    table = cost(computed.table)
    with styled(7.6, 3.1) as figure:
        left, right = figure.subplots(1, 2)
        ends = [0.0]
        for name, part in table.groupby("model", sort=False):
            colour = SERIES[1] if name.startswith("YZ") else SERIES[0] if "1 layer" in name else SERIES[4]
            wide = {v: 100 * part.pivot(index="mass", columns="seed", values=v) for v in ("share_needed", "rise")}
            (needed, width), (rise, height) = (mean_and_half(frame) for frame in wide.values())
            masses = 100 * wide["rise"].index.to_numpy()
            style = {"color": colour, "marker": "o", "markersize": 4, "capsize": 2, "label": name}
            left.errorbar(masses, needed, yerr=width, **style)
            right.errorbar(needed, rise, xerr=width, yerr=height, **style)
            dots = {"color": colour, "markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.5, "zorder": 4}
            left.plot(masses, wide["share_needed"], ".", **dots)
            right.plot(wide["share_needed"].to_numpy().ravel(), wide["rise"].to_numpy().ravel(), ".", **dots)
            ends += [end for end in (*(rise - height), *(rise + height)) if np.isfinite(end)]
        masses = 100 * np.sort(table.mass.unique())
        left.plot(masses, masses, "--", color="0.6", linewidth=1, zorder=0)
        left.set(xlabel="attention kept (%)", ylabel="keys needed (%)", ylim=(0, 102))
        left.legend(loc="upper left")
        right.axhline(100 * COST, color="0.6", linewidth=0.9, linestyle=":", zorder=0)
        right.annotate("+1%", (1, 100 * COST), xycoords=("axes fraction", "data"), xytext=(0, 2), ha="right",
                       textcoords="offset points", fontsize=7.5, color="0.45")  # fmt: skip
        right.axhline(0, color="0.85", linewidth=0.8, zorder=0)
        right.set_yscale("symlog", linthresh=1.0, linscale=0.7)
        low, high = min(-0.3, 1.5 * min(ends)), max(3.0, 1.5 * max(ends))
        ticks = [t for t in (-30, -10, -3, -1, 0, 1, 3, 10, 30, 100, 300, 1000) if low <= t <= high]
        right.set(xlabel="keys kept (%)", ylabel="rise of perplexity (%)", xlim=(0, 102), ylim=(low, high))
        right.set_yticks(ticks, [f"{t:g}".replace("-", "−") for t in ticks])
        right.minorticks_off()
    return figure
