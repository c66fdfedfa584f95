"""Figure 7: attention maps of the lowest layer of 1- and 3-layer transformers while they train on text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from scansnap.figures.figure import Computed, Effort, Finding, Progress
from scansnap.figures.style import ATTENTION_MAP, styled
from scansnap.figures.text_runs import LENGTH, share, text_setting, trained, transformer
from scansnap.models.evaluate import attention_statistics
from scansnap.models.model import LanguageModel

TITLE = "Attention maps while transformers train on text"
CAPTION = (
    "Attention of the lowest layer for one validation window, before training and at three later iterations: each row "
    "is a position, attending to those before it. Above: one layer; below: three. In the corners: the entropy of "
    "attention over the validation text."
)

LAYERS, ETA = (1, 3), 5.0
MOMENTS = (0.0, 1 / 3, 2 / 3, 1.0)  # of the run: iterations 0, 500, 1000 and 1500 in the paper
FROZEN = 0.5  # the last third moves attention at most this share of what the first third did


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """Maps at four moments, entropy and movement over a longer stretch of the validation text."""
    setting = text_setting(effort)
    setting = replace(setting, note=f"{setting.note}; learning rate {ETA:g}, 1 seed")
    moments = [round(m * setting.size.steps) for m in MOMENTS]
    window = torch.as_tensor(np.asarray(setting.corpus.valid[:LENGTH], dtype=np.int64))[None]
    stretch = torch.as_tensor(np.asarray(setting.valid[: 40 * LENGTH], dtype=np.int64)).view(-1, LENGTH)

    def look(model: LanguageModel, step: int) -> dict[str, Any]:
        rows = attention_statistics(model, setting.valid, length=LENGTH)
        return {"map": model.attention(window.to(model.device))[0][0, 0],
                "rows": model.attention(stretch.to(model.device))[0][:, 0],
                "entropy": rows[0]["entropy"]}  # fmt: skip

    tables = []
    for i, layers in enumerate(LAYERS):
        model = transformer(setting, layers=layers, eta=ETA)
        seen = trained(model, setting, measure=look, snapshots=moments, progress=share(progress, i, len(LAYERS)))
        before = None
        for step in moments:
            found = seen.measured[step]
            moved = np.nan if before is None else float(np.abs(found["rows"] - before).sum(-1).mean() / 2)
            before = found["rows"]
            row, column = np.tril_indices(LENGTH)
            tables.append(pd.DataFrame({"layers": layers, "iteration": step, "row": row, "column": column,
                                        "attention": found["map"][row, column], "entropy": found["entropy"],
                                        "moved": moved}))  # fmt: skip
    table = pd.concat(tables, ignore_index=True)
    words = [setting.corpus.words[token] for token in window[0].tolist()]
    settings = {**setting.describe(), "layers": list(LAYERS), "eta": ETA, "iterations": moments, "window": words}
    return Computed(table, settings, findings(table), setting.note)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Sparser and, in the end, slower, for each model."""
    entropy = {n: part.groupby("iteration").entropy.first() for n, part in table.groupby("layers")}
    moved = {n: part.groupby("iteration").moved.first() for n, part in table.groupby("layers")}
    sparser = [n for n, e in entropy.items() if e.iloc[-1] < e.iloc[0]]
    slower = [n for n, m in moved.items() if m.iloc[-1] <= FROZEN * m.iloc[1]]
    how = "; ".join(f"{n} layer{'s' if n > 1 else ''}: {e.iloc[0]:.2f} → {e.iloc[-1]:.2f} nats"
                    for n, e in entropy.items())  # fmt: skip
    by = "; ".join(f"{n} layer{'s' if n > 1 else ''}: {m.iloc[1]:.3f}, then {m.iloc[-1]:.3f}" for n, m in moved.items())
    return (
        Finding("Attention of the lowest layer becomes sparse over training", "Figure 7", len(sparser), len(entropy),
                "models", f"Entropy over the validation text, one seed: {how}."),
        Finding("It freezes at some point, although the learning rate stays", "Section 8", len(slower), len(moved),
                "models", f"Counted where the last third moves attention by at most {FROZEN:g} of what the first third "
                f"does; mean total variation {by}."),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """Rows are models, columns iterations; one colour scale."""
    table = computed.table
    layers, moments = sorted(table.layers.unique()), sorted(table.iteration.unique())
    with styled(7.4, 4.1) as figure:
        grid = figure.subplots(len(layers), len(moments), sharex=True, sharey=True, squeeze=False)
        image: Any = None
        for i, n in enumerate(layers):
            for j, step in enumerate(moments):
                part = table[(table.layers == n) & (table.iteration == step)]
                size = int(part.row.max()) + 1
                picture = np.full((size, size), np.nan)
                picture[part.row, part.column] = part.attention
                ax = grid[i, j]
                image = ax.imshow(picture, cmap=ATTENTION_MAP, vmin=0, vmax=0.6, interpolation="none")
                ax.set_title(f"iteration {step}" if i == 0 else "")
                ax.text(0.98, 0.95, f"{part.entropy.iloc[0]:.2f} nats", transform=ax.transAxes, ha="right", va="top",
                        fontsize=8, color="0.25")  # fmt: skip
                ax.spines[:].set_visible(False)
                ax.set(xticks=[0, 10, 20, 30], yticks=[0, 10, 20, 30])
            grid[i, 0].set_ylabel(f"{n} layer{'s' if n > 1 else ''}\nposition")
        for ax in grid[-1]:
            ax.set_xlabel("attends to")
        figure.colorbar(image, ax=grid, label="attention", pad=0.01, extend="max")
    return figure
