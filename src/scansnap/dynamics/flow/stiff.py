"""Implicit steps for small flows that are stiff: weight decay keeps an eigenvalue of η λ for ever.

Explicit steps would then be as short as some 6/(η λ) to the end, where nothing moves any more. Radau IIA of order 5
(SciPy's; Hairer & Wanner, Solving ODEs II, Section IV.8) has no such limit; it solves linear systems of all moving
entries, so it is for hundreds of them, not for thousands. Within a step its solution is a cubic, x + Σ_j θ^j k_j with
θ = (t − t_0)/h: the k_j are kept as the stages of an explicit step are, and all that reads a flow reads this one too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from scipy.integrate import Radau
from torch import Tensor

from scansnap.checks import InputError
from scansnap.dynamics.flow.integrators import FloatArray, NonFinite, Stacked

MOST_ENTRIES = 2_000  # of the state; the Jacobian is dense and found by differences


class StiffSystem(Protocol):
    """A state whose rates are asked for at the point that it stands at."""

    def rates(self, stage: int, weights: FloatArray) -> None: ...

    def moving(self) -> list[tuple[Stacked, Tensor]]: ...


class StiffStep:
    """A step from t to t + h that was computed and not yet taken."""

    def __init__(self, t: float, h: float, end: float) -> None:
        self.t, self.h, self.end = t, h, end

    def weights(self, time: float) -> FloatArray:
        """Of the cubic's coefficients, which lie where stages do."""
        theta = (time - self.t) / self.h
        return np.array([theta, theta**2, theta**3])


def radau(system: StiffSystem, t_end: float, first_step: float, rtol: float, atol: float) -> Iterator[StiffStep]:
    """Accepted steps from t = 0 to t_end; each is taken when the caller asks for the next one.

    The estimated error of a step is at most atol + rtol · |entry|, as a root mean square over the entries.
    """
    # by their places in the table laid out flat, which are found once: a mask is searched through at every use
    tables = [(table, mask.flatten().nonzero()[:, 0]) for table, mask in system.moving()]
    sizes = [len(places) for _, places in tables]
    if sum(sizes) > MOST_ENTRIES:
        allowed = f"at most {MOST_ENTRIES} with weight decay: fewer classes or tokens"
        raise InputError("the number of entries of Y and Z that move", sum(sizes), allowed)

    def put(x: FloatArray) -> None:
        for (table, places), part in zip(tables, _parts(x, sizes), strict=True):
            table.value.view(-1).index_copy_(0, places, part.to(table.value.device))

    def field(_: float, x: FloatArray) -> FloatArray:
        put(x)
        system.rates(0, np.zeros(0))
        return torch.cat([table.rate[0].view(-1)[places] for table, places in tables]).cpu().numpy()

    start = torch.cat([table.value.view(-1)[places] for table, places in tables]).cpu().numpy()
    if t_end == 0:
        return
    solver = Radau(field, 0.0, start, t_end, first_step=min(first_step, t_end), rtol=rtol, atol=atol)
    while solver.status == "running":
        t = float(solver.t)
        solver.step()
        if solver.status == "failed" or not np.isfinite(solver.y).all():
            put(solver.y)
            raise NonFinite(t)
        cubic = solver.dense_output()
        put(cubic.y_old)
        for power in range(3):
            for (table, places), part in zip(tables, _parts(cubic.Q[:, power], sizes), strict=True):
                table.rate[power].zero_().view(-1).index_copy_(0, places, part.to(table.value.device))
        end = t_end if solver.status == "finished" else float(solver.t)
        yield StiffStep(t, end - t, end)


def _parts(x: FloatArray, sizes: list[int]) -> tuple[Tensor, ...]:
    return torch.as_tensor(np.ascontiguousarray(x)).split(sizes)
