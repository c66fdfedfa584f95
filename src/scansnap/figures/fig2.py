"""Figure 2: the un-normalised attention c̃ = P e^z of two classes of one query, at four moments of a training run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.figures.figure import Computed, Effort, Finding, Progress
from scansnap.figures.style import COMMON, DISTINCT, styled

TITLE = "Four moments of attention"
CAPTION = (
    "Un-normalised attention P(l|n) e^z of two classes that share a query, in one training run. Common tokens (orange) "
    "are suppressed first; then the distinct tokens (blue) that were largest at the start take over; in the end hardly "
    "anything moves."
)

MOMENTS = {"(a) initialisation": 0, "(b) common tokens suppressed": 5, "(c) winners emerge": 20,
           "(d) almost frozen": 100}  # fmt: skip
CLASSES = {"n_queries": 1, "next_per_query": 2, "common": 3, "common_weight": 0.8, "distinct": 5,
           "distinct_weights": [0.3, 0.5, 0.7, 0.9, 1.2]}  # fmt: skip
TRAINING = {"eta_y": 4.0, "eta_z": 4.0, "seed": 0, "momentum": 0.9, "steps": 100, "batch_size": 128, "context": 128,
            "init": "zero"}  # fmt: skip
SLOW = 0.01  # almost frozen: below this share of the top speed


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """c̃ at the four moments, and the speed Σ|Δc| of attention there."""
    knobs: dict[str, Any] = CLASSES
    training: dict[str, Any] = TRAINING
    classes = SequenceClasses.synthetic(**knobs)
    data = simulate(classes, **training, record="all", device=effort.device, progress=progress).isel(run=0)
    if not data.attrs["complete"]:
        raise KeyboardInterrupt
    z = data.z.sel(query=int(classes.query[0])).values  # (step, M)
    speed = np.abs(np.diff(data.attention.values, axis=0)).sum(-1)  # (step, K)
    rows = []
    for label, step in MOMENTS.items():
        for n in range(classes.n_classes):
            share = speed[max(step - 1, 0), n] / speed[:, n].max()
            for token, p in zip(*classes.support(n), strict=True):
                kind = "common" if token in classes.common else "distinct"
                rows.append({"moment": label, "step": step, "class": n, "token": int(token), "kind": kind, "p": p,
                             "z": z[step, token], "attention_unnormalised": p * np.exp(z[step, token]),
                             "speed_over_top": share})  # fmt: skip
    table = pd.DataFrame(rows)
    return Computed(table, {"classes": CLASSES, **TRAINING, "moments": list(MOMENTS.values())}, findings(table))


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """The four stages, checked class by class."""
    a, b, c, d = (table[table.moment == label] for label in MOMENTS)
    value = "attention_unnormalised"

    def share(part: pd.DataFrame) -> pd.Series:
        common = part[part.kind == "common"].groupby("class")[value].sum()
        return common / part.groupby("class")[value].sum()

    fell = (b[b.kind == "common"].z.to_numpy() < a[a.kind == "common"].z.to_numpy()).sum()
    rose = (c[c.kind == "distinct"].z.to_numpy() > a[a.kind == "distinct"].z.to_numpy()).sum()
    first = a[a.kind == "distinct"].groupby("class").apply(lambda x: x.loc[x[value].idxmax(), "token"])
    winner = c.groupby("class").apply(lambda x: x.loc[x[value].idxmax(), "token"])
    speed = d.groupby("class").speed_over_top.first()
    n = len(speed)
    return (
        Finding("Common tokens are suppressed", "Theorem 2(b), Figure 2(b)", int(fell), int((a.kind == "common").sum()),
                "common tokens", f"Their share of attention falls from {share(a).mean():.2f} to {share(b).mean():.2f} "
                f"at step 5 and {share(d).mean():.2f} at the end."),
        Finding("Distinct tokens gain", "Theorem 2(a)", int(rose), int((a.kind == "distinct").sum()),
                "distinct tokens"),
        Finding("The distinct token that was largest at the start dominates", "Theorem 3, Figure 2(c)",
                int((first == winner).sum()), n, "classes"),
        Finding(f"In the end attention is almost frozen (below {SLOW:g} of its top speed)", "Theorem 4, Figure 2(d)",
                int((speed < SLOW).sum()), n, "classes",
                f"At step 100 it moves at {', '.join(f'{s:.1e}' for s in speed)} of its top speed."),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """Rows are classes, columns moments."""
    table = computed.table
    classes = sorted(table["class"].unique())
    with styled(8.6, 3.5) as figure:
        grid = figure.subplots(len(classes), len(MOMENTS), sharey=True, squeeze=False)
        for j, label in enumerate(MOMENTS):
            for i, n in enumerate(classes):
                ax, part = grid[i, j], table[(table.moment == label) & (table["class"] == n)]
                colours = [COMMON if kind == "common" else DISTINCT for kind in part.kind]
                ax.bar(range(len(part)), part.attention_unnormalised, color=colours, width=0.8)
                ax.set_xticks(range(len(part)), [str(token) for token in part.token], fontsize=7)
                ax.tick_params(axis="x", length=0)
                if j == 0:
                    ax.set_ylabel(rf"class {n}:  $\tilde{{c}}_{{l|n}}$")
                if i == 0:
                    ax.set_title(f"{label}\nstep {part.step.iloc[0]}", fontsize=8.5)
                else:
                    ax.set_xlabel("token")
    return figure
