"""Learning rates of the figures on text, chosen by one rule before any run that a figure shows.

**The rule.** Of a fixed grid take the rates with the lowest perplexity after runs of a quarter of the figure's steps.
The runs have a seed that no figure uses, and perplexity is that of the corpus's third split, which no figure uses.
What the figure is about (attention, its entropy, which model is ahead) is not computed for them, so it can have no say.
A run that diverges is not chosen. The same rule, with five rates half a decade apart, holds for every model; where the
best is the first or last of its grid a better one may lie beyond, and the figure says so.

The rates of Figures 7 and 10 are the paper's and are not chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from scansnap.checks import InputError
from scansnap.paper.shared.run_cache import Record, cached_run
from scansnap.paper.shared.text_runs import EVALUATION_BATCH, LENGTH, TextSetting, trained
from scansnap.progress import Progress, share
from scansnap.text.evaluation import perplexity
from scansnap.text.model import LanguageModel

RateChoice = dict[str, float]
Build = Callable[[RateChoice, int], LanguageModel]  # a new model of these rates and this seed

SEEDS = (1_001,)
MOST_NAMED = 3
SHARE = 4  # the runs have a quarter of the figure's steps, so that a grid costs little more than one seed

SGD_TRANSFORMER: tuple[RateChoice, ...] = tuple({"eta": eta} for eta in (0.1, 0.3, 1.0, 3.0, 10.0))
ADAM_TRANSFORMER: tuple[RateChoice, ...] = tuple({"eta": eta} for eta in (3e-4, 1e-3, 3e-3, 1e-2, 3e-2))
# One dimension, as for the transformer: η_Y ≫ η_Z is the theory's premise, so the ratio stays at 10 with SGD. Adam
# divides by the size of the gradients, and ratios of rates mean little there: 10/3.
SGD_YZ: tuple[RateChoice, ...] = tuple({"eta_y": eta, "eta_z": eta / 10} for eta in (10.0, 30.0, 100.0, 300.0, 1000.0))
ADAM_YZ: tuple[RateChoice, ...] = tuple(
    {"eta_y": eta, "eta_z": round(0.3 * eta, 6)} for eta in (0.01, 0.03, 0.1, 0.3, 1.0)
)


@dataclass(frozen=True)
class ChosenRates:
    """The rates, and all that was tried."""

    rates: RateChoice
    tried: tuple[tuple[RateChoice, float], ...]  # with the mean loss in nats, infinite where a run diverged
    seeds: tuple[int, ...]

    @property
    def at_the_edge(self) -> bool:
        """The best is the first or the last of the grid."""
        return len(self.tried) > 1 and self.rates in (self.tried[0][0], self.tried[-1][0])

    def describe(self) -> dict[str, Any]:
        """For the manifest: the whole grid, not only what was taken."""
        grid = [{**rates, "perplexity": math.exp(loss) if loss < 700 else math.inf} for rates, loss in self.tried]
        return {"chosen": self.rates, "at_the_edge": self.at_the_edge, "grid": grid, "seeds": list(self.seeds)}


def choose(
    grid: Sequence[RateChoice], loss: Callable[[RateChoice, int], float], *, seeds: Iterable[int], figure: Iterable[int]
) -> ChosenRates:
    """The rates with the lowest mean of loss(rates, seed), the first of equals; the whole rule.

    ``figure`` are the seeds of the figure, which must be others.
    """
    rule_seeds = tuple(seeds)
    shared = sorted(set(rule_seeds) & set(figure))
    if shared or not rule_seeds:
        raise InputError("seeds", list(rule_seeds), f"some, and others than the figure's (not {shared})")
    tried = []
    for rates in grid:
        losses = [loss(rates, seed) for seed in rule_seeds]
        mean = sum(losses) / len(losses)
        tried.append((rates, mean if math.isfinite(mean) else math.inf))
    best = min(tried, key=lambda entry: entry[1])
    if not math.isfinite(best[1]):
        raise InputError("the grid of learning rates", [rates for rates, _ in tried], "one with a run that converges")
    return ChosenRates(best[0], tuple(tried), rule_seeds)


def choose_from_runs(
    grid: Sequence[RateChoice], records: Mapping[Any, Record], case: Any, figure: Iterable[int]
) -> ChosenRates:
    """:func:`choose` for rates η of a case, from the records of runs by case, η and seed."""
    return choose(
        grid, lambda rates, seed: float(records[case, rates["eta"], seed]["loss"]), seeds=SEEDS, figure=figure
    )


def choose_on_text(
    setting: TextSetting,
    build: Build,
    grid: Sequence[RateChoice],
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
    **key: Any,
) -> ChosenRates:
    """:func:`choose` for models of a setting: runs of a quarter of its steps, judged on the third split.

    key  the model in plain values, part of the name of its cached runs
    """
    short = replace(setting, size=replace(setting.size, steps=max(1, setting.size.steps // SHARE)))
    unseen = setting.corpus.test[: setting.size.valid_tokens]
    runs = len(grid) * len(SEEDS)
    done = 0

    def loss(rates: RateChoice, seed: int) -> float:
        nonlocal done
        part = share(progress, done, runs)

        def run() -> dict[str, float]:
            model = build(rates, seed)
            if trained(model, short, seed=seed, progress=part).failed_step is not None:
                return {"loss": math.inf}
            return {"loss": math.log(perplexity(model, unseen, length=LENGTH, batch=EVALUATION_BATCH[setting.device]))}

        record = cached_run(folder, {"choosing": rates, "seed": seed, **key, **short.key()}, run)
        done += 1
        return float(record["loss"])

    return choose(grid, loss, seeds=SEEDS, figure=range(setting.size.seeds))


def at_chosen_rates(
    setting: TextSetting,
    build: Build,
    grid: Sequence[RateChoice],
    record: Callable[[LanguageModel, TextSetting, int, Progress | None], dict[str, Any]],
    *,
    folder: Path | None,
    progress: Progress | None,
    **key: Any,
) -> tuple[ChosenRates, list[Record]]:
    """Choose the rates of a model, then train it with each seed; record(model, setting, seed, progress) does that."""
    rounds = 1 + setting.size.seeds  # choosing costs as much as a seed
    chosen = choose_on_text(setting, build, grid, folder=folder, progress=share(progress, 0, rounds), **key)

    def run(seed: int) -> dict[str, Any]:
        return record(build(chosen.rates, seed), setting, seed, share(progress, 1 + seed, rounds))

    records = [
        cached_run(folder, {**key, "seed": seed, **chosen.rates, **setting.key()}, partial(run, seed))
        for seed in setting.seeds
    ]
    return chosen, records


def edges(chosen: dict[str, ChosenRates]) -> str:
    """Which models have the first or last rate of their grid, for a figure's note; empty if none."""
    names = [name for name, choice in chosen.items() if choice.at_the_edge]
    if len(chosen) > MOST_NAMED:  # the manifest names them
        return f"{len(names)} of {len(chosen)} rates at the edge of their grids" if names else ""
    return f"rate at the edge of its grid: {', '.join(names)}" if names else ""
