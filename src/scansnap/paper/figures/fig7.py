"""Figure 7: attention maps of the lowest layer of 1- and 3-layer transformers while they train on text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from scansnap.measure.comparison import compare
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared.over_seeds import how, marks, number
from scansnap.paper.shared.run_cache import Record, cached_run
from scansnap.paper.shared.text_runs import LENGTH, TextSetting, describe_seeds, text_setting, trained, transformer
from scansnap.plots.style import ATTENTION_MAP, SERIES, styled
from scansnap.progress import Progress, share
from scansnap.text.evaluation import attention_statistics
from scansnap.text.model import LanguageModel

TITLE = "Attention maps while transformers train on text"
CAPTION = (
    "Attention of the lowest layer for one validation window, before training and at three later iterations: each row "
    "is a position, attending to those before it. Above: one layer; below: three, both of the first seed. Right: "
    "entropy of attention over the validation text, and how far a position's attention moved (total variation) in each "
    "third of the run; dots are seeds, bars 95% intervals of their mean."
)

LAYERS, ETA = (1, 3), 5.0  # the paper's
MOMENTS = (0.0, 1 / 3, 2 / 3, 1.0)  # of the run: iterations 0, 500, 1000 and 1500 in the paper
FROZEN = 0.5  # the last third moves attention at most this share of what the first third did


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Maps at four moments of the first seed; entropy and movement over the validation text for all seeds."""
    setting = text_setting(effort)
    setting = replace(setting, note=f"{setting.note}; learning rate {ETA:g}; {describe_seeds(setting.size.seeds)}")
    moments = [round(m * setting.size.steps) for m in MOMENTS]
    todo = [(layers, seed) for layers in LAYERS for seed in setting.seeds]
    tables = []
    for i, (layers, seed) in enumerate(todo):
        key = {"figure": "fig7", "layers": layers, "seed": seed, "eta": ETA, "moments": moments, **setting.key()}
        make = partial(run, setting, layers, seed, moments, share(progress, i, len(todo)))
        record = cached_run(effort.cache_folder, key, make)
        tables.append(pd.DataFrame({"kind": "run", "layers": layers, "seed": seed, "iteration": moments,
                                    "entropy": record["entropy"], "moved": record["moved"]}))  # fmt: skip
        if seed == setting.seeds[0]:
            row, column = np.tril_indices(LENGTH)
            tables += [pd.DataFrame({"kind": "map", "layers": layers, "seed": seed, "iteration": step, "row": row,
                                     "column": column, "attention": picture[row, column]})
                       for step, picture in zip(moments, record["maps"], strict=True)]  # fmt: skip
    table = pd.concat(tables, ignore_index=True)
    words = [setting.corpus.words[token] for token in window(setting)[0].tolist()]
    settings = {**setting.describe(), "layers": list(LAYERS), "eta": ETA, "iterations": moments, "window": words}
    return Computed(table, settings, findings(table), setting.note)


def window(setting: TextSetting) -> torch.Tensor:
    """(1, T): the validation text's first."""
    return torch.as_tensor(np.asarray(setting.corpus.valid[:LENGTH], dtype=np.int64))[None]


def run(setting: TextSetting, layers: int, seed: int, moments: list[int], progress: Progress | None) -> Record:
    """Entropy, movement since the moment before, and the map, at each moment; NaN from where the training failed."""
    stretch = torch.as_tensor(np.asarray(setting.valid[: 40 * LENGTH], dtype=np.int64)).view(-1, LENGTH)

    def measure(model: LanguageModel, step: int) -> dict[str, Any]:
        rows = attention_statistics(model, setting.valid, length=LENGTH)
        return {"map": model.attention(window(setting).to(model.device))[0][0, 0],
                "rows": model.attention(stretch.to(model.device))[0][:, 0],
                "entropy": rows[0]["entropy"]}  # fmt: skip

    model = transformer(setting, layers=layers, eta=ETA, seed=seed)
    measured = trained(model, setting, seed=seed, measure=measure, snapshots=moments, progress=progress).measured
    nothing = {"map": np.full((LENGTH, LENGTH), np.nan), "rows": np.nan, "entropy": np.nan}
    at = [measured.get(step, nothing) for step in moments]
    moved = [float(np.abs(b["rows"] - a["rows"]).sum(-1).mean() / 2) for a, b in pairwise(at)]
    return {"entropy": np.array([values["entropy"] for values in at]), "moved": np.array([np.nan, *moved]),
            "maps": np.stack([values["map"] for values in at])}  # fmt: skip


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Sparser and, in the end, slower, for each model, judged over seeds."""
    runs = table[table.kind == "run"]
    entropy, moved = (runs.pivot(index=["layers", "seed"], columns="iteration", values=v) for v in ("entropy", "moved"))
    change = (entropy.iloc[:, -1] - entropy.iloc[:, 0]).unstack("seed")  # (models, seeds)
    slowed = (moved.iloc[:, -1] - FROZEN * moved.iloc[:, 1]).unstack("seed")
    ratio = (moved.iloc[:, -1] / moved.iloc[:, 1]).unstack("seed")
    seeds = how(runs.seed.nunique())
    fell = "; ".join(f"{_layers(n)}: {number(row)}" for n, row in zip(change.index, change.to_numpy(), strict=True))
    rest = "; ".join(f"{_layers(n)}: {number(row, signed=False)}"
                     for n, row in zip(ratio.index, ratio.to_numpy(), strict=True))  # fmt: skip
    return (
        Finding.compared("Attention of the lowest layer becomes sparse over training", "Figure 7", compare(change),
                         "falls", "models", f"Change of entropy over the validation text in nats, {fell} ({seeds}).",
                         headline=8),
        Finding.compared("It freezes at some point, although the learning rate stays", "Section 8", compare(slowed),
                         "falls", "models", f"Counted where the last third of the run moves attention by less than "
                         f"{FROZEN:g} of what the first third does; that share is {rest} ({seeds})."),
    )  # fmt: skip


def _layers(n: int) -> str:
    return f"{n} layer{'s' if n > 1 else ''}"


def draw(computed: Computed) -> Figure:
    """Rows are models, columns iterations, one colour scale; on the right what the seeds have in common."""
    table = computed.table
    maps, runs = (table[table.kind == kind] for kind in ("map", "run"))
    layers, moments = sorted(maps.layers.unique()), sorted(maps.iteration.unique())
    with styled(9.6, 4.1) as figure:
        halves: Any = figure.subfigures(1, 2, width_ratios=(3.1, 1))
        pictures, curves = halves
        grid = pictures.subplots(len(layers), len(moments), sharex=True, sharey=True, squeeze=False)
        image: Any = None
        for i, n in enumerate(layers):
            for j, step in enumerate(moments):
                part = maps[(maps.layers == n) & (maps.iteration == step)]
                rows, columns = part.row.astype(int), part.column.astype(int)
                picture = np.full((rows.max() + 1,) * 2, np.nan)
                picture[rows, columns] = part.attention
                ax = grid[i, j]
                image = ax.imshow(picture, cmap=ATTENTION_MAP, vmin=0, vmax=0.6, interpolation="none")
                ax.set_title(f"iteration {step}" if i == 0 else "")
                ax.spines[:].set_visible(False)
                ax.set(xticks=[0, 10, 20, 30], yticks=[0, 10, 20, 30])
            grid[i, 0].set_ylabel(f"{_layers(n)}\nposition")
        for ax in grid[-1]:
            ax.set_xlabel("attends to")
        pictures.colorbar(image, ax=grid, label="attention", pad=0.01, extend="max")
        above, below = curves.subplots(2, 1, sharex=True)
        for i, (n, part) in enumerate(runs.groupby("layers")):
            for ax, name in ((above, "entropy"), (below, "moved")):
                wide = part.pivot(index="iteration", columns="seed", values=name).dropna(how="all")
                gap = moments[-1] / 40
                marks(ax, wide.index + gap * (2 * i - 1), wide, colour=SERIES[i], beside=gap, markersize=4,
                      label=_layers(n))  # fmt: skip
        above.set(ylabel="entropy (nats)", ylim=(0, None))
        below.set(ylabel="moved in the third", xlabel="iteration", ylim=(0, None), xticks=moments)
        above.legend(loc="best")
    return figure
