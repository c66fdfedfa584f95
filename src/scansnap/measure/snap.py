"""When did attention freeze: the snapping time, measured on a trajectory.

What is followed is how far attention has gone from common to distinct tokens. For class n, with D_n the attention
on its distinct tokens and C_n that on its common ones,

    S_n(t) = ln[D_n(t)/C_n(t)] − ln[D_n(0)/C_n(0)]         :func:`log_odds`
    χ(t) = e^{2S(t)}                                        S: mean over classes (and seeds)

χ is the growth factor e^{2Δz} of Theorem 3 for this odds ratio instead of a single token. While attention scans,
χ − 1 grows like t² (all of Γ = η_Z∫γ does, and γ ∝ t); after snapping Γ ∝ ln² t, so χ − 1 grows more slowly than
any power of t. The snapping time is where it passes from faster than linear to slower than linear,

    d ln(χ − 1)/d ln t = 1   ⇔   (χ − 1)/t is largest      :func:`snap_time`

that is, where attention's mean speed since the start is greatest. No derivative is taken of a noisy curve, and
the answer does not depend on how far the record goes on. (The knee of S against ln t does: for η_Y ≫ η_Z, S goes
on as ln² t, and a fitted hinge moves with the end of the record. The peak of the speed dS/dt scales as well in
smooth flows, but marks t₀′ and is lost in the noise first.)

What to expect. With attention held fixed and orthonormal classes, Γ ∝ u² with u = M h of Theorem 1, and the
maximum lies at η_Y t/K = (e^u − 1 + (M − 1)u)/M where e^u (u − 2) = (M − 1)u − 2. That is between t₀′ and t₀ of
Theorem 4, K ln M/η_Y and 2K ln M/η_Y, for M ≥ 14 (1.66 t₀′ at M = 34, 1.25 t₀′ at M = 1000). Measured on exact
runs, it moves with

* overlap: with equal cosines ρ between the f_n of one query, β grows with the gap and S follows not u² but
  u(e^{ρu} − 1) − ρu²/2 (leading order in 1/M, η_Y ≫ η_Z). That makes it later by a share of 2ρ for small ρ, to
  which exact flows agree (to 0.4% up to ρ = 0.24). It is not the smaller rate (1 − ρ)η_Y, half of that. Syn-Small
  (ρ = 0.72) reads 5.6 t₀′ in the flow, the Syn-Medium sets 4.0 to 5.7 t₀′.
* η_Y/η_Z: it scales like 1/η_Y at a fixed ratio, and nearly so at fixed η_Z while η_Y ≫ η_Z (2% off in Syn-Small
  and 24% in Syn-Medium(10) from a ratio of 500 down to 5). At η_Y = η_Z attention takes the overlap away before
  it freezes, and the time is 25% to 50% shorter.
* sampling: finite contexts make it later, in Syn-Small by 3% at T = 1024 and by 24% at T = 128.
* momentum: μ acts as both rates divided by 1 − μ, plus a delay of 3 or 4 times 1/(1 − μ) steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError, real, whole
from scansnap.classes import SequenceClasses
from scansnap.measure.fates import check_classes, time_dim

_LEAST_TIMES = 8  # recorded times after 0 without which there is no curve to speak of
_MOST_TIMES = 400  # more are averaged into this many, evenly in ln t
_WINDOW = 0.5  # half-width of the smoothing window in ln t …
_NEIGHBOURS = 7  # … or as far as the seventh-nearest recorded time where they are sparse
_GRID = 0.02  # where the smooth curve is read, in ln t
_SIGNAL = 5.0  # the movement counts where it is this many times its own uncertainty
_BEFORE = 3  # recorded times after 0 that must lie before the answer
_AGREE = 0.9  # share of the resampled curves that must turn over inside the record

_LABELS = ("run", "seed", "status", "failed_step")  # coordinates along run that are not settings


def log_odds(data: xr.Dataset, classes: SequenceClasses | None = None, *, local: bool = False) -> xr.DataArray:
    """S_n(t): the log-odds of attention on distinct against common tokens, less their first recorded value.

    Dims (run,) step or t, class. Without ``classes`` the contexts are read off the attention at the first recorded
    time, which is above 0 exactly on them (then ``local`` needs classes too). NaN for classes without distinct or
    without common tokens, and −∞ or +∞ where attention on one of them is too small for its floating-point type.
    """
    time = time_dim(data, "attention")
    c = data["attention"].transpose(..., time, "class", "token")
    if classes is None:
        if local:
            raise InputError("local", local, "given together with classes")
        used = (c.isel({time: 0}).values > 0).reshape(-1, c.sizes["class"], c.sizes["token"]).any(0)
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
    """The time at which attention froze, with its uncertainty: where (χ − 1)/t^exponent is largest (see above).

    data       a trajectory with attention along ``step`` or ``t``, with or without ``run``; at least 8 recorded
               times after 0, best spaced evenly in ln t, from t = 0 to several times the answer
    classes    the classes of the trajectory; None reads distinct and common tokens off the attention
    exponent   the power of t that χ − 1 must outgrow to count as scanning, between 0 and 2. Smaller is later: 0.5
               reads 1.5 to 7 times the time that 1 does, the longer for smaller M
    pool       runs that differ only in their seed are one measurement: S is averaged over them, and the result
               has the dimension ``setting`` instead of ``run``. False measures each run for itself
    per_class  follow every class for itself (dimension ``class``) instead of the mean of S over classes
    local      as in :func:`log_odds`
    resamples  number of resampled curves behind the uncertainty, drawn with ``seed``

    Variables: ``t_snap`` and its 68% interval ``t_snap_low``, ``t_snap_high``, in the units of the time
    dimension; ``found``; ``reason``. Where ``found`` is False, ``reason`` says why, ``t_snap`` is NaN and the
    interval is what is known: (last time, ∞) if attention had not frozen, (0, third time) if it was slowing
    down from the start, (0, ∞) if nothing can be said. Runs that became non-finite are left out, as they stand
    still for another reason.

    Smoothing: a local parabola in ln t over ±0.5 (or the 7 nearest recorded times). The uncertainty is
    resampled over the seeds where there are several, and then covers all that differs between them (data,
    initial values). For a single run it comes from its own noise, whose increments from one recorded time to the
    next get random signs. That is right for noise that adds up step by step. Seeds can differ by more, since
    noise in Y bends whole curves smoothly: by up to 3 such intervals at batch size 128, up to 10 at batch size 8,
    and up to 20 from random initial values. Added in quadrature: the shift when the window is half as wide again,
    which is all there is for a smooth flow. Attention is followed from where it has moved by 5 times its own
    uncertainty. Limits: constant rates; a time of few steps is only interpolated between these.
    """
    exponent = real("exponent", exponent, above=0, below=2)
    resamples = whole("resamples", resamples, least=50)
    seed = whole("seed", seed)
    time = time_dim(data, "attention")
    times = data[time].values.astype(np.float64)
    if (n_times := int((times > 0).sum())) < _LEAST_TIMES:
        raise InputError(f"the number of recorded values of {time} above 0", n_times, f"at least {_LEAST_TIMES}")
    odds = log_odds(data, classes, local=local).transpose("run", ..., "class", time, missing_dims="ignore")
    odds = odds if "run" in odds.dims else odds.expand_dims("run")  # (run, …, class, time)
    extra = [dim for dim in odds.dims if dim not in ("run", "class", time)]
    if extra:
        raise InputError("attention", f"along {extra[0]}", f"along run, {time}, class and token only: select one")
    eps = float(np.finfo(odds.dtype).eps)
    values = odds.values[:, :, times > 0].astype(np.float64)  # (run, class, time)
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
                found.append(_Snap.unknown("every run became non-finite"))
            elif not (chosen & usable).any():
                found.append(_Snap.unknown("no class has both distinct and common tokens"))
            else:
                mean = curves[:, chosen & usable].mean(1)
                found.append(_measure(times, mean, exponent, resamples, eps, rng))
    dims = {"setting" if pool else "run": len(groups)} if "run" in data.dims else {}
    if per_class:
        dims["class"] = values.shape[1]
        coords["class"] = odds["class"].variable if "class" in odds.coords else np.arange(values.shape[1])
    fields: dict[str, tuple[Any, str]] = {
        "t_snap": (float, f"measured snapping time ({time})"),
        "t_snap_low": (float, "lower end of its 68% interval"),
        "t_snap_high": (float, "upper end of its 68% interval"),
        "found": (bool, "whether attention froze within the record"),
        "reason": (object, "why not, where it was not found"),
    }
    variables = {
        name: (tuple(dims), np.array([getattr(one, name) for one in found], kind).reshape(tuple(dims.values())),
               {"long_name": meaning})
        for name, (kind, meaning) in fields.items()
    }  # fmt: skip
    return xr.Dataset(variables, coords=coords, attrs={"exponent": exponent, "time": time})


@dataclass(frozen=True)
class _Snap:
    """One measured snapping time."""

    t_snap: float
    t_snap_low: float
    t_snap_high: float
    reason: str = ""

    @property
    def found(self) -> bool:
        return not self.reason

    @classmethod
    def unknown(cls, reason: str, low: float = 0.0, high: float = np.inf) -> _Snap:
        return cls(np.nan, low, high, reason)


def _measure(
    times: np.ndarray, curves: np.ndarray, exponent: float, resamples: int, eps: float, rng: np.random.Generator
) -> _Snap:
    """The snapping time of curves S (run, time) of one setting."""
    finite = np.isfinite(curves).all(0)
    n_finite = len(finite) if finite.all() else int(np.argmin(finite))  # what comes after an underflow is lost
    if n_finite < _LEAST_TIMES:
        return _Snap.unknown("attention is too small for its floating-point type")
    x, curves = _thinned(np.log(times[:n_finite]), curves[:, :n_finite])
    grid = np.linspace(x[0], x[-1], max(50, int(np.ceil((x[-1] - x[0]) / _GRID)) + 1))
    smooth = _smoother(x, grid, 1.0)
    mean = curves.mean(0)
    curve = smooth @ mean
    samples = _resampled(x, curves, resamples, rng) @ smooth.T  # (resample, grid)
    # Early on, noise divided by t can be anything: look only from where the movement stands out.
    strength = curve / np.maximum(samples.std(0), 100 * eps / _SIGNAL)
    top = int(np.argmax(strength))
    if strength[top] < _SIGNAL:
        return _Snap.unknown("attention did not move from common to distinct tokens by more than its noise")
    unclear = np.flatnonzero(strength[:top] < _SIGNAL)
    first = min(int(unclear[-1]) + 1 if len(unclear) else 0, len(grid) - 3)
    peak = float(_peak(grid[first:], curve[first:], exponent))
    peaks = _peak(grid[first:], samples[:, first:], exponent)
    edge = max(x[_BEFORE - 1], grid[first])  # a maximum up to here cannot be told from noise or a steady decline
    if peak == np.inf or np.mean(peaks == np.inf) > 1 - _AGREE:
        return _Snap.unknown("attention had not frozen by the end of the record", low=float(np.exp(x[-1])))
    if peak <= edge or np.mean(peaks <= edge) > 1 - _AGREE:
        since = "where it stands out of its noise" if edge > x[_BEFORE - 1] else "the first recorded times"
        return _Snap.unknown(f"attention slows down from {since} on", high=float(np.exp(edge)))
    low, high = np.clip(np.quantile(peaks, (0.16, 0.84), method="nearest"), grid[0], grid[-1]) - peak
    wide = float(_peak(grid[first:], (_smoother(x, grid, 1.5) @ mean)[first:], exponent))
    shift = wide - peak if np.isfinite(wide) else _WINDOW
    reach = np.array([-np.hypot(min(low, 0), shift), np.hypot(max(high, 0), shift)])
    t_low, t_high = np.exp(peak + reach)
    return _Snap(float(np.exp(peak)), float(t_low), float(t_high))


def _peak(grid: np.ndarray, curves: np.ndarray, exponent: float) -> np.ndarray:
    """ln t where (e^{2S} − 1)/t^exponent is largest, for S along the last axis; ∓∞ at the ends of the record."""
    with np.errstate(divide="ignore"):
        height = 2 * curves + np.log(-np.expm1(-2 * np.maximum(curves, 0))) - exponent * grid  # −∞ for S ≤ 0
    top = height.argmax(-1)
    inner = np.clip(top, 1, len(grid) - 2)
    with np.errstate(invalid="ignore"):
        left, mid, right = (np.take_along_axis(height, (inner + d)[..., None], -1)[..., 0] for d in (-1, 0, 1))
        bend = left - 2 * mid + right
        bent = np.isfinite(bend) & (bend < 0)
        offset = np.where(bent, (left - right) / np.where(bent, 2 * bend, 1.0), 0.0)
    peak = grid[inner] + np.clip(offset, -1, 1) * (grid[1] - grid[0])
    return np.where(top == 0, -np.inf, np.where(top == len(grid) - 1, np.inf, peak))


def _smoother(x: np.ndarray, at: np.ndarray, width: float) -> np.ndarray:
    """(at, x): the linear map from values at x to local parabolas at ``at`` (tricube weights)."""
    offset = x - at[:, None]
    reach = np.sort(abs(offset), axis=1)[:, min(_NEIGHBOURS, len(x)) - 1] * 1.001
    h = np.maximum(_WINDOW, reach)[:, None] * width
    weight = np.clip(1 - abs(offset / h) ** 3, 0, None) ** 3
    basis = np.stack([np.ones_like(offset), offset / h, (offset / h) ** 2])  # (3, at, x)
    normal = np.einsum("iax,ax,jax->aij", basis, weight, basis)
    first = np.linalg.solve(normal, np.broadcast_to(np.eye(3)[:, :1], (len(at), 3, 1)))[..., 0]
    return np.einsum("ai,iax,ax->ax", first, basis, weight)


def _resampled(x: np.ndarray, curves: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Curves (resample, time) as they might have come out: other seeds, or for a single run other noise."""
    n_runs = len(curves)
    if n_runs > 1:
        weights = rng.multinomial(n_runs, np.full(n_runs, 1 / n_runs), size=resamples) / n_runs
        # resampled means spread less than those of fresh seeds would
        return curves.mean(0) + (weights - 1 / n_runs) @ curves * np.sqrt(n_runs / (n_runs - 1))
    curve = curves[0]
    to_records = _smoother(x, x, 1.0)
    smooth = to_records @ curve
    # Logits sum up the noise of all steps, so it is its increments that are independent of each other. The
    # parabola follows part of the noise: what is left is scaled back up by the leverage.
    left = (curve - smooth) / np.sqrt(1 - np.clip(np.diag(to_records), 0, 0.9))
    signs = rng.choice([-1.0, 1.0], size=(resamples, len(x)))
    return smooth + np.cumsum(np.diff(left, prepend=0.0) * signs, axis=1)


def _thinned(x: np.ndarray, curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most so many times, evenly in ln t: the means of what lies between."""
    if len(x) <= _MOST_TIMES:
        return x, curves
    cell = np.minimum(((x - x[0]) / (x[-1] - x[0]) * _MOST_TIMES).astype(int), _MOST_TIMES - 1)
    start = np.flatnonzero(np.diff(cell, prepend=-1))
    n_in = np.diff(np.append(start, len(x)))
    return np.add.reduceat(x, start) / n_in, np.add.reduceat(curves, start, axis=1) / n_in


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


def _sum(attention: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Attention on a mask (class, token), without a copy of the attention."""
    return np.einsum("...nl,nl->...n", attention, mask.astype(attention.dtype))
