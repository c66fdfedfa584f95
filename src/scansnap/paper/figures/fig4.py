"""Figure 4: attention of both Syn-Small classes over training with SGD, at two rates of the decoder."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from scansnap.classes import SequenceClasses
from scansnap.measure.comparison import Statement, compare, interval
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.paper.shared import small_runs
from scansnap.paper.shared.over_seeds import overall, paired
from scansnap.paper.shared.small_runs import LATE, STEPS, at, snap_step
from scansnap.plots.style import styled
from scansnap.progress import Progress

TITLE = "Attention over training with SGD, Syn-Small"
CAPTION = (
    "Attention leaves the common tokens (orange) for the most frequent distinct ones (blue, rightmost of their class). "
    "With the larger η_Y (right) it settles sooner and stays denser."
)
ETA_Z, RATIO, MOMENTUM = 1.0, (1.0, 10.0), 0.9
RATES = [(ratio * ETA_Z, ETA_Z) for ratio in RATIO]  # (η_Y, η_Z)
EARLY = 10
RECORDED = (*range(EARLY), 15, 20, 30, 40, 70)  # besides those of Figure 5
FROZEN = 0.05  # of the whole movement: what may still move once attention is frozen
PATTERNS = "patterns"  # one for each class and pair of rates, tested over seeds


def compute(effort: Effort, progress: Progress | None = None) -> Computed:
    table, settings, note = small_runs.trained(
        effort, progress, eta_z=[ETA_Z], ratio=RATIO, optimizer="sgd", momentum=MOMENTUM, record=RECORDED
    )
    return Computed(table, settings, findings(table), note)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """What the paper reads off the figure, counted."""
    return (
        suppressed(table),
        most_frequent_wins(table),
        sparser(table),
        denser(table),
        faster(table),
        frozen(table),
        frozen_from_t0(table),
    )


def suppressed(table: pd.DataFrame) -> Finding:
    common = small_runs.common_attention(table)
    start, end = at(common, 0), at(common, STEPS)
    share = f"Their share of attention goes from {start.mean():.2f} to {by_rate(end)}."
    return _tested("Common tokens lose attention", "Theorem 2, Section 8", end - start, "falls", share, headline=1)


def most_frequent_wins(table: pd.DataFrame) -> Finding:
    final = table[table["step"] == STEPS]
    distinct = final[final["kind"] == "distinct"]
    wanted = distinct.loc[distinct.groupby(small_runs.CASE)["frequency"].idxmax()]
    share = wanted.set_index(small_runs.CASE)["attention"]
    rivals = final.drop(index=wanted.index).groupby(small_runs.CASE)["attention"].max()
    start = float(wanted["frequency"].iloc[0])
    says = "The most attended token in the end is the most frequent distinct one"
    detail = f"Its attention goes from {start:.3f} to {by_rate(share)}; tested is its lead over the next."
    return _tested(says, "Figure 4, Theorem 3", share - rivals, "rises", detail)


def sparser(table: pd.DataFrame) -> Finding:
    entropy = small_runs.entropies(table)
    start, end = at(entropy, 0), at(entropy, STEPS)
    detail = f"Entropy over all tokens goes from {start.mean():.3f} to {by_rate(end)} nats."
    return _tested("Attention becomes sparser", "Figure 4", end - start, "falls", detail)


def denser(table: pd.DataFrame) -> Finding:
    detail = "Final entropy, η_Y = {high:g} against {low:g}: {change} nats."
    entropy = at(small_runs.entropies(table), STEPS)
    return _larger(entropy, "A larger η_Y leaves attention less sparse", "Figure 4, Section 6", detail)


def faster(table: pd.DataFrame) -> Finding:
    whole = small_runs.moved(table, 0, STEPS)
    covered = 1 - small_runs.moved(table, EARLY, STEPS) / whole
    detail = (
        f"Share of the way from the first to the final attention covered by step {EARLY} (total variation): "
        f"{by_rate(covered)}; the difference is {{change}}."
    )
    return _larger(covered, "A larger η_Y converges faster", "Figure 4, Section 6", detail)


def frozen(table: pd.DataFrame) -> Finding:
    late = small_runs.moved(table, LATE, STEPS) / small_runs.moved(table, 0, STEPS)
    detail = (
        f"Steps {LATE} to {STEPS} are to move less than {FROZEN:.0%} of what all steps move (total variation): "
        f"{by_rate(late)}."
    )
    return _tested("In the end attention is almost frozen", "Sections 1 and 6", late - FROZEN, "falls", detail)


def frozen_from_t0(table: pd.DataFrame) -> Finding:
    """From t₀ on; the detail has the step from which it is so, which momentum decides."""
    whole = small_runs.moved(table, 0, STEPS)
    left = pd.DataFrame({step: small_runs.moved(table, step, STEPS) / whole for step in sorted(set(table["step"]))})
    classes, late, words = SequenceClasses.syn_small(), [], []
    for eta_y, part in left.groupby(level="eta_y"):
        t_0 = snap_step(classes, float(eta_y), MOMENTUM)
        late.append(part[min(step for step in left if step >= t_0)])
        after = late[-1].unstack("seed").mean(skipna=False).to_numpy()
        first = (part < FROZEN).idxmax(axis=1).astype(float).where(part.notna().all(axis=1))
        words.append(f"η_Y = {eta_y:g}: t₀ is step {t_0:.1f}, {interval(after, signed=False)} of the "
                     f"movement comes after it, less than {FROZEN:.0%} from step {first.mean():.0f}, "
                     f"{first.mean() / t_0:.0f} t₀, on")  # fmt: skip
    detail = (
        f"Counted where the steps after t₀ move less than {FROZEN:.0%} of what all {STEPS} steps move (total "
        f"variation). With momentum t₀ = 2K ln M (1 − μ)/η_Y plus the steps that it takes to start. {'; '.join(words)}."
    )
    return _tested(
        "From t₀ on attention is almost frozen", "Figure 2(d), Section 6", pd.concat(late) - FROZEN, "falls", detail
    )


def by_rate(values: pd.Series) -> str:
    """Mean ± half of its 95% interval over seeds (classes averaged first) for each pair of rates."""
    seeds = values.groupby(level=["eta_y", "eta_z", "seed"]).agg(lambda column: column.mean(skipna=False))
    parts = [
        f"{interval(group.to_numpy(), signed=False)} (η_Y = {eta_y:g})"
        for (eta_y, _), group in seeds.groupby(level=["eta_y", "eta_z"])
    ]
    return ", ".join(parts)


def _tested(says: str, reference: str, values: pd.Series, statement: Statement, detail: str,
            headline: int = 0) -> Finding:  # fmt: skip
    """Are the values, one for each pattern and seed, above or below 0?"""
    return Finding.compared(says, reference, compare(values.unstack("seed")), statement, PATTERNS, detail, headline)


def _larger(values: pd.Series, says: str, reference: str, detail: str) -> Finding:
    """Is the value larger at the larger η_Y? A case is a class."""
    rows = values.rename("value").reset_index()
    low, high = rows["eta_y"].min(), rows["eta_y"].max()
    change = overall(rows, "value", along="eta_y", low=low, high=high)
    comparison = compare(paired(rows, "value", by=["seq_class"], along="eta_y", low=low, high=high))
    return Finding.compared(
        says, reference, comparison, "rises", "classes", detail.format(low=low, high=high, change=change)
    )


def draw(computed: Computed) -> Figure:
    with styled(7.0, 5.0) as figure:
        titles = [rf"$\eta_Y$ = {eta_y:g},  $\eta_Z$ = {eta_z:g}" for eta_y, eta_z in RATES]
        small_runs.heat_maps(figure, computed.table, [[(rate, n) for rate in RATES] for n in (0, 1)], titles)
    return figure
