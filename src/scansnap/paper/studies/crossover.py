"""Insight (c): attention against the decoder's rate at fixed η_Z and time, by the flow, in closed form, and by SGD."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap import theory
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.simulate import simulate
from scansnap.measure.comparison import compare
from scansnap.paper.figure import Computed, Effort, Finding, Points
from scansnap.paper.shared.over_seeds import how, mean_and_half
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress
from scansnap.runs import grid
from scansnap.theory.crossover import token_changes
from scansnap.theory.memory import SymmetricTokens

TITLE = "A faster decoder: sparser or denser attention"
CAPTION = (
    "Logit z of a distinct token at fixed η_Z and time, against the decoder's rate: by the exact flow (dots), in "
    "closed form by drive and memory (lines), and by SGD (bars: 95% intervals over seeds). The paper says that it "
    "falls from t₀ on. It falls only above a crossover ν* (dotted, in closed form); below it, and before t₀, a faster "
    "decoder makes attention sparser. t₀ is that of η_Y/η_Z = 5."
)

FAMILY = {"n_classes": 2, "vocab_size": 2000, "overlap": 0.24, "n_distinct": 5}
ETA_Z = 0.02
RATIOS = tuple(np.geomspace(0.5, 50, 13).round(4).tolist())  # η_Y = 1 at the most: SGD's steps stay small
REFERENCE = 5.0  # the ratio whose t₀ is meant
MOMENTS = (0.3, 1.0, 10.0)  # in t₀
SEEDS, QUICK_SEEDS, BATCH = 5, 2, 1024
CLOSE = 0.05  # of z: theory and SGD agree with the flow


def classes() -> SequenceClasses:
    """One query, two classes, five equal distinct tokens and one common one."""
    rho, n, k = FAMILY["overlap"], int(FAMILY["n_distinct"]), int(FAMILY["n_classes"])
    return SequenceClasses.synthetic(
        1, k, common=1, distinct=n, common_weight=math.sqrt(rho), distinct_weights=[math.sqrt((1 - rho) / n)] * n,
        unused=int(FAMILY["vocab_size"]) - (1 + n * k + 1 + k),
    )  # fmt: skip


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """A row is a ratio at a moment."""
    data, snap = classes(), float(theory.t_snap(eta_y=REFERENCE * ETA_Z, n_classes=2, vocab_size=2000))
    t, token = np.array(MOMENTS) * snap, int(data_token(data))
    seeds = range(QUICK_SEEDS if effort.quick else SEEDS)
    runs = grid(eta_y=[ratio * ETA_Z for ratio in RATIOS], eta_z=ETA_Z, seed=seeds)
    steps = [round(x) for x in t]
    sgd = simulate(data, runs, batch_size=BATCH, context=math.inf, steps=steps[-1], record=steps, variables="z",
                   dtype="float64", device="cpu", progress=progress)  # fmt: skip
    by_sgd = sgd.z.values[:, :, 0, token].reshape(len(RATIOS), len(seeds), len(t))
    tokens = SymmetricTokens.of(np.full(5, math.sqrt((1 - FAMILY["overlap"]) / 5)), None)
    rows = []
    for i, ratio in enumerate(RATIOS):
        exact = flow(data, ratio * ETA_Z, ETA_Z, t, rtol=1e-9, variables="z").z.values[:, 0, token]
        closed = token_changes(t, ratio * ETA_Z, ETA_Z, np.array(2.0), np.array(2000.0), tokens)[0][:, 0]
        for j, moment in enumerate(MOMENTS):
            rows.append({"moment": moment, "ratio": ratio, "flow": exact[j], "closed_form": closed[j],
                         **{f"sgd_{seed}": by_sgd[i, seed, j] for seed in seeds}})  # fmt: skip
    table = pd.DataFrame(rows)
    star = {moment: float(theory.crossover(moment * snap, eta_z=ETA_Z, **FAMILY)) for moment in MOMENTS}
    listed = {f"{moment:g}": ratio for moment, ratio in star.items()}
    settings = {**FAMILY, "eta_z": ETA_Z, "ratios": list(RATIOS), "moments": list(MOMENTS),
                "batch_size": BATCH, "context": "inf", "seeds": list(seeds), "crossover": listed}  # fmt: skip
    note = f"quick: {len(seeds)} of {SEEDS} seeds" if effort.quick else ""
    return Computed(table, settings, findings(table, star), note)


def data_token(data: SequenceClasses) -> int:
    """A distinct token of the first class; all are alike."""
    return int(data.distinct(0)[0])


def peak(ratio: np.ndarray, z: np.ndarray) -> float:
    """The ratio of the largest z, from a parabola in ln ratio through the three highest points; NaN at an end."""
    at = int(np.argmax(z))
    if at in (0, len(z) - 1):
        return math.nan
    x = np.log(ratio[at - 1 : at + 2])
    bend, slope, _ = np.polyfit(x - x[1], z[at - 1 : at + 2], 2)
    return float(np.exp(x[1] - slope / (2 * bend)))


def findings(table: pd.DataFrame, star: dict[float, float]) -> tuple[Finding, ...]:
    """What the paper says, counted over neighbouring ratios; where z is largest; and whether SGD follows."""
    seeds = [name for name in table.columns if name.startswith("sgd_")]
    wide = table.pivot(index="ratio", columns="moment", values="flow")
    steps = wide.diff().iloc[1:]
    before = np.outer(wide.index[:-1] / REFERENCE, wide.columns)  # the moment, in t₀ of the step's smaller rate
    late = steps.to_numpy()[before >= 1]
    largest = {moment: peak(wide.index.to_numpy(), wide[moment].to_numpy()) for moment in wide}
    peaks = {moment: (largest[moment], star[moment]) for moment in wide if moment >= 1}
    close = [abs(math.log(a / b)) < 2 * CLOSE for a, b in peaks.values()]
    relative = table[seeds].to_numpy() / table.flow.to_numpy()[:, None] - 1
    indexed = pd.DataFrame(relative, index=pd.MultiIndex.from_frame(table[["moment", "ratio"]]))
    off = (table.closed_form / table.flow - 1).abs()
    listed = "; ".join(f"{moment:g} t₀: {a:.3g} and {b:.3g}" for moment, (a, b) in peaks.items())
    return (
        Finding("From t₀ on a larger η_Y at the same η_Z leaves attention denser", "Section 6, insight (c)",
                int((late < 0).sum()), late.size, "steps of the ratio",
                f"z rises with η_Y in the others, which are below the crossover. Before t₀ it rises in "
                f"{int((steps.to_numpy()[before < 1] > 0).sum())} of {int((before < 1).sum())}.",
                points=Points.without_noise(late)),
        Finding("z is largest at the crossover ν* of the closed form", "ours", sum(close), len(close), "moments",
                f"Flow and closed form, counted to {2 * CLOSE:.0%}: {listed}.", kind="ours",
                points=Points.without_noise([a / b for a, b in peaks.values()])),
        Finding("The closed form has the flow's z", "ours", int((off < CLOSE).sum()), len(off), "ratios and moments",
                f"Counted to {CLOSE:.0%}; largest error {off.max():.1%}.", kind="ours",
                points=Points.without_noise(off)),
        Finding.compared("SGD follows the flow", "ours", compare(indexed, margin=CLOSE), "level", "ratios and moments",
                         f"z relative to the flow's, counted to {CLOSE:.0%}; batch {BATCH}, T = ∞, "
                         f"{how(len(seeds))}."),
    )  # fmt: skip


def draw(computed: Computed) -> Figure:
    """A panel for each moment."""
    table, star = computed.table, computed.settings["crossover"]
    seeds = [name for name in table.columns if name.startswith("sgd_")]
    with styled(8.4, 2.7) as figure:
        for ax, (moment, part) in zip(figure.subplots(1, len(MOMENTS)), table.groupby("moment"), strict=True):
            mean, half = mean_and_half(part[seeds].to_numpy())
            ax.plot(part.ratio, part.closed_form, color=SERIES[0], label="closed form")
            ax.plot(part.ratio, part.flow, "o", color="black", markersize=3.5, label="flow")
            ax.errorbar(part.ratio * 1.06, mean, half, color=SERIES[1], linestyle="none", marker="_", capsize=2,
                        label="SGD")  # fmt: skip
            if math.isfinite(star[f"{moment:g}"]) and moment >= 1:
                ax.axvline(star[f"{moment:g}"], color="0.4", linestyle=":", label=r"$\nu^*$")
            ax.set(xscale="log", xlabel=r"$\eta_Y/\eta_Z$", title=rf"{moment:g} $t_0$", ylim=(0, None))
        figure.axes[0].set_ylabel("$z$ of a distinct token")
        figure.axes[2].legend(loc="lower center")
    return figure
