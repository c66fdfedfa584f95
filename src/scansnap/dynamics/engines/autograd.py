"""Training of any small ``nn.Module`` by the loop of the YZ model: many runs at once, on the same sequences.

The module maps token ids (B, T), the query last, to logits (B, M), or (B, T, M) for every position. Gradients come from
autograd, over runs by ``torch.func``, or run by run where vmap has no rule. So a module must be a function of its
parameters and the tokens; dropout is refused. The YZ model as a module gives the hand-written engine's numbers.

    R runs · B sequences · T tokens · M vocabulary
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from scansnap.checks import InputError
from scansnap.dynamics.checkpoint import Records
from scansnap.dynamics.fingerprint import digest
from scansnap.dynamics.settings import Settings
from scansnap.dynamics.state import State, begin, initial
from scansnap.dynamics.state_view import describe_function
from scansnap.dynamics.step import RunRates, one_step
from scansnap.results.variables import add_labels
from scansnap.runs import Runs
from scansnap.sampling.philox import Purpose
from scansnap.sampling.sampler import Sampler, Sequences, draw

LOSS = "batch_loss"
TokenBatch = tuple[Tensor, Tensor, Tensor]  # tokens, target, weight, (R, B, …) each
_GROUP_FLOATS = 16 << 20  # logits of the runs that are trained side by side


class ModuleTrainer:
    """Runs of a module on the sequences of a sampler.

    ``attention`` names the parameters (or prefixes) that are trained with η_Z and drawn as Z is; all others are trained
    with η_Y. With ``init=None`` every run begins at the module's own values.
    """

    def __init__(
        self,
        module: nn.Module,
        sampler: Sampler,
        runs: Runs,
        settings: Settings,
        device: torch.device,
        *,
        attention: Sequence[str] = (),
        init: str | None = None,
    ) -> None:
        self.runs, self.settings, self.device, self.sampler, self.init = runs, settings, device, sampler, init
        self.dtype = getattr(torch, settings.dtype)
        self.source, self.attention = describe_function(module), tuple(attention)
        self.module = copy.deepcopy(module).to(device=device, dtype=self.dtype)
        self.trained = {name: p.detach() for name, p in self.module.named_parameters() if p.requires_grad}
        self.fixed = {name: t.detach() for name, t in (*self.module.named_parameters(), *self.module.named_buffers())
                      if name not in self.trained}  # fmt: skip
        if not self.trained:
            raise InputError("module", type(module).__name__, "one with parameters to train")
        for name in self.trained:
            if name.startswith("moments_") or name in (LOSS, "failed_step", "run", "step"):
                raise InputError("a parameter of the module", name, "called otherwise: that name is taken")
        for start in self.attention:
            if not any(_belongs(name, (start,)) for name in self.trained):
                raise InputError("attention", start, "parameters of the module: " + ", ".join(self.trained))
        self.kind = {name: "z" if _belongs(name, self.attention) else "y" for name in self.trained}
        self.optimizers = {name: settings.optimizers[kind] for name, kind in self.kind.items()}
        self.rates = RunRates.of(runs, self.kind, device, self.dtype)
        seeds, stream = np.unique(runs.seed, return_inverse=True)
        self.seeds, self.stream = (torch.as_tensor(a, device=device) for a in (seeds, stream))
        self.dims = {LOSS: (), **{name: _dims(name, p) for name, p in self.trained.items()}}
        first = self._draw(0, 1)
        self.gradients = self._follow(_batch(first, 0, self.stream[:1]))
        self.floats_per_step = first.tokens.numel() + first.target.numel()
        self.group = max(1, _GROUP_FLOATS // (first.tokens[0].numel() * sampler.vocab_size))
        self.seconds_per_step = 1e-3 * len(runs)
        self.engine_used = "autograd"

    def _follow(self, batch: TokenBatch) -> Callable[..., tuple[dict[str, Tensor], Tensor]]:
        """A function for gradients over runs; one mini-batch shows whether the module can be trained."""
        gradient = grad_and_value(self._loss)

        def one_by_one(tables: dict[str, Tensor], *batches: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            parts = [gradient({name: t[r] for name, t in tables.items()}, *[b[r] for b in batches])
                     for r in range(len(batches[0]))]  # fmt: skip
            stacked = {name: torch.stack([gradients[name] for gradients, _ in parts]) for name in tables}
            return stacked, torch.stack([loss for _, loss in parts])

        tables = {name: p[None] for name, p in self.trained.items()}
        side_by_side: Callable[..., tuple[dict[str, Tensor], Tensor]] = vmap(gradient, randomness="error")
        try:
            side_by_side(tables, *batch)
            return side_by_side
        except (RuntimeError, NotImplementedError):
            pass  # an operation without a rule for vmap, or randomness
        try:
            once, repeated = one_by_one(tables, *batch), one_by_one(tables, *batch)
        except (RuntimeError, TypeError, IndexError) as error:
            reason = " ".join(str(error).split(". ")[0].split())[:200]
            allowed = f"a function of its parameters and of token ids (B, T) ({reason})"
            raise InputError("module", type(self.module).__name__, allowed) from None
        if not all(torch.equal(once[0][name], repeated[0][name]) for name in self.trained):
            allowed = "without chance, such as dropout: call its eval() first"
            raise InputError("module", type(self.module).__name__, allowed)
        return one_by_one

    def _draw(self, start: int, stop: int) -> Sequences:
        assert self.settings.batch_size is not None  # checked by simulate
        return draw(self.sampler, self.seeds, torch.arange(start, stop, device=self.device), self.settings.batch_size)

    def _loss(self, parameters: dict[str, Tensor], tokens: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Mean cross-entropy of one run's mini-batch: tokens (B, T), target as in ``Sequences``, weight (B,)."""
        logits = functional_call(self.module, (parameters, self.fixed), (tokens,))
        at_every_position = target.ndim == tokens.ndim + int(target.is_floating_point())
        shape = (*(tokens.shape if at_every_position else tokens.shape[:1]), self.sampler.vocab_size)
        if not at_every_position and logits.shape[:-1] == tokens.shape:
            logits = logits[:, -1]  # a language model with logits at every position
        if logits.shape != shape:
            raise InputError("what the module returns", f"of shape {tuple(logits.shape)}", f"logits of shape {shape}")
        log_alpha = torch.log_softmax(logits, dim=-1)
        if target.is_floating_point():
            losses, has_target = -(target.to(log_alpha.dtype) * log_alpha).sum(-1), target.sum(-1) > 0
        else:
            losses = -log_alpha.gather(-1, target.clamp_min(0)[..., None])[..., 0]
            has_target = target >= 0
        if at_every_position:  # the mean over the positions with a target
            losses = (losses * has_target).sum(-1) / has_target.sum(-1).clamp_min(1)
        return (weight.to(losses.dtype) * losses).sum()

    # --- Trainer -----------------------------------------------------------------------------------------------

    def start(self) -> State:
        n = len(self.runs)
        if self.init is None:
            return begin({name: p.expand(n, *p.shape).clone() for name, p in self.trained.items()}, self.optimizers)
        scale = self.settings.model.init_scale(self.sampler.vocab_size)
        tables, n_before = {}, {"y": 0, "z": 0}
        for name, p in self.trained.items():  # entries by place, as those of Y and Z by token
            kind = self.kind[name]
            rows, columns = math.prod(p.shape[:-1]), p.shape[-1] if p.ndim else 1
            drawn = initial(
                scale, self.seeds.cpu().numpy(), Purpose.INIT_Y if kind == "y" else Purpose.INIT_Z,
                np.array([n_before[kind]]), np.arange(rows), np.arange(columns), self.device,
            )  # fmt: skip
            tables[name] = drawn.reshape(len(self.seeds), *p.shape).to(self.dtype)[self.stream]
            n_before[kind] += 1
        return begin(tables, self.optimizers)

    def advance(self, state: State, stop: int) -> State:
        start, drawn = state.step, self._draw(state.step, stop)
        limits = dict.fromkeys(self.trained, math.inf)
        for i in range(stop - start):
            step = start + i
            gradients, _ = self._over_runs(state, drawn, i)
            factors = {name: o.rate_factor(step, self.settings.steps) for name, o in self.optimizers.items()}
            ascent = {name: -g for name, g in gradients.items()}
            state = one_step(state, ascent, self.rates.scaled(factors), step, self.optimizers,
                             limits=limits, multiplicity={})  # fmt: skip
        return state

    def _over_runs(self, state: State, drawn: Sequences, i: int) -> tuple[dict[str, Tensor], Tensor]:
        """Gradients and losses (R,) of all runs on the i-th mini-batch, some runs at a time."""
        parts = []
        for runs in torch.arange(len(self.runs), device=self.device).split(self.group):
            tables = {name: table[runs] for name, table in state.tables.items()}
            parts.append(self.gradients(tables, *_batch(drawn, i, self.stream[runs])))
        gradients = {name: torch.cat([g[name] for g, _ in parts]) for name in self.trained}
        return gradients, torch.cat([loss for _, loss in parts])

    def run_at_once(self, names: tuple[str, ...]) -> Records | None:
        return None

    def measure(self, state: State, names: tuple[str, ...]) -> Records:
        records = {name: state.tables[name].cpu().numpy() for name in names if name != LOSS}
        if LOSS in names:
            _, losses = self._over_runs(state, self._draw(state.step, state.step + 1), 0)
            records[LOSS] = losses.cpu().numpy()
        return records

    def fingerprint_parts(self) -> dict[str, Any]:
        values = {name: p.cpu().numpy() for name, p in {**self.trained, **self.fixed}.items()}
        return {"data": self.sampler.describe(), "module": self.source, "attention": list(self.attention),
                "module_init": self.init or "its own values", "values": digest(values)}  # fmt: skip

    def coordinates(self, dims: Collection[Hashable]) -> dict[str, Any]:
        return {}

    def add_attributes(self, data: xr.Dataset) -> None:
        add_labels(data)
        data.attrs |= {"module": self.source.split()[0], "data": self.sampler.describe()}


def _batch(drawn: Sequences, i: int, stream: Tensor) -> TokenBatch:
    """The i-th mini-batch for runs that read the given streams, (R, B, …) each."""
    return drawn.tokens[stream, i], drawn.target[stream, i], drawn.weight[stream, i]


def _belongs(name: str, beginnings: Sequence[str]) -> bool:
    return any(name == start or name.startswith(start + ".") for start in beginnings)


def _dims(name: str, parameter: Tensor) -> tuple[str, ...]:
    return tuple(f"{name}_{i}" for i in range(parameter.ndim))
