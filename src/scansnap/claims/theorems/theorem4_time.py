"""Theorem 4: when attention changes from scanning to snapping, about t₀ = 2K ln M/η_Y."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.theorems.theorem4_growth import Prediction, assumptions, predict
from scansnap.claims.time_windows import WINDOW_END
from scansnap.classes import SequenceClasses
from scansnap.measure.snap import snap_time
from scansnap.measure.snap_curves import MIN_TIMES

TIME = Statement(
    "theorem-4-time", "Theorem 4",
    "Attention passes from scanning to snapping when B_n of Eq. 14 does, at about t₀ = 2K ln M/η_Y.",
    alternatives=("memory", "response"),
)  # fmt: skip

# In the theorem the transition lies between t₀′ and t₀, which are a factor of two apart.
TIME_TOLERANCE = math.log(2)

_SUBSTEPS = 4  # between two recorded times


def check(evidence: Evidence) -> Claim:
    """Where attention's mean speed in t is greatest (`scansnap.measure.snap_time`, ``t_fastest``), against
    the same estimator on attention that obeys Eqs. 13 and 14, at the same times.

    The transition time of a smooth curve depends on its definition: if the premise is true, this one gives 0.5 t₀ to
    0.85 t₀, depending on M and C₀. So the same estimator is applied to both, and the multiple of t₀ is reported.
    """
    assumed = assumptions(evidence)
    inside = np.flatnonzero(evidence.t <= WINDOW_END * evidence.t_snap)
    if int((evidence.t[inside] > 0).sum()) < MIN_TIMES:
        return TIME.not_applicable(f"fewer than {MIN_TIMES} recorded times up to {WINDOW_END:g} t₀", assumed)
    if evidence.t[0] != 0:
        return TIME.not_applicable(f"the record begins at t = {evidence.t[0]:.4g}, not at 0", assumed)
    classes_with_distinct = evidence.classes_with_distinct
    predictions = [predict(evidence, n) for n in classes_with_distinct]
    bad = [p.n for p in predictions if not (p.c0 > 0 and math.isfinite(p.c0))]
    if bad or not predictions:
        reason = f"class {bad[0]} has no C₀: its ξ_n begins at 0 or below" if bad else "no class has distinct tokens"
        return TIME.not_applicable(reason, assumed)
    t = evidence.t[inside]
    attention = evidence.attention[None] if evidence.z_seeds is None else evidence.attention_at(evidence.z_seeds)
    snap = _snap(t, attention[:, inside], evidence.classes)
    premised = _snap(t, premised_attention(evidence, predictions, inside)[None], evidence.classes)
    if not math.isfinite(premised.t_fastest):
        return TIME.not_applicable(f"by Eq. 14, {premised.reason.item()}", assumed)
    expected, low, high = float(premised.t_fastest), float(snap.t_snap_low), float(snap.t_snap_high)
    if math.isfinite(snap.t_fastest):
        measured, words = float(snap.t_fastest), f"68% interval {low:.4g} to {high:.4g}"
    elif math.isfinite(high) and high < expected / 2:
        measured, words = high, f"it is earlier than that: {snap.reason.item()}"
    elif low > 2 * expected:
        measured, words = low, f"it is later than that: {snap.reason.item()}"
    else:
        return TIME.not_applicable(str(snap.reason.item()), assumed)
    speed = evidence.measured_growth[inside[1:]][:, classes_with_distinct].mean(-1) / t[1:]
    closed = np.mean([p(t[1:], evidence) for p in predictions], axis=0) / t[1:]
    return TIME.judge(
        quantity=f"when attention's mean speed since t = 0 is greatest, up to {WINDOW_END:g} t₀ ({words}), against "
        f"that by Eq. 14; {measured / evidence.t_snap:.2g} and {expected / evidence.t_snap:.2g} t₀",
        measured=measured,
        predicted=expected,
        deviation=abs(math.log(measured / expected)),
        tolerance=TIME_TOLERANCE,
        assumptions=assumed,
        failure=f"attention's mean speed is greatest at t = {measured:.4g} ({words}), {measured / expected:.2g} times "
        f"what it is by Eq. 14, and {measured / evidence.t_snap:.2g} t₀",
        curve=Curve(
            "t", "mean speed B_n/t over its maximum", t[1:], speed / speed.max(), closed / closed.max(),
            along=lambda path: (
                path.t[1:], path.measured_growth[1:, classes_with_distinct].mean(-1) / path.t[1:] / speed.max()
            ),
        ),
        interval=_interval(snap, expected) if evidence.sampled else None,
        remedy=f"twice the 68% interval of {len(attention)} seeds exceeds the tolerance; more seeds would decide",
    )  # fmt: skip


def _snap(t: Array, attention: Array, classes: SequenceClasses) -> xr.Dataset:
    """The snapping time of the runs (R, n, K, M) together."""
    runs, n_runs = ("run", "t", "seq_class", "token"), len(attention)
    unused = [(0, 0)] * 3 + [(0, classes.vocab_size - attention.shape[-1])]
    attention = np.pad(attention, unused)
    data = xr.Dataset({"attention": (runs, attention)}, coords={"t": t, "seed": ("run", np.arange(n_runs))})
    return snap_time(data, classes).isel(setting=0)


def _interval(snap: xr.Dataset, expected: float) -> tuple[float, float] | None:
    """Of the deviation |ln(measured/expected)|: twice the 68% interval is about 95%."""
    if not math.isfinite(snap.t_fastest):
        return None
    mid, low, high = (math.log(float(snap[name]) / expected) for name in ("t_fastest", "t_snap_low", "t_snap_high"))
    low, high = mid - 2 * (mid - low), mid + 2 * (high - mid)
    return (0.0 if low < 0 < high else min(abs(low), abs(high))), max(abs(low), abs(high))


def premised_attention(evidence: Evidence, predictions: list[Prediction], times: Array) -> Array:
    """(n, K, M) attention that obeys Eqs. 13 and 14 with the measured C₀, at some of the recorded times from 0 on.

    B_n is the closed form; the distinct tokens of a class rise as dz_l = f_l² dB_n (Theorem 2a), its query's common
    ones fall by Σ B_n over the query's classes, in equal parts where there are several. Heun steps along t.
    """
    classes = evidence.classes
    fine = np.interp(np.arange(_SUBSTEPS * (len(times) - 1) + 1) / _SUBSTEPS, np.arange(len(times)), evidence.t[times])
    gained = {p.n: p(fine, evidence) for p in predictions}
    distinct = {n: classes.distinct(n) for n in gained}
    z = np.zeros(evidence.z.shape[1:])  # (Q, M) of the distinct tokens
    falls, fallen = np.zeros_like(z), np.zeros((len(fine), len(z), 1))  # a common token's part, and of how much
    for row in range(len(z)):
        for n in (n for n in gained if evidence.class_query[n] == row):
            falls[row, classes.common_of(n)] = 1
            fallen[:, row, 0] -= gained[n]
    falls /= np.maximum(falls.sum(-1, keepdims=True), 1)

    def rise(z: Array) -> dict[int, Array]:
        """f_l² of each class's distinct tokens."""
        c = evidence.attention_at(z)
        return {n: c[n, ids] ** 2 / (c[n] ** 2).sum() for n, ids in distinct.items()}

    path = [evidence.attention_at(z)]
    for i in range(len(fine) - 1):
        step = {n: b[i + 1] - b[i] for n, b in gained.items()}
        first = rise(z + fallen[i] * falls)
        ahead = z.copy()
        for n, ids in distinct.items():
            ahead[evidence.class_query[n], ids] += step[n] * first[n]
        second = rise(ahead + fallen[i + 1] * falls)
        for n, ids in distinct.items():
            z[evidence.class_query[n], ids] += step[n] * (first[n] + second[n]) / 2
        if (i + 1) % _SUBSTEPS == 0:
            path.append(evidence.attention_at(z + fallen[i + 1] * falls))
    return np.array(path)
