"""Rate matching: learning rates at which models with different components are comparable. Nominal rates are no input.

*Kernel matching*, for SGD and momentum. A step changes what the model's tables Y and Z would be, and the effective rate
is how far that is along the gradient of the YZ model,

    η_eff = ⟨ΔZ, G⟩/‖G‖²,   G = −∂L/∂Z at T = ∞,   likewise Y.

Z is read off as attention logits of (query, key) tokens, moved by the parameters that are trained with η_Z (an
embedding, trained with η_Y, moves them too, and not along G). Y need not be read off: G_Y = Σ p_n f_n r_nᵀ with
f = c/‖c‖ and r_n = e_n − α_n (Lemma 1), so ⟨ΔY, G_Y⟩ = Σ p_n r_n·Δlogits_n with fixed attention. For the YZ model η_eff
is its rate. Nominal rates are searched until the mean of η_eff over the first t₀ is the wanted one.

*Loss matching*, for all other optimisers: the T = ∞ loss falls to 10% of its start at the same step for every
component, and t₀ is as much earlier as it is in the YZ model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from scansnap.dial.components import Flags
from scansnap.dial.data import CONTEXT, Task
from scansnap.dial.model import first_scores, forward, table_of
from scansnap.dial.training import CellRuns
from scansnap.dynamics.optimizers import InPlaceOptimizer
from scansnap.theory import t_snap

KERNEL_MATCHED = ("sgd", "momentum")  # optimisers whose steps are along the gradient
ETA_Y = 4.0  # effective, of every component
LOSS_STEP = 80  # at which the loss is at a tenth, in loss matching: the full model is not there before step 66
TENTH_T0 = 1.3  # t₀ at which it is in the YZ model, at ratio 10
TENTH = 0.1
TUNING_SEED = 1_000_001  # not a seed of the study
MOST_OFF = 0.25  # of effective rates, or of the step of the tenth: beyond it the verdict is "rates not matched"
_ROUNDS = 10
_PROBE = 1e-3
_STEEPEST = 4  # d ln η_eff/d ln η that is believed
_NEAR = 0.05  # of the logarithm of a rate: near enough
_SIDE_BY_SIDE = 8  # rates that are tried at once


@dataclass(frozen=True)
class StudySettings:
    """Settings of all cells: effective η_Y and ratios, seeds, and lengths."""

    ratios: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0)
    seeds: int = 10
    eta_y: float = ETA_Y
    loss_step: int = LOSS_STEP
    context: int = CONTEXT  # T
    end: int = 100  # in t₀

    def t0(self, optimizer: str, n_classes: int, vocab_size: int) -> float:
        """t₀ in steps: 2 K ln M/η_Y with kernel matching, the YZ model's share of the fixed step with loss matching."""
        if optimizer not in KERNEL_MATCHED:
            return self.loss_step / TENTH_T0
        return float(t_snap(eta_y=self.eta_y, n_classes=n_classes, vocab_size=vocab_size))


@dataclass(frozen=True)
class MatchedRates:
    """Nominal rates of a cell, one for each ratio, and the effective rates that were measured with them."""

    kind: str  # kernel or loss
    eta: dict[str, np.ndarray]  # nominal rates of Y's and Z's parameters, for the record
    effective: dict[str, np.ndarray]  # measured over the first t₀
    loss_step: np.ndarray  # step at which the loss was at a tenth during the search; NaN where never
    met: np.ndarray  # whether effective rates are within MOST_OFF of the wanted ones
    plateau: np.ndarray  # η_eff of Z at the start over that of the first t₀

    @property
    def trains(self) -> np.ndarray:
        """Whether there are rates with which the model moves and stays finite."""
        return np.all([np.isfinite(e) for e in (*self.eta.values(), *self.effective.values())], axis=0)

    def over(self, seeds: int, device: torch.device) -> dict[str, Tensor]:
        """Rates of ratio-major runs."""
        return {name: torch.as_tensor(np.repeat(eta, seeds), device=device) for name, eta in self.eta.items()}


class RateMeter:
    """Effective rates of single steps: between `before` and `after` comes one step."""

    def __init__(self, runs: CellRuns) -> None:
        self.runs = runs
        self.along = {"y": 0.0, "z": 0.0}  # type: dict[str, float | Tensor]
        self.square = {"y": 0.0, "z": 0.0}  # type: dict[str, float | Tensor]

    def before(self) -> None:
        runs, reader = self.runs, self.runs.reader
        batch, self.parameters = reader.batch, {name: t.clone() for name, t in runs.parameters.items()}
        bias = batch.bias.expand(len(runs.seeds), -1, -1, -1).clone().requires_grad_()
        with torch.enable_grad():
            out = forward(self.parameters, runs.flags, replace(batch, bias=bias), at_end=True)
            (slope,) = torch.autograd.grad(reader.loss(out).sum(), bias, allow_unused=True)
        slope = torch.zeros_like(bias) if slope is None else slope
        slope = torch.where(reader.visible, slope, 0.0)
        self.g_z = -reader.by_query(reader.by_token(slope[:, None]))  # (R, 1, Q, M)
        self.z = reader.z(out.scores[0].detach())
        self.attention = [a.detach() for a in out.attention]
        self.log_alpha = reader.log_alpha(out).detach()
        self.logits = reader.last(out.logits.detach())
        c = reader.attention(self.attention[0]).mean(1)  # (R, K, M)
        self.f = (c / c.norm(dim=-1, keepdim=True))[:, runs.task.evaluation_class]

    @torch.no_grad()
    def after(self) -> None:
        runs, reader = self.runs, self.runs.reader
        parameters = runs.parameters
        out = forward(parameters, runs.flags, reader.batch, self.attention, at_end=True)
        r = reader.following - self.log_alpha.exp()
        moved = reader.last(out.logits) - self.logits
        g_y = self.f.mT @ (reader.p[:, None] * r)  # (R, M, M)
        self._add("y", (reader.p[:, None] * r * moved).sum((1, 2)), g_y.square().sum((1, 2)))
        only_z = {name: t if table_of(name) == "z" else self.parameters[name] for name, t in parameters.items()}
        z = reader.z(first_scores(only_z, runs.flags, reader.batch)) - self.z
        self._add("z", (z.mean(1, keepdim=True) * self.g_z).sum((1, 2, 3)), self.g_z.square().sum((1, 2, 3)))

    def measure(self, step: int, runs: CellRuns) -> None:
        """Before every step: measure the previous one, and prepare for this one."""
        if step:
            self.after()
        self.before()

    def _add(self, name: str, along: Tensor, square: Tensor) -> None:
        self.along[name], self.square[name] = self.along[name] + along, self.square[name] + square

    def effective(self, name: str, n_ratios: int) -> np.ndarray:
        """η_eff by ratio: all seeds and all measured steps as one."""
        along, square = (torch.as_tensor(x).double().cpu().reshape(n_ratios, -1).nanmean(1).numpy()
                         for x in (self.along[name], self.square[name]))  # fmt: skip
        with np.errstate(all="ignore"):
            return np.asarray(along / square)


def match_rates(flags: Flags, task: Task, optimizer: str, settings: StudySettings, steps: int) -> MatchedRates:
    """Nominal rates of a cell, by the matching of its optimiser."""
    how = match_kernel if optimizer in KERNEL_MATCHED else match_loss
    return how(replace(flags, decay="none"), task, optimizer, settings, steps)  # decay is no step along the gradient


def match_kernel(flags: Flags, task: Task, optimizer: str, settings: StudySettings, steps: int) -> MatchedRates:
    """Rates whose effective ones are η_Y and η_Y/ratio over the first t₀; each ratio is tried until it is near."""
    ratios, seeds = np.array(settings.ratios), np.arange(np.clip(settings.seeds // 2, 2, 4)) + TUNING_SEED
    targets = np.stack([np.full(len(ratios), settings.eta_y), settings.eta_y / ratios])  # of Y and of Z
    window = max(2, round(settings.t0("sgd", task.n_classes, task.vocab_size)))

    def measured(eta: np.ndarray, window: int) -> np.ndarray:
        rates = measure_rates(flags, task, "sgd", seeds, dict(zip("yz", eta, strict=True)), window, steps)
        return np.stack([rates["y"], rates["z"]])

    with np.errstate(all="ignore"):
        probe = measured(np.full_like(targets, _PROBE), 1)
        guess = np.log(targets * _PROBE / np.abs(probe))  # of Z it may start on either side of 0
        searches = [[_Search(guess[table, i]) for i in range(len(ratios))] for table in (0, 1)]
        eta, effective = np.full_like(targets, np.nan), np.full_like(targets, np.nan)
        distance, unmatched = np.full(len(ratios), np.inf), np.isfinite(guess).all(0)
        for _ in range(_ROUNDS):
            if not unmatched.any():
                break
            trial = np.exp([[search.x for search in row] for row in searches])[:, unmatched]
            rates = measured(trial, window)
            # rates at which runs diverge are too high
            off = np.nan_to_num(np.log(targets[:, unmatched] / rates), nan=-2.0, posinf=-2.0)
            for j, i in enumerate(np.flatnonzero(unmatched)):
                if (worst := np.abs(off[:, j]).max()) < distance[i]:
                    distance[i], eta[:, i], effective[:, i] = worst, trial[:, j], rates[:, j]
                for table in (0, 1):
                    searches[table][i].update(off[table, j])
            unmatched = unmatched & (distance > _NEAR)
        plateau = (probe[1] / _PROBE) / (effective[1] / eta[1])
    met = distance <= np.log1p(MOST_OFF)
    eta *= 1 - InPlaceOptimizer.of(optimizer).momentum  # which acts as both rates over 1 − μ, though not at once
    never = np.full(len(ratios), np.nan)
    return MatchedRates("kernel", dict(zip("yz", eta, strict=True)), dict(zip("yz", effective, strict=True)),
                        never, met, plateau)  # fmt: skip


class _Search:
    """Root search for ln η of one table, bracketed by the last value that was too low and the last too high."""

    def __init__(self, x: float) -> None:
        self.x = x
        self.low: tuple[float, float] | None = None  # ln η, and the logarithm of the target over the measured rate
        self.high: tuple[float, float] | None = None

    def update(self, off: float) -> None:
        """The next x from the result at this one. The other table's rate changes too, so a bracket may be outdated."""
        if off > 0:
            self.low = (self.x, off)
        else:
            self.high = (self.x, off)
        if self.low is not None and self.high is not None and self.high[0] - self.low[0] < abs(off) / _STEEPEST:
            self.low, self.high = (self.low, None) if off > 0 else (None, self.high)
        if self.low is None or self.high is None:
            self.x += float(np.clip(off, -1.5, 1.5))
        else:
            share = np.clip(self.low[1] / (self.low[1] - self.high[1]), 0.15, 0.85)
            self.x = float(self.low[0] + share * (self.high[0] - self.low[0]))


def measure_rates(
    flags: Flags, task: Task, optimizer: str, seeds: np.ndarray, eta: dict[str, np.ndarray], window: int, steps: int
) -> dict[str, np.ndarray]:
    """Effective rates, by ratio, over the first steps with these nominal ones."""
    n = len(eta["y"])
    each = {name: torch.as_tensor(np.repeat(e, len(seeds))) for name, e in eta.items()}
    runs = CellRuns(flags, task, optimizer, np.tile(seeds, n), each, steps)
    meter = RateMeter(runs)
    runs.advance(window, meter.measure, frozenset(range(window)))
    meter.after()
    return {name: meter.effective(name, n) for name in eta}


def match_loss(flags: Flags, task: Task, optimizer: str, settings: StudySettings, steps: int) -> MatchedRates:
    """Rates of Y, with those of Z below by the ratio, at which the loss is at a tenth at the fixed step.

    Two rounds of rates side by side, the second between the two that enclose the step, or around the rate with the
    lowest loss where none is in time yet; and a third one for ratios at which it still comes too early. Of those in
    time the smallest is taken: larger ones may be unstable.
    """
    ratios, last = np.array(settings.ratios), _SIDE_BY_SIDE - 1
    best, best_when = np.full((2, len(ratios)), np.nan)
    soon = settings.loss_step / (1 + MOST_OFF)
    todo = np.arange(len(ratios))
    exponents = np.broadcast_to(np.linspace(-3.4, 0.4, _SIDE_BY_SIDE), (len(ratios), _SIDE_BY_SIDE))
    for rounds in range(3):
        when, lowest = _crossings(flags, task, optimizer, settings.loss_step, steps, ratios[todo], 10**exponents)
        rows, early = np.arange(len(todo)), when <= settings.loss_step  # (ratios, rates)
        in_time = early.any(1)
        place = np.where(in_time, early.argmax(1), lowest.argmin(1))
        best[todo] = np.where(in_time, exponents[rows, place], np.nan)
        best_when[todo] = np.where(in_time, when[rows, place], np.nan)
        low = exponents[rows, np.maximum(place - 1, 0)]
        high = exponents[rows, np.where(in_time, place, np.minimum(place + 1, last))]
        exponents = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _SIDE_BY_SIDE)
        if rounds == 1:
            again = best_when[todo] < soon
            todo, exponents = todo[again], exponents[again]
            if not len(todo):
                break
    eta_y = 10**best
    eta = {"y": eta_y, "z": eta_y / ratios}
    effective = {name: np.full(len(ratios), np.nan) for name in eta}
    if (known := np.isfinite(eta_y)).any():
        window = max(2, round(settings.t0(optimizer, task.n_classes, task.vocab_size)))
        some = {name: e[known] for name, e in eta.items()}
        seed = np.array([TUNING_SEED])
        for name, rates in measure_rates(flags, task, optimizer, seed, some, window, steps).items():
            effective[name][known] = rates
    met = best_when >= soon
    return MatchedRates("loss", eta, effective, best_when, met, np.full(len(ratios), np.nan))


def _crossings(
    flags: Flags, task: Task, optimizer: str, until: int, steps: int, ratios: np.ndarray, rates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """By ratio and rate: the first step with a loss of a tenth, ∞ where it does not come in time; the lowest loss.

    Measured from half of the time on: earlier ones are too early in any case.
    """
    eta = {"y": rates.flatten(), "z": (rates / ratios[:, None]).flatten()}
    each = {name: torch.as_tensor(e) for name, e in eta.items()}
    runs = CellRuns(flags, task, optimizer, np.full(rates.size, TUNING_SEED), each, steps)
    measured, losses = np.arange(until // 2, until + 1), [runs.losses()]
    runs.advance(until, lambda _, runs: losses.append(runs.losses()), frozenset(measured[:-1].tolist()))
    initial, *late = torch.stack([*losses, runs.losses()]).double().cpu().numpy()
    curve = np.array(late)
    low = curve <= TENTH * task.leeway * initial
    when = np.where(low.any(0), measured[low.argmax(0)], np.inf)
    lowest = np.nan_to_num(curve, nan=np.inf).min(0)
    return when.reshape(rates.shape), lowest.reshape(rates.shape)
