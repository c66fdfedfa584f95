"""The exact model and the models of the ablation study at the same ratios of rates.

All ratios and seeds of a case train at once, at T = ∞ or on sequences, as in `scansnap dial`. The flow at the same
ratios is the theory's curve: at equal loss it depends on the ratio alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scansnap.classes import SequenceClasses
from scansnap.dial.components import flags_of
from scansnap.dial.data import Task
from scansnap.dial.training import CellRuns, Reading
from scansnap.dynamics.flow.integrate import flow
from scansnap.measure.entropy import entropy_of
from scansnap.paper.shared.run_cache import Record, cached_run
from scansnap.paper.studies.chosen_rates import SEEDS
from scansnap.paper.studies.lever.arms import RATIOS
from scansnap.progress import Progress

DATA = "syn-medium"
SGD_GRID, ADAM_GRID = (0.3, 1.0, 3.0, 10.0, 30.0), (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
RECORDS = 40
CONTEXT = 24
STEPS = 200
SMALL_STEPS = 10  # times as many
SHARE = 4  # of the steps, for the choice of the rate


@dataclass(frozen=True)
class ExactCase:
    """A component of the ablation study in a mode, with an optimiser."""

    component: str
    mode: str
    optimizer: str  # sgd or adamw
    eta: float | None = None  # the rate of Y; None: chosen by the loss

    @property
    def name(self) -> str:
        """As tables show it."""
        words = {"yz": "YZ"}.get(self.component, self.component)
        how = "" if self.component == "yz" else " alone" if self.mode == "single" else " and all before"
        small = " in small steps" if self.eta else ""
        return f"{words}{how}, {'SGD' if self.optimizer == 'sgd' else 'AdamW'}{small}"


SMALL = ExactCase("yz", "single", "sgd", eta=1.0)  # a step moves the loss little, so that the flow describes it
YZ = (*(ExactCase("yz", "single", optimizer) for optimizer in ("sgd", "adamw")), SMALL)
NORMS = tuple(ExactCase(f"norm:{norm}", "single", optimizer) for norm in ("none", "layernorm", "rms")
              for optimizer in ("sgd", "adamw"))  # fmt: skip
CUMULATIVE = {True: ("finite", "embedding", "residual", "prenorm:layernorm"),
              False: ("norm", "finite", "every-position", "shared-next", "embedding", "separate", "residual",
                      "positions", "heads", "prenorm", "mlp", "decay", "masked", "layers")}  # fmt: skip


def cases(quick: bool) -> tuple[ExactCase, ...]:
    """The exact model, the norms alone, and the cumulative models."""
    cumulative = tuple(ExactCase(name, "cumulative", optimizer) for name in CUMULATIVE[quick]
                       for optimizer in ("sgd", "adamw"))  # fmt: skip
    return (*YZ, *NORMS, *cumulative)


def exact_records(
    quick: bool, seeds: int, folder: Path | None, progress: Progress | None = None
) -> dict[ExactCase, Record]:
    """By case: step (S,), and loss, entropy and largest_logit (S, ratio, seed); ``eta`` is the chosen rate of Y."""
    records = {}
    every = cases(quick)
    for i, case in enumerate(every):
        if progress is not None:
            progress(i, len(every))
        key = {"figure": "lever", **asdict(case), "data": DATA, "ratios": RATIOS, "seeds": seeds,
               "steps": STEPS, "context": CONTEXT, "records": RECORDS}  # fmt: skip
        records[case] = cached_run(folder, key, partial(train_case, case, seeds))
    if progress is not None:
        progress(len(every), len(every))
    return records


def train_case(case: ExactCase, seeds: int) -> dict[str, Any]:
    """Choose the rate of Y at ratio 1 by the loss, with a seed of its own; then train all ratios and seeds."""
    steps, ratios = STEPS * (1 if case.eta is None else SMALL_STEPS), np.array(RATIOS)
    flags = flags_of(case.component, case.mode)
    task = Task(flags, DATA, torch.device("cpu"), torch.float32, CONTEXT)
    grid = np.array([case.eta] if case.eta else SGD_GRID if case.optimizer == "sgd" else ADAM_GRID)
    short = _runs(flags, task, case, grid, np.ones(len(grid)), np.full(len(grid), SEEDS[0]), steps)
    short.advance(steps // SHARE)
    losses = short.losses().double().numpy()
    eta = float(grid[np.where(np.isfinite(losses), losses, np.inf).argmin()])
    n = len(ratios) * seeds
    runs = _runs(flags, task, case, np.full(n, eta), np.repeat(ratios, seeds), np.tile(np.arange(seeds), len(ratios)),
                 steps)  # fmt: skip
    due = [0, *np.unique(np.geomspace(1, steps, RECORDS).round().astype(int)).tolist()]
    readings: list[Reading] = []
    runs.advance(steps, lambda _, now: readings.append(now.read()), frozenset(due[:-1]))
    readings.append(runs.read())
    shape = (len(due), len(ratios), seeds)
    entropy = np.array([entropy_of(r.attention).mean((1, 2)) for r in readings])
    logit = np.array([np.abs(r.z).max((1, 2, 3)) for r in readings])
    loss = np.array([r.loss for r in readings])
    return {"step": due, "eta": eta, "loss": loss.reshape(shape), "entropy": entropy.reshape(shape),
            "largest_logit": logit.reshape(shape)}  # fmt: skip


def _runs(flags: Any, task: Task, case: ExactCase, eta_y: Any, ratio: Any, seeds: Any, steps: int) -> CellRuns:
    """Runs with rates η_Y and ratio · η_Y."""
    eta = {"y": torch.as_tensor(eta_y), "z": torch.as_tensor(eta_y * ratio)}
    return CellRuns(flags, task, case.optimizer, seeds, eta, steps)


def flow_curve(eta: float, ratios: Any) -> Record:
    """The flow of the YZ model: loss and entropy (S, ratio) over twice the time of the runs in small steps."""
    classes = SequenceClasses.syn_medium(n_queries=3)
    t = np.geomspace(0.1, 2 * SMALL_STEPS * STEPS / eta, 120)
    loss, entropy = [], []
    for ratio in ratios:
        data = flow(classes, eta, eta * float(ratio), t, rtol=1e-6, variables=("attention", "loss"))
        weighted = data["loss"] * classes.p_class if "seq_class" in data["loss"].dims else data["loss"]
        loss.append(weighted.sum("seq_class").values if "seq_class" in weighted.dims else weighted.values)
        entropy.append(entropy_of(data["attention"].transpose("t", "seq_class", "token").values).mean(-1))
    return {"step": t, "loss": np.stack(loss, -1), "entropy": np.stack(entropy, -1)}
