"""Prints the tables of docs/rates.md from a folder of `scansnap reproduce lever`, as Markdown.

    python docs/scripts/lever.py out

Reads out/lever.csv. The text around the tables is written by hand.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from scansnap.paper.shared.over_seeds import number
from scansnap.paper.studies.lever.arms import HIGH, LOW, RECIPES
from scansnap.paper.studies.lever.findings import OWN_RATE, change, findings


def by_ratio(table: pd.DataFrame, value: str) -> str:
    """A row for each case, a column for each ratio: mean and interval over seeds."""
    ratios = sorted(table.ratio.unique())
    lines = [f"| {value} | {' | '.join(f'{ratio:.3g}' for ratio in ratios)} |", "|---" * (len(ratios) + 1) + "|"]
    for case in dict.fromkeys(table.case):
        part = table[table.case == case]
        cells = [number(part[part.ratio == ratio].sort_values("seed")[value], signed=False) for ratio in ratios]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def changes(table: pd.DataFrame, value: str) -> str:
    """The change from the least ratio to the largest, for each case."""
    family = change(table, list(dict.fromkeys(table.case)), value)
    rows = [f"| {case} | {number(row)} |" for case, row in zip(family.index, family.to_numpy(), strict=True)]
    return "\n".join([f"| {value}, {LOW:g} to {HIGH:g} | change |", "|---|---|", *rows])


def against_one(table: pd.DataFrame) -> str:
    """The loss at each ratio less that at ratio 1, paired by seed; intervals are of each difference alone."""
    wide = table.pivot(index=["case", "seed"], columns="ratio", values="loss_end")
    return by_ratio(wide.sub(wide[1.0], axis=0).stack().rename("loss_end less that at 1").reset_index(),
                    "loss_end less that at 1")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the --out of scansnap reproduce lever")
    folder = parser.parse_args().folder
    table = pd.read_csv(folder / "lever.csv")
    recipes = {arm.name for arm in RECIPES}
    models = table[(table.kind == "lm") & ~table.case.isin(recipes)]
    parts = [changes(table[table.kind == "exact"], "entropy_equal")]
    parts += [by_ratio(models, value) for value in ("entropy_equal", "loss_end", "keys_equal", "largest_logit_equal")]
    parts.append(against_one(models))
    parts += [by_ratio(table[table.kind == OWN_RATE], value) for value in ("entropy_equal", "loss_end")]
    parts += [by_ratio(table[table.case.isin(recipes)], "loss_end")]
    rows = [f"| {f.says} | {f.verdict} | {f.agree} of {f.of} | {f.detail} |" for f in findings(table)]
    parts.append("\n".join(["| prediction | verdict | cases | measured |", "|---|---|---|---|", *rows]))
    print("\n\n".join(parts))


if __name__ == "__main__":
    main()
