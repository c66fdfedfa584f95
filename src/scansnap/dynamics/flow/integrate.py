"""The T → ∞ population flow, integrated to any time: what SGD does on average, without its noise.

t counts batch-size-1 SGD steps; momentum μ acts as both rates divided by 1 − μ. The flow is the limit of
small rates: full-expectation SGD with rate η stays within O(η) of it at fixed η t. Model: no residual, l2 norm,
softmax over all M outputs, Y(0) = 0 (Sections 2 and 3 of the paper).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike

from scansnap.checks import InputError, choice, real
from scansnap.classes import SequenceClasses
from scansnap.dynamics.device import pick_device
from scansnap.dynamics.flow.events import Event, Watch, event_times
from scansnap.dynamics.flow.integrators import FloatArray, Step, dop853, threads_for
from scansnap.dynamics.flow.population import Layout, Point, PopulationFlow
from scansnap.results.trajectory import identity
from scansnap.results.variables import FLOWING, USUAL, VARIABLES


def flow(
    classes: SequenceClasses,
    eta_y: float = 1.0,
    eta_z: float = 0.02,
    t: ArrayLike | None = None,
    *,
    rtol: float = 1e-8,
    atol: float = 1e-12,
    z0: ArrayLike | None = None,
    device: str = "auto",
    events: Sequence[Event] = (),
    variables: Sequence[str] = USUAL,
    progress: Callable[[float], None] | None = None,
) -> xr.Dataset:
    """Integrate the population flow from t = 0 and read it at the times ``t``.

    classes      the data distribution
    eta_y, eta_z learning rates of Y and Z; eta_z = 0 freezes the attention
    t            ascending times (default: 200 from 0.1 to 1e5, evenly in log t)
    rtol, atol   error per step of every entry of Y and Z, relative to the largest entry of its row (a token's row
                 of Y, a query's row of Z), plus atol
    z0           initial z by query (in the order of ``classes.queries``) and token, (Q, M); default 0
    device       cpu, cuda, or auto: cuda where there is one and the problem is large
    events       moments to locate: ``EntropyBelow(level, class_)``, ``FateFlip(query, token)``; ``event_t`` holds
                 their times by event and occurrence, NaN for none
    variables    what to return: any of attention, loss, entropy, z, z_rate, y, f, g, gap
    progress     called after every step with the share done (of log t, which is what the work follows)

    >>> flow(SequenceClasses.syn_small(), eta_y=1.0, eta_z=0.02, t=[0, 10, 100]).loss.values.round(4)
    array([3.5264, 0.7304, 0.0437])
    """
    eta_y = real("eta_y", eta_y, above=0)
    eta_z = real("eta_z", eta_z, least=0)
    times = checked_times(np.geomspace(0.1, 1e5, 200) if t is None else t)
    rtol, atol = real("rtol", rtol, least=1e-13, most=0.1), real("atol", atol, above=0)
    wanted = (variables,) if isinstance(variables, str) else tuple(variables)
    for name in wanted:
        choice("variables", name, FLOWING)
    classes.need_one_class_per_next_token("the flow")
    z_start = _z_start(z0, classes)
    layout = Layout(classes)
    n_entries = len(np.unique(layout.token[layout.used])) * (classes.n_classes + 1)
    # small problems are faster on the CPU, whatever else there is
    where = pick_device("cpu" if device == "auto" and n_entries < 2**20 else device)
    readings = _Readings(classes, layout, wanted, times, z_start)
    field = PopulationFlow(layout, eta_y, eta_z, z_start, where)
    watches = [Watch(event, field) for event in events]
    n_steps, n_read = 0, 0
    with threads_for(n_entries), torch.inference_mode():
        for watch in watches:
            watch.start()
        if times[0] == 0:
            readings.take(0, field, np.zeros(0))
            n_read = 1
        first_step = 0.01 / (eta_y * classes.p_class.max())
        for step in dop853(field, times[-1], first_step, rtol, atol):
            for watch in watches:
                watch.look(step)
            n_read = _read(readings, field, step, n_read)
            n_steps += 1
            if progress is not None:
                progress(float(np.log1p(step.end / first_step) / np.log1p(times[-1] / first_step)))
    settings = {"eta_y": eta_y, "eta_z": eta_z, "rtol": rtol, "atol": atol, "method": "dop853",
                "device": str(where), "z0": "zero" if z0 is None else "given", "n_steps": n_steps,
                "n_classes": classes.n_classes, "vocab_size": classes.vocab_size}  # fmt: skip
    dataset = readings.dataset(settings | {"stopped": f"reached t = {times[-1]:g}", **identity(classes)})
    if watches:
        dataset["event_t"] = (
            ("event", "occurrence"),
            event_times(watches),
            {"long_name": "times of the events"},
        )
        dataset = dataset.assign_coords(event=[str(event) for event in events])
    return dataset


def _read(readings: _Readings, field: PopulationFlow, step: Step, first: int) -> int:
    """Take the readings that fall into a step; returns the next one to take."""
    while first < len(readings.times) and readings.times[first] <= step.end:
        readings.take(first, field, step.weights(readings.times[first]))
        first += 1
    return first


class _Readings:
    """The requested variables at the requested times, by class and token as the user numbers them."""

    def __init__(
        self,
        classes: SequenceClasses,
        layout: Layout,
        wanted: Sequence[str],
        times: FloatArray,
        z0: FloatArray,
    ) -> None:
        m = classes.vocab_size
        self.sizes = {"class": classes.n_classes, "token": m, "query": len(z0), "output": m}
        self.times, self.layout, self.z0 = times, layout, z0
        shapes = {name: (len(times), *(self.sizes[dim] for dim in VARIABLES[name].dims)) for name in wanted}
        _check_memory(shapes)
        # numbers outside the support: 0 for attention and f, NaN where g has none
        self.data = {name: np.full(shape, np.nan if name == "g" else 0.0) for name, shape in shapes.items()}
        row, place = np.nonzero(layout.used)
        self.pairs = row, place
        self.cls, self.token = layout.order[row], layout.token[row, place]

    def take(self, i: int, field: PopulationFlow, weights: FloatArray) -> None:
        point = field.point(weights)
        for name, data in self.data.items():
            if name in ("attention", "f", "g"):
                data[i, self.cls, self.token] = getattr(point, name).cpu().numpy()[self.pairs]
            elif name in ("z", "z_rate"):
                data[i] = self.z0 if name == "z" else 0.0
                data[i, self.layout.cell_query, self.layout.cell_token] = getattr(point, name).cpu().numpy()
            elif name == "y":
                data[i] = field.y(weights)
            elif name == "loss":
                data[i] = self._loss(field, point)
            else:
                values = field.entropy(point) if name == "entropy" else field.gap(point)
                data[i, self.layout.order] = values.cpu().numpy()

    @staticmethod
    def _loss(field: PopulationFlow, point: Point) -> float:
        return float(-(field.p_class[:, 0] * torch.log1p(-point.r.diagonal())).sum())

    def dataset(self, attrs: dict[str, Any]) -> xr.Dataset:
        variables = {
            name: (("t", *VARIABLES[name].dims), data, {"long_name": VARIABLES[name].meaning})
            for name, data in self.data.items()
        }
        coords = {dim: np.arange(size) for dim, size in self.sizes.items() if dim != "output" or "y" in self.data}
        coords["query"] = self.layout.queries
        return xr.Dataset(variables, {"t": self.times, **coords}, attrs)


def checked_times(t: ArrayLike) -> FloatArray:
    """Times as a strictly ascending float array from 0 on."""
    try:
        times = np.atleast_1d(np.asarray(t, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError("t", t, "numbers") from None
    if times.ndim != 1 or times.size == 0:
        raise InputError("t", f"of shape {times.shape}", "a list of at least one time")
    if not np.isfinite(times).all():
        raise InputError("t", float(times[~np.isfinite(times)][0]), "finite")
    if times.min() < 0:
        raise InputError("t", float(times.min()), "at least 0")
    if (np.diff(times) <= 0).any():
        i = int(np.flatnonzero(np.diff(times) <= 0)[0])
        raise InputError("t", f"{times[i]:g} followed by {times[i + 1]:g}", "ascending, each time once")
    return times


def _z_start(z0: ArrayLike | None, classes: SequenceClasses) -> FloatArray:
    shape = (len(classes.queries), classes.vocab_size)
    if z0 is None:
        return np.zeros(shape)
    try:
        z = np.array(z0, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("z0", z0, "numbers") from None
    if z.shape != shape:
        raise InputError("z0", f"of shape {z.shape}", f"of shape {shape}: by query and token")
    if not np.isfinite(z).all():
        raise InputError("z0", float(z[~np.isfinite(z)][0]), "finite")
    return z


def _check_memory(shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse results that cannot be held, before the work rather than after it."""
    try:
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError):  # a system that does not tell
        return
    need = {name: 8 * int(np.prod(shape)) for name, shape in shapes.items()}
    if sum(need.values()) > limit:
        name = max(need, key=lambda name: need[name])
        raise InputError(
            "the size of the result", f"{sum(need.values()) / 2**30:.1f} GiB",
            f"at most {limit / 2**30:.1f} GiB, half the memory: ask for fewer times or leave out {name!r}",
        )  # fmt: skip
