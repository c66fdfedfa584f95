"""Contexts in which every token is a query: Markov chains with P(·|n) at every position and steps by class.

With independent context tokens the next token depends only on frequencies. In a chain a token that is common to several
classes has other successors in each, so every position has to read the class off its context.

The unit interval is partitioned among the tokens of a class twice, in parts of length P(l|n), in two orders. From a
random point of l's part in the first partition the chain goes to the token whose part in the second has this point:

    γ_n(l, l') = |first(l) ∩ second(l')|,   P(l'|l, n) = γ_n(l, l')/P(l|n),   Σ_l γ_n(l, l') = P(l'|n)

So P(·|n) is stationary; a chain begins with it, so every position has exactly this distribution. Two partitions into S
parts have at most 2S − 1 intersections: a token has fewer than two successors on average.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from scansnap.sampling.counts import SamplingTable, sample_tokens
from scansnap.sampling.mixture import MixtureSampler
from scansnap.sampling.philox import Purpose, uniforms

ORDERS = 20  # tried for the second partition
_ROUNDING = 1e-12  # of borders that coincide


class ChainSampler(MixtureSampler):
    """As `MixtureSampler`, with a chain through the class's tokens as the context."""

    @cached_property
    def second(self) -> np.ndarray:
        """(K, S) slots of each class in the order of the second partition; the first is in slot order.

        Of ``ORDERS`` random orders the one whose chain mixes fastest; some chains never leave a subset of tokens.
        """
        p = self.table.p_slot
        orders = [[np.random.default_rng([n, i]).permutation(p.shape[1]) for i in range(ORDERS)] for n in range(len(p))]
        return np.stack([min(some, key=lambda order, row=row: _mixing(row, order))  # type: ignore[misc]
                         for some, row in zip(orders, p, strict=True)])  # fmt: skip

    @cached_property
    def joint(self) -> np.ndarray:
        """γ_n(l, l') by slots, (K, S, S)."""
        return np.stack([_joint(row, order) for row, order in zip(self.table.p_slot, self.second, strict=True)])

    def _context(self, cls: Tensor, seeds: Tensor, steps: Tensor) -> Tensor:
        """Slots (G, N, B, T − 1), oldest first: the first by P(·|n), the others by transitions."""
        device, p = cls.device, self.table.p_slot
        size = torch.as_tensor(p, device=device)[cls]  # (G, N, B, S)
        begin = torch.as_tensor(np.cumsum(p, axis=1) - p, device=device)[cls]
        second = torch.as_tensor(self.second, device=device)[cls]
        permuted = SamplingTable(self.table.p_class, np.take_along_axis(p, self.second, axis=1))
        edges = torch.as_tensor(permuted.slot_edges, device=device)[cls]
        sample = torch.arange(cls.shape[-1], device=device)[:, None]
        place = torch.arange(1, self.context - 1, device=device)
        u, _ = uniforms(seeds[:, None, None, None], Purpose.TOKEN, steps[:, None, None], sample, place)
        walk = [sample_tokens(self.table, cls, seeds, steps, 1)]
        for i in range(self.context - 2):
            point = begin.gather(-1, walk[-1]) + u[..., i : i + 1] * size.gather(-1, walk[-1])
            walk.append(second.gather(-1, torch.searchsorted(edges, point, right=True)))
        return torch.cat(walk, dim=-1)


def _joint(p: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Length of the intersection of each token's part in the first partition with each one's in the second, (S, S)."""
    first, second = (np.concatenate([[0.0], np.cumsum(row)]) for row in (p, p[order]))
    shared = np.minimum.outer(first[1:], second[1:]) - np.maximum.outer(first[:-1], second[:-1])
    out = np.zeros((len(p), len(p)))
    out[:, order] = np.where(shared > _ROUNDING, shared, 0.0)
    return out


def _mixing(p: np.ndarray, order: np.ndarray) -> float:
    """|λ₂| of the transition matrix: small if the chain mixes fast, 1 if it never does."""
    used = p > 0
    step = (_joint(p, order)[np.ix_(used, used)]) / p[used, None]
    return float(np.sort(np.abs(np.linalg.eigvals(step)))[::-1][1]) if used.sum() > 1 else 0.0
