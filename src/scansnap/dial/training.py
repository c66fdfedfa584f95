"""Training of all runs of a cell at once: the loop, the updates, and what is read off the models at chosen steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from scansnap.dial.components import Flags
from scansnap.dial.data import AttentionBatch, Task
from scansnap.dial.model import Output, Parameters, forward, loss, start, table_of, trained
from scansnap.dynamics.optimizers import InPlaceOptimizer, along

AHEAD = {"cpu": 64, "cuda": 128}  # steps whose data are drawn at once
EAGER = 3  # steps before a graph is recorded, in which libraries initialise
Measure = Callable[[int, "CellRuns"], None]


class CellRuns:
    """The runs of a cell. ``eta`` are the nominal rates of the two groups of parameters, (R,) each."""

    def __init__(
        self, flags: Flags, task: Task, optimizer: str, seeds: np.ndarray, eta: dict[str, Tensor], decay_steps: int
    ) -> None:
        self.flags, self.task, self.reader, self.step = flags, task, Reader(task), 0
        self.seeds = torch.as_tensor(seeds, device=task.device)
        self.streams, self.stream = torch.unique(self.seeds, return_inverse=True)
        initial = start(flags, task.vocab_size, task.context, self.seeds, task.dtype)
        self.fixed = {name: t for name, t in initial.items() if not trained(flags, name)}
        eta = {table: value.to(task.device, task.dtype) for table, value in eta.items()}
        tables = {name: t for name, t in initial.items() if name not in self.fixed}
        each = {name: eta[table_of(name)] for name in tables}
        # decay shrinks by a factor e over the run where nothing drives a matrix, whatever its rate
        matrices = {name for name, t in tables.items() if t.ndim > 2 and name != "embed"}
        decays = {"none": "", "both": "yz"}.get(flags.decay, flags.decay)
        decay = {name: (1 / (decay_steps * rate)) if table_of(name) in decays and name in matrices else 0 * rate
                 for name, rate in each.items()}  # fmt: skip
        self.descent = Descent(optimizer, tables, each, decay)
        self._graphed: _GraphedUpdate | None = None

    @property
    def parameters(self) -> Parameters:
        """As they are now; the next step moves them in place."""
        return {**self.fixed, **self.descent.tables}

    def advance(self, steps: int, measure: Measure | None = None, at: frozenset[int] = frozenset()) -> None:
        """Train on; ``measure`` is called before the steps (counted from the start) in ``at``."""
        end, ahead = self.step + steps, AHEAD[self.task.device.type]
        while self.step < end:
            first, last = self.step, min(self.step + ahead, end)
            for step, batch in zip(range(first, last), self.task.batches(self.streams, first, last), strict=True):
                if measure is not None and step in at:
                    measure(step, self)
                self._update(_short(batch))
                self.step += 1

    def _update(self, batch: AttentionBatch) -> None:
        if self.task.device.type == "cpu" or self.step < EAGER:
            self.move(batch)
            return
        if self._graphed is None:
            self._graphed = _GraphedUpdate(self, batch)
        self._graphed.replay(batch)

    def move(self, batch: AttentionBatch) -> None:
        """One update on a batch, in place."""
        tables = {name: t.detach().requires_grad_() for name, t in self.descent.tables.items()}
        with torch.enable_grad():
            total = -loss({**self.fixed, **tables}, self.flags, batch.of(self.stream)).sum()
            gradients = torch.autograd.grad(total, list(tables.values()))
        self.descent.move(gradients)

    @torch.no_grad()
    def read(self) -> Reading:
        """Loss, attention and logits as they are now."""
        out, reader = forward(self.parameters, self.flags, self.reader.batch, at_end=True), self.reader
        values = reader.loss(out), reader.attention(out.attention[0]), reader.z(out.scores[0])
        return Reading(*(t.double().cpu().numpy() for t in values))

    @torch.no_grad()
    def losses(self) -> Tensor:
        """T = ∞ losses now, (R,), left on the device."""
        return self.reader.loss(forward(self.parameters, self.flags, self.reader.batch, at_end=True, only_logits=True))


class _GraphedUpdate:
    """An update recorded as a CUDA graph and replayed, as it has hundreds of small launches."""

    def __init__(self, runs: CellRuns, batch: AttentionBatch) -> None:
        self.batch = replace(batch, **{name: t.clone() for name, t in vars(batch).items() if t is not None})
        self._last: AttentionBatch | None = None
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            runs.move(self.batch)

    def replay(self, batch: AttentionBatch) -> None:
        if batch is not self._last:  # the expectation is one batch for all steps
            for recorded, new in zip(vars(self.batch).values(), vars(batch).values(), strict=True):
                if recorded is not None:
                    recorded.copy_(new)
            self._last = batch
        self.graph.replay()


def _short(batch: AttentionBatch) -> AttentionBatch:
    """Without copies of masks that are the same in all streams and sequences."""
    bias = batch.bias
    for dim in (0, 1):
        bias = bias.narrow(dim, 0, 1) if bias.stride(dim) == 0 else bias
    return batch if bias is batch.bias else replace(batch, bias=bias)


class Descent:
    """Tables of R runs and the optimiser that updates them.

    ``eta`` and ``decay`` are rates and weight decays, (R,) for each table. What becomes non-finite stays so, and no
    other run sees it.
    """

    def __init__(
        self, optimizer: str, tables: dict[str, Tensor], eta: dict[str, Tensor], decay: dict[str, Tensor]
    ) -> None:
        shapes = [t.shape for t in tables.values()]
        self.sizes = [math.prod(shape) for shape in shapes]
        self.all = torch.cat([t.flatten() for t in tables.values()])
        views = zip(tables, self.all.split(self.sizes), shapes, strict=True)
        self.tables = {name: view.view(shape) for name, view, shape in views}  # parts of one vector
        self.step = torch.zeros((), dtype=torch.float64, device=self.all.device)  # on the device: graphs count it too
        rule = InPlaceOptimizer.of(optimizer)
        if rule.optimizer.rule.entrywise:
            self.parts = [_Part(optimizer, self.all, _spread(tables, eta), _spread(tables, decay))]
        else:
            matrices = {name: t if t.ndim > 2 else t[:, None] for name, t in self.tables.items()}
            self.parts = [_Part(optimizer, t, along(eta[name], t), along(decay[name], t))
                          for name, t in matrices.items()]  # fmt: skip

    @property
    def moments(self) -> list[Tensor]:
        """The optimiser's buffers."""
        return [moment for part in self.parts for moment in part.moments.values()]

    @torch.no_grad()
    def move(self, gradients: Sequence[Tensor]) -> None:
        """One update; ``gradients`` are those of minus the loss, in the order of the tables."""
        d = torch.cat([gradient.flatten() for gradient in gradients])
        each = [d] if len(self.parts) == 1 else d.split(self.sizes)
        for part, direction in zip(self.parts, each, strict=True):
            part.move(direction.view_as(part.table), self.step)
        self.step += 1


class _Part:
    """A tensor that is updated as a whole: the vector of all tables, or one table where the rule is not entrywise."""

    def __init__(self, optimizer: str, table: Tensor, eta: Tensor, decay: Tensor) -> None:
        self.table, self.eta = table, eta
        self.optimizer = InPlaceOptimizer.of(optimizer, weight_decay=decay if bool((decay != 0).any()) else 0.0)
        self.moments = self.optimizer.start(table)

    def move(self, d: Tensor, step: Tensor) -> None:
        self.optimizer.update(self.table, d, self.moments, eta=self.eta, step=step)


def _spread(tables: dict[str, Tensor], per_run: dict[str, Tensor]) -> Tensor:
    """One number per run, as many times as its table has entries."""
    return torch.cat([per_run[name].repeat_interleave(t[0].numel()) for name, t in tables.items()])


@dataclass(frozen=True)
class Reading:
    """A model read on its task's reading batch; heads as the second dimension."""

    loss: np.ndarray  # (R,) at T = ∞
    attention: np.ndarray  # (R, H, K, M)
    z: np.ndarray  # (R, H, Q, M) attention logits of query and key tokens, averaged over positions


class Reader:
    """Measures models on the evaluation batch of a task."""

    def __init__(self, task: Task) -> None:
        self.task, self.batch = task, task.evaluation
        classes = task.evaluation_class.cpu().numpy()
        queries, row = np.unique(task.classes.query[classes], return_inverse=True)
        self.n_queries, self.row = len(queries), torch.as_tensor(row, device=task.device)
        p = task.classes.p_class[classes] * task.n_classes / len(classes)
        self.p = torch.tensor(p, dtype=task.dtype, device=task.device)  # of sequences, (K·copies,)
        self.following = task.next_distribution[task.evaluation_class]
        self.visible = self.batch.bias > -torch.inf  # (1, B, Q, S)
        self.times = self.by_query(self.by_token(self.visible[:, None].to(task.dtype))).clamp_min(1)

    def log_alpha(self, out: Output) -> Tensor:
        """(R, K·copies, M) of the query at the end of every sequence."""
        return torch.log_softmax(self.last(out.logits), dim=-1)

    def last(self, logits: Tensor) -> Tensor:
        """(R, K·copies, M) from logits of all queries."""
        return logits[:, 0] if not self.task.flags.sequences else logits[:, :, -1]

    def loss(self, out: Output) -> Tensor:
        """T = ∞ loss (R,)."""
        return -((self.following * self.log_alpha(out)).sum(-1) * self.p).sum(-1)

    def attention(self, attention: Tensor) -> Tensor:
        """(R, H, K, M): attention of each class's query on tokens, summed over positions and averaged over copies."""
        on_tokens = self.by_token(attention)
        r, h, rows, m = on_tokens.shape
        c = on_tokens.reshape(r, h, self.task.n_classes, rows // self.task.n_classes, m).mean(3)
        return c / c.sum(-1, keepdim=True)

    def z(self, scores: Tensor) -> Tensor:
        """(R, H, Q, M): logits of (query token, key token), averaged over positions; 0 where no position has both."""
        return self.by_query(self.by_token(torch.where(self.visible[:, None], scores, 0.0))) / self.times

    def by_query(self, values: Tensor) -> Tensor:
        """(R, H, K·copies, M) added up over the rows of a query token, as (R, H, Q, M)."""
        out = torch.zeros(*values.shape[:2], self.n_queries, values.shape[-1], dtype=values.dtype, device=values.device)
        return out.index_add_(2, self.row, values)

    def by_token(self, values: Tensor) -> Tensor:
        """Values of keys (R, H, B, Q, S) of the last query of each row, added up by token: (R, H, K·copies, M)."""
        if not self.task.flags.sequences:
            return values[:, :, 0]  # the keys are the tokens
        last = values[:, :, :, -1]  # (R, H, B, S)
        out = torch.zeros(*last.shape[:3], self.task.vocab_size, dtype=last.dtype, device=last.device)
        return out.scatter_add_(-1, self.batch.keys[:, None].expand_as(last), last)
