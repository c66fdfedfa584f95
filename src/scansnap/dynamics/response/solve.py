"""The linear response at given times, with how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike

from scansnap.checks import check_choice, check_float
from scansnap.checks.arrays import FloatArray
from scansnap.classes import SequenceClasses
from scansnap.dynamics.device import one_thread
from scansnap.dynamics.flow.compact import PaddedLayout
from scansnap.dynamics.flow.integrate import checked_times
from scansnap.dynamics.flow.integrators import NonFinite, dop853
from scansnap.dynamics.flow.state import check_memory
from scansnap.dynamics.response.field import ResponseField
from scansnap.measure.growth import GrowthPoint
from scansnap.progress import Progress, report_share
from scansnap.results.trajectory import identity
from scansnap.results.variables import RESPONSE, add_labels

ANSWERS = ("z", "drive", "memory", "z_error", "attention", "f", "gap", "growth")
_BETWEEN = np.array([0.25, 0.5, 0.75])  # of a step: where its path is noted, too, for the integral along it


def response(
    classes: SequenceClasses,
    eta_y: float = 1.0,
    eta_z: float = 0.02,
    t: ArrayLike | None = None,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-12,
    trust: float = 0.1,
    stop: float | None = None,
    variables: Sequence[str] = ANSWERS,
    progress: Progress | None = None,
) -> xr.Dataset:
    """The linear response of attention around frozen attention, from Y = Z = 0.

    Parameters
    ----------
    classes
        The data distribution.
    eta_y, eta_z
        Learning rates of Y and Z.
    t
        Ascending times; default: those of `scansnap.flow`.
    rtol, atol
        Error of z per step, relative to its largest entry, plus ``atol``. ``z_error`` is right to a percent.
    trust
        The ``error`` up to which the response is trusted.
    stop
        End after the step in which ``error`` exceeds this. Where the memory is far too strong for first order the
        equations are stiff and cost many steps.
    variables
        Variables to return beside ``error``; for many classes ``attention`` and ``f`` are large.
    progress
        Called with (done, total).

    Returns
    -------
    xarray.Dataset
        Laid out as that of `scansnap.flow`: ``z`` = ``drive`` + ``memory``; ``attention`` and ``f`` from z;
        ``growth`` (B_n); ``gap``; and ``z_error``, the integral of the flow's own rate at the response's state less
        the response's. It leaves out the memory's answer, so a strong memory makes it too large rather than too
        small. ``error`` (t, query) is its largest entry over that of z, ``attrs["trusted_until"]`` the first time
        at which one exceeds ``trust``. ``attrs["stopped"]`` is "complete" or "error".

    Examples
    --------
    >>> ss.response(ss.SequenceClasses.syn_small(), eta_y=1.0, eta_z=0.001, t=[10, 100]).attrs["trusted_until"]
    inf
    """
    eta_y, eta_z = check_float("eta_y", eta_y, above=0), check_float("eta_z", eta_z, least=0)
    times = checked_times(np.geomspace(0.1, 1e5, 200) if t is None else t)
    rtol, atol = check_float("rtol", rtol, least=1e-13, most=0.1), check_float("atol", atol, above=0)
    trust = check_float("trust", trust, above=0)
    most = math.inf if stop is None else check_float("stop", stop, above=0)
    wanted = (variables,) if isinstance(variables, str) else tuple(variables)
    for name in wanted:
        check_choice("variables", name, ANSWERS)
    classes.need_one_class_per_next_token("the response")
    field = ResponseField(PaddedLayout(classes), eta_y, eta_z)
    log_times = field.log_time(times)
    recorder = _ResponseRecorder(field, times, log_times, wanted)
    n_steps, stopped = 0, "complete"
    pool_of = partial(ThreadPoolExecutor, initializer=torch.set_num_threads, initargs=(1,))  # none starts its own
    with one_thread() as threads, pool_of(threads) as pool, torch.inference_mode():
        if threads > 1 and len(field.blocks) > 1:
            field.each = pool.map
        recorder.record(0.0, np.zeros(0), 0.0, 0.0)
        try:
            for step in dop853(field, log_times[-1], 0.1, rtol, atol):
                n_steps += 1
                due = log_times[(log_times > step.t) & (log_times <= step.end)]
                for at in np.union1d(due, np.append(step.t + step.h * _BETWEEN, step.end)):
                    recorder.record(at, step.weights(at), (at - step.t) / step.h, step.h)
                report_share(progress, float(step.end / log_times[-1]))
                if step.end < log_times[-1] and recorder.error_at(step.weights(step.end), 1.0, step.h).max() > most:
                    stopped = "error"
                    break
        except NonFinite as failed:
            raise NonFinite(field.tau * math.expm1(failed.t)) from None
    data = recorder.dataset()
    late = data.t.values[(data.error > trust).any("query").values]
    return data.assign_attrs({"eta_y": eta_y, "eta_z": eta_z, "rtol": rtol, "atol": atol, "trust": trust,
                              "trusted_until": float(late[0]) if len(late) else math.inf, "stopped": stopped,
                              "n_steps": n_steps, "n_evaluations": field.n_evaluations,
                              "n_classes": classes.n_classes, "vocab_size": classes.vocab_size,
                              **identity(classes)})  # fmt: skip


class _ResponseRecorder:
    """The variables at the requested times; the path between them for B_n, which is an integral along it."""

    def __init__(self, field: ResponseField, times: FloatArray, log_times: FloatArray, wanted: Sequence[str]) -> None:
        self.field, self.log_times, self.wanted = field, log_times, wanted
        layout, classes = field.layout, field.layout.classes
        self.coords = {"t": times, "query": classes.queries, "token": np.arange(classes.vocab_size),
                       "seq_class": np.arange(classes.n_classes)}  # fmt: skip
        shapes = {name: tuple(len(self.coords[dim]) for dim in ("t", *RESPONSE[name].dims)) for name in wanted}
        need = {name: 8 * math.prod(shape) for name, shape in shapes.items()}
        if need:
            largest = max(need, key=lambda name: need[name])
            check_memory("the size of the result", sum(need.values()), f"ask for fewer times or leave out {largest!r}")
        self.data = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.error = np.zeros((len(times), len(layout.queries)))
        self.path: list[tuple[FloatArray, FloatArray]] = []  # z and f of the distinct tokens' sums, by class
        self.recorded: list[int] = []  # path index of each requested time

    def record(self, at: float, weights: FloatArray, share: float, step: float) -> None:
        """Note where the path is at θ = ``at``, a share of the present step; read the variables if they are due."""
        d, layout, row = self.field.d, self.field.layout, len(self.recorded)
        z_now = self.field.z.at(weights)
        z, f = z_now.numpy(), self.field.attention(z_now).numpy()  # (cells,), (K, L)
        x = z[layout.cell[:, :d]]  # (K, D)
        with np.errstate(divide="ignore"):
            self.path.append(((x * layout.used[:, :d]).sum(1), 1 / (f[:, :d] ** 2).sum(1)))
        if row == len(self.log_times) or at != self.log_times[row]:
            return
        self.recorded.append(len(self.path) - 1)
        self.error[row] = self.error_at(weights, share, step)
        drive, off = self.field.drive.at(weights).numpy(), self.field.neglected(share, step).numpy()
        cells = {"z": z, "drive": drive, "memory": z - drive, "z_error": off}
        by_class = {"attention": f / f.sum(1, keepdims=True), "f": f}
        for name, data in self.data.items():
            if name in cells:
                data[row, layout.cell_query, layout.cell_token] = cells[name]
            elif name in by_class:
                data[row, layout.order[layout.pairs[0]], layout.token[layout.pairs]] = by_class[name][layout.pairs]
            elif name == "gap":
                data[row, layout.order] = self.field.gap(weights).numpy()

    def error_at(self, weights: FloatArray, share: float, step: float) -> FloatArray:
        """Largest entry of what is neglected over that of z, by query, (Q,)."""
        off, z = np.zeros((2, self.error.shape[1]))
        np.maximum.at(off, self.field.layout.cell_query, np.abs(self.field.neglected(share, step).numpy()))
        np.maximum.at(z, self.field.layout.cell_query, np.abs(self.field.z.at(weights).numpy()))
        return np.divide(off, z, out=np.zeros_like(z), where=z > 0)

    def dataset(self) -> xr.Dataset:
        if "growth" in self.data:
            height, weight = (np.stack(part) for part in zip(*self.path, strict=True))  # (path, K)
            growth = GrowthPoint(height, weight).growth()
            self.data["growth"][: len(self.recorded), self.field.layout.order] = growth[self.recorded]
        variables = {name: (("t", *RESPONSE[name].dims), self.data[name]) for name in self.wanted}
        variables["error"] = (("t", *RESPONSE["error"].dims), self.error)
        return add_labels(xr.Dataset(variables, self.coords).isel(t=slice(len(self.recorded))), RESPONSE)
