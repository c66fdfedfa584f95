"""Contexts in which every token is a query: Markov chains with P(·|n) at every position and steps by class.

With independent context tokens the next token depends on nothing but frequency. In a chain
each pair of a token l and a class n is a class of its own: query l, context P(·|n), and one of the few tokens that
follow l in class n. A token that is common to several classes is followed by others in each, so what comes next has to
be read off the context at every position, as it is at the query in the end.

The unit interval is divided among the tokens of a class twice, in parts of length P(l|n), in two orders.
From a point of l's share in the first deal the chain goes to the token that has this point in the second:

    γ_n(l, l') = |first(l) ∩ second(l')|,   P(l'|l, n) = γ_n(l, l')/P(l|n),   Σ_l γ_n(l, l') = P(l'|n)

The last says that P(·|n) is stationary. A chain begins with it, so it is the distribution of every position, exactly.
Two deals of S tokens meet in at most 2S − 1 pieces: a token is followed by fewer than two others on average.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from scansnap.sampling.counts import SamplingTable, sample_tokens
from scansnap.sampling.mixture import MixtureSampler
from scansnap.sampling.philox import Purpose, uniforms

ORDERS = 20  # that are tried for the second deal
_ROUNDING = 1e-12  # of borders that coincide


class ChainSampler(MixtureSampler):
    """As `MixtureSampler`, with a chain through the class's tokens as the context."""

    @cached_property
    def second(self) -> np.ndarray:
        """(K, S) slots in the order of the second deal, another one for each class; the first deal is in slot order.

        Of some random orders the one whose chain forgets fastest: in others tokens follow only each other, for ever.
        """
        p = self.table.p_slot
        orders = [[np.random.default_rng([n, i]).permutation(p.shape[1]) for i in range(ORDERS)] for n in range(len(p))]
        return np.stack([min(some, key=lambda order, row=row: _memory(row, order))  # type: ignore[misc]
                         for some, row in zip(orders, p, strict=True)])  # fmt: skip

    @cached_property
    def joint(self) -> np.ndarray:
        """γ_n(l, l') by slots, (K, S, S)."""
        return np.stack([_joint(row, order) for row, order in zip(self.table.p_slot, self.second, strict=True)])

    def _context(self, cls: Tensor, seeds: Tensor, steps: Tensor) -> Tensor:
        """Slots (G, N, B, T − 1), oldest first: the first one by P(·|n), each other by where the one before leads."""
        device, p = cls.device, self.table.p_slot
        size = torch.as_tensor(p, device=device)[cls]  # (G, N, B, S)
        begin = torch.as_tensor(np.cumsum(p, axis=1) - p, device=device)[cls]
        second = torch.as_tensor(self.second, device=device)[cls]
        dealt = SamplingTable(self.table.p_class, np.take_along_axis(p, self.second, axis=1)).slot_edges
        edges = torch.as_tensor(dealt, device=device)[cls]
        sample = torch.arange(cls.shape[-1], device=device)[:, None]
        place = torch.arange(1, self.context - 1, device=device)
        u, _ = uniforms(seeds[:, None, None, None], Purpose.TOKEN, steps[:, None, None], sample, place)
        walk = [sample_tokens(self.table, cls, seeds, steps, 1)]
        for i in range(self.context - 2):
            point = begin.gather(-1, walk[-1]) + u[..., i : i + 1] * size.gather(-1, walk[-1])
            walk.append(second.gather(-1, torch.searchsorted(edges, point, right=True)))
        return torch.cat(walk, dim=-1)


def _joint(p: np.ndarray, order: np.ndarray) -> np.ndarray:
    """How much of the first deal's share of each token (in slot order) is each one's in the second, (S, S)."""
    first, dealt = (np.concatenate([[0.0], np.cumsum(row)]) for row in (p, p[order]))
    shared = np.minimum.outer(first[1:], dealt[1:]) - np.maximum.outer(first[:-1], dealt[:-1])
    out = np.zeros((len(p), len(p)))
    out[:, order] = np.where(shared > _ROUNDING, shared, 0.0)
    return out


def _memory(p: np.ndarray, order: np.ndarray) -> float:
    """|λ₂|: the factor by which a step of the chain forgets where it began; 1 where it never does."""
    used = p > 0
    step = (_joint(p, order)[np.ix_(used, used)]) / p[used, None]
    return float(np.sort(np.abs(np.linalg.eigvals(step)))[::-1][1]) if used.sum() > 1 else 0.0
