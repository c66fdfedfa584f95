"""States on few tokens: of a layer's guess σ(h) only the k largest entries go on to the next layer.

A state u_t = norm(f_t + σ(h_t)) with all of σ(h_t) has M entries, and a layer above costs 12 M² operations for each
position: six products with a table. Here, with K_t the k tokens of the largest h_t,

    a_t = σ(h_t on K_t)       u_t = norm(f_t + a_t), or norm(a_t) without a residual

so softmax is renormalised on K_t. The choice of K_t is a step function; all else has the exact gradient, which reaches
h_t at K_t alone. The states of a window then live on its *basis*, its own tokens and the guesses made in it,

    U ≤ T + k T (layers − 1) tokens with a residual       U ≤ k T without

and everything is a product among T positions and U tokens. Of Z a layer reads and moves the block basis × basis, of Y
below the last layer the block basis × next basis. Whole rows are read of Y alone, to find the guesses, and written in
the last layer alone. With k = M it is the model without a choice.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scansnap.text.yz.layers import activate, activate_backward, normed, normed_backward
from scansnap.text.yz.settings import YZSettings


class Basis(NamedTuple):
    """Distinct tokens of each window; beyond its number of them the first one again, where no state has an entry."""

    ids: Tensor  # (B, U)
    places: Tensor  # (B, S), where each token that was given stands
    sizes: Tensor  # (B,), how many they are

    @classmethod
    def of(cls, tokens: Tensor) -> Basis:
        """Of tokens (B, S), in ascending order. On CUDA U = S: a recorded step has one shape for all batches."""
        ascending, order = torch.sort(tokens, dim=-1, stable=True)
        new = torch.ones_like(ascending)
        new[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
        rank = new.cumsum(-1) - 1
        places = torch.empty_like(order).scatter_(1, order, rank)
        ids = ascending[:, :1].expand_as(ascending).clone().scatter_(1, rank, ascending)
        sizes = rank[:, -1] + 1
        return cls(ids if ids.is_cuda else ids[:, : int(sizes.max())], places, sizes)


class Guess(NamedTuple):
    """The step from one layer to the next."""

    basis: Basis
    f: Tensor  # of the layer below, on its basis
    u: Tensor  # (B, T, U)
    of_u: Tensor  # what its norm's backward pass needs
    activated: Tensor  # a, (B, T, k)
    of_f: Tensor  # (B, U of the layer below), where its tokens stand
    of_h: Tensor  # (B, T, k), where the guesses stand


def guess(largest: Tensor, tokens: Tensor, f: Tensor, ids: Tensor, settings: YZSettings) -> Guess:
    """From the largest of h and their tokens (B, T, k), and f (B, T, U) over tokens ``ids`` (B, U)."""
    a = activate(largest, settings)
    basis, (of_f, of_h) = _merged(ids if settings.residual != "none" else None, tokens)
    v = f.new_zeros(*f.shape[:-1], basis.ids.shape[1])
    if settings.residual != "none":
        # a token that a basis repeats has the entry 0 there, so it does not matter what is added first
        v.scatter_add_(-1, of_f[:, None, :].expand_as(f), f)
    v.scatter_add_(-1, of_h, a)
    return Guess(basis, f, *normed(settings.norm, v), a, of_f, of_h)


def guess_backward(done: Guess, du: Tensor, settings: YZSettings) -> tuple[Tensor, Tensor | None]:
    """Directions of h (B, T, U), on the basis, and of f on the one below."""
    dv = normed_backward(settings.norm, du, done.u, done.of_u)
    at_guesses = activate_backward(done.activated, dv.gather(-1, done.of_h), settings)
    dh = torch.zeros_like(dv).scatter_(-1, done.of_h, at_guesses)
    if settings.residual == "none":
        return dh, None
    return dh, dv.gather(-1, done.of_f[:, None, :].expand(-1, dv.shape[1], -1))


def _merged(ids: Tensor | None, tokens: Tensor) -> tuple[Basis, tuple[Tensor, Tensor]]:
    """The basis of tokens ids (B, U) and (B, T, k), and where both stand in it."""
    n = 0 if ids is None else ids.shape[1]
    guesses = tokens.flatten(1)
    basis = Basis.of(guesses if ids is None else torch.cat([ids, guesses], 1))
    return basis, (basis.places[:, :n], basis.places[:, n:].view(tokens.shape))
