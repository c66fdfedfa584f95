"""Do the probe's alerts warn of a failing run before the loss and the gradient norm do?

Rules, thresholds and what was expected are in :mod:`~scansnap.paper.studies.alerts.rules`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared.text_runs import describe_seeds
from scansnap.paper.studies.alerts.evaluation import (
    TESTS,
    calibrated,
    curves_of,
    default_alerts,
    false_alarms,
    is_earlier,
    lead,
    steps_earlier,
    table_of,
)
from scansnap.paper.studies.alerts.rules import ALERTS, BASELINES, FROZEN, KINDS, MOST_FALSE, OUTCOMES, RULES
from scansnap.paper.studies.alerts.runs import ARCHITECTURE, MULTIPLIERS, RATES, SCALE, SEEDS, SPLITS, ladder_runs
from scansnap.paper.studies.alerts.training import MEASURED, WARM_UP
from scansnap.plots.style import SERIES, styled
from scansnap.progress import Progress

TITLE = "Early warnings of failing runs"
CAPTION = (
    "Small language models on a ladder of learning rates, with query and key weights at the same rate and at 8 times "
    "the rate. Top: one ladder of the held-out seeds; loss, largest attention logit and the relative entropy that half "
    "of the heads are below, by outcome (dotted: 8 times the rate; dashed: the thresholds). Bottom: how many steps "
    "before the failure is visible each rule warns, for every failed run of the held-out seeds (filled) and the "
    "held-out architecture (open); at crosses it never does."
)
BEYOND = "Beyond the paper"
COLOURS = {"healthy": SERIES[2], "between": "0.6", "collapsed": SERIES[0], "diverged": SERIES[1]}
LABELS = {"max_logit": "max logit", "entropy_collapse": "entropy", "nonfinite": "non-finite",
          "loss_spike": "loss spike", "loss_rise": "loss rise", "gradient_norm": "gradient norm",
          "gradient_spike": "gradient spike"}  # fmt: skip


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    """All ladders; thresholds are the frozen ones, and the calibration is computed beside them."""
    runs = ladder_runs(effort, progress)
    thresholds = calibrated(runs.ladders)
    shown = [ladder for ladder in runs.ladders if ladder.split == SEEDS and ladder.seed == SPLITS[SEEDS][1]]
    table = pd.concat([table_of(runs.ladders, FROZEN), *(curves_of(ladder) for ladder in shown)], ignore_index=True)
    last = runs.setting.size.steps
    settings = {**runs.setting.describe(), "rates": {name: list(rates) for name, rates in RATES.items()},
                "multipliers": list(MULTIPLIERS), "batch": SCALE.batch, "length": SCALE.length, "width": SCALE.width,
                "heads": SCALE.heads, "layers": 2, "warm_up_steps": WARM_UP, "measured": list(MEASURED),
                "thresholds": FROZEN, "calibrated": thresholds, "default": default_alerts(table, last)}  # fmt: skip
    note = "; ".join([runs.setting.note, f"{describe_seeds(runs.setting.size.seeds)} for each ladder"])
    return Computed(table, settings, findings(table, thresholds, last), note)


def findings(table: pd.DataFrame, thresholds: dict[str, float], last: int) -> tuple[Finding, ...]:
    """Each alert against each baseline, false alarms, and whether the calibration gives the frozen thresholds."""
    runs = table[table.kind == "run"]
    tests = {split: runs[runs.split == split] for split in TESTS}
    result = [earlier(tests, alert, kind, last) for kind in KINDS for alert in ALERTS]
    result += [few_false_alarms(tests, rule) for rule in RULES]
    same = [name for name in RULES if thresholds[name] == FROZEN[name]]
    listed = "; ".join(f"{LABELS[name]} {FROZEN[name]:g}, {thresholds[name]:g}" for name in RULES)
    result.append(Finding("The frozen thresholds are those of the calibration seeds", BEYOND, len(same), len(RULES),
                          "rules", f"Frozen, calibrated: {listed}."))  # fmt: skip
    return tuple(result)


def earlier(tests: dict[str, pd.DataFrame], alert: str, kind: str, last: int) -> Finding:
    """A case is a baseline on a split that has failed runs."""
    verdicts, parts = [], []
    for split, runs in tests.items():
        if (runs.outcome == kind).sum() < 2:
            continue
        verdicts += [is_earlier(runs, alert, baseline, kind, last) for baseline in BASELINES]
        leads = lead(runs, alert, kind)
        text = f"{split}: warns in {leads.warned} of {leads.runs} runs"
        if leads.warned:
            text += f", lead {_interval(leads.median, leads.low, leads.high)} steps"
        parts.append(f"{text}; steps before {_against(runs, alert, kind, last)}")
    return Finding(
        f"{LABELS[alert].capitalize()} warns of runs that {'collapse' if kind == 'collapsed' else 'diverge'} before "
        "every baseline", BEYOND, sum(verdict is True for verdict in verdicts), len(verdicts), "comparisons",
        ". ".join([*parts, ""]).strip(), sum(verdict is None for verdict in verdicts),
    )  # fmt: skip


def _against(runs: pd.DataFrame, alert: str, kind: str, last: int) -> str:
    texts = []
    for baseline in BASELINES:
        comparison = steps_earlier(runs, alert, baseline, kind, last)
        if comparison is not None:
            mean, half = float(comparison.mean[0]), float(comparison.half_width[0])
            width = f" ± {half:.0f}" if math.isfinite(half) else ""
            texts.append(f"{LABELS[baseline]} {mean:+.0f}{width}".replace("-", "−"))
    return ", ".join(texts)


def few_false_alarms(tests: dict[str, pd.DataFrame], rule: str) -> Finding:
    """A case is a split; undecided where the interval contains the limit."""
    agree, undecided, parts, of = 0, 0, [], 0
    for split, runs in tests.items():
        alarms = false_alarms(runs, rule)
        low, high = alarms.interval
        if not alarms.steps:
            continue
        of += 1
        agree, undecided = agree + (high <= MOST_FALSE), undecided + (low <= MOST_FALSE < high)
        parts.append(f"{split}: {_interval(alarms.rate, low, high, 2)} ({alarms.alarms} in {alarms.steps:,.0f} steps)")
    return Finding(f"{LABELS[rule].capitalize()}: at most {MOST_FALSE:g} false alarms per 1,000 healthy steps", BEYOND,
                   agree, of, "splits", "; ".join([*parts]) + ".", undecided)  # fmt: skip


def _interval(value: float, low: float, high: float, digits: int = 0) -> str:
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})".replace("-", "−")


def draw(computed: Computed) -> Figure:
    """Curves of one ladder for each optimiser; leads of all rules."""
    table, thresholds = computed.table, computed.settings["thresholds"]
    runs, curves = table[table.kind == "run"], table[table.kind == "curve"]
    with styled(8.2, 9.0) as figure:
        rows = figure.subplots(4, 2, height_ratios=(1, 1, 1, 1.3), squeeze=False)
        for i, optimizer in enumerate(RATES):
            draw_curves(rows[:3, i], curves[curves.optimizer == optimizer], thresholds)
            rows[0, i].set_title(optimizer)
            rows[2, i].set_xlabel("training step")
        for ax, name in zip(rows[:3, 0], ("loss (nats)", "largest logit", "relative entropy"), strict=True):
            ax.set_ylabel(name)
        for ax, kind in zip(rows[3], KINDS, strict=True):
            draw_leads(ax, runs[(runs.outcome == kind) & runs.split.isin(TESTS)])
            ax.set_title(f"{kind} runs")
            ax.set_xlabel("steps before the failure is visible")
        handles = [rows[0, 0].plot([], [], color=COLOURS[kind], label=kind)[0] for kind in OUTCOMES]
        rows[0, 0].legend(loc="best", handles=handles, fontsize=7)
    return figure


def draw_curves(axes: Any, curves: pd.DataFrame, thresholds: dict[str, float]) -> None:
    """Loss, largest logit and entropy of one ladder; dotted where query and key rates are 8 times the rest."""
    for (_, multiplier), run in curves.groupby(["rate", "multiplier"]):
        style = {"color": COLOURS[run.outcome.iloc[0]], "linestyle": "-" if multiplier == 1 else ":", "linewidth": 1.1}
        later = run[run.step > 0]
        for ax, name in zip(axes, ("loss", "max_logit", "entropy"), strict=True):
            ax.plot(later.step, later[name].where(np.isfinite(later[name])), **style)
    for ax, level in ((axes[1], thresholds["max_logit"]), (axes[2], 1 / thresholds["entropy_collapse"])):
        ax.axhline(level, color="0.3", linewidth=0.8, linestyle="--")
    for ax, limits in zip(axes, ((3.3, 8), (0.05, 1e6), (2e-4, 1.5)), strict=True):
        ax.set(xscale="log", ylim=limits)
    axes[1].set_yscale("log")
    axes[2].set_yscale("log")


def draw_leads(ax: Any, failed: pd.DataFrame) -> None:
    """A row for each rule, a dot for each run: filled on the held-out seeds, open on the held-out architecture."""
    names = list(RULES)[::-1]
    least = 0.0
    for i, name in enumerate(names):
        colour = SERIES[0] if name in ALERTS else "0.35"
        leads = failed.visible - failed[name]
        jitter = i + 0.5 * (np.arange(len(failed)) / max(len(failed) - 1, 1) - 0.5)
        is_other = (failed.split == ARCHITECTURE).to_numpy()
        for chosen, face in ((~is_other, colour), (is_other, "none")):
            ax.scatter(leads[chosen], jitter[chosen], s=14, facecolors=face, edgecolors=colour, linewidths=0.8)
        least = min(least, float(np.nan_to_num(leads.min())))
    for i, name in enumerate(names):
        never = failed[name].isna().to_numpy()
        jitter = i + 0.5 * (np.arange(len(failed)) / max(len(failed) - 1, 1) - 0.5)
        ax.plot(np.full(never.sum(), 1.15 * least - 12), jitter[never], "x", color="0.55", markersize=3.5)
    ax.axvline(0, color="0.7", linewidth=0.8)
    ax.set_yticks(range(len(names)), [LABELS[name] for name in names], fontsize=7.5)
