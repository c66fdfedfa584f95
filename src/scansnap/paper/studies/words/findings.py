"""Eight statements, each judged over seeds. A seed's number is a mean over its queries."""

from __future__ import annotations

import numpy as np
import pandas as pd

from scansnap.measure.comparison import compare
from scansnap.measure.snap_curves import MIN_TIMES, MOVED, UNMOVED, SnapEstimate, e_folds, estimate_snap
from scansnap.paper.figure import Finding
from scansnap.paper.shared.over_seeds import how, number
from scansnap.paper.studies.words.predictions import FREQUENT, TOP_K, TWIN
from scansnap.paper.studies.words.runs import MARKS, NAMES

FROZEN = 0.5  # the last third of the run moves a query's attention at most this share of what the first third did
RANKED = 0.5  # a prediction ranks words as training does above this rank correlation
LISTED = (100, 1_000)  # steps whose numbers are listed beside the last one's
NO_RANKS = 0.1  # a rank correlation, or a difference of two, that is smaller counts as none: 1% of the variance


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """From the rows of :mod:`~scansnap.paper.studies.words.study`."""
    of: dict[str, pd.DataFrame] = dict(iter(table.groupby("kind")))
    over, uniform_over = (how(of[kind].seed.nunique()) for kind in ("gain", "uniform"))
    return (
        distinct_words_gain(of["gain"], over),
        follows_pmi_and_idf(of["end"], over),
        becomes_sparse(of["entropy"], over),
        freezes(of["third"], of["left"], snap(table), over),
        uniform_attention_ranks_words(of["uniform"], of["twin"], uniform_over),
        uniform_attention_beats_frequency(of["uniform"], uniform_over),
        prediction_wears_off(of["uniform"], uniform_over),
        flow_ranks_words(of["prediction"], over),
    )


def distinct_words_gain(gain: pd.DataFrame, over: str) -> Finding:
    """A case is a tenth of the vocabulary of one model: the common half is to lose, the distinct half to gain."""
    gain = gain[gain.group < MARKS]
    last = gain.groupby("model", sort=False).step.transform("max")
    start, end = (gain[gain.step == at].pivot(index=["model", "group"], columns="seed", values="among_words")
                  for at in (0, last))  # fmt: skip
    change = end.sort_index() - start.sort_index()  # (models × tenths, seeds)
    sign = np.where(change.index.get_level_values("group") < MARKS // 2, -1, 1)
    extremes = "; ".join(f"{model}: most common tenth {number(change.loc[(model, 0)])}, most distinct "
                         f"{number(change.loc[(model, MARKS - 1)])}" for model in gain.model.unique())  # fmt: skip
    return Finding.compared(
        "Common words lose attention and distinct words gain", "Theorem 2", compare(change.mul(sign, axis=0)),
        "rises", "tenths of the vocabulary",
        f"Change of attention relative to the mean of all tenths, {extremes} ({over}).", headline=5,
    )  # fmt: skip


def follows_pmi_and_idf(end: pd.DataFrame, over: str) -> Finding:
    """A case is one of the two: its rank correlation less that of raw co-occurrence."""
    ranks = end.pivot(index=["query", "seed"], columns="measure", values="value").groupby("seed").mean()
    margins = np.stack([(ranks[name] - ranks["cooccurrence"]).to_numpy() for name in ("pmi", "idf")])  # (2, seeds)
    by_measure = ", ".join(f"{NAMES[name]} {number(ranks[name])}" for name in ("pmi", "idf", "cooccurrence"))
    return Finding.compared(
        "Attention follows PMI and IDF rather than raw co-occurrence", "The authors' slides",
        compare(margins, margin=NO_RANKS), "rises", "measures",
        f"Rank correlation with what an occurrence gets, mean over queries: {by_measure} ({over}; less than "
        f"{NO_RANKS:g} apart is none).",
    )  # fmt: skip


def becomes_sparse(entropy: pd.DataFrame, over: str) -> Finding:
    """From the first step to the last."""
    path = entropy.pivot(index="step", columns="seed", values="value").sort_index()
    fell = (path.iloc[-1] - path.iloc[0]).to_numpy()
    detail = f"Change of entropy from {path.iloc[0].mean():.2f} nats: {number(fell)} ({over})."
    return Finding.compared("Attention becomes sparse", "Section 8", compare(fell), "falls", "texts", detail)


def freezes(third: pd.DataFrame, left: pd.DataFrame, when: SnapEstimate, over: str) -> Finding:
    """The last third of the run against the first; in words also when attention snapped and settled."""
    thirds = third.pivot(index=["query", "seed"], columns="measure", values="value")
    slower = thirds["last"] <= FROZEN * thirds["first"]
    mean = thirds.groupby("seed").agg(lambda column: column.mean(skipna=False))
    times = "; ".join(f"{scale}: {estimate.describe()}{f' ({estimate.reason})' if estimate.reason else ''}"
                       for scale, estimate in (("in t", when.t), ("in ln t", when.ln)))  # fmt: skip
    near = ", ".join(f"{settled(part):.0f}" for _, part in left.groupby("seed"))
    return Finding.compared(
        "Attention freezes although the rates stay", "Section 6",
        compare((mean["last"] - FROZEN * mean["first"]).to_numpy()), "falls", "texts",
        f"Counted where the last third moves attention less than {FROZEN:g} of what the first does; mean total "
        f"variation over queries {number(mean['first'], signed=False)}, then {number(mean['last'], signed=False)} "
        f"({over}); so in {slower.mean():.0%} of queries and seeds. Snap time {times} (68% intervals over "
        f"{when.over or 'nothing'}); within a tenth of the way of its end from step {near} of {left.step.max():.0f}.",
    )  # fmt: skip


def uniform_attention_ranks_words(uniform: pd.DataFrame, twin: pd.DataFrame, over: str) -> Finding:
    """A case is a ratio of the rates: rank correlation of the predicted with the trained logits at the last step."""
    ranks, slopes = _by_ratio(uniform, "value"), _by_ratio(uniform, "slope")
    last = uniform.step.max()
    rows = "; ".join(
        f"η_Y/η_Z = {ratio:g}: "
        + ", ".join(
            f"{number(row)} at step {step:.0f}" for (_, step), row in part.iterrows() if step in (*LISTED, last)
        )
        + f" (slope {number(slopes.loc[(ratio, last)], signed=False)})"
        for ratio, part in ranks.groupby("ratio", sort=False)
    )
    return Finding.compared(
        "A model with uniform attention ranks the words that attention turns to", "Beyond the paper",
        compare(ranks.xs(last, level="step").to_numpy() - RANKED), "rises", "ratios",
        f"Rank correlation of Z predicted with uniform attention and trained Z, mean over {uniform['query'].nunique()} "
        f"queries ({over}; counted where above {RANKED:g} at the last): {rows}. A "
        f"twin of the training, with η_Y a {1 / TWIN:,.0f}th larger: {number(_by_ratio(twin, 'value').iloc[-1])}.",
    )  # fmt: skip


def uniform_attention_beats_frequency(uniform: pd.DataFrame, over: str) -> Finding:
    """A case is a ratio: of the words most attended to, those that are predicted less those that are frequent."""
    shared, frequent, chance = (_by_ratio(uniform, name).xs(uniform.step.max(), level="step")
                                for name in ("overlap", "frequent", "chance"))  # fmt: skip
    rows = "; ".join(
        f"η_Y/η_Z = {ratio:g}: predicted {TOP_K * row.mean():.1f}, among the most frequent "
        f"{TOP_K * frequent.loc[ratio].mean():.1f}, by chance {TOP_K * chance.loc[ratio].mean():.1f}, difference "
        f"{number(TOP_K * (row - frequent.loc[ratio]))}"
        for ratio, row in shared.iterrows()
    )
    return Finding.compared(
        f"Of the {TOP_K} words most attended to it names more than frequency does", "Beyond the paper",
        compare((shared - frequent).to_numpy()), "rises", "ratios",
        f"After {uniform.step.max():.0f} steps, {rows} ({over}).",
    )  # fmt: skip


def prediction_wears_off(uniform: pd.DataFrame, over: str) -> Finding:
    """The slower attention moves, the less it acts back on itself and on Y, which a first order leaves out."""
    ranks = _by_ratio(uniform, "value").xs(uniform.step.max(), level="step")
    slow, fast = ranks.loc[ranks.index.max()], ranks.loc[ranks.index.min()]
    return Finding.compared(
        "The slower attention learns, the longer the prediction holds", "Beyond the paper",
        compare((slow - fast).to_numpy()), "rises", "texts",
        f"Rank correlation at η_Y/η_Z = {ranks.index.max():g} less that at {ranks.index.min():g}: "
        f"{number(slow - fast)} ({over}).",
    )  # fmt: skip


def _by_ratio(uniform: pd.DataFrame, name: str) -> pd.DataFrame:
    """(ratio and step, seeds): means over queries; a failed run is NaN."""
    mean = uniform.groupby(["ratio", "step", "seed"])[name].mean().unstack("seed")
    return mean.sort_index(level=["ratio", "step"], ascending=[False, True])


def flow_ranks_words(rows: pd.DataFrame, over: str) -> Finding:
    """Rank correlation of the flow's logits with the trained ones."""
    mean = rows.groupby("seed")[["value", "value_frequent", "overlap", "frequent"]].mean()
    return Finding.compared(
        "The words the flow of a few classes ranks first are those attended to", "Theorem 2, beyond the paper",
        compare(mean["value"], margin=NO_RANKS), "rises", "texts",
        f"Rank correlation, mean over {rows['query'].nunique()} queries: {number(mean['value'])}, and over the "
        f"{FREQUENT} most frequent in their contexts {number(mean['value_frequent'])} ({over}; below {NO_RANKS:g} it "
        f"is none). Of the {TOP_K} words most attended to it names {TOP_K * mean['overlap'].mean():.1f}, and "
        f"{TOP_K * mean['frequent'].mean():.1f} are among the most frequent.",
    )  # fmt: skip


def snap(table: pd.DataFrame) -> SnapEstimate:
    """When attention snapped in t and in ln t, over the seeds whose training did not fail."""
    moved, fold = (table[(table.kind == kind) & (table.step > 0)].pivot(index="step", columns="seed", values="value")
                   for kind in ("moved", "fold"))  # fmt: skip
    fine = moved.columns[np.isfinite(moved.to_numpy()).all(0)]
    if not len(fine):
        return SnapEstimate.unknown("every run became non-finite")
    if len(moved) < MIN_TIMES or moved[fine].to_numpy().max() < MOVED:
        return SnapEstimate.unknown(UNMOVED)
    steps, distance = moved.index.to_numpy(float), moved[fine].to_numpy().T  # (S,), (seeds, S)
    start, end = e_folds(steps)
    span = np.log(steps[end] / steps[start])
    folds = np.sqrt(steps[start] * steps[end]), fold[fine].to_numpy().T[:, end] / span, distance[:, end]
    return estimate_snap(steps, distance, np.random.default_rng(0), folds=folds)


def settled(left: pd.DataFrame) -> float:
    """The first step from which the mean distance to the last attention stays below a tenth of the first such."""
    left = left.sort_values("step")
    moving = np.flatnonzero(left.value.to_numpy() > 0.1 * left.value.iloc[0])
    return float(left.step.to_numpy()[min(moving[-1] + 1, len(left) - 1)]) if len(moving) else float(left.step.iloc[0])
