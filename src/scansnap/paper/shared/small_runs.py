"""Syn-Small runs behind Figures 4 and 5: attention of a class at a few moments of training, as a heat map."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.optimize import brentq

from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.measure.entropy import entropy_of
from scansnap.paper.figure import Effort
from scansnap.plots.style import ATTENTION_MAP, COMMON, DISTINCT
from scansnap.progress import Progress
from scansnap.runs import grid
from scansnap.theory import momentum_lag, t_snap

STEPS = 100
DRAWN = (0, 2, 4, 6, 8, 10, STEPS)  # the paper's moments
LATE = 50  # recorded too: what moves after it is late movement
SEEDS, QUICK_SEEDS = 10, 3
ABSENT = "absent"  # the kind of a token that is not in the class's context: distinct to the other class
COLOURS = {"common": COMMON, "distinct": DISTINCT, ABSENT: "0.9"}
CASE = ["eta_y", "eta_z", "seq_class", "seed"]  # one attention pattern over training


def trained(effort: Effort, progress: Progress | None, *, eta_z: Sequence[float], ratio: Sequence[float],
            optimizer: str, momentum: float, record: Sequence[int] = (),
            ) -> tuple[pd.DataFrame, dict[str, Any], str]:  # fmt: skip
    """Train from zero at all combinations of η_Z and η_Y/η_Z; returns the table, the settings and the note.

    Columns: eta_y, eta_z, seed, step, seq_class, token, kind, frequency (P(l|n)), attention (c_n).
    Only the first seed is drawn; the others are what the findings' uncertainty comes from.
    """
    seeds = range(QUICK_SEEDS if effort.quick else SEEDS)
    classes = SequenceClasses.syn_small()
    runs = grid(eta_z=eta_z, ratio=ratio, seed=seeds)
    data = simulate(classes, runs, steps=STEPS, momentum=momentum, optimizer=optimizer, init="zero",
                    record=sorted({*DRAWN, LATE, *record}), variables=["attention"], device=effort.device,
                    progress=progress)  # fmt: skip
    tokens = np.unique(np.concatenate([classes.support(n)[0] for n in range(classes.n_classes)]))
    attention = data.attention.where(data.failed_step < 0).sel(token=tokens).astype(np.float64)
    table = attention.to_dataframe().reset_index()
    keys = [table["seq_class"].to_numpy(), table["token"].to_numpy()]
    p = classes.p_context
    kinds = np.full(p.shape, ABSENT, dtype=object)
    for n in range(classes.n_classes):
        kinds[n, classes.common_of(n)] = "common"
        kinds[n, classes.distinct(n)] = "distinct"
    table = table.assign(kind=kinds[*keys], frequency=p[*keys])
    columns = ["eta_y", "eta_z", "seed", "step", "seq_class", "token", "kind", "frequency", "attention"]
    settings = {"classes": "syn-small", "eta_z": list(eta_z), "ratio": list(ratio), "seeds": list(seeds),
                "momentum": momentum, **json.loads(data.attrs["settings"])}  # fmt: skip
    note = f"quick: findings from {len(seeds)} of {SEEDS} seeds" if effort.quick else ""
    return table[columns], settings, note


def snap_step(classes: SequenceClasses, eta_y: float, momentum: float) -> float:
    """t₀ in steps: when heavy-ball SGD from rest has gone as far as the flow at η_Y/(1 − μ) goes in t₀."""
    t_0 = float(t_snap(eta_y=eta_y / (1 - momentum), n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    latest = t_0 + momentum / (1 - momentum)
    return float(brentq(lambda step: step - momentum_lag(step, momentum=momentum) - t_0, 0, latest))


def patterns(table: pd.DataFrame, kind: str | None = None) -> pd.DataFrame:
    """Attention with a column for each token and a row for each case and step; of one kind of token if given.

    Of the distinct tokens, the columns are their ranks by frequency within the class, the rarest 0.
    """
    if kind is None:
        return table.pivot(index=[*CASE, "step"], columns="token", values="attention")
    of_kind = table[table["kind"] == kind]
    rank = of_kind.groupby([*CASE, "step"])["frequency"].rank(method="first").astype(int) - 1
    return of_kind.assign(rank=rank).pivot(index=[*CASE, "step"], columns="rank", values="attention")


def at(rows: pd.DataFrame | pd.Series, step: int) -> Any:
    """The rows of one step, indexed by case."""
    return rows.xs(step, level="step")


def entropies(table: pd.DataFrame) -> pd.Series:
    """Entropy of attention over all tokens."""
    rows = patterns(table)
    return pd.Series(entropy_of(rows.to_numpy()), index=rows.index, name="entropy")


def moved(table: pd.DataFrame, start: int, end: int) -> pd.Series:
    """Total variation distance between the attention at two steps: the share of attention that moved."""
    rows = patterns(table)
    return (at(rows, end) - at(rows, start)).abs().sum(axis=1, skipna=False) / 2


def common_attention(table: pd.DataFrame) -> pd.Series:
    """Total attention on the common tokens."""
    return table[table["kind"] == "common"].groupby([*CASE, "step"])["attention"].sum(min_count=1)


def heat_maps(figure: Figure, table: pd.DataFrame, layout: Sequence[Sequence[tuple[tuple[float, float], int]]],
              titles: Sequence[str]) -> None:  # fmt: skip
    """A grid of heat maps, each for ((η_Y, η_Z), class), under a bar for each token's frequency.

    One colour scale for all, so that sparsity can be compared; on the right of each row the share of attention on
    distinct tokens.
    """
    shown = table[(table["seed"] == table["seed"].min()) & table["step"].isin(DRAWN)]
    peak = shown["attention"].max()
    n_rows, n_columns = len(layout), len(layout[0])
    ratios = (0.32, 1.0) * n_rows
    panels = figure.subplots(2 * n_rows, n_columns, sharex="col", squeeze=False, height_ratios=ratios)
    image: Any = None
    for i, row in enumerate(layout):
        for j, ((eta_y, eta_z), n) in enumerate(row):
            bars, ax = panels[2 * i, j], panels[2 * i + 1, j]
            panel = shown[(shown["eta_y"] == eta_y) & (shown["eta_z"] == eta_z) & (shown["seq_class"] == n)]
            c = panel.pivot(index="step", columns="token", values="attention")
            tokens = panel[panel["step"] == 0].sort_values("token")
            x = np.arange(len(tokens))
            bars.bar(x, tokens["frequency"], width=0.85, color=[COLOURS[kind] for kind in tokens["kind"]])
            bars.set_ylim(0, 1.05 * table["frequency"].max())
            bars.set_yticks([])
            bars.spines["left"].set_visible(False)
            bars.tick_params(axis="x", bottom=False, labelbottom=False)
            c.loc[:, (tokens["kind"] == ABSENT).to_numpy()] = np.nan  # not in this class: left blank, not dark
            ax.set_facecolor(COLOURS[ABSENT])
            image = ax.imshow(c, aspect="auto", cmap=ATTENTION_MAP, vmin=0, vmax=peak, interpolation="none")
            ax.spines[:].set_visible(False)
            ax.set_xticks(x[::5], [str(token) for token in tokens["token"].iloc[::5]])
            steps = [f"final ({step})" if step == STEPS else str(step) for step in c.index]
            ax.set_yticks(range(len(c)) if j == 0 else [], steps if j == 0 else [])
            ax.tick_params(axis="x", bottom=i == n_rows - 1)
            distinct = panel[panel["kind"] == "distinct"].groupby("step")["attention"].sum()
            for place_y, share in enumerate(distinct):
                ax.annotate(f"{share:.0%}", (1.01, place_y), xycoords=("axes fraction", "data"), va="center",
                            fontsize=6.5, color=DISTINCT, annotation_clip=False)  # fmt: skip
            if i == 0:
                bars.set_title(titles[j])
            if i == n_rows - 1:
                ax.set_xlabel("token")
            if j == 0:
                ax.set_ylabel(f"class {n}\niteration" if n_rows > 1 else "iteration")
                bars.set_ylabel("$P(l|n)$", rotation=0, ha="right", va="center", fontsize=8)
    figure.colorbar(image, ax=panels, label="attention  $c_n$", pad=0.02, aspect=30)
    kinds = [kind for kind in COLOURS if kind in set(shown["kind"])]
    names = {"common": "common tokens", "distinct": "distinct tokens", ABSENT: "not in this class"}
    handles = [Patch(color=COLOURS[kind], label=names[kind]) for kind in kinds]
    handles.append(Patch(color="none", label="%: attention on distinct tokens"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), handlelength=1)
