"""Adaptive Dormand–Prince 8(5,3) steps for large autonomous systems, in torch, on any device.

Everything an explicit Runge–Kutta method looks at within a step, its stages, its end, its error estimates and
its interpolant, is the state at the start plus a weighted sum of the stage rates. So the method hands out
weights only, and the system decides how to hold the rates: the population flow keeps most of them as outer
products and never forms the sum. The coefficients are those of SciPy's DOP853 (Hairer, Nørsett & Wanner, Solving
Ordinary Differential Equations I, 2nd edition, Section II.5).

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
from scipy.integrate import DOP853, Radau
from torch import Tensor

from scansnap.checks import InputError
from scansnap.dynamics.device import one_thread

FloatArray = NDArray[np.float64]

# With k_0 … k_15 the rates at the stages: stage i is at x + h Σ_j A[i, j] k_j, the end at x + h Σ_j B[j] k_j; E5 and E3
# give the end less that of the embedded methods of orders 5 and 3, D the last polynomials of the interpolant.
A: FloatArray = np.zeros((16, 16))  # 0 … 11 make the step, 12 is its end, 13 … 15 are for the interpolant
A[:12, :12], A[12, :12], A[13:] = DOP853.A, DOP853.B, DOP853.A_EXTRA
B: FloatArray = DOP853.B  # (12,)
E3, E5 = DOP853.E3[:12], DOP853.E5[:12]  # (12,)
D: FloatArray = DOP853.D  # (4, 16)

END = 12  # the rates at the end of a step, after its 12 stages; they are stage 0 of the next step
INSIDE = 16  # after 3 more stages for the interpolant: the rates at a point of the interpolant, to judge it
N_STAGES = 17
PROBE = 0.7  # where in the step: about where the defect of this interpolant is largest
SMALL = 2**17  # entries of a state for which one thread is as fast as more
_ERROR_PER_DEFECT = 0.15  # measured on flows of all kinds, quickly damped or not: 0.09 to 0.17


# Weights (in units of h) of the interpolated state at t + θh: θ(q_0 + (1 − θ)(q_1 + θ(q_2 + …))), where q_0, q_1, q_2
# match the values and slopes at both ends.
_PATH: FloatArray = np.zeros((7, INSIDE))
_PATH[0, :END] = B
_PATH[1] = np.eye(INSIDE)[0] - _PATH[0]
_PATH[2] = _PATH[0] - _PATH[1] - np.eye(INSIDE)[END]
_PATH[3:] = D


def _basis(theta: float) -> FloatArray:
    """θ, θ(1 − θ), θ²(1 − θ), …: the factors of the rows of _PATH, (7,)."""
    factors: FloatArray = np.multiply.accumulate((theta, 1 - theta, theta, 1 - theta, theta, 1 - theta, theta))
    return factors


_RISE = np.array([1, 1, 2, 2, 3, 3, 4]) / PROBE - np.array([0, 1, 1, 2, 2, 3, 3]) / (1 - PROBE)  # (ln basis)′
_DEFECT = np.append((_basis(PROBE) * _RISE) @ _PATH, -1.0)  # (17,) the interpolant's slope less the rates


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
        return self.h * (_basis((time - self.t) / self.h) @ _PATH)

    def error(self, rtol: float, atol: float) -> float:
        """Error of the step's end in units of the tolerance: 5th-order estimate corrected by the 3rd-order one."""
        e5, e3 = self._scaled(np.array([E5, E3]), rtol, atol)
        return float(e5 * e5 / np.sqrt(e5 * e5 + 0.01 * e3 * e3)) if e5 != 0 else 0.0

    def error_inside(self, rtol: float, atol: float) -> float:
        """Error of the interpolant in units of the tolerance: its defect, slope less rates, at one point.

        Where the flow damps quickly the ends of a step can be right to the tolerance and its inside wrong by a
        hundred times that, which no estimate at the end sees.
        """
        self.system.rates(INSIDE, self.h * (_basis(PROBE) @ _PATH))
        return _ERROR_PER_DEFECT * self._scaled(_DEFECT[None], rtol, atol)[0]

    def _scaled(self, weights: FloatArray, rtol: float, atol: float) -> list[float]:
        """Maximum norm of h Σ_j weights[i, j] k_j in units of atol + rtol · (largest entry of the row)."""
        total = np.pad(B, (0, weights.shape[1] - END))
        size, change, *errors = self.system.magnitudes(self.h * np.concatenate([total[None], weights]))
        scale = atol + rtol * torch.maximum(size, change)
        return [float(largest) for largest in (torch.stack(errors) / scale).amax(1).tolist()]


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
        """As in `System`, a row being the last dimension."""
        return largest(torch.cat([self.value[None], self.sums(weights)]))


def largest(rows: Tensor) -> Tensor:
    """Largest |entry| along the last dimension (several times faster than vector_norm, and no temporary)."""
    return torch.maximum(rows.amax(-1), -rows.amin(-1))


def threads_for(n_entries: int) -> AbstractContextManager[object]:
    """One thread per operation for small states, all of them for large ones."""
    return one_thread() if n_entries < SMALL else nullcontext()


# --- implicit steps ----------------------------------------------------------------------------------------------
#
# Weight decay keeps an eigenvalue of η λ for ever, and explicit steps would be as short as some 6/(η λ) to the end,
# where nothing moves any more. Radau IIA of order 5 (SciPy's; Hairer & Wanner, Solving ODEs II, Section IV.8) has no
# such limit. It solves linear systems of all moving entries, so it is for hundreds of them, not for thousands. Its
# solution within a step is a cubic, x + Σ_j θ^j k_j with θ = (t − t_0)/h: the k_j take the place of an explicit step's
# stages, and all that reads a flow reads this one too.

MAX_STIFF_ENTRIES = 2_000  # of the state; the Jacobian is dense and found by differences


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
    # indices into the flat table, computed once: a mask would be searched at every use
    tables = [(table, mask.flatten().nonzero()[:, 0]) for table, mask in system.moving()]
    sizes = [len(entries) for _, entries in tables]
    if sum(sizes) > MAX_STIFF_ENTRIES:
        allowed = f"at most {MAX_STIFF_ENTRIES} with weight decay: fewer classes or tokens"
        raise InputError("the number of entries of Y and Z that move", sum(sizes), allowed)

    def put(x: FloatArray) -> None:
        for (table, entries), part in zip(tables, _parts(x, sizes), strict=True):
            table.value.view(-1).index_copy_(0, entries, part.to(table.value.device))

    def field(_: float, x: FloatArray) -> FloatArray:
        put(x)
        system.rates(0, np.zeros(0))
        return torch.cat([table.rate[0].view(-1)[entries] for table, entries in tables]).cpu().numpy()

    start = torch.cat([table.value.view(-1)[entries] for table, entries in tables]).cpu().numpy()
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
            for (table, entries), part in zip(tables, _parts(cubic.Q[:, power], sizes), strict=True):
                table.rate[power].zero_().view(-1).index_copy_(0, entries, part.to(table.value.device))
        end = t_end if solver.status == "finished" else float(solver.t)
        yield StiffStep(t, end - t, end)


def _parts(x: FloatArray, sizes: list[int]) -> tuple[Tensor, ...]:
    return torch.as_tensor(np.ascontiguousarray(x)).split(sizes)
