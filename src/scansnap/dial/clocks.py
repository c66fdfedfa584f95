"""Two clocks that make rungs comparable; nothing here, or above, takes nominal rates.

*Kernel clock*, for SGD and momentum. A step changes what the model's tables Y and Z would be, and the effective rate is
how far along the gradient of the YZ model that is,

    η_eff = ⟨ΔZ, G⟩/‖G‖²,   G = −∂L/∂Z at T = ∞,   likewise Y,

where Z is read off as attention logits of (query, key) tokens, moved by the parameters that are trained with η_Z (an
embedding, trained with η_Y, moves them too, and not along G). Y need not be read off: G_Y = Σ p_n f_n r_nᵀ with
f = c/‖c‖ and r_n = e_n − α_n (Lemma 1), so ⟨ΔY, G_Y⟩ = Σ p_n r_n·Δlogits_n with attention held as it was. For the YZ
model η_eff is its rate. Rates are tuned until the mean over the first t₀ is the wanted one.

*Loss clock*, for every optimiser: the T = ∞ loss falls to 10% of its start at the same step for every rung, and t₀ is
as much earlier as it is in the YZ model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from scansnap.dial.data import CONTEXT, Task
from scansnap.dial.model import forward, table_of
from scansnap.dial.rungs import Flags
from scansnap.dial.training import MOMENTUM, Runs, by_token, log_alpha, read_attention, read_loss, read_z
from scansnap.theory import t_snap

KERNEL = ("sgd", "momentum")  # optimisers whose steps are along the gradient
ETA_Y = 4.0  # effective, of every rung
LOSS_STEP = 60  # at which the loss is at a tenth, by the loss clock
TENTH_T0 = 1.3  # t₀ at which it is in the YZ model, at ratio 10
TENTH = 0.1
TUNING_SEED = 1_000_001  # of no run that is judged
_ROUNDS = 5
_PROBE = 1e-3
_NEAR = 0.05  # of the logarithm of a rate: near enough
_SIDE_BY_SIDE = 8  # rates that are tried at once


@dataclass(frozen=True)
class Setting:
    """What is asked of every rung: effective rates, as η_Y and ratios, and seeds. Nominal rates cannot be given."""

    ratios: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0)
    seeds: int = 10
    eta_y: float = ETA_Y
    loss_step: int = LOSS_STEP
    context: int = CONTEXT  # T
    end: int = 100  # in t₀

    def t0(self, optimizer: str, n_classes: int, vocab_size: int) -> float:
        """t₀ in steps: 2 K ln M/η_Y by the kernel clock, the YZ model's share of the fixed step by the loss clock."""
        if optimizer not in KERNEL:
            return self.loss_step / TENTH_T0
        return float(t_snap(eta_y=self.eta_y, n_classes=n_classes, vocab_size=vocab_size))


@dataclass(frozen=True)
class Clock:
    """How a cell's rates were found, and what they are: one for each ratio."""

    kind: str  # kernel or loss
    eta: dict[str, np.ndarray]  # nominal rates of Y's and Z's parameters, for the record
    effective: dict[str, np.ndarray]  # measured over the first t₀
    loss_step: np.ndarray  # where the loss was at a tenth while tuning; NaN where never
    plateau: np.ndarray = field(
        default_factory=lambda: np.zeros(0)
    )  # η_eff of Z at the start over that of the first t₀

    @property
    def trains(self) -> bool:
        """Whether the clock found rates at all: with these, the model moves and stays finite while it is tuned."""
        return all(bool(np.isfinite(values).all()) for values in (*self.eta.values(), *self.effective.values()))

    def over(self, seeds: int, device: torch.device) -> dict[str, Tensor]:
        """Rates of ratio-major runs."""
        return {name: torch.as_tensor(np.repeat(eta, seeds), device=device) for name, eta in self.eta.items()}


class Weighing:
    """Effective rates of single steps: between :meth:`before` and :meth:`after` comes one step."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.along = {"y": 0.0, "z": 0.0}  # type: dict[str, float | Tensor]
        self.square = {"y": 0.0, "z": 0.0}  # type: dict[str, float | Tensor]

    def before(self) -> None:
        runs, task = self.runs, self.runs.task
        batch, self.parameters = task.reading, runs.parameters
        bias = batch.bias.expand(len(runs.seeds), -1, -1, -1).clone().requires_grad_()
        with torch.enable_grad():
            out = forward(runs.parameters, runs.flags, replace(batch, bias=bias))
            (slope,) = torch.autograd.grad(read_loss(task, out).sum(), bias, allow_unused=True)
        slope = torch.zeros_like(bias) if slope is None else slope
        seen = torch.where(batch.bias > -torch.inf, slope, 0.0)
        self.g_z = -by_query(task, by_token(task, seen[:, None]))  # (R, 1, Q, M)
        self.z = read_z(task, out.scores[0].detach())
        self.attention = [a.detach() for a in out.attention]
        self.log_alpha = log_alpha(task, out).detach()
        self.logits = self._last(out.logits.detach())
        c = read_attention(task, self.attention[0]).mean(1)  # (R, K, M)
        self.f = (c / c.norm(dim=-1, keepdim=True))[:, task.read_class]

    @torch.no_grad()
    def after(self) -> None:
        runs, task = self.runs, self.runs.task
        out = forward(runs.parameters, runs.flags, task.reading, self.attention)
        p = torch.tensor(task.classes.p_class, dtype=task.dtype, device=task.device)[task.read_class]
        p = p * task.n_classes / len(p)
        r = task.next_distribution[task.read_class] - self.log_alpha.exp()
        moved = self._last(out.logits) - self.logits
        g_y = self.f.mT @ (p[:, None] * r)  # (R, M, M)
        self._add("y", (p[:, None] * r * moved).sum((1, 2)), g_y.square().sum((1, 2)))
        only_z = {name: t if table_of(name) == "z" else self.parameters[name] for name, t in runs.parameters.items()}
        z = read_z(task, forward(only_z, runs.flags, task.reading, self.attention).scores[0]) - self.z
        self._add("z", (z.mean(1, keepdim=True) * self.g_z).sum((1, 2, 3)), self.g_z.square().sum((1, 2, 3)))

    def _last(self, logits: Tensor) -> Tensor:
        return logits[:, 0] if not self.runs.task.flags.sequences else logits[:, :, -1]

    def _add(self, name: str, along: Tensor, square: Tensor) -> None:
        self.along[name], self.square[name] = self.along[name] + along, self.square[name] + square

    def effective(self, name: str, n_ratios: int) -> np.ndarray:
        """η_eff by ratio: all seeds and all steps that were weighed as one."""
        along, square = (torch.as_tensor(x).double().cpu().reshape(n_ratios, -1).nanmean(1).numpy()
                         for x in (self.along[name], self.square[name]))  # fmt: skip
        with np.errstate(all="ignore"):
            return np.asarray(along / square)


def by_query(task: Task, values: Tensor) -> Tensor:
    """(R, H, K·turns, M) added up over the rows of a query token, as (R, H, Q, M)."""
    _, row = np.unique(task.classes.query[task.read_class.cpu().numpy()], return_inverse=True)
    place = torch.as_tensor(row, device=values.device)
    out = torch.zeros(*values.shape[:2], int(row.max()) + 1, values.shape[-1], dtype=values.dtype, device=values.device)
    return out.index_add_(2, place, values)


def tune(flags: Flags, task: Task, optimizer: str, setting: Setting, steps: int) -> Clock:
    """Rates by the clock that the optimiser has."""
    how = kernel_clock if optimizer in KERNEL else loss_clock
    return how(replace(flags, decay="none"), task, optimizer, setting, steps)  # decay is no step along the gradient


def kernel_clock(flags: Flags, task: Task, optimizer: str, setting: Setting, steps: int) -> Clock:
    """Rates whose effective ones are η_Y and η_Y/ratio over the first t₀."""
    ratios, seeds = np.array(setting.ratios), np.arange(min(setting.seeds, 4)) + TUNING_SEED
    wanted = {"y": np.full(len(ratios), setting.eta_y), "z": setting.eta_y / ratios}
    carried = 1 - MOMENTUM.get(optimizer, 0.0)  # momentum acts as both rates divided by 1 − μ, though not at once
    optimizer = "sgd"
    first = weighed(flags, task, optimizer, seeds, {name: 0 * w + _PROBE for name, w in wanted.items()}, 1, steps)
    with np.errstate(all="ignore"):
        eta = {name: wanted[name] * _PROBE / first[name] for name in wanted}
    window = max(2, round(setting.t0(optimizer, task.n_classes, task.vocab_size)))
    found = {name: np.full(len(ratios), np.nan) for name in wanted}
    best: tuple[float, dict[str, np.ndarray], dict[str, np.ndarray]] = (np.inf, eta, found)
    for _ in range(_ROUNDS):
        eta = {name: np.where(np.isfinite(e) & (e > 0), e, np.nan) for name, e in eta.items()}
        if not all(np.isfinite(e).all() for e in eta.values()):
            break
        found = weighed(flags, task, optimizer, seeds, eta, window, steps)
        with np.errstate(all="ignore"):
            off = {name: np.nan_to_num(np.log(wanted[name] / found[name]), nan=-2.0, posinf=-2.0) for name in wanted}
        worst = max(float(np.abs(o).max()) for o in off.values())
        if worst < best[0]:
            best = (worst, eta, found)
        if worst < _NEAR:
            break
        eta = {name: eta[name] * np.exp(np.clip(off[name], -1.5, 1.5)) for name in wanted}
    _, eta, found = best
    with np.errstate(all="ignore"):
        plateau = (first["z"] / _PROBE) / (found["z"] / eta["z"])
    eta = {name: carried * e for name, e in eta.items()}
    return Clock("kernel", eta, found, np.full(len(ratios), np.nan), plateau)


def weighed(
    flags: Flags, task: Task, optimizer: str, seeds: np.ndarray, eta: dict[str, np.ndarray], window: int, steps: int
) -> dict[str, np.ndarray]:
    """Effective rates, by ratio, over the first steps with these nominal ones."""
    n = len(eta["y"])
    each = {name: torch.as_tensor(np.repeat(e, len(seeds))) for name, e in eta.items()}
    runs = Runs(flags, task, optimizer, np.tile(seeds, n), each, steps)
    weighing = Weighing(runs)
    for _ in range(window):
        weighing.before()
        runs.advance(1)
        weighing.after()
    return {name: weighing.effective(name, n) for name in eta}


def loss_clock(flags: Flags, task: Task, optimizer: str, setting: Setting, steps: int) -> Clock:
    """Rates of Y, with those of Z below by the ratio, at which the loss is at a tenth at the fixed step.

    Two rounds of rates side by side, the second between the two that enclose the step, or around the rate with the
    lowest loss where none is in time yet. Of those in time the smallest is taken: larger ones may be unstable.
    """
    ratios, rows, last = np.array(setting.ratios), np.arange(len(setting.ratios)), _SIDE_BY_SIDE - 1
    exponents = np.broadcast_to(np.linspace(-3.4, 0.4, _SIDE_BY_SIDE), (len(ratios), _SIDE_BY_SIDE))
    for _ in range(2):
        when, lowest = _crossings(flags, task, optimizer, setting, steps, 10**exponents)
        early = when <= setting.loss_step  # (ratios, rates)
        found_one = early.any(1)
        place = np.where(found_one, early.argmax(1), lowest.argmin(1))
        best = np.where(found_one, exponents[rows, place], np.nan)
        best_when = np.where(found_one, when[rows, place], np.nan)
        low = exponents[rows, np.maximum(place - 1, 0)]
        high = exponents[rows, np.where(found_one, place, np.minimum(place + 1, last))]
        exponents = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _SIDE_BY_SIDE)
    eta_y = 10**best
    eta = {"y": eta_y, "z": eta_y / ratios}
    nothing = {name: np.full(len(ratios), np.nan) for name in eta}
    found = nothing
    if np.isfinite(eta_y).all():
        window = max(2, round(setting.t0(optimizer, task.n_classes, task.vocab_size)))
        found = weighed(flags, task, optimizer, np.array([TUNING_SEED]), eta, window, steps)
    return Clock("loss", eta, found, best_when, np.full(len(ratios), np.nan))


def _crossings(
    flags: Flags, task: Task, optimizer: str, setting: Setting, steps: int, rates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """By ratio and rate: the first step with a loss of a tenth, ∞ where it does not come in time; the lowest loss."""
    ratios = np.array(setting.ratios)
    eta = {"y": rates.flatten(), "z": (rates / ratios[:, None]).flatten()}
    each = {name: torch.as_tensor(e) for name, e in eta.items()}
    runs = Runs(flags, task, optimizer, np.full(rates.size, TUNING_SEED), each, steps)
    curve = []
    for _ in range(setting.loss_step + 1):
        with torch.no_grad():
            out = forward(runs.parameters, flags, task.reading)
            curve.append(read_loss(task, out).double().cpu().numpy())
        runs.advance(1)
    low = np.array(curve) <= TENTH * task.leeway * curve[0]
    when = np.where(low.any(0), low.argmax(0), np.inf)
    lowest = np.nan_to_num(np.array(curve), nan=np.inf).min(0)
    return when.reshape(rates.shape), lowest.reshape(rates.shape)
