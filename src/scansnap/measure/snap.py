"""The snapping time, measured on a trajectory.

It follows how far attention has moved from common to distinct tokens. For class n, with D_n the attention
on its distinct tokens and C_n that on its common ones,

    S_n(t) = ln[D_n(t)/C_n(t)] − ln[D_n(0)/C_n(0)]         `log_odds`
    χ(t) = e^{2S(t)}                                        S: mean over classes (and seeds)

χ is the growth factor e^{2Δz} of Theorem 3 for this odds ratio instead of a single token. While attention scans,
χ − 1 grows like t² (all of Γ = η_Z∫γ does, and γ ∝ t); after snapping Γ ∝ ln² t, so χ − 1 grows more slowly than
any power of t. In t it is fastest where it passes from faster than linear to slower than linear,

    d ln(χ − 1)/d ln t = 1   ⇔   (χ − 1)/t is largest      `snap_time`, ``t_snap``

that is, where the mean speed since the start is greatest, which needs no derivative of a noisy curve. In ln t it is
fastest where S changes most in an e-fold (``t_snap_ln``), which may be much later: S ∝ ln² t accelerates there.

`scansnap.measure.snap_curves` has the conditions for a snap, for these curves and for those of the probe and of words.
Where attention has not snapped there is a reason instead of a time.

docs/time_scales.md says what to expect of ``t_snap``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError, check_float, check_integer
from scansnap.classes import SequenceClasses
from scansnap.measure.fates import check_classes, time_dim
from scansnap.measure.snap_curves import MIN_TIMES, SnapEstimate, estimate_snap

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
    """When attention froze, in t and in ln t, with intervals, as `scansnap.measure.snap_curves` has it.

    Parameters
    ----------
    data
        A trajectory with attention along ``step`` or ``t``, with or without ``run``; at least 8 recorded times after 0,
        best spaced evenly in ln t, from t = 0 to many times the answer.
    classes
        The classes of the trajectory; None infers distinct and common tokens from the attention.
    exponent
        In t, the power of t that χ − 1 must outgrow to count as scanning, between 0 and 2. Smaller is later: 0.5 gives
        1.5 to 7 times the time that 1 does, the longer for smaller M.
    pool
        Average S over runs that differ only in their seed: the result has the dimension ``setting`` instead of
        ``run``. False measures each run alone.
    per_class
        Measure every class (dimension ``seq_class``) instead of the mean of S over classes.
    local
        As in `log_odds`.
    resamples, seed
        Number of resampled curves behind the uncertainty, and the seed that draws them.

    Returns
    -------
    xarray.Dataset
        The variables below.

    Notes
    -----

    Variables: ``t_snap``, where (χ − 1)/t^exponent is largest if attention has snapped, in the units of the time
    dimension; ``has_snapped``, whether it has; ``reason``, why not. ``t_fastest`` is the same whether it has or not
    (NaN where that is at an end of the record). ``t_snap_low`` to ``t_snap_high`` is its 68% interval, or what is
    known: (last time, ∞) if attention is as fast as ever, (0, third time) if it slows down from the start, (0, ∞) if
    nothing is known. With ``_ln`` behind the first word all of this in ln t, where S goes farthest in an e-fold.
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

    Examples
    --------
    >>> classes = ss.SequenceClasses.syn_small()
    >>> data = ss.flow(classes, eta_y=1.0, eta_z=0.02, t=np.geomspace(0.1, 1000, 60))
    >>> snap = snap_time(data, classes)
    >>> bool(snap.has_snapped), round(float(snap.t_snap))
    (True, 40)
    """
    exponent = check_float("exponent", exponent, above=0, below=2)
    resamples = check_integer("resamples", resamples, least=50)
    seed = check_integer("seed", seed)
    time = time_dim(data, "attention")
    times = data[time].values.astype(np.float64)
    if (n_times := int((times > 0).sum())) < MIN_TIMES:
        raise InputError(time, n_times, f"at least {MIN_TIMES} recorded values above 0")
    odds = log_odds(data, classes, local=local).transpose("run", ..., "seq_class", time, missing_dims="ignore")
    odds = odds if "run" in odds.dims else odds.expand_dims("run")  # (run, …, seq_class, time)
    extra = [dim for dim in odds.dims if dim not in ("run", "seq_class", time)]
    if extra:
        raise InputError(
            "attention", f"dimension {extra[0]}", f"dims run, {time}, seq_class and token only", "select one entry"
        )
    eps = float(np.finfo(odds.dtype).eps)
    values = odds.values[:, :, times > 0].astype(np.float64)  # (run, seq_class, time)
    times = times[times > 0]
    failed = _failed(data, len(values))
    groups, coords = _groups(data, pool)
    rng = np.random.default_rng(seed)
    estimates = []
    for group in groups:
        curves = values[group[~failed[group]]]
        usable = ~np.isnan(curves[:, :, 0]).any(0)  # classes with both kinds of token
        for chosen in np.eye(len(usable), dtype=bool) if per_class else [np.ones_like(usable)]:
            if not len(curves):
                estimates.append(SnapEstimate.unknown("every run became non-finite"))
            elif not (chosen & usable).any():
                estimates.append(SnapEstimate.unknown("no class has both distinct and common tokens"))
            else:
                mean = curves[:, chosen & usable].mean(1)
                estimates.append(
                    estimate_snap(
                        times, mean, rng, exponent=exponent, resamples=resamples, eps=eps, log_gone=log_growth
                    )
                )
    dims = {"setting" if pool else "run": len(groups)} if "run" in data.dims else {}
    if per_class:
        dims["seq_class"] = values.shape[1]
        coords["seq_class"] = odds["seq_class"].variable if "seq_class" in odds.coords else np.arange(values.shape[1])
    shape = tuple(dims.values())
    variables: dict[str, Any] = {"over": (tuple(dims), np.array([e.over for e in estimates], object).reshape(shape),
                                          {"long_name": "what the intervals are over"})}  # fmt: skip
    for axis, ln in (("t", ""), ("ln", "_ln")):
        fields: dict[str, tuple[str, Any, str]] = {
            f"t_snap{ln}": ("time", float, f"measured snapping time ({time}) in {'ln t' if ln else 't'}"),
            f"t_fastest{ln}": ("fastest", float, "when attention was fastest there, snapped or not"),
            f"t_snap{ln}_low": ("low", float, "lower end of its 68% interval"),
            f"t_snap{ln}_high": ("high", float, "upper end of its 68% interval"),
            f"has_snapped{ln}": ("has_snapped", bool, "whether attention froze within the record"),
            f"reason{ln}": ("reason", object, "why not, where it has not snapped"),
        }
        for name, (field, kind, meaning) in fields.items():
            values = np.array([getattr(getattr(estimate, axis), field) for estimate in estimates], kind)
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


def log_odds(data: xr.Dataset, classes: SequenceClasses | None = None, *, local: bool = False) -> xr.DataArray:
    """S_n(t): the log-odds of attention on distinct against common tokens, less their first recorded value.

    Dims (run,) step or t, seq_class. Without ``classes`` the contexts are read off the attention at the first recorded
    time, which is above 0 exactly on them (then ``local`` needs classes too). NaN for classes without distinct or
    without common tokens, and −∞ or +∞ where attention on one of them is too small for its floating-point type.

    Examples
    --------
    >>> classes = ss.SequenceClasses.syn_small()
    >>> data = ss.flow(classes, eta_y=1.0, eta_z=0.1, t=np.geomspace(0.1, 1000, 30))
    >>> odds = log_odds(data, classes)
    >>> bool((odds.diff("t") > 0).all())
    True
    """
    time = time_dim(data, "attention")
    c = data["attention"].transpose(..., time, "seq_class", "token")
    if classes is None:
        if local:
            raise InputError("local", local, "given together with classes")
        used = (c.isel({time: 0}).values > 0).reshape(-1, c.sizes["seq_class"], c.sizes["token"]).any(0)
        distinct = used & (used.sum(0) == 1)
    else:
        check_classes(data, classes)
        used, distinct = np.zeros((2, classes.n_classes, classes.vocab_size), dtype=bool)
        for n in range(classes.n_classes):
            used[n, classes.support(n)[0]] = True
            distinct[n, classes.distinct(n, local)] = True
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.log(_sum(c.values, kind)) for kind in (distinct, used & ~distinct)]
        odds = parts[0] - parts[1]
        odds -= odds[..., :1, :]
    odds[..., ~(distinct.any(-1) & (used & ~distinct).any(-1))] = np.nan
    return (
        c.isel(token=0, drop=True)
        .copy(data=odds)
        .rename("log_odds")
        .assign_attrs(long_name="log-odds of attention on distinct against common tokens, less the first")
    )


def log_growth(s: np.ndarray) -> np.ndarray:
    """ln(χ − 1) with χ = e^{2S}, which is followed in t; −∞ for S = 0, without overflow."""
    return np.asarray(2 * s + np.log(-np.expm1(-2 * s)))


def _sum(attention: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Attention on a mask (seq_class, token), without a copy of the attention."""
    return np.einsum("...nl,nl->...n", attention, mask.astype(attention.dtype))
