"""The mini-batches of a simulation: any stretch of steps, for all seeds at once, made on demand.

Runs with the same seed read the same stream, so a sweep over rates samples its data once per seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scansnap.dynamics.engines.layout import TableLayout
from scansnap.dynamics.settings import Settings
from scansnap.dynamics.yz import CountBatch
from scansnap.kernels.cpu import library
from scansnap.kernels.cpu import sampling as compiled
from scansnap.kernels.cuda import triton_available
from scansnap.sampling.counts import sample_classes, sample_counts, sample_tokens, weighted_counts


@dataclass(frozen=True)
class Stretch:
    """Consecutive mini-batches of G streams: steps start … start + N − 1."""

    start: int
    cls: Tensor  # (G, N, B)
    counts: Tensor  # (G, N, B, S)
    weight: Tensor  # (G, N, B)

    def __len__(self) -> int:
        return self.cls.shape[1]

    def batch(self, i: int, stream: Tensor) -> CountBatch:
        """The i-th mini-batch, for runs that read the given streams."""
        return CountBatch(self.cls[stream, i], self.counts[stream, i], self.weight[stream, i])


class Batches:
    """Makes stretches of mini-batches for the given seeds on one device."""

    def __init__(self, layout: TableLayout, settings: Settings, seeds: np.ndarray, device: torch.device) -> None:
        self.layout, self.settings, self.device = layout, settings, device
        self.dtype = getattr(torch, settings.dtype)
        self.seeds = torch.as_tensor(seeds, device=device)
        self.infinite = math.isinf(settings.context)
        self.length = 0 if self.infinite else int(settings.context) - 1
        expected = layout.expected_counts(settings.context, settings.model.query_in_keys)
        self._expected = torch.as_tensor(expected, device=device, dtype=self.dtype)  # (K, S)
        self._p_class = torch.tensor(layout.table.p_class, device=device, dtype=self.dtype)  # (K,)

    @property
    def floats_per_step(self) -> int:
        """Size of one step's data, to plan stretches that fit in memory."""
        k, s = self.layout.slots.shape
        batch = self.settings.batch_size or 0
        samples = k if self.infinite else batch
        per_sample = s + 2 + (2 * self.length if self.settings.sampling == "tokens" and not self.infinite else 0)
        return len(self.seeds) * (samples * per_sample + batch)

    def take(self, start: int, stop: int) -> Stretch:
        """The mini-batches of the updates start … stop − 1."""
        steps = torch.arange(start, stop, device=self.device)
        if self.infinite:
            return self._infinite(start, steps)
        assert self.settings.batch_size is not None  # checked by Settings
        if self.settings.sampling == "tokens":
            cls = sample_classes(self.layout.table, self.seeds, steps, self.settings.batch_size)
            slots = sample_tokens(self.layout.table, cls, self.seeds, steps, self.length)
            weights = torch.as_tensor(self.settings.model.position_weights(self.length), device=self.device)
            counts = weighted_counts(slots, self.layout.slots.shape[1], weights)
        else:
            cls, counts = self._counts(steps, self.settings.batch_size)
        counts = counts.to(self.dtype)
        if self.settings.model.query_in_keys:
            counts = counts + torch.as_tensor(self.layout.slot_query, device=self.device, dtype=self.dtype)[cls]
        weight = torch.full(cls.shape, 1 / cls.shape[-1], dtype=self.dtype, device=self.device)
        return Stretch(start, cls, counts, weight)

    def tokens(self, step: int) -> tuple[Tensor, Tensor]:
        """With ``sampling="tokens"``: classes (G, B) and context token ids (G, B, T − 1) of one update."""
        assert self.settings.batch_size is not None
        steps = torch.tensor([step], device=self.device)
        cls = sample_classes(self.layout.table, self.seeds, steps, self.settings.batch_size)
        slots = sample_tokens(self.layout.table, cls, self.seeds, steps, self.length)
        tokens = torch.as_tensor(self.layout.slots, device=self.device)[cls].gather(-1, slots)
        return cls[:, 0], tokens[:, 0]

    def expected(self, n_runs: int) -> CountBatch:
        """The classes themselves instead of samples, weighted by p_n, for each of ``n_runs`` runs."""
        k = len(self._expected)
        cls = torch.arange(k, device=self.device)
        return CountBatch(cls.expand(n_runs, k), self._expected.expand(n_runs, -1, -1), self._p_class.expand(n_runs, k))

    def _counts(self, steps: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
        exact = self.length < 2**24 or self.dtype == torch.float32  # the compiled samplers return float32
        if self.device.type == "cpu" and exact and library.available():
            cls, counts = compiled.sample(self.layout.table, self.seeds.numpy(), steps.numpy(), batch_size, self.length)
            return torch.from_numpy(cls), torch.from_numpy(counts)
        drawn = sample_classes(self.layout.table, self.seeds, steps, batch_size)
        if self.device.type == "cuda" and exact and triton_available():
            from scansnap.kernels.cuda import sampling as sampling_triton

            return drawn, sampling_triton.sample_counts(self.layout.table, drawn, self.seeds, steps, self.length)
        return drawn, sample_counts(self.layout.table, drawn, self.seeds, steps, self.length)

    def _infinite(self, start: int, steps: Tensor) -> Stretch:
        """T = ∞: all samples of a class are alike, so a batch is how often each class was drawn."""
        k, s = self._expected.shape
        g, n = len(self.seeds), len(steps)
        if self.settings.batch_size is None:
            weight = self._p_class.expand(g, n, k)
        else:
            cls = sample_classes(self.layout.table, self.seeds, steps, self.settings.batch_size)
            weight = torch.zeros(g, n, k, device=self.device, dtype=self.dtype)
            weight.scatter_add_(2, cls, torch.ones_like(cls, dtype=self.dtype))
            weight = weight / self.settings.batch_size
        every = torch.arange(k, device=self.device).expand(g, n, k)
        return Stretch(start, every, self._expected.expand(g, n, k, s), weight)
