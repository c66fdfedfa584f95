"""The linear response at given times, with how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike

from scansnap.checks import real
from scansnap.checks.arrays import FloatArray
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import checked_times
from scansnap.dynamics.flow.integrators import dop853, threads_for
from scansnap.dynamics.flow.population import Places
from scansnap.dynamics.response.field import ResponseField
from scansnap.measure.growth import GrowthPoint
from scansnap.results.trajectory import identity
from scansnap.results.variables import VARIABLES

_BY_QUERY = {
    "z": "attention logit, to first order",
    "drive": "what a frozen attention would feel, summed up",
    "memory": "what the decoder's memory of earlier attention adds",
    "z_error": "estimate of what squares would add",
}
_BY_CLASS = {name: VARIABLES[name].meaning for name in ("attention", "f")}


def response(
    classes: SequenceClasses,
    eta_y: float = 1.0,
    eta_z: float = 0.02,
    t: ArrayLike | None = None,
    *,
    rtol: float = 1e-8,
    atol: float = 1e-12,
    trust: float = 0.1,
    progress: Callable[[float], None] | None = None,
) -> xr.Dataset:
    """What attention does to first order, at the times ``t`` (default: those of ``flow``), from Y = Z = 0.

    Variables, laid out as those of ``flow``: ``z`` = ``drive`` + ``memory``; ``attention`` and ``f``, as z gives them;
    ``growth`` (B_n, by class); ``gap``; and ``z_error``, what the neglected squares would have added to z: the integral
    of the flow's own rate at the response's state less the response's. It leaves out that the memory would answer to
    that, too, so where the memory is strong it is too large rather than too small. ``error`` (t, query) is its largest
    entry over that of z, and ``trusted_until`` in the attributes the first time at which one exceeds ``trust``.

    >>> response(SequenceClasses.syn_small(), eta_y=1.0, eta_z=0.001, t=[10, 100]).attrs["trusted_until"]
    inf
    """
    eta_y, eta_z = real("eta_y", eta_y, above=0), real("eta_z", eta_z, least=0)
    times = checked_times(np.geomspace(0.1, 1e5, 200) if t is None else t)
    rtol, atol = real("rtol", rtol, least=1e-13, most=0.1), real("atol", atol, above=0)
    trust = real("trust", trust, above=0)
    classes.need_one_class_per_next_token("the response")
    places = Places(classes)
    field = ResponseField(places, eta_y, eta_z)
    readings = _Readings(field, times)
    first_step = 0.01 / (eta_y * classes.p_class.max())
    with threads_for(field.a.value.numel() * max(1, field.d)), torch.inference_mode():
        readings.look(0.0, np.zeros(0))
        for step in dop853(field, times[-1], first_step, rtol, atol):
            for time in times[(times > step.t) & (times <= step.end)]:
                readings.look(time, step.weights(time))
            readings.pass_by(step.weights(step.end))
            if progress is not None:
                progress(float(np.log1p(step.end / first_step) / np.log1p(times[-1] / first_step)))
    data = readings.dataset()
    late = data.t.values[(data.error > trust).any("query").values]
    return data.assign_attrs({"eta_y": eta_y, "eta_z": eta_z, "rtol": rtol, "atol": atol, "trust": trust,
                              "trusted_until": float(late[0]) if len(late) else math.inf, "stopped": "complete",
                              "n_classes": classes.n_classes, "vocab_size": classes.vocab_size,
                              **identity(classes)})  # fmt: skip


class _Readings:
    """The variables at the asked times; the path between them for B_n, which is an integral along it."""

    def __init__(self, field: ResponseField, times: FloatArray) -> None:
        self.field, self.times = field, times
        self.rows: dict[str, list[FloatArray]] = {name: [] for name in (*_BY_QUERY, *_BY_CLASS, "gap")}
        self.path: list[tuple[FloatArray, FloatArray]] = []  # z and f of the distinct tokens' sums, by class
        self.places: list[int] = []  # of the asked times on the path

    def look(self, time: float, weights: FloatArray) -> None:
        """At an asked time; the start is always on the path."""
        z, f = self.pass_by(weights)
        if time != self.times[len(self.places)]:
            return
        self.places.append(len(self.path) - 1)
        at = self.field.point(weights)
        drive, off = at.drive.numpy(), self.field.off.at(weights).numpy()
        for name, values in zip(_BY_QUERY, (z, drive, z - drive, off), strict=True):
            self.rows[name].append(self._by_query(values))
        attention = f / f.sum(1, keepdims=True)
        for name, values in zip(_BY_CLASS, (attention, f), strict=True):
            self.rows[name].append(self._by_token(values))
        gap = np.empty(len(self.field.places.order))
        gap[self.field.places.order] = at.logits.diagonal().numpy() - (
            at.logits[:, -1].numpy() if self.field.n_rest else np.nan
        )
        self.rows["gap"].append(gap)

    def pass_by(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Note where the path is; z (cells,) and f (K, L)."""
        z = self.field.z.at(weights).numpy()
        x = z[self.field.places.cell]  # (K, L)
        c = self.field.places.p * np.exp(x - x.max(1, keepdims=True))
        f = c / np.linalg.norm(c, axis=1, keepdims=True)
        used = self.field.places.used[:, : self.field.d]
        with np.errstate(divide="ignore"):
            self.path.append(((x[:, : self.field.d] * used).sum(1), 1 / (f[:, : self.field.d] ** 2).sum(1)))
        return z, f

    def dataset(self) -> xr.Dataset:
        places, classes = self.field.places, self.field.places.classes
        height, weight = (np.stack(part) for part in zip(*self.path, strict=True))  # (path, K)
        growth = np.empty((len(self.places), classes.n_classes))
        growth[:, places.order] = GrowthPoint(height, weight).growth()[self.places]
        variables: dict[str, Any] = {
            name: (("t", "query", "token"), np.stack(self.rows[name]), {"long_name": _BY_QUERY[name]})
            for name in _BY_QUERY
        }
        variables |= {
            name: (("t", "class", "token"), np.stack(self.rows[name]), {"long_name": _BY_CLASS[name]})
            for name in _BY_CLASS
        }
        variables["gap"] = (("t", "class"), np.stack(self.rows["gap"]), {"long_name": VARIABLES["gap"].meaning})
        variables["growth"] = (("t", "class"), growth, {"long_name": "growth exponent B_n along the path of z"})
        z, off = (np.abs(variables[name][1]).max(2) for name in ("z", "z_error"))  # (t, query)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.where(z > 0, off / z, 0.0)
        variables["error"] = (("t", "query"), error, {"long_name": "largest entry of z_error over that of z"})
        coords = {"t": self.times, "query": classes.queries, "token": np.arange(classes.vocab_size),
                  "class": np.arange(classes.n_classes)}  # fmt: skip
        return xr.Dataset(variables, coords)

    def _by_query(self, values: FloatArray) -> FloatArray:
        places = self.field.places
        full = np.zeros((len(places.queries), places.classes.vocab_size))
        full[places.cell_query, places.cell_token] = values
        return full

    def _by_token(self, values: FloatArray) -> FloatArray:
        at = self.field.places
        full = np.zeros((len(at.order), at.classes.vocab_size))
        full[at.order[at.pairs[0]], at.token[at.pairs]] = values[at.pairs]
        return full
