"""Contextual sparsity on text: how few keys carry the attention, and what leaving the others out costs."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.dynamics.device import pick_device
from scansnap.figures.figure import Computed, Effort, Finding, Progress
from scansnap.figures.paired import ERRORS, said
from scansnap.figures.style import SERIES, styled
from scansnap.figures.text_runs import text_setting, trained, transformer
from scansnap.figures.word_runs import BLOCKS, ETA, SIZES, sparsity_rows, word_run
from scansnap.measure.word_attention import mean_error

TITLE = "Contextual sparsity on text"
CAPTION = (
    "Of the words before a position, the share that carries 50 to 99% of its attention, and how much perplexity on the "
    "validation text rises when all others are dropped at inference, in every layer at once (bars: standard error over "
    f"{BLOCKS} pieces of the text). Dashed: what uniform attention would need."
)

DEEP, DEEP_ETA = 3, 1.0
DEEP_STEPS = {(False, True): 150, (False, False): 400, (True, True): 2_000, (True, False): 8_000}  # by (CUDA, quick)
COST = 0.01  # how much perplexity may rise and still be the same
FEW = 0.5  # a set of keys is small below this share of them
MASS = 0.95


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """The models of the figure on words, and a deeper transformer; one seed each."""
    cuda = pick_device(effort.device).type == "cuda"
    run = word_run(effort, None if progress is None else lambda done, total: progress(done, 2 * total))
    deep = text_setting(effort, **{**SIZES[cuda, effort.quick], "steps": DEEP_STEPS[cuda, effort.quick]})
    model = transformer(deep, layers=DEEP, eta=DEEP_ETA)
    trained(model, deep, seed=0, progress=None if progress is None else lambda done, n: progress(n + done, 2 * n))
    name = f"transformer, {DEEP} layers"
    table = pd.concat([run.sparsity, sparsity_rows(model, run.setting, name)], ignore_index=True)
    settings = {**run.setting.describe(), "seeds": [0], "eta": ETA, "deep_layers": DEEP, "deep_eta": DEEP_ETA,
                "deep_steps": deep.size.steps, "eta_y": run.eta_y, "eta_z": run.eta_z}  # fmt: skip
    parts = run.setting.note.rsplit("; ", 1)
    return Computed(table, settings, findings(table), f"{parts[0]}; YZ {parts[1]}, transformers "
                    f"{run.transformer_steps} and {deep.size.steps}; 1 seed")  # fmt: skip


def cost(table: pd.DataFrame) -> pd.DataFrame:
    """By model, mass and block: the share of keys needed (mean of the layers) and the relative rise of perplexity."""
    found = table.groupby(["model", "mass", "block"], sort=False, as_index=False).agg(
        share_needed=("share_needed", "mean"), whole=("perplexity", "first"), kept=("perplexity_kept", "first")
    )
    return found.assign(rise=found.kept / found.whole - 1)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """For each model, with the uncertainty over pieces of the text."""
    at = cost(table)
    at = at[np.isclose(at.mass, MASS)]
    few, cheap, shares, rises = 0, 0, [], []
    for name, part in at.groupby("model", sort=False):
        share, rise = mean_error(part.share_needed.to_numpy()), mean_error(part.rise.to_numpy())
        few += int(share[0] + ERRORS * share[1] < FEW)
        cheap += int(rise[0] + ERRORS * rise[1] < COST)
        shares.append(f"{name}: {100 * share[0]:.0f} ± {100 * share[1]:.0f}%")
        rises.append(f"{name}: {said(100 * rise[0], 100 * rise[1])}%")
    n = at.model.nunique()
    return (
        Finding(f"Few keys, less than {FEW:.0%} of them, carry {MASS:.0%} of the attention", "The authors' slides", few,
                n, "models", f"{'; '.join(shares)}."),
        Finding(f"The keys with {MASS:.0%} of the attention suffice: perplexity rises by less than {COST:.0%} without "
                "the others", "The authors' slides", cheap, n, "models", f"{'; '.join(rises)}."),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """Keys needed over mass, and the price of dropping the rest against the keys kept."""
    table = cost(computed.table)
    with styled(7.6, 3.1) as figure:
        left, right = figure.subplots(1, 2)
        for name, part in table.groupby("model", sort=False):
            colour = SERIES[1] if name.startswith("YZ") else SERIES[0] if "1 layer" in name else SERIES[4]
            grouped = part.groupby("mass")
            share, rise = grouped.share_needed, 100 * part.rise.groupby(part.mass).mean()
            errors = {"x": 100 * share.sem(), "y": 100 * grouped.rise.sem()}
            left.errorbar(100 * grouped.share_needed.mean().index, 100 * share.mean(), yerr=errors["x"], color=colour,
                          marker="o", markersize=4, capsize=2, label=name)  # fmt: skip
            right.errorbar(100 * share.mean(), rise, xerr=errors["x"], yerr=errors["y"], color=colour, marker="o",
                           markersize=4, capsize=2, label=name)  # fmt: skip
        masses = 100 * np.sort(table.mass.unique())
        left.plot(masses, masses, "--", color="0.6", linewidth=1, zorder=0)
        left.set(xlabel="attention kept (%)", ylabel="keys needed (%)", ylim=(0, 102))
        left.legend(loc="upper left")
        right.axhline(100 * COST, color="0.6", linewidth=0.9, linestyle=":", zorder=0)
        right.annotate("+1%", (1, 100 * COST), xycoords=("axes fraction", "data"), xytext=(0, 2), ha="right",
                       textcoords="offset points", fontsize=7.5, color="0.45")  # fmt: skip
        right.axhline(0, color="0.85", linewidth=0.8, zorder=0)
        right.set_yscale("symlog", linthresh=1.0, linscale=0.7)
        rises = 100 * table.rise.groupby([table.model, table.mass]).mean()
        low, high = min(-0.3, 1.5 * rises.min()), max(3.0, 1.5 * rises.max())
        ticks = [t for t in (-30, -10, -3, -1, 0, 1, 3, 10, 30, 100, 300, 1000) if low <= t <= high]
        right.set(xlabel="keys kept (%)", ylabel="rise of perplexity (%)", xlim=(0, 102), ylim=(low, high))
        right.set_yticks(ticks, [f"{t:g}".replace("-", "−") for t in ticks])
        right.minorticks_off()
    return figure
