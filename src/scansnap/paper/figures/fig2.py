"""Figure 2: the un-normalised attention c̃ = P e^z of two classes of one query, at four moments of a training run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.measure.comparison import Comparison, compare, interval
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared.small_runs import snap_step
from scansnap.plots.style import COMMON, DISTINCT, styled
from scansnap.progress import Progress
from scansnap.runs import grid

TITLE = "Four moments of attention"
CAPTION = (
    "Un-normalised attention P(l|n) e^z of two classes that share a query, in one training run. Common tokens (orange) "
    "are suppressed first; then the distinct tokens (blue) that were largest at the start take over; in the end "
    "attention almost stops."
)

SUPPRESSED = "(b) common tokens suppressed"
MOMENTS = {"(a) initialisation": 0, SUPPRESSED: 5, "(c) winners emerge": 20, "(d) almost frozen": 100}
CLASSES = {"n_queries": 1, "next_per_query": 2, "common": 3, "common_weight": 0.8, "distinct": 5,
           "distinct_weights": [0.3, 0.5, 0.7, 0.9, 1.2]}  # fmt: skip
RATES = {"eta_y": 4.0, "eta_z": 4.0}
TRAINING = {"momentum": 0.9, "steps": 100, "batch_size": 128, "context": 128, "init": "zero"}
SEEDS, QUICK_SEEDS = 10, 3
SLOW = 0.01  # almost frozen: below this share of the top speed


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """c̃ at the four moments, and the speed Σ|Δc| of attention there; the first seed is drawn, all are counted."""
    knobs: dict[str, Any] = CLASSES
    training: dict[str, Any] = TRAINING
    classes = SequenceClasses.synthetic(**knobs)
    runs = grid(**RATES, seed=range(QUICK_SEEDS if effort.quick else SEEDS))
    data = simulate(classes, runs, **training, record="all", device=effort.device, progress=progress)
    data = data[["attention", "z"]].where(data.failed_step < 0)
    t_0, rows = snap_step(classes, RATES["eta_y"], training["momentum"]), []
    for run, seed in enumerate(runs.seed):
        run_data = data.isel(run=run)
        z = run_data.z.sel(query=int(classes.query[0])).values  # (step, M)
        speed = np.abs(np.diff(run_data.attention.values, axis=0)).sum(-1)  # (step, K)
        for label, step in MOMENTS.items():
            for n in range(classes.n_classes):
                top = speed[:, n].max()
                share, at_snap = speed[max(step - 1, 0), n] / top, speed[math.ceil(t_0) - 1, n] / top
                for token, p in zip(*classes.support(n), strict=True):
                    kind = "common" if token in classes.common else "distinct"
                    rows.append({"seed": int(seed), "moment": label, "step": step, "seq_class": n, "token": int(token),
                                 "kind": kind, "p": p, "z": z[step, token],
                                 "attention_unnormalised": p * np.exp(z[step, token]),
                                 "speed_over_top": share, "speed_at_t0": at_snap})  # fmt: skip
    table = pd.DataFrame(rows)
    settings = {"classes": CLASSES, **RATES, "seeds": [int(seed) for seed in runs.seed], **TRAINING}
    note = f"quick: findings from {len(runs)} of {SEEDS} seeds" if effort.quick else ""
    return Computed(table, {**settings, "moments": list(MOMENTS.values()), "t0": t_0}, findings(table, t_0), note)


def findings(table: pd.DataFrame, t_0: float) -> tuple[Finding, ...]:
    """The four stages, tested over seeds."""
    a, b, c, d = (table[table.moment == label] for label in MOMENTS)
    value = "attention_unnormalised"

    def share(part: pd.DataFrame) -> str:
        common = part[part.kind == "common"].groupby("seed")[value].sum(min_count=1)
        return interval((common / part.groupby("seed")[value].sum(min_count=1)).to_numpy(), signed=False)

    def moved(kind: str, later: pd.DataFrame) -> Comparison:
        """The change of z since the start for each token; all classes of a query share z."""
        z = [part[part.kind == kind].groupby(["token", "seed"]).z.first() for part in (a, later)]
        return compare((z[1] - z[0]).unstack("seed"))

    tokens = c.pivot(index=["seq_class", "seed"], columns="token", values=value)
    first = a[(a.kind == "distinct") & (a.seed == a.seed.min())].sort_values(value).groupby("seq_class").token.last()
    lead = {n: part[first[n]] - part.drop(columns=first[n]).max(axis=1) for n, part in tokens.groupby("seq_class")}
    ahead = pd.concat(lead.values()).unstack("seed")
    speed = d.groupby(["seq_class", "seed"])[["speed_at_t0", "speed_over_top"]].agg(lambda column: column.iloc[0])
    at_snap, at_end = (speed[name].unstack("seed") for name in speed)
    return (
        Finding.compared("Common tokens are suppressed", "Theorem 2(b), Figure 2(b)", moved("common", b), "falls",
                         "common tokens", f"Their share of attention: {share(a)}, at step "
                         f"{MOMENTS[SUPPRESSED]} {share(b)}, in the end {share(d)}."),
        Finding.compared("Distinct tokens gain", "Theorem 2(a)", moved("distinct", c), "rises", "distinct tokens"),
        Finding.compared("The distinct token that was largest at the start dominates", "Theorem 3, Figure 2(c)",
                         compare(ahead), "rises", "classes"),
        Finding.compared(f"From t₀ on attention is almost frozen (below {SLOW:g} of its top speed)",
                         "Theorem 4, Figure 2(d)", compare(at_snap - SLOW), "falls", "classes",
                         f"t₀ is step {t_0:.1f}: 2K ln M (1 − μ)/η_Y and the steps that momentum takes to start. There "
                         f"attention moves at {_shares(at_snap)} of its top speed (mean over seeds)."),
        Finding.compared(f"In the end attention is almost frozen (below {SLOW:g} of its top speed)",
                         "Figure 2(d)", compare(at_end - SLOW), "falls", "classes",
                         f"At step 100, {100 / t_0:.0f} t₀, it moves at {_shares(at_end)} of its top speed (mean over "
                         "seeds)."),
    )  # fmt: skip


def _shares(speed: pd.DataFrame) -> str:
    return ", ".join(f"{share:.1e}" for share in speed.mean(axis=1))


def draw(computed: Computed) -> Figure:
    """Rows are classes, columns moments; the first seed."""
    table = computed.table[computed.table.seed == computed.table.seed.min()]
    classes = sorted(table["seq_class"].unique())
    with styled(8.6, 3.5) as figure:
        grid = figure.subplots(len(classes), len(MOMENTS), sharey=True, squeeze=False)
        for j, label in enumerate(MOMENTS):
            for i, n in enumerate(classes):
                ax, part = grid[i, j], table[(table.moment == label) & (table["seq_class"] == n)]
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
