"""The snapping time of every run, or of every setting, in a labelled trajectory."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError, check_float, check_integer
from scansnap.classes import SequenceClasses
from scansnap.measure.fates import time_dim
from scansnap.measure.snap.curve import log_growth, log_odds
from scansnap.measure.snap.interval import LEAST_TIMES, Snap, snap_of

_LABELS = ("run", "seed", "status", "failed_step")  # coordinates along run that are not settings


def snap_time(
    data: xr.Dataset,
    classes: SequenceClasses | None = None,
    *,
    exponent: float = 1.0,
    pool: bool = True,
    per_class: bool = False,
    local: bool = False,
    resamples: int = 400,
    seed: int = 0,
) -> xr.Dataset:
    """When attention froze, in t and in ln t, with intervals, as :mod:`scansnap.measure.snap.definition` has it.

    data       a trajectory with attention along ``step`` or ``t``, with or without ``run``; at least 8 recorded
               times after 0, best spaced evenly in ln t, from t = 0 to many times the answer
    classes    the classes of the trajectory; None reads distinct and common tokens off the attention
    exponent   in t, the power of t that χ − 1 must outgrow to count as scanning, between 0 and 2. Smaller is later: 0.5
               reads 1.5 to 7 times the time that 1 does, the longer for smaller M
    pool       runs that differ only in their seed are one measurement: S is averaged over them, and the result
               has the dimension ``setting`` instead of ``run``. False measures each run for itself
    per_class  follow every class for itself (dimension `seq_class`) instead of the mean of S over classes
    local      as in :func:`log_odds`
    resamples  number of resampled curves behind the uncertainty, drawn with ``seed``

    Variables: ``t_snap``, where (χ − 1)/t^exponent is largest if attention has snapped, in the units of the time
    dimension; ``found``, whether it has; ``reason``, why not. ``t_fastest`` is the same whether it has or not (NaN
    where that is at an end of the record) and ``t_snap_low`` to ``t_snap_high`` its 68% interval, or what is known:
    (last time, ∞) if attention is as fast as ever, (0, third time) if it was slowing down from the start, (0, ∞) if
    nothing can be said. With ``_ln`` behind the first word all of this in ln t, where S goes farthest in an e-fold.
    ``over`` says what the intervals are over: training seeds where there are several, else the noise of one run.
    Runs that became non-finite are left out, as they stand still for another reason.

    Smoothing: a local parabola in ln t over ±0.5 (or the 7 nearest recorded times). The uncertainty is
    resampled over the seeds where there are several, and then covers all that differs between them (data,
    initial values). For a single run it comes from its own noise, whose increments from one recorded time to the
    next get random signs. That is right for noise that adds up step by step. Seeds can differ by more, since
    noise in Y bends whole curves smoothly: by up to 3 such intervals at batch size 128, up to 10 at batch size 8,
    and up to 20 from random initial values. Added in quadrature: the shift when the window is half as wide again,
    which is all there is for a smooth flow. Attention is followed from where it has moved by 5 times its own
    uncertainty. Limits: constant rates; a time of few steps is only interpolated between these.
    """
    exponent = check_float("exponent", exponent, above=0, below=2)
    resamples = check_integer("resamples", resamples, least=50)
    seed = check_integer("seed", seed)
    time = time_dim(data, "attention")
    times = data[time].values.astype(np.float64)
    if (n_times := int((times > 0).sum())) < LEAST_TIMES:
        raise InputError(f"the number of recorded values of {time} above 0", n_times, f"at least {LEAST_TIMES}")
    odds = log_odds(data, classes, local=local).transpose("run", ..., "seq_class", time, missing_dims="ignore")
    odds = odds if "run" in odds.dims else odds.expand_dims("run")  # (run, …, seq_class, time)
    extra = [dim for dim in odds.dims if dim not in ("run", "seq_class", time)]
    if extra:
        raise InputError("attention", f"along {extra[0]}", f"along run, {time}, seq_class and token only: select one")
    eps = float(np.finfo(odds.dtype).eps)
    values = odds.values[:, :, times > 0].astype(np.float64)  # (run, seq_class, time)
    times = times[times > 0]
    failed = _failed(data, len(values))
    groups, coords = _groups(data, pool)
    rng = np.random.default_rng(seed)
    found = []
    for group in groups:
        curves = values[group[~failed[group]]]
        usable = ~np.isnan(curves[:, :, 0]).any(0)  # classes with both kinds of token
        for chosen in np.eye(len(usable), dtype=bool) if per_class else [np.ones_like(usable)]:
            if not len(curves):
                found.append(Snap.unknown("every run became non-finite"))
            elif not (chosen & usable).any():
                found.append(Snap.unknown("no class has both distinct and common tokens"))
            else:
                mean = curves[:, chosen & usable].mean(1)
                found.append(
                    snap_of(times, mean, rng, exponent=exponent, resamples=resamples, eps=eps, log_gone=log_growth)
                )
    dims = {"setting" if pool else "run": len(groups)} if "run" in data.dims else {}
    if per_class:
        dims["seq_class"] = values.shape[1]
        coords["seq_class"] = odds["seq_class"].variable if "seq_class" in odds.coords else np.arange(values.shape[1])
    shape = tuple(dims.values())
    variables: dict[str, Any] = {"over": (tuple(dims), np.array([one.over for one in found], object).reshape(shape),
                                          {"long_name": "what the intervals are over"})}  # fmt: skip
    for clock, ln in (("t", ""), ("ln", "_ln")):
        fields: dict[str, tuple[str, Any, str]] = {
            f"t_snap{ln}": ("time", float, f"measured snapping time ({time}) on the clock {'ln t' if ln else 't'}"),
            f"t_fastest{ln}": ("fastest", float, "when attention was fastest there, snapped or not"),
            f"t_snap{ln}_low": ("low", float, "lower end of its 68% interval"),
            f"t_snap{ln}_high": ("high", float, "upper end of its 68% interval"),
            f"found{ln}": ("found", bool, "whether attention froze within the record"),
            f"reason{ln}": ("reason", object, "why not, where it was not found"),
        }
        for name, (field, kind, meaning) in fields.items():
            values = np.array([getattr(getattr(one, clock), field) for one in found], kind)
            variables[name] = (tuple(dims), values.reshape(shape), {"long_name": meaning})
    return xr.Dataset(variables, coords=coords, attrs={"exponent": exponent, "time": time})


def _groups(data: xr.Dataset, pool: bool) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Which runs are measured together, and the coordinates of the results."""
    if "run" not in data.dims:
        return [np.array([0])], {str(name): c.variable for name, c in data.coords.items() if c.ndim == 0}
    along_run = {str(name): c.values for name, c in data.coords.items() if c.dims == ("run",)}
    if not pool:
        return [np.array([i]) for i in range(data.sizes["run"])], {k: ("run", v) for k, v in along_run.items()}
    settings = {name: value for name, value in along_run.items() if name not in _LABELS}
    if "seed" in along_run:
        keys = list(zip(*(value.tolist() for value in settings.values()), strict=True)) or [()] * data.sizes["run"]
    else:
        keys = [(i,) for i in range(data.sizes["run"])]
    places: dict[tuple[Any, ...], list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    groups = [np.array(group) for group in places.values()]
    first = [group[0] for group in groups]
    coords = {name: ("setting", value[first]) for name, value in settings.items()}
    return groups, {**coords, "n_runs": ("setting", np.array([len(group) for group in groups]))}


def _failed(data: xr.Dataset, n_runs: int) -> np.ndarray:
    """Runs that became non-finite: they stand still, but not because attention froze."""
    if "failed_step" not in data.coords:
        return np.zeros(n_runs, dtype=bool)
    return np.broadcast_to(data["failed_step"].values >= 0, (n_runs,))
