"""The ladders of runs, and how they are split into calibration and test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from scansnap.paper.figure import Effort
from scansnap.paper.report.targets import require
from scansnap.paper.shared.job_pool import job_pool
from scansnap.paper.shared.language_models import Scale, TextSplits
from scansnap.paper.shared.run_cache import Record
from scansnap.paper.shared.text_runs import TextSetting, text_setting
from scansnap.paper.studies.alerts.rules import Cell
from scansnap.paper.studies.alerts.training import LadderRun, run
from scansnap.progress import Progress

CALIBRATION, SEEDS, ARCHITECTURE = "calibration", "held-out seeds", "held-out architecture"
SPLITS = {CALIBRATION: ("GPT-2", 0), SEEDS: ("GPT-2", 10), ARCHITECTURE: ("Llama", 10)}  # model and first seed
RATES = {"AdamW": (0.001, 0.003, 0.01, 0.05), "SGD": (0.1, 0.3, 0.5, 1.0)}
MULTIPLIERS = (1.0, 8.0)  # of the rate of query and key weights
SIZES: dict[bool, dict[str, Any]] = {  # by quick
    True: {"max_words": 1_000, "steps": 100, "seeds": 1, "valid_tokens": 3_000},
    False: {"max_words": 1_000, "steps": 400, "seeds": 2, "valid_tokens": 3_000},
}
SCALE = Scale(width=64, heads=4, length=33, batch=16, watched=32)


@dataclass(frozen=True)
class Ladder:
    """The runs of one model, optimiser and seed."""

    split: str
    model: str
    optimizer: str
    seed: int
    records: dict[Cell, Record]  # by rate and multiplier


@dataclass(frozen=True)
class LadderRuns:
    """All ladders, and the text and size of their runs."""

    setting: TextSetting
    ladders: tuple[Ladder, ...]


def ladder_runs(effort: Effort, progress: Progress | None = None) -> LadderRuns:
    """Train all ladders on the CPU, several runs at once; finished runs of a stopped command are reused."""
    require("alerts")
    setting = text_setting(Effort(effort.quick, "cpu", effort.data), **SIZES[effort.quick])
    jobs = {
        (*name, *cell): LadderRun(name[1], name[2], *cell, name[3], setting.size.steps, SCALE,
                                  setting.corpus.vocab_size)
        for name in ladders(len(setting.seeds)) for cell in cells(name[2])
    }  # fmt: skip
    total = len(jobs) * setting.size.steps
    with job_pool("alerts", run, TextSplits.of(setting), setting, effort, total, progress) as run_jobs:
        records = run_jobs(jobs)
    return LadderRuns(setting, tuple(collect(records, len(setting.seeds))))


def ladders(seeds: int) -> Iterator[tuple[str, str, str, int]]:
    """Split, model, optimiser and seed of every ladder, those of the calibration first."""
    for split, (model, first) in SPLITS.items():
        yield from product((split,), (model,), RATES, range(first, first + seeds))


def cells(optimizer: str) -> Iterator[Cell]:
    """Rates and multipliers of a ladder."""
    return product(RATES[optimizer], MULTIPLIERS)


def collect(records: Mapping[tuple[Any, ...], Record], seeds: int) -> Iterator[Ladder]:
    """The records by ladder."""
    for name in ladders(seeds):
        yield Ladder(*name, {cell: records[*name, *cell] for cell in cells(name[2])})
