"""Adaptive Dormand–Prince 8(5,3) steps for large autonomous systems, in torch, on any device.

Everything an explicit Runge–Kutta method looks at within a step, its stages, its end, its error estimates and
its interpolant, is the state at the start plus a weighted sum of the stage rates. So the method hands out
weights only, and the system decides how to hold the rates: the population flow keeps most of them as outer
products and never forms the sum. The method's numbers: :mod:`scansnap.dynamics.flow.coefficients`.

Why explicit: once the classes are told apart, the flow's rates and the eigenvalues of its Jacobian both decay like
1/t, so the steps grow in proportion to t; at equal accuracy LSODA and 5th-order pairs need as many evaluations or
more. The exception are classes that cannot be told apart (equal contexts, different next tokens): they keep an
eigenvalue of about η_Y p_n for ever, and the number of steps grows like η_Y p_n t/6.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.checks import InputError
from scansnap.dynamics.device import one_thread
from scansnap.dynamics.flow.coefficients import E3, E5, A, B, D

FloatArray = NDArray[np.float64]

END = 12  # the rates at the end of a step, after its 12 stages; they are stage 0 of the next step
INSIDE = 16  # after 3 more stages for the interpolant: the rates at a point of the interpolant, to judge it
N_STAGES = 17
PROBE = 0.7  # where in the step: about where the defect of this interpolant is largest
_ERROR_PER_DEFECT = 0.15  # measured on flows of all kinds, quickly damped or not: 0.09 to 0.17


class NonFinite(InputError):
    """The state, or its rates, cannot be followed further than ``t``."""

    def __init__(self, t: float) -> None:
        self.t = t
        state = f"not finite, or too steep for its rtol, at t = {t:g}"
        super().__init__("the flow", state, "one that smaller rates or a larger rtol can follow")

    def __reduce__(self) -> tuple[Any, ...]:
        return NonFinite, (self.t,)


class System(Protocol):
    """A state x with stored rates k_0 … k_16; ``weights`` w stand for the point x + Σ_j w_j k_j."""

    def rates(self, stage: int, weights: FloatArray) -> None:
        """Store the rates at x + Σ_j w_j k_j, with j < len(w) ≤ stage, as k_stage."""

    def magnitudes(self, weights: FloatArray) -> Tensor:
        """Largest |entry| in each row of the state: of x, then of Σ_j weights[i, j] k_j; (1 + len(weights), rows).

        What a row is, the system says: entries within a row share one error tolerance.
        """

    def advance(self, weights: FloatArray) -> None:
        """x ← x + Σ_j w_j k_j and k_0 ← k_END."""


class Span(Protocol):
    """A step as its readers see it: from t to end = t + h, with the weights of any state between."""

    t: float
    h: float
    end: float

    def weights(self, time: float) -> FloatArray: ...


class Step:
    """A step from t to t + h that the system has computed but not taken: where it leads, and all between."""

    def __init__(self, system: System, t: float, h: float, end: float) -> None:
        """Run the stages; the system knows stage 0 already."""
        self.system, self.t, self.h, self.end = system, t, h, end
        for i in range(1, END):
            system.rates(i, h * A[i, :i])

    def add_interpolant(self) -> None:
        """Run the further stages that the states within the step need."""
        self.system.rates(END, self.h * B)
        for i in range(END + 1, INSIDE):
            self.system.rates(i, self.h * A[i, :i])

    def weights(self, time: float) -> FloatArray:
        """The weights of the interpolated state at ``time`` within the step."""
        return self.h * _interpolant((time - self.t) / self.h)[0]

    def error(self, rtol: float, atol: float) -> float:
        """Error of the step's end in units of the tolerance: 5th-order estimate corrected by the 3rd-order one."""
        e5, e3 = self._scaled(np.array([E5, E3]), rtol, atol)
        return float(e5 * e5 / np.sqrt(e5 * e5 + 0.01 * e3 * e3)) if e5 != 0 else 0.0

    def error_inside(self, rtol: float, atol: float) -> float:
        """Error of the interpolant in units of the tolerance: its defect, slope less rates, at one point.

        Where the flow damps quickly the ends of a step can be right to the tolerance and its inside wrong by a
        hundred times that, which no estimate at the end sees.
        """
        value, slope = _interpolant(PROBE)
        self.system.rates(INSIDE, self.h * value)
        return _ERROR_PER_DEFECT * self._scaled(np.append(slope, -1.0)[None], rtol, atol)[0]

    def _scaled(self, weights: FloatArray, rtol: float, atol: float) -> list[float]:
        """Maximum norm of h Σ_j weights[i, j] k_j in units of atol + rtol · (largest entry of the row)."""
        total = np.pad(B, (0, weights.shape[1] - END))
        size, change, *errors = self.system.magnitudes(self.h * np.concatenate([total[None], weights]))
        scale = atol + rtol * torch.maximum(size, change)
        return [float(largest) for largest in (torch.stack(errors) / scale).amax(1).tolist()]


def _interpolant(theta: float) -> tuple[FloatArray, FloatArray]:
    """Weights (in units of h) of the interpolated state at t + θh, and of its slope in θ; (16,) each.

    θ(q_0 + (1 − θ)(q_1 + θ(q_2 + …))), where q_0, q_1, q_2 match the values and slopes at both ends.
    """
    start, stop, total = np.zeros(INSIDE), np.zeros(INSIDE), np.zeros(INSIDE)
    start[0], stop[END], total[:END] = 1.0, 1.0, B
    value, slope = np.zeros(INSIDE), np.zeros(INSIDE)
    for i, q in enumerate([*D[::-1], 2 * total - start - stop, start - total, total]):
        factor, sign = (theta, 1.0) if i % 2 == 0 else (1 - theta, -1.0)
        value, slope = value + q, slope * factor + sign * (value + q)
        value = value * factor
    return value, slope


def dop853(system: System, t_end: float, first_step: float, rtol: float, atol: float) -> Iterator[Step]:
    """Accepted steps from t = 0 to t_end; each is taken when the caller asks for the next one.

    Per step, and everywhere within it, the estimated error of every entry is at most
    atol + rtol · (largest entry of its row), in the maximum norm: an average over millions of entries would hide
    the few that matter.
    """
    t, h = 0.0, first_step
    if t_end > 0:
        system.rates(0, np.zeros(0))
    while t < t_end:
        most = 10.0
        while True:
            end = t_end if t + 1.01 * h >= t_end else t + h  # no sliver of a step at the end
            h = end - t
            if h <= 1e-14 * t or h < 1e-300:
                raise NonFinite(t)
            step = Step(system, t, h, end)
            error = step.error(rtol, atol)
            if error <= 1:
                step.add_interpolant()
                error = float(np.maximum(error, step.error_inside(rtol, atol)))  # NaN stays NaN
            if error <= 1:
                break
            h *= max(0.2, 0.9 * error**-0.125) if np.isfinite(error) else 0.2
            most = 1.0  # do not grow right after a rejection
        yield step
        system.advance(h * B)
        t = end
        h *= min(most, 0.9 * error**-0.125 if error > 0 else most)


class Stacked:
    """The plain way to hold a state: a tensor of rows, and its stage rates stacked."""

    def __init__(self, value: Tensor) -> None:
        self.value = value.clone()  # (*shape)
        self.rate = value.new_zeros(N_STAGES, *value.shape)  # (17, *shape)

    def sums(self, weights: FloatArray) -> Tensor:
        """Σ_j weights[…, j] k_j, (…, *shape)."""
        w = torch.as_tensor(weights, dtype=self.value.dtype, device=self.value.device)
        flat = w @ self.rate[: w.shape[-1]].flatten(1)  # (…, numel)
        return flat.view(*w.shape[:-1], *self.value.shape)

    def at(self, weights: FloatArray) -> Tensor:
        """The state at x + Σ_j w_j k_j."""
        return self.value + self.sums(weights) if len(weights) else self.value.clone()

    def advance(self, weights: FloatArray) -> None:
        self.value += self.sums(weights)
        self.rate[0] = self.rate[END]

    def magnitudes(self, weights: FloatArray) -> Tensor:
        """As in :class:`System`, a row being the last dimension."""
        return largest(torch.cat([self.value[None], self.sums(weights)]))


def largest(rows: Tensor) -> Tensor:
    """Largest |entry| along the last dimension (several times faster than vector_norm, and no temporary)."""
    return torch.maximum(rows.amax(-1), -rows.amin(-1))


def threads_for(n_entries: int) -> AbstractContextManager[object]:
    """One thread per operation for small states, all of them for large ones."""
    return one_thread() if n_entries < 2**17 else nullcontext()
