"""The training loop of the dial: all runs of a cell at once, read at chosen steps, some of the steps weighed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scansnap.dial.data import Batch, Task
from scansnap.dial.model import Output, Parameters, forward, loss, start, table_of, trained
from scansnap.dial.rungs import Flags
from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.state import State, begin
from scansnap.dynamics.step import Rates, one_step

AHEAD = 16  # steps whose data are drawn at once
Look = Callable[[int, "Runs"], None]


@dataclass(frozen=True)
class Reading:
    """A model read on its task's reading batch; heads as the second dimension."""

    loss: np.ndarray  # (R,) at T = ∞
    attention: np.ndarray  # (R, H, K, M)
    z: np.ndarray  # (R, H, Q, M) attention logits of query and key tokens, averaged over positions


class Runs:
    """The runs of one cell under way. ``eta`` are the nominal rates of the two groups of parameters, (R,) each."""

    def __init__(
        self, flags: Flags, task: Task, optimizer: str, seeds: np.ndarray, eta: dict[str, Tensor], decay_steps: int
    ) -> None:
        self.flags, self.task = flags, task
        self.seeds = torch.as_tensor(seeds, device=task.device)
        self.streams, self.stream = torch.unique(self.seeds, return_inverse=True)
        every = start(flags, task.vocab_size, task.context, self.seeds, task.dtype)
        self.fixed = {name: t for name, t in every.items() if not trained(flags, name)}
        self.optimizers = dict.fromkeys(
            (n for n in every if n not in self.fixed), Optimizer(RULE.get(optimizer, optimizer))
        )
        self.state = begin({name: every[name] for name in self.optimizers}, self.optimizers)
        eta = {table: value.to(task.device, task.dtype) for table, value in eta.items()}
        each = {name: eta[table_of(name)] for name in self.optimizers}
        # what decays loses a factor e until the end where nothing drives it, whatever its rate
        matrices = {name for name, t in every.items() if t.ndim > 2 and name != "embed"}
        decays = {"none": "", "both": "yz"}.get(flags.decay, flags.decay)
        decay = {name: (1 / (decay_steps * rate)) if table_of(name) in decays and name in matrices else 0 * rate
                 for name, rate in each.items()}  # fmt: skip
        self.rates = Rates(each, decay, torch.full_like(eta["y"], MOMENTUM.get(optimizer, 0.0)))
        self.limits = dict.fromkeys(self.optimizers, torch.inf)

    @property
    def parameters(self) -> Parameters:
        return {**self.fixed, **self.state.tables}

    def advance(self, steps: int, look: Look | None = None, at: frozenset[int] = frozenset()) -> None:
        """Some steps on; ``look`` is called before the steps (counted from the start) in ``at``."""
        end = self.state.step + steps
        while self.state.step < end:
            first, last = self.state.step, min(self.state.step + AHEAD, end)
            for step, batch in zip(range(first, last), self.task.batches(self.streams, first, last), strict=True):
                if look is not None and step in at:
                    look(step, self)
                self.state = self.after(self.state, batch.of(self.stream))

    def after(self, state: State, batch: Batch) -> State:
        """The state after one update on a batch."""
        tables = {name: t.detach().requires_grad_() for name, t in state.tables.items()}
        with torch.enable_grad():
            total = loss({**self.fixed, **tables}, self.flags, batch).sum()
            gradients = torch.autograd.grad(total, list(tables.values()))
        ascent = {name: -g for name, g in zip(tables, gradients, strict=True)}
        return one_step(state, ascent, self.rates, state.step, self.optimizers, limits=self.limits, multiplicity={})

    @torch.no_grad()
    def read(self) -> Reading:
        """Loss, attention and logits as they are now."""
        out = forward(self.parameters, self.flags, self.task.reading)
        found = (
            read_loss(self.task, out),
            read_attention(self.task, out.attention[0]),
            read_z(self.task, out.scores[0]),
        )
        return Reading(*(t.double().cpu().numpy() for t in found))


RULE = {"momentum": "sgd"}
MOMENTUM = {"momentum": 0.9, "muon": 0.9, "sign": 0.9}


def log_alpha(task: Task, out: Output) -> Tensor:
    """(R, K·turns, M) of the query at the end of every sequence that is read."""
    last = out.logits[:, 0] if not task.flags.sequences else out.logits[:, :, -1]
    return torch.log_softmax(last, dim=-1)


def read_loss(task: Task, out: Output) -> Tensor:
    """T = ∞ loss (R,)."""
    each = -(task.next_distribution[task.read_class] * log_alpha(task, out)).sum(-1)
    p = torch.tensor(task.classes.p_class, dtype=each.dtype, device=each.device)[task.read_class]
    return (each * p).sum(-1) * task.n_classes / len(task.read_class)


def read_attention(task: Task, attention: Tensor) -> Tensor:
    """(R, H, K, M): attention of each class's query on tokens, its places added up, over turns averaged."""
    on_tokens = by_token(task, attention)
    r, h, rows, m = on_tokens.shape
    c = on_tokens.reshape(r, h, task.n_classes, rows // task.n_classes, m).mean(3)
    return c / c.sum(-1, keepdim=True)


def read_z(task: Task, scores: Tensor) -> Tensor:
    """(R, H, Q, M): logits of (query token, key token), averaged over places; 0 where they never meet."""
    ones = torch.ones_like(scores[:1, :1]) * (task.reading.bias[0] > -torch.inf)
    seen = torch.where(ones > 0, scores, 0.0)
    total, times = by_token(task, seen), by_token(task, ones)
    queries, row = np.unique(task.classes.query[task.read_class.cpu().numpy()], return_inverse=True)
    place = torch.as_tensor(row, device=scores.device)
    sums = torch.zeros(*total.shape[:2], len(queries), total.shape[-1], dtype=total.dtype, device=total.device)
    count = torch.zeros(1, 1, len(queries), total.shape[-1], dtype=total.dtype, device=total.device)
    sums.index_add_(2, place, total)
    count.index_add_(2, place, times)
    return sums / count.clamp_min(1)


def by_token(task: Task, values: Tensor) -> Tensor:
    """Values of keys (R, H, B, Q, S) of the last query of each row, added up by token: (R, H, K·turns, M)."""
    if not task.flags.sequences:
        return values[:, :, 0]  # the keys are the tokens
    last = values[:, :, :, -1]  # (R, H, B, S)
    out = torch.zeros(*last.shape[:3], task.vocab_size, dtype=last.dtype, device=last.device)
    return out.scatter_add_(-1, task.reading.keys[:, None].expand_as(last), last)
