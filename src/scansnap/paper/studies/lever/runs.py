"""All trainings of the study: base rates chosen by the loss alone, then every arm with every ratio and seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from scansnap.corpus.corpus import load_corpus
from scansnap.corpus.sources import find_corpus
from scansnap.paper.figure import Effort
from scansnap.paper.report.targets import require
from scansnap.paper.shared.job_pool import job_pool
from scansnap.paper.shared.language_models import TextSplits
from scansnap.paper.shared.run_cache import Record
from scansnap.paper.shared.text_runs import TextSetting, text_setting
from scansnap.paper.studies.chosen_rates import SEEDS, ChosenRates, choose_from_runs
from scansnap.paper.studies.lever.arms import CORE, GRID, ONE, RATIOS, Arm, arms, ratios_of
from scansnap.paper.studies.lever.training import LeverRun, LeverScale, run
from scansnap.progress import Progress

SEEDS_SHOWN = 5
SIZE: dict[str, Any] = {"max_words": 500, "steps": 240, "seeds": SEEDS_SHOWN, "valid_tokens": 2_000}
SCALE = LeverScale(width=64, heads=4, length=65, batch=8, watched=12, measurements=9)

RunName = tuple[Arm, float, int]  # arm, ratio, seed


@dataclass(frozen=True)
class LeverRuns:
    """The records of the trainings; ``chosen`` has the base rate of each arm, and if not quick that of each ratio."""

    setting: TextSetting
    scale: LeverScale
    chosen: dict[tuple[Arm, float], ChosenRates]
    records: dict[RunName, Record]
    own: dict[RunName, Record]  # at the base rate of each ratio itself; empty if quick


def lever_runs(effort: Effort, progress: Progress | None = None) -> LeverRuns:
    """Short runs choose the rates; then the measured runs follow, seed by seed."""
    require("lever")
    quick = effort.quick
    setting = text_setting(replace(effort, device="cpu"), **SIZE)
    scale, seeds = SCALE, setting.seeds
    texts = {"text": TextSplits.of(setting)}
    every = arms(quick)
    if any(arm.data != "text" for arm in every):
        docstrings = load_corpus(find_corpus("stdlib"), max_words=setting.size.max_words)
        texts["docstrings"] = TextSplits.of(replace(setting, corpus=docstrings))
    sizes = {name: int(text.train.max()) + 1 for name, text in texts.items()} | {"text": setting.corpus.vocab_size}

    def job(arm: Arm, ratio: float, eta: float, seed: int) -> LeverRun:
        steps = arm.longer * setting.size.steps
        return LeverRun(arm, ratio, eta, seed, steps, scale, sizes[arm.data], watch=True)

    own_ratios = () if quick else tuple(ratio for ratio in RATIOS if ratio != ONE)
    rated = {(arm.rated_as, ONE) for arm in every} | {
        (arm, r) for arm in every if has_own_rates(arm) for r in own_ratios
    }
    ordered = sorted(rated, key=lambda case: (every.index(case[0]), case[1]))
    short = {((arm, ratio), eta, seed): replace(job(arm, ratio, eta, seed), watch=False)
             for arm, ratio in ordered for eta in GRID[arm.optimizer] for seed in SEEDS}  # fmt: skip
    n_watched = sum(len(ratios_of(arm)) * arm.longer for arm in every)
    n_own = len(own_ratios) * sum(map(has_own_rates, every))
    total = sum(each.steps for each in short.values()) + len(seeds) * (n_watched + n_own) * setting.size.steps
    with job_pool("lever", run_arm, texts, setting, effort, total, progress) as run_jobs:
        tried = run_jobs(short)
        chosen = {case: choose_from_runs([{"eta": eta} for eta in GRID[case[0].optimizer]], tried, case, seeds)
                  for case in ordered}  # fmt: skip
        base = {arm: chosen[arm.rated_as, ONE].rates["eta"] for arm in every}
        watched = {(arm, ratio, seed): job(arm, ratio, base[arm], seed)
                   for seed in seeds for arm in every for ratio in ratios_of(arm)}  # fmt: skip
        records = run_jobs(watched)
        at_own = {(arm, ratio, seed): job(arm, ratio, chosen[arm, ratio].rates["eta"], seed)
                  for seed in seeds for arm in every if has_own_rates(arm) for ratio in own_ratios}  # fmt: skip
        return LeverRuns(setting, scale, chosen, records, run_jobs(at_own) if at_own else {})


def has_own_rates(arm: Arm) -> bool:
    """Whether each of its ratios is trained at its own best base rate, too: arms of the core, but for controls."""
    return arm in CORE and arm == arm.rated_as


def run_arm(job: LeverRun, texts: dict[str, TextSplits]) -> dict[str, Any]:
    """Train on the text of the arm; a run that diverges has infinite losses and no attention."""
    return run(job, texts[job.arm.data])
