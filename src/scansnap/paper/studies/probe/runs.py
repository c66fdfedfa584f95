"""All trainings of the study: rates chosen by the loss alone, then every model with every optimiser and seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from scansnap.dynamics.device import pick_device
from scansnap.paper.figure import Effort
from scansnap.paper.report.targets import require
from scansnap.paper.shared.job_pool import job_pool
from scansnap.paper.shared.language_models import Scale, TextSplits
from scansnap.paper.shared.run_cache import Record
from scansnap.paper.shared.text_runs import TextSetting, text_setting
from scansnap.paper.studies.chosen_rates import (
    ADAM_TRANSFORMER,
    SEEDS,
    SHARE,
    ChosenRates,
    RateChoice,
    choose_from_runs,
)
from scansnap.paper.studies.probe.training import MODELS, TrainingRun, run
from scansnap.progress import Progress

SIZES: dict[tuple[bool, bool], dict[str, Any]] = {  # by (CUDA, quick)
    (False, True): {"max_words": 1_000, "steps": 100, "seeds": 1, "valid_tokens": 3_000},
    (False, False): {"max_words": 1_000, "steps": 400, "seeds": 3, "valid_tokens": 3_000},
    (True, True): {"max_words": 10_000, "steps": 1_000, "seeds": 1, "valid_tokens": 20_000},
    (True, False): {"max_words": 10_000, "steps": 3_000, "seeds": 3, "valid_tokens": 20_000},
}
SCALE = {"cuda": Scale(width=256, heads=8, length=129, batch=32, watched=32),
         "cpu": Scale(width=64, heads=4, length=33, batch=16, watched=32)}  # fmt: skip
SGD_MOMENTUM: tuple[RateChoice, ...] = tuple({"eta": eta} for eta in (0.01, 0.03, 0.1, 0.3, 1.0))
GRID = {"AdamW": ADAM_TRANSFORMER, "SGD": SGD_MOMENTUM}

Case = tuple[str, str]  # model and optimiser
CASES: tuple[Case, ...] = tuple(product(MODELS, GRID))


@dataclass(frozen=True)
class ProbeRuns:
    """The records of the runs."""

    setting: TextSetting
    scale: Scale
    chosen: dict[Case, ChosenRates]
    records: dict[tuple[str, str, int], Record]  # by model, optimiser and seed


def probe_runs(effort: Effort, progress: Progress | None = None) -> ProbeRuns:
    """Short runs choose the rates; then the measured runs follow."""
    require("probe")
    setting = text_setting(effort, **SIZES[pick_device(effort.device).type == "cuda", effort.quick])
    steps, scale = setting.size.steps, SCALE[setting.device]

    def job(case: Case, rates: RateChoice, seed: int) -> TrainingRun:
        return TrainingRun(*case, rates["eta"], seed, steps, scale, setting.corpus.vocab_size, setting.device,
                           watch=True)  # fmt: skip

    short = {(case, rates["eta"], seed): replace(job(case, rates, seed), steps=max(1, steps // SHARE), watch=False)
             for case in CASES for rates in GRID[case[1]] for seed in SEEDS}  # fmt: skip
    total = sum(job.steps for job in short.values()) + len(CASES) * len(setting.seeds) * steps
    text = TextSplits.of(setting)
    with job_pool("probe", run, text, setting, effort, total, progress) as run_jobs:
        tried = run_jobs(_longest_first(short))
        chosen = {case: choose_from_runs(GRID[case[1]], tried, case, setting.seeds) for case in CASES}
        watched = {(*case, seed): job(case, chosen[case].rates, seed) for case in CASES for seed in setting.seeds}
        return ProbeRuns(setting, scale, chosen, run_jobs(_longest_first(watched)))


def _longest_first(jobs: dict[Any, TrainingRun]) -> dict[Any, TrainingRun]:
    """So that processes end together."""
    return dict(sorted(jobs.items(), key=lambda item: -MODELS[item[1].model].layers))
