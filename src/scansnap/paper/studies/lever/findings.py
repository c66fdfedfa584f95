"""The table of the study, and the predictions of :mod:`~scansnap.paper.studies.lever.arms`, judged over paired seeds.

``kind`` of a row: ``lm`` a language model, ``lm at its own rate`` the same at the best base rate of each ratio,
``exact`` the YZ model and those of the ablation study, ``flow`` the theory.
Each row is a run: ``*_equal`` at equal loss, ``*_end`` after all steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scansnap.measure.comparison import Statement, compare
from scansnap.paper.figure import Finding
from scansnap.paper.shared.over_seeds import how, number
from scansnap.paper.shared.run_cache import Record
from scansnap.paper.studies.lever.arms import (
    ALLOWED,
    ARMS_OF,
    HIGH,
    LOW,
    MUON_NOT_QK,
    NEAR_FLOW,
    NO_CHANGE,
    NO_LOSS,
    ONE,
    Arm,
)
from scansnap.paper.studies.lever.equal_loss import common_loss, keys_needed, read_at
from scansnap.paper.studies.lever.exact import CUMULATIVE, NORMS, SMALL, YZ, ExactCase
from scansnap.paper.studies.lever.training import CURVES, KEY_COUNTS

OURS = "beyond the paper"
SLIDES = "The authors' slides"
OWN_RATE = "lm at its own rate"  # the kind of runs at the base rate that is best for their ratio


def language_rows(records: Mapping[tuple[Arm, float, int], Record]) -> pd.DataFrame:
    """A row for each training. A recipe is read at the loss that it shares with ratio 1 of its model and optimiser."""
    rows = []
    for arm, seed in dict.fromkeys((arm, seed) for arm, _, seed in records):
        own = {ratio: record for (a, ratio, s), record in records.items() if (a, s) == (arm, seed)}
        shared = list(own.values())
        if arm.recipe:
            shared.append(records[Arm(arm.model, arm.optimizer, arm.data), ONE, seed])
        target = common_loss([record["loss"] for record in shared])
        for ratio, record in own.items():
            curves = {name: record[name] for name in (*CURVES, "kept", "steps")}
            equal, end = read_at(record["loss"], target, curves), {name: c[-1] for name, c in curves.items()}
            row: dict[str, Any] = {"kind": "lm", "case": arm.name, "ratio": ratio, "seed": seed}
            for when, values in (("equal", equal), ("end", end)):
                row |= {f"{name}_{when}": float(values[name]) for name in (*CURVES, "steps")}
                row[f"keys_{when}"] = keys_needed(KEY_COUNTS, values["kept"], ALLOWED)
            row["lowest_loss"] = float(np.min(record["loss"]))
            rows.append(row)
    return pd.DataFrame(rows)


def exact_rows(records: Mapping[ExactCase, Record], ratios: Sequence[float]) -> pd.DataFrame:
    """A row for each run of the exact models."""
    rows = []
    for case, record in records.items():
        for seed in range(record["loss"].shape[2]):
            loss = record["loss"][:, :, seed]
            target = common_loss(list(loss.T))
            for i, ratio in enumerate(ratios):
                curves = {name: record[name][:, i, seed] for name in ("loss", "entropy", "largest_logit")}
                curves["steps"] = record["step"]
                equal = read_at(loss[:, i], target, curves)
                row = {"kind": "exact", "case": case.name, "ratio": ratio, "seed": seed}
                row |= {f"{name}_equal": float(values) for name, values in equal.items()}
                row |= {f"{name}_end": float(curve[-1]) for name, curve in curves.items()}
                rows.append(row)
    return pd.DataFrame(rows)


def flow_rows(record: Record, ratios: Sequence[float], losses: Sequence[float]) -> pd.DataFrame:
    """The flow where its loss is that of the runs in small steps; one row for each seed's common loss."""
    rows = []
    for seed, target in enumerate(losses):
        for i, ratio in enumerate(ratios):
            equal = read_at(record["loss"][:, i], target, {"entropy": record["entropy"][:, i]})
            rows.append({"kind": "flow", "case": "flow", "ratio": ratio, "seed": seed, "loss_equal": target,
                         "entropy_equal": float(equal["entropy"])})  # fmt: skip
    return pd.DataFrame(rows)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Every prediction whose arms are in the table."""
    lm, own = table[table.kind == "lm"], table[table.kind == OWN_RATE]
    arms = {name: ARMS_OF[name] for name in dict.fromkeys(lm.case)}
    recipes = [name for name, arm in arms.items() if arm.recipe]
    plain = [name for name, arm in arms.items() if arm.role == "qk" and not arm.control and not arm.recipe]
    decoder = [name for name, arm in arms.items() if arm.role == "vo"]
    at_own = list(dict.fromkeys(own.case))
    over = how(table.seed.nunique())
    result = [
        _falls("Attention entropy falls with the query/key rate, at equal loss", lm, plain, "entropy_equal", over),
        _falls("The largest attention logit rises with the query/key rate, at equal loss", lm, plain,
               "largest_logit_equal", over, sign=-1, log=True),
        _falls("Attention entropy falls with the query/key rate, each ratio at its own best base rate", own, at_own,
               "entropy_equal", over),
        _falls("Attention entropy rises with the value/output rate, at equal loss", lm, decoder, "entropy_equal", over,
               sign=-1),
        *_controls(lm, arms, over),
        *_keys(lm, plain, over),
        *_losses(lm, plain, over),
        *_losses(own, at_own, over, ", each at its own best base rate"),
        *_recipes(lm, recipes, over),
        *_exact(table, over),
    ]  # fmt: skip
    return tuple(finding for finding in result if finding.of)


def change(table: pd.DataFrame, cases: Sequence[str], value: str, *, low: float = LOW, high: float = HIGH,
           log: bool = False) -> pd.DataFrame:  # fmt: skip
    """The change of a column from one ratio to another: a row for each case, a column for each seed."""
    part = table[table.case.isin(cases)]
    wide = part.pivot(index=["case", "seed"], columns="ratio", values=value)
    wide = wide.apply(np.log) if log else wide
    return (wide[high] - wide[low]).unstack("seed").reindex(list(cases))


def _falls(says: str, table: pd.DataFrame, cases: Sequence[str], value: str, over: str, sign: int = 1,
           log: bool = False, reference: str = OURS) -> Finding:  # fmt: skip
    """From ratio 1/8 to 8; ``sign`` −1 for a rise."""
    if not cases:
        return Finding(says, reference, 0, 0, "arms")
    family = change(table, cases, value, log=log)
    wanted: Statement = "falls" if sign > 0 else "rises"
    unit = "Change of the logarithm" if log else "Change"
    return Finding.compared(says, reference, compare(family), wanted, "arms",
                            f"{unit} from ratio 1/8 to 8: {each(family)} ({over}).")  # fmt: skip


def _controls(lm: pd.DataFrame, arms: Mapping[str, Arm], over: str) -> list[Finding]:
    """The same multiplier on MLP weights, shuffled next tokens, and the update's norm held."""
    result = []
    mlp = [name for name, arm in arms.items() if arm.role == "mlp"]
    shuffled = [name for name, arm in arms.items() if arm.control == "shuffled"]
    norm = [name for name, arm in arms.items() if arm.control == "norm"]
    if mlp:
        qk = change(lm, [arms[name].rated_as.name for name in mlp], "entropy_equal")
        of_mlp = change(lm, mlp, "entropy_equal")
        gap = np.abs(qk.to_numpy()) - np.abs(of_mlp.to_numpy())
        result.append(Finding.compared(
            "The MLP rate moves entropy by less than the query/key rate", OURS, compare(gap), "rises", "arms",
            f"Change from ratio 1/8 to 8: {each(pd.concat([qk, of_mlp]))} ({over}).",
        ))  # fmt: skip
    for cases, words in ((mlp, "The MLP rate does not move entropy"),
                         (shuffled, "With shuffled next tokens the query/key rate does not move entropy")):  # fmt: skip
        if cases:
            family = change(lm, cases, "entropy_equal")
            result.append(Finding.compared(
                f"{words} (by more than {NO_CHANGE:g} nats)", OURS, compare(family, margin=NO_CHANGE), "level", "arms",
                f"Change from ratio 1/8 to 8: {each(family)} ({over}).",
            ))  # fmt: skip
    result.append(_falls("Entropy falls with the query/key rate although the update of all weights keeps its norm",
                         lm, norm, "entropy_equal", over))  # fmt: skip
    return result


def _keys(lm: pd.DataFrame, plain: Sequence[str], over: str) -> list[Finding]:
    finite = lm[lm.case.isin(plain)].assign(keys_equal=lambda t: t.keys_equal.replace(np.inf, 2.0 * KEY_COUNTS[-1]))
    if finite.empty:
        return []
    means = finite.groupby(["case", "ratio"], sort=False).keys_equal.mean().unstack("ratio")
    table = "; ".join(
        f"{case}: {', '.join(f'{r:.3g}: {x:.1f}' for r, x in row.items())}" for case, row in means.iterrows()
    )
    base = _falls(f"Fewer keys are needed at a loss of +{ALLOWED:g} nats the faster query/key weights learn", finite,
                  plain, "keys_equal", over, log=True, reference=SLIDES)  # fmt: skip
    return [Finding(base.says, base.reference, base.agree, base.of, base.cases,
                    f"{base.detail} Keys by ratio: {table}.", base.undecided, points=base.points)]  # fmt: skip


def _losses(table: pd.DataFrame, cases: Sequence[str], over: str, which: str = "") -> list[Finding]:
    """Whether a faster query/key rate costs loss after the same number of steps."""
    part = table[table.case.isin(cases)]
    if part.empty:
        return []
    family = change(part, cases, "loss_end", low=ONE)
    best = part.groupby(["case", "ratio"], sort=False).loss_end.mean().unstack("ratio").idxmin(axis=1)
    ratios = "; ".join(f"{case}: {ratio:.3g}" for case, ratio in best.items())
    return [Finding.compared(
        f"Ratio 8 does not cost loss after the same steps, against ratio 1{which}", OURS,
        compare(family, margin=NO_LOSS), "does not rise", "arms",
        f"Change of the loss: {each(family)} ({over}). Ratio of least loss: {ratios}.",
    )]  # fmt: skip


def _recipes(lm: pd.DataFrame, recipes: Sequence[str], over: str) -> list[Finding]:
    """Loss after the same steps, each at the base rate chosen for it, against one rate for all weights."""
    if not recipes:
        return []
    loss = lm[lm.ratio == ONE].pivot(index="case", columns="seed", values="loss_end")
    of = {name: ", ".join(name.split(", ")[:2]) for name in recipes}
    against = pd.DataFrame({name: loss.loc[name] - loss.loc[base] for name, base in of.items()}).T
    not_qk = against.index.str.contains(MUON_NOT_QK)
    lower, equal = against[~not_qk], against[not_qk]
    result = []
    if len(lower):
        result.append(Finding.compared(
            "Published recipes have a lower loss than one rate for all weights", "other papers",
            compare(lower, margin=NO_LOSS), "falls", "recipes", f"Loss against one rate: {each(lower)} ({over}).",
        ))  # fmt: skip
    if len(equal):
        result.append(Finding.compared(
            "Muon loses nothing if AdamW trains query and key weights", "other papers",
            compare(equal, margin=NO_LOSS), "does not rise", "recipes", f"Loss against Muon: {each(equal)} ({over}).",
        ))  # fmt: skip
    return result


def _exact(table: pd.DataFrame, over: str) -> list[Finding]:
    exact, flow = table[table.kind == "exact"], table[table.kind == "flow"]
    known = set(exact.case)
    parts = [
        ("In the YZ model entropy falls with η_Z/η_Y at equal loss", [case.name for case in YZ]),
        ("With another norm alone entropy falls with η_Z/η_Y at equal loss", [case.name for case in NORMS]),
        ("In the cumulative models of the ablation study entropy falls with η_Z/η_Y at equal loss",
         [name for name in known if "all before" in name]),
    ]  # fmt: skip
    result = []
    for says, cases in parts:
        present = [name for name in dict.fromkeys(exact.case) if name in cases]
        result.append(_falls(says, exact, present, "entropy_equal", over))
    if SMALL.name in known and len(flow):
        small = exact[exact.case == SMALL.name].pivot(index="ratio", columns="seed", values="entropy_equal")
        theory = flow.pivot(index="ratio", columns="seed", values="entropy_equal")
        family = (small - theory).rename_axis("ratio")
        largest = float(np.nanmax(np.abs(family.to_numpy())))
        result.append(Finding.compared(
            f"The flow predicts the entropy of SGD at equal loss within {NEAR_FLOW:g} nats", "Section 3",
            compare(family, margin=NEAR_FLOW), "level", "ratios", f"Largest difference {largest:.4f} nats ({over}).",
        ))  # fmt: skip
    return result


def each(family: pd.DataFrame) -> str:
    """Every case with its interval."""
    return "; ".join(f"{case}: {number(row)}" for case, row in zip(family.index, family.to_numpy(), strict=True))


__all__ = ["CUMULATIVE", "change", "each", "exact_rows", "findings", "flow_rows", "language_rows"]
