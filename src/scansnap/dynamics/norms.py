"""The registry of norms in place of the paper's LN: f = norm(v) over the last dimension, forward and backward.

A norm is added by `register_norm`. Entries of v are tokens, or positions of a window of which several may hold
the same token; then ``lift`` takes weights of positions to what stands at their tokens (v E, E_ss' = [x_s = x_s']),
so that ‖v‖² = v · lift(v), and g is given at tokens. For tokens it is the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scansnap.checks import InputError

if TYPE_CHECKING:  # the command line asks for the names of norms, and must not wait for torch
    from torch import Tensor

    Lift = Callable[[Tensor], Tensor]


def _itself(v: Tensor) -> Tensor:
    return v


@dataclass(frozen=True)
class Norm:
    """A norm between attention and the decoder, with its derivative.

    Parameters
    ----------
    forward
        ``forward(v, lift)`` is f.
    backward
        ``backward(g, v, f, lift)`` is the transposed Jacobian of f times g.
    dense
        Whether f has entries where v has none (as when a mean is subtracted), so that v must hold all M tokens.

    Examples
    --------
    >>> double = Norm(lambda v, lift: 2 * v, lambda g, v, f, lift: 2 * g)
    >>> double.dense
    False
    """

    forward: Callable[[Tensor, Lift], Tensor]
    backward: Callable[[Tensor, Tensor, Tensor, Lift], Tensor]
    dense: bool = False


def apply(name: str, v: Tensor, lift: Lift = _itself) -> Tensor:
    """f = norm(v)."""
    return NORMS[name].forward(v, lift)


def pull_back(name: str, g: Tensor, v: Tensor, f: Tensor, lift: Lift = _itself) -> Tensor:
    """(∂f/∂v)ᵀ g, where f = norm(v)."""
    return NORMS[name].backward(g, v, f, lift)


def register_norm(name: str, norm: Norm) -> None:
    """Add a norm under a new name, for ``simulate``, ``flow``, the text models, run files and the command line.

    Parameters
    ----------
    name
        The new name.
    norm
        The norm.

    Examples
    --------
    >>> register_norm("double", Norm(lambda v, lift: 2 * v, lambda g, v, f, lift: 2 * g))
    >>> del NORMS["double"]
    """
    if not isinstance(norm, Norm):
        raise InputError("norm", norm, "a scansnap.Norm")
    if name in NORMS:
        raise InputError("name", name, "a new name, none of " + ", ".join(NORMS))
    NORMS[name] = norm


def _size(v: Tensor, lift: Lift) -> Tensor:
    """‖v‖ of the vector over tokens, with a last dimension of 1; ∞ of zero, which stays zero and passes no gradient."""
    import torch

    if lift is _itself:
        size = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    else:
        size = (v * lift(v)).sum(-1, keepdim=True).sqrt()
    return size.masked_fill(size == 0, torch.inf)


def _l2(v: Tensor, lift: Lift) -> Tensor:
    return v / _size(v, lift)


def _l2_backward(g: Tensor, v: Tensor, f: Tensor, lift: Lift) -> Tensor:
    return (g - lift(f) * (f * g).sum(-1, keepdim=True)) / _size(v, lift)


def _layernorm(v: Tensor, lift: Lift) -> Tensor:
    v = v - v.mean(-1, keepdim=True)
    return v / v.square().mean(-1, keepdim=True).sqrt()


def _layernorm_backward(g: Tensor, v: Tensor, f: Tensor, lift: Lift) -> Tensor:
    centred = g - g.mean(-1, keepdim=True) - f * (f * g).mean(-1, keepdim=True)
    return centred / v.std(-1, correction=0, keepdim=True)


NORMS: dict[str, Norm] = {
    "l2": Norm(_l2, _l2_backward),
    "none": Norm(lambda v, lift: v, lambda g, v, f, lift: g),
    "layernorm": Norm(_layernorm, _layernorm_backward, dense=True),
}
