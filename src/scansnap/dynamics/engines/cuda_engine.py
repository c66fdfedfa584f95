"""The fused path on CUDA: a thread block owns a run (kernels/cuda/runs.py), for some steps or from first to last.

In the latter case only data and records of a run are in the device's memory: the kernel draws the initial values, and
attention follows from the recorded z.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from scansnap.dynamics.checkpoint import Records
from scansnap.dynamics.engines.batches import Batches, Stretch
from scansnap.dynamics.engines.layout import TableLayout
from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.settings import Settings
from scansnap.dynamics.yz import attention_of
from scansnap.kernels.cuda.runs import InitialValues, KernelData, KernelRates, Machine, Program
from scansnap.kernels.cuda.shape import MOST_COLUMNS, MOST_SLOTS
from scansnap.runs import Runs

WHOLE = ("attention", "entropy", "loss", "z")  # what a run leaves that is done at once
_WHOLE_SECONDS = 5.0  # longer simulations are done in stretches, which can be stopped and continued
_FLOATS_PER_SECOND = 1e13
_DATA_BYTES = 1 << 30  # of the mini-batches that are in memory at once
_RECORD_FLOATS = 64 << 20  # and of what is recorded

Four = tuple[Tensor, Tensor, Tensor, Tensor]


class CudaEngine:
    """Runs of one layout, as `scansnap.dynamics.engines.hand_written.Engine` has them."""

    def __init__(self, layout: TableLayout, settings: Settings, runs: Runs, machine: Machine) -> None:
        self.layout, self.settings, self.runs, self.device = layout, settings, runs, machine.device
        expected = layout.expected_counts(settings.context, settings.model.query_in_keys)
        self.program = Program(layout, machine, expected)
        self.begin = InitialValues(*settings.model.init_scale(layout.vocab_size))
        self.seeds, self.stream = np.unique(runs.seed, return_inverse=True)

    @classmethod
    def on_cuda(cls, layout: TableLayout, settings: Settings, runs: Runs, device: torch.device) -> CudaEngine:
        return cls(layout, settings, runs, Machine.cuda(device))

    def why_not(self) -> str | None:
        """The first reason it does not apply, or None."""
        shape = self.program.shape
        reasons = {
            f"there are more than {MOST_COLUMNS} outputs": shape.columns > MOST_COLUMNS,
            f"a class has more than {MOST_SLOTS} tokens": shape.slots > MOST_SLOTS,
            "the classes do not fit into a multiprocessor": not self.program.fits,
        }
        return next((reason for reason, applies in reasons.items() if applies), None)

    def advance(
        self, before: Four, stretch: Stretch, which: np.ndarray, factor_y: np.ndarray, factor_z: np.ndarray
    ) -> tuple[Four, Tensor]:
        """The tables of some runs after a stretch, and which of them are finite."""
        state = tuple(table.contiguous() for table in before)
        new = tuple(table.clone() for table in state)  # entries of Z that no class reads stay as they are
        data = KernelData.of(stretch.cls, stretch.counts, stretch.weight, self.program.tables["order"])
        rates = self._rates(which, factor_y, factor_z)
        stream, seed = self.stream[which], self.runs.seed[which]
        _, _, finite = self.program.train(data, stream, seed, rates, self.begin, state=state, new=new)  # type: ignore[arg-type]
        return new, finite.to(torch.bool)  # type: ignore[return-value]

    def whole(self, names: tuple[str, ...], distinct: np.ndarray) -> Records | None:
        """What the runs leave at the recorded steps, (R, steps, …) by name; None where stretches must do it.

        ``distinct`` (K, S): the slots whose entropy is meant.
        """
        settings, record = self.settings, self.settings.record
        k, s = self.layout.slots.shape
        samples = settings.batch_size or k
        work = len(self.runs) * settings.steps * samples * s * len(self.layout.columns) * 4.0
        stream_bytes = settings.steps * samples * s * (1 if self._drawn and settings.context <= 256 else 4)
        if not set(names) <= set(WHOLE) or work > _WHOLE_SECONDS * _FLOATS_PER_SECOND or stream_bytes > _DATA_BYTES:
            return None
        factors = [_factors(optimizer, settings.steps) for optimizer in (settings.optimizer_y, settings.optimizer_z)]
        mask = torch.as_tensor(np.take_along_axis(distinct, self.program.index["order"], 1), device=self.device)
        out: Records = {}
        for group in self._groups(names, stream_bytes):
            first, last = self.stream[group].min(), self.stream[group].max()
            data = self._data(self.seeds[first : last + 1])
            rates = self._rates(group, *factors)
            z, loss, finite = self.program.train(
                data, self.stream[group] - first, self.runs.seed[group], rates, self.begin, record=record,
                every_z="z" in names,
            )  # fmt: skip
            records = self._variables(names, z, loss, mask)
            if not bool(finite.all()):
                return None
            if len(group) == len(self.runs):
                return records
            for name, part in records.items():
                if name not in out:
                    out[name] = np.empty((len(self.runs), *part.shape[1:]), dtype=part.dtype)
                out[name][group] = part
        return out

    @property
    def _drawn(self) -> bool:
        """Whether the kernel draws the data itself."""
        return self.settings.sampling == "counts" and not math.isinf(self.settings.context)

    def _groups(self, names: tuple[str, ...], stream_bytes: int) -> Iterator[np.ndarray]:
        """Runs that are done in one launch: all as they are, or ordered by their data and cut."""
        (k, s), m = self.layout.slots.shape, self.layout.vocab_size
        each = 4 * k * s + ("attention" in names) * k * m + ("z" in names) * len(self.layout.queries) * m
        most_runs = max(1, _RECORD_FLOATS // (len(self.settings.record) * each))
        most_streams = max(1, (_DATA_BYTES if self._drawn else _DATA_BYTES // 16) // stream_bytes)  # torch needs room
        if len(self.runs) <= most_runs and len(self.seeds) <= most_streams:
            yield np.arange(len(self.runs))
            return
        order, begin = np.argsort(self.stream, kind="stable"), 0
        while begin < len(order):
            last = self.stream[order[begin]] + most_streams
            end = min(begin + most_runs, int(np.searchsorted(self.stream[order], last)))
            yield order[begin:end]
            begin = end

    def _data(self, seeds: np.ndarray) -> KernelData:
        settings = self.settings
        if self._drawn:
            assert settings.batch_size is not None  # checked by Settings
            own = self.layout.slot_query if settings.model.query_in_keys else None
            return self.program.draw(seeds, 0, settings.steps, settings.batch_size, int(settings.context) - 1, own)
        stretch = Batches(self.layout, settings, seeds, self.device).take(0, settings.steps)
        return KernelData.of(stretch.cls, stretch.counts, stretch.weight, self.program.tables["order"])

    def _rates(self, which: np.ndarray, factor_y: np.ndarray, factor_z: np.ndarray) -> KernelRates:
        runs = self.runs
        return KernelRates(runs.eta_y[which], runs.eta_z[which], runs.momentum[which], factor_y, factor_z)

    def _variables(self, names: tuple[str, ...], z: Tensor, loss: Tensor, distinct: Tensor) -> Records:
        """The recorded variables from loss (R, steps) and z, (R, steps, Q M) if recorded, else (R, steps, E)."""
        layout, tables, out = self.layout, self.program.tables, {"loss": loss}
        if "z" in names:
            out["z"] = z.unflatten(-1, (len(layout.queries), layout.vocab_size))
            z = z[..., tables["z_at"]]
        if {"attention", "entropy"} & set(names):
            expected = tables["expected"]
            c = attention_of(expected, z[..., tables["slot_z"]])  # (R, steps, K, S)
            if "attention" in names:
                full = torch.zeros(*c.shape[:3], layout.vocab_size, dtype=c.dtype, device=self.device)
                out["attention"] = full.scatter_add_(-1, tables["slots"].expand_as(c), c)  # padded slots add 0
            if "entropy" in names:
                masked = c * distinct
                total = masked.sum(-1)
                entropy = torch.special.entr(masked / total.clamp_min(1e-38)[..., None]).sum(-1)
                out["entropy"] = entropy.masked_fill_(total <= 0, torch.nan)
        return {name: out[name].cpu().numpy() for name in names}


def _factors(optimizer: Optimizer, steps: int) -> np.ndarray:
    """The schedule's factors of all updates."""
    if optimizer.schedule == "constant":
        return np.ones(steps)
    return np.array([optimizer.rate_factor(i, steps) for i in range(steps)])
