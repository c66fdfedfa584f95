"""The interface for your own data: a sampler computes token sequences from (seed, step).

A sampler is a pure function. Draw with `scansnap.sampling.philox.uniforms`, indexed by the seed, the step and the
place in the batch. Then the data of a run do not depend on other runs or on the device, and a resumed run continues
exactly. ``Purpose.INIT_Y`` and ``INIT_Z`` belong to the model.

Unlike `scansnap.classes.SequenceClasses` a sampler need not have one class per next token. Claims, the flow and
attention by class, for which the query is a function ψ of the next token, need classes.

Shapes: G seeds, N steps, B sequences in a batch, T tokens with the query last, M the size of the vocabulary.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from scansnap.checks import InputError
from scansnap.checks.arrays import SUM_TOLERANCE


class Sequences(NamedTuple):
    """Mini-batches of G seeds at N steps: B sequences of T tokens each.

    Attributes
    ----------
    tokens
        Token ids, shape (G, N, B, T).
    target
        Integers, shape (G, N, B): the token after the last position. Integers, shape (G, N, B, T): the token after
        every position, −1 for no target; the loss of a sequence is the mean over its targets. Floats, with another
        axis M at the end: a distribution instead of a token, all 0 for no target.
    weight
        Weight of each sequence in the mean, shape (G, N, B), with sum 1 over B.

    Examples
    --------
    >>> import torch
    >>> tokens, weight = torch.zeros(1, 1, 4, 8, dtype=torch.long), torch.full((1, 1, 4), 0.25)
    >>> Sequences(tokens, tokens, weight).every_position
    True
    """

    tokens: Tensor
    target: Tensor
    weight: Tensor

    @property
    def soft(self) -> bool:
        """Whether the targets are distributions."""
        return self.target.is_floating_point()

    @property
    def every_position(self) -> bool:
        """Whether each position is a query rather than the last alone."""
        return self.target.ndim == (5 if self.soft else 4)


@runtime_checkable
class Sampler(Protocol):
    """The data of a run. A class with these members is a sampler; it needs no base class.

    Examples
    --------
    >>> isinstance(ss.OrderedTokens(np.arange(50), context=8, vocab_size=50), Sampler)
    True
    """

    @property
    def vocab_size(self) -> int:
        """M: token ids are below it."""
        ...

    def __call__(self, seeds: Tensor, steps: Tensor, batch_size: int) -> Sequences:
        """Return the mini-batches of ``seeds`` (G,) at ``steps`` (N,), on their device.

        The mini-batch of a seed and step must not depend on the other seeds and steps.
        """
        ...

    def describe(self) -> str:
        """Return a text that determines the data. A run resumes only with the same text."""
        ...


def draw(sampler: Sampler, seeds: Tensor, steps: Tensor, batch_size: int) -> Sequences:
    """Call a sampler and check its mini-batches."""
    sequences = sampler(seeds, steps, batch_size)
    if not isinstance(sequences, Sequences):
        raise InputError("what the sampler returns", type(sequences).__name__, "Sequences(tokens, target, weight)")
    tokens, target, weight = sequences
    batch = (len(seeds), len(steps), batch_size)
    if tokens.ndim != 4 or tokens.shape[:3] != batch or tokens.shape[3] < 2:
        raise InputError("tokens of the sampler", f"of shape {tuple(tokens.shape)}", f"{(*batch, 'T')}, T at least 2")
    _ids("tokens of the sampler", tokens, 0, sampler.vocab_size)
    every, m = tuple(tokens.shape), sampler.vocab_size
    allowed = {(*batch, m), (*every, m)} if sequences.soft else {batch, every}
    if tuple(target.shape) not in allowed:
        shapes = " or ".join(str(shape) for shape in sorted(allowed, key=len))
        raise InputError("the target of the sampler", f"of shape {tuple(target.shape)}", f"of shape {shapes}")
    if sequences.soft:
        _distributions("the soft target of the sampler", target, empty=sequences.every_position)
    else:
        _ids("the target of the sampler", target, -1 if sequences.every_position else 0, m)
    if tuple(weight.shape) != batch:
        raise InputError("the weight of the sampler", f"of shape {tuple(weight.shape)}", f"of shape {batch}")
    _distributions("the weight of the sampler", weight, empty=False)
    return sequences


def even(tokens: Tensor) -> Tensor:
    """Equal weights (G, N, B) for sequences (G, N, B, T)."""
    return torch.full(tokens.shape[:3], 1 / tokens.shape[2], dtype=torch.float64, device=tokens.device)


def digest(*values: np.ndarray | str | float) -> str:
    """A fingerprint of the values that determine the data, for `Sampler.describe`."""
    text = hashlib.sha256()
    for value in values:
        array = np.ascontiguousarray(value) if isinstance(value, np.ndarray) else None
        text.update(f"{value!r};".encode() if array is None else f"{array.dtype.str}{array.shape};".encode())
        text.update(b"" if array is None else array.tobytes())
    return text.hexdigest()[:16]


def _ids(field: str, ids: Tensor, least: int, vocab_size: int) -> None:
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise InputError(field, f"{ids.dtype}", "whole token ids")
    low, high = (int(edge) for edge in ids.aminmax())
    if low < least or high >= vocab_size:
        raise InputError(field, low if low < least else high, f"token ids from {least} to {vocab_size - 1}")


def _distributions(field: str, p: Tensor, *, empty: bool) -> None:
    """Rows of at least 0 that sum to 1; ``empty``: or to 0."""
    if not bool((p >= 0).all()):  # NaN is not
        raise InputError(field, "below 0 or not a number", "made of numbers of at least 0")
    total = p.sum(-1, dtype=torch.float64)
    wrong = ((total - 1).abs() > SUM_TOLERANCE) & ~((total == 0) & empty)
    if bool(wrong.any()):
        raise InputError(f"the sum of {field}", float(total[wrong][0]), f"1 (to within {SUM_TOLERANCE:g})")
