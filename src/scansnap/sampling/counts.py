"""Draws from sequence classes: token counts, and token sequences where positions matter.

Without positions a sequence enters the model only through its counts k_l, and these are one multinomial draw:
a chain of binomials over the class's support, whose cost does not grow with the length T. Everything is a pure
function of (seed, step, sample): see `scansnap.sampling.philox`.

Shapes: G seeds, N steps, B samples in a batch, S slots (padded support), T - 1 context positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from scansnap.sampling.philox import Purpose, uniforms

INVERSION_LIMIT = 12.0  # expected successes up to which counting them one by one beats rejection


@dataclass(frozen=True)
class SamplingTable:
    """The class distributions in the form the samplers read: slots padded with probability 0."""

    p_class: np.ndarray  # (K,)
    p_slot: np.ndarray  # (K, S)

    @cached_property
    def class_edges(self) -> np.ndarray:
        """Upper ends of the classes' intervals of [0, 1); the last class with mass ends at infinity."""
        return _upper_edges(self.p_class[None])[0]

    @cached_property
    def slot_edges(self) -> np.ndarray:
        return _upper_edges(self.p_slot)  # (K, S)

    @cached_property
    def conditional(self) -> np.ndarray:
        """P(slot s | none of the slots before s), the binomial probabilities of the multinomial chain."""
        rest = np.cumsum(self.p_slot[:, ::-1], axis=1)[:, ::-1]  # (K, S) mass from s on
        chain = np.divide(self.p_slot, rest, out=np.zeros_like(self.p_slot), where=rest > 0)
        last = self.p_slot.shape[1] - 1 - np.argmax(self.p_slot[:, ::-1] > 0, axis=1)
        chain[np.arange(len(last)), last] = 1.0  # whatever is left falls on the last slot with mass
        return np.minimum(chain, 1.0)


def _upper_edges(p: np.ndarray) -> np.ndarray:
    edges = np.cumsum(p, axis=1)
    last = p.shape[1] - 1 - np.argmax(p[:, ::-1] > 0, axis=1)
    edges[np.arange(p.shape[1]) >= last[:, None]] = np.inf
    return edges


def sample_classes(table: SamplingTable, seeds: Tensor, steps: Tensor, batch_size: int) -> Tensor:
    """Class of every sample, (G, N, B), drawn with probability p_n."""
    sample = torch.arange(batch_size, device=seeds.device)
    u, _ = uniforms(seeds[:, None, None], Purpose.CLASS, steps[:, None], torch.zeros_like(sample), sample)
    edges = torch.as_tensor(table.class_edges, device=seeds.device)
    return torch.searchsorted(edges, u, right=True)


def sample_counts(table: SamplingTable, cls: Tensor, seeds: Tensor, steps: Tensor, length: int) -> Tensor:
    """How often each slot of the sample's class occurs in ``length`` context positions, (G, N, B, S) float64."""
    conditional = torch.as_tensor(table.conditional, device=seeds.device)
    sample = torch.arange(cls.shape[-1], device=seeds.device)
    place = (seeds[:, None, None], steps[:, None], sample)
    left = torch.full(cls.shape, float(length), dtype=torch.float64, device=seeds.device)
    counts = []
    for slot in range(conditional.shape[1]):
        k = binomial(left, conditional[cls, slot], place, slot)
        counts.append(k)
        left = left - k
    return torch.stack(counts, dim=-1)


def sample_tokens(table: SamplingTable, cls: Tensor, seeds: Tensor, steps: Tensor, length: int) -> Tensor:
    """The slot of the token at each context position, (G, N, B, T - 1), oldest first."""
    sample = torch.arange(cls.shape[-1], device=seeds.device)[:, None]
    position = torch.arange(length, device=seeds.device)
    u, _ = uniforms(seeds[:, None, None, None], Purpose.TOKEN, steps[:, None, None], sample, position)
    edges = torch.as_tensor(table.slot_edges, device=seeds.device)[cls]  # (G, N, B, S)
    return torch.searchsorted(edges, u, right=True)


def weighted_counts(slots: Tensor, n_slots: int, weight: Tensor) -> Tensor:
    """Σ over positions of ``weight`` (T - 1,) for each slot: counts when all weights are 1, (G, N, B, S).

    A bias b_t on the attention logit of position t multiplies its key's weight by e^{b_t}; summed over the
    positions of a token that is a real-valued count, so the count form covers position biases exactly.
    """
    counts = torch.zeros(*slots.shape[:-1], n_slots, dtype=torch.float64, device=slots.device)
    return counts.scatter_add_(-1, slots, weight.expand(slots.shape).to(torch.float64).contiguous())


# --- binomial draws ------------------------------------------------------------------------------------------
# The same arithmetic stands, one draw at a time, in kernels/cpu/sampling.c; a test holds them equal.

Place = tuple[Tensor, Tensor, Tensor]  # seed, step, sample: what a draw is a function of, besides the slot


def binomial(n: Tensor, p: Tensor, place: Place, slot: int) -> Tensor:
    """Exact draws from Binomial(n, p), float64, shape of n."""
    flip = p > 0.5
    p = torch.where(flip, 1 - p, p)
    large = n * p >= INVERSION_LIMIT
    k = _by_inversion(n, torch.where(large, 0.0, p), place, slot)
    if bool(large.any()):
        k = torch.where(large, _by_rejection(n, p, large, place, slot), k)
    return torch.where(flip, n - k, k)


def _draw(place: Place, slot: int, trial: int) -> tuple[Tensor, Tensor]:
    seed, step, sample = place
    return uniforms(seed, Purpose.COUNT, step, sample, torch.full_like(sample, slot << 8 | trial))


def _by_inversion(n: Tensor, p: Tensor, place: Place, slot: int) -> Tensor:
    """Walk up the distribution function until it passes a uniform."""
    u, _ = _draw(place, slot, 0)
    odds = p / (1 - p)
    pmf = torch.exp(n * torch.log1p(-p))
    k = torch.zeros_like(n)
    while True:
        for _ in range(8):  # look at the stopping condition, which waits for the device, only now and then
            more = (u >= pmf) & (k < n)
            u = torch.where(more, u - pmf, u)
            k = k + more
            pmf = torch.where(more, pmf * (odds * (n - k + 1) * (1 / k.clamp_min(1))), pmf)
        if not bool(more.any()):
            return k


def _by_rejection(n: Tensor, p: Tensor, wanted: Tensor, place: Place, slot: int) -> Tensor:
    """Hörmann's transformed rejection with squeeze (BTRS, 1993), for n p of at least 10 and p of at most 1/2."""
    n = torch.where(wanted, n, 100.0)
    p = torch.where(wanted, p, 0.5)
    odds = p / (1 - p)
    spread = torch.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    mode = torch.floor((n + 1) * p)
    peak = (mode + 0.5) * torch.log((mode + 1) / (odds * (n - mode + 1))) + _stirling(mode) + _stirling(n - mode)
    scale = (2.83 + 5.1 / b) * spread
    k = torch.zeros_like(n)
    open_ = wanted.clone()
    trial = 1
    while bool(open_.any()):
        u, v = _draw(place, slot, trial)
        u = u - 0.5
        us = 0.5 - u.abs()
        x = torch.floor((2 * a / us + b) * u + n * p + 0.5)
        inside = (x >= 0) & (x <= n)
        y = torch.where(inside, x, mode)
        bound = (
            peak
            + (n + 1) * torch.log((n - mode + 1) / (n - y + 1))
            + (y + 0.5) * torch.log(odds * (n - y + 1) / (y + 1))
            - _stirling(y)
            - _stirling(n - y)
        )
        quick = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
        good = inside & (quick | (torch.log(v * scale / (a / (us * us) + b)) <= bound))
        k = torch.where(open_ & good, x, k)
        open_ = open_ & ~good
        trial += 1
    return k


STIRLING_TABLE = torch.tensor(
    [float(torch.lgamma(torch.tensor(k + 1.0, dtype=torch.float64)))
     - (k + 0.5) * float(np.log(k + 1.0)) + (k + 1.0) - 0.5 * float(np.log(2 * np.pi)) for k in range(10)],
    dtype=torch.float64,
)  # fmt: skip


def _stirling(k: Tensor) -> Tensor:
    """ln k! − [(k + ½) ln(k + 1) − (k + 1) + ½ ln 2π]: what Stirling's formula leaves."""
    i = k + 1
    series = (1 / 12 - (1 / 360 - 1 / 1260 / (i * i)) / (i * i)) / i
    small = STIRLING_TABLE.to(k.device)[k.clamp(0, 9).long()]
    return torch.where(k < 10, small, series)
