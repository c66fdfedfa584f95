"""The state of a flow and the variables that are recorded of it, by class and token as the user numbers them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from scansnap.checks import InputError, check_choice
from scansnap.checks.arrays import IntArray
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrators import FloatArray, System
from scansnap.results.variables import FLOWING, VARIABLES, add_labels


class FlowPoint(NamedTuple):
    """The field at a point, by the names of the symbol table. In the dense field L = M, cells = (Q, M)."""

    weights: FloatArray  # where the point is within a step, see integrators.System
    z: Tensor  # (cells)
    attention: Tensor  # (K, L)  c_n
    f: Tensor  # (K, L)
    logits: Tensor  # (K, J)  Yᵀ f_n, the last one standing for each of the M − K other outputs
    r: Tensor  # (K, J)  e_n − α_n, the last one summed over the M − K other outputs
    g: Tensor  # (K, L)  Y (e_n − α_n)
    z_rate: Tensor  # (cells)


class FlowField(System, Protocol):
    """The vector field of a population flow, with its state."""

    name: str

    def point(self, weights: FloatArray) -> FlowPoint:
        """The field at x + Σ_j w_j k_j."""

    def read(self, name: str, at: FlowPoint) -> FloatArray:
        """One of FLOWING at a point; or "z_terms", the size of what may cancel in "z_rate", (Q, M)."""


class FlowState:
    """A flow at one moment: its time ``t``, and the variables by name as the Dataset has them (``state["entropy"]``).

    Each is computed when it is asked for.
    """

    def __init__(self, t: float, field: FlowField, weights: FloatArray) -> None:
        self.t, self._field, self._weights = float(t), field, weights

    @cached_property
    def _point(self) -> FlowPoint:
        return self._field.point(self._weights)

    def __getitem__(self, name: str) -> FloatArray:
        return self._field.read(check_choice("the variable", name, FLOWING), self._point)

    def z_terms(self) -> FloatArray:
        """The size of what may cancel in ``z_rate``, (Q, M)."""
        return self._field.read("z_terms", self._point)


class FlowRecorder:
    """The requested variables at the requested times, and at the moment the flow ended if it ended earlier."""

    def __init__(self, classes: SequenceClasses, names: Sequence[str], times: FloatArray) -> None:
        self.classes, self.times = classes, times
        m = classes.vocab_size
        self.sizes = {"seq_class": classes.n_classes, "token": m, "query": len(classes.queries), "output": m}
        shapes = {name: (len(times), *(self.sizes[dim] for dim in VARIABLES[name].dims)) for name in names}
        n_bytes = {name: 8 * int(np.prod(shape)) for name, shape in shapes.items()}
        if n_bytes:
            largest = max(n_bytes, key=lambda name: n_bytes[name])
            check_memory(
                "the size of the result", sum(n_bytes.values()), f"ask for fewer times or leave out {largest!r}"
            )
        self.data = {name: np.empty((shape[0] + 1, *shape[1:])) for name, shape in shapes.items()}
        self.recorded: list[float] = []

    def times_until(self, end: float) -> Iterator[float]:
        """The requested times up to ``end`` that were not recorded yet."""
        while len(self.recorded) < len(self.times) and self.times[len(self.recorded)] <= end:
            yield self.times[len(self.recorded)]

    def record(self, state: FlowState) -> None:
        for name, data in self.data.items():
            data[len(self.recorded)] = state[name]
        self.recorded.append(state.t)

    def dataset(self, attrs: dict[str, Any]) -> xr.Dataset:
        variables = {
            name: (("t", *VARIABLES[name].dims), data[: len(self.recorded)]) for name, data in self.data.items()
        }
        coords = {dim: np.arange(size) for dim, size in self.sizes.items() if dim != "output" or "y" in self.data}
        coords["query"] = self.classes.queries
        return add_labels(xr.Dataset(variables, {"t": np.array(self.recorded), **coords}, attrs))


def check_memory(what: str, need: int, hint: str) -> None:
    """Refuse what does not fit into memory, before the work."""
    try:
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError):  # unknown on this system
        return
    if need > limit:
        allowed = f"at most {limit / 2**30:.1f} GiB, half the memory: {hint}"
        raise InputError(what, f"{need / 2**30:.1f} GiB", allowed)


# --- variables that both fields have ------------------------------------------------------------------------------


def entropy(logits: Tensor) -> Tensor:
    """Entropy (nats) of the attention over distinct tokens, renormalised; (K, …) → (K,).

    From their attention logits (−∞ for other tokens), so that their share may be however small; NaN if there are none.
    """
    q = torch.softmax(logits, dim=1)
    return torch.special.entr(q).sum(1)


def gap(at: FlowPoint, n_rest: int) -> Tensor:
    """Logit of the right output less that of one that is never right, (K,); NaN where all outputs are."""
    return at.logits.diagonal() - (at.logits[:, -1] if n_rest else torch.nan)


def loss(at: FlowPoint, p_class: Tensor) -> Tensor:
    """−Σ_n p_n log α_n[n], with p_class (K, 1)."""
    return -(p_class[:, 0] * torch.log1p(-at.r.diagonal())).sum()


def own_outputs(y: FloatArray, next_token: IntArray) -> FloatArray:
    """The inverse of `all_outputs`, (M, M) → (M, J); the last is 0 where every output is a next token."""
    never = np.setdiff1d(np.arange(len(y)), next_token)[:1]
    return np.concatenate([y[:, next_token], y[:, never] if len(never) else np.zeros_like(y[:, :1])], axis=1)


def all_outputs(y: FloatArray, next_token: IntArray) -> FloatArray:
    """Y by token and output, (M, J) → (M, M): column n is that of class n's next token, the last that of the others."""
    full = np.repeat(y[:, -1:], len(y), axis=1)
    full[:, next_token] = y[:, :-1]
    return full
