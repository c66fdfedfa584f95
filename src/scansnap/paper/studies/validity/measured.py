"""Errors of the linear response, of the memory equation and of the paper's statements, in many settings.

Most settings form two maps, (η_Y/η_Z, overlap) at M = 2000 and (M, overlap) at η_Y/η_Z = 50. They are in the symmetric
family of :class:`scansnap.claims.regime_map.MapPoint`: K = 2 classes of one query, one common token, 5 distinct tokens
each. Outside of this family the memory has no closed form; there the settings are the paper's own data.

Each prediction becomes evidence on which a claim is judged as on the exact flow. Nothing is fitted:

response    linear response of the flow (:func:`scansnap.dynamics.response.solve.response`), any classes
memory      its closed form in the symmetric family, exact frozen decoder (:mod:`scansnap.theory.memory`)
wrong       the same with η_Z/η_Y three times too large: a control
no_memory   the drive alone: the integrated gradient under frozen attention (:mod:`scansnap.theory.drive`): a control
"""

from __future__ import annotations

import math
import os
from concurrent.futures import as_completed
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

from scansnap import theory
from scansnap.checks.arrays import FloatArray
from scansnap.claims.assumptions import met_level
from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence, from_trajectory
from scansnap.claims.regime_map import MapPoint
from scansnap.claims.theorems import theorem2, theorem3, theorem4_growth
from scansnap.claims.time_windows import TRAINING, TRANSITION, WINDOW_END
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.response.solve import response
from scansnap.interrupt import block_signals_in_children
from scansnap.measure.entropy import attention_of
from scansnap.paper.figure import Effort
from scansnap.processes import killable_pool, single_threaded_children
from scansnap.progress import Progress
from scansnap.theory import t_snap

MOMENTS = (1, 10, 100)  # in t₀
PER_DECADE = 12
_RTOL, _ATOL = 1e-6, 1e-14  # of the integration; z is as small as 1e-7
THEOREMS = ("2a", "3", "4")


def times(t_0: float) -> FloatArray:
    """0, and from t₀/1000 to 100 t₀; MOMENTS are among them."""
    return np.append(0.0, t_0 * 10 ** (np.arange(-3 * PER_DECADE, 2 * PER_DECADE + 1) / PER_DECADE))


def measure(setting: ValiditySetting) -> dict[str, float | str | bool]:
    """A row of the table; everything relative.

    error_t, estimate_t    of the response's z at t: largest over tokens over the largest |z|; and its own estimate
    trusted_until          in t₀
    paper_t                largest error of Theorem 4's B_n from t₀′/10 to t; its C₀ is the claim's, from early times
    2a_…, 3_…, 4_…         deviation of a theorem, measured on the flow, and on what is predicted in its place; the
                           controls only where the theorem's assumptions are met, since only there they apply
    """
    classes, eta_z = setting.classes(), setting.eta_z
    t_0 = float(t_snap(eta_y=ETA_Y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    t = times(t_0)
    at = {moment: int(np.argmin(np.abs(t - moment * t_0))) for moment in MOMENTS}
    exact = flow(classes, ETA_Y, eta_z, t=t, rtol=_RTOL, atol=_ATOL, variables=("z", "attention", "g"))
    linear = response(classes, ETA_Y, eta_z, t, rtol=_RTOL, atol=_ATOL)
    evidence = from_trajectory(exact, classes)
    row: dict[str, float | str | bool] = {
        "part": setting.part, "classes": setting.name, "ratio": setting.ratio, "vocab_size": classes.vocab_size,
        "n_classes": classes.n_classes, "overlap": _overlap(evidence),
        "assumptions_met": met_level(evidence.assumptions.values()) == 2,
        "trusted_until": float(linear.attrs["trusted_until"]) / t_0,
    }  # fmt: skip
    off = np.abs(linear.z.values - evidence.z).max((1, 2))
    size = np.abs(evidence.z).max((1, 2))
    paper_errors = paper_error(evidence)
    for moment, i in at.items():
        row |= {f"error_{moment}": off[i] / size[i], f"estimate_{moment}": float(linear.error[i].max()),
                f"paper_{moment}": float(paper_errors[: i + 1].max())}  # fmt: skip
    row |= deviations(evidence, "measured")
    early = t[t <= WINDOW_END * t_0]  # the end of all claims
    by = {"response": linear.z.values[: len(early)]}
    if setting.point is not None:
        by["memory"] = memory(setting.point, early)
    if setting.point is not None and row["assumptions_met"]:
        by |= {"wrong": memory(setting.point, early, wrong=WRONG), "no_memory": no_memory(setting.point, early)}
    for name, z in by.items():
        row |= deviations(along(classes, ETA_Y, eta_z, early, z), name)
    return row


def deviations(evidence: Evidence, name: str) -> dict[str, float]:
    """What the claims on Theorem 2(a) (rate), Theorem 3 (identity) and Theorem 4 (growth) measure: their worst."""
    with np.errstate(all="ignore"):
        claims = (
            next(claim for claim in theorem2.check(evidence) if claim.name == theorem2.RISE_RATE.name),
            theorem3.check_pairs(evidence, TRAINING.select(evidence)),
            theorem4_growth.check_growth(evidence),
        )
    return {f"{theorem}_{name}": deviation(claim) for theorem, claim in zip(THEOREMS, claims, strict=True)}


def deviation(claim: Claim) -> float:
    """Of a claim, from its margin; NaN where there was nothing to measure."""
    if claim.margin is None or claim.tolerance is None:
        return math.nan
    return (1 - claim.margin) * claim.tolerance


def paper_error(evidence: Evidence) -> FloatArray:
    """(n,) |B_n of Theorem 4/B_n − 1|, the largest over classes; 0 before t₀′/10, where C₀ is taken."""
    error = np.zeros(len(evidence.t))
    late = evidence.t >= TRANSITION.first * evidence.t_scan
    for n in evidence.classes_with_distinct:
        predicted = theorem4_growth.predict(evidence, n)(evidence.t[late], evidence)
        error[late] = np.maximum(error[late], np.abs(predicted / evidence.measured_growth[late, n] - 1))
    return error


def _overlap(evidence: Evidence) -> float:
    """The mean of f_nᵀf_n' at the start, over pairs of classes."""
    pairs_ = ~np.eye(evidence.classes.n_classes, dtype=bool)
    return float(evidence.overlap[0][pairs_].mean())


def swept(effort: Effort, progress: Progress | None = None) -> pd.DataFrame:
    """A row for each setting (:func:`~scansnap.paper.studies.validity.measured.measure`)."""
    todo = settings(QUICK if effort.quick else FULL)
    return effort.compute_once("validity", lambda: sweep(todo, progress))


def sweep(todo: list[ValiditySetting], progress: Progress | None = None, processes: int | None = None) -> pd.DataFrame:
    rows: dict[int, dict[str, float | str | bool]] = {}
    with single_threaded_children(), killable_pool(processes or os.cpu_count() or 1) as pool:
        with block_signals_in_children():
            jobs = {pool.submit(measure, setting): i for i, setting in enumerate(todo)}
        for done, job in enumerate(as_completed(jobs), start=1):
            rows[jobs[job]] = job.result()
            if progress is not None:
                progress(done, len(todo))
    return pd.DataFrame([rows[i] for i in range(len(todo))])


AXES = {"ratio": (1.0, 1000.0), "vocab_size": (20.0, 10_000.0)}  # the horizontal side of each map, in logarithms
OVERLAP = (0.01, 0.9)
GENERAL = "general"
ETA_Y = MapPoint().eta_y
_PRESETS: tuple[tuple[str, dict[str, int]], ...] = (
    ("syn-small", {}), ("syn-medium", {"n_queries": 1}), ("syn-medium", {"n_queries": 3}),
)  # fmt: skip


@dataclass(frozen=True)
class MapSize:
    """How many settings."""

    across: dict[str, int]  # points along each of AXES
    up: int  # along the overlap
    ratios: tuple[float, ...]  # η_Y/η_Z of the settings outside the family


FULL = MapSize({"ratio": 11, "vocab_size": 8}, 12, (10.0, 30.0, 100.0, 300.0, 1000.0))
QUICK = MapSize({"ratio": 4, "vocab_size": 3}, 3, (100.0,))


@dataclass(frozen=True)
class ValiditySetting:
    """One setting: a point of a map, or a preset."""

    part: str  # of AXES, or GENERAL
    ratio: float  # η_Y/η_Z
    point: MapPoint | None = None  # in the symmetric family
    preset: str = ""
    options: tuple[tuple[str, int], ...] = ()

    def classes(self) -> SequenceClasses:
        if self.point is not None:
            return self.point.classes()
        return SequenceClasses.preset(self.preset, **dict(self.options))

    @property
    def eta_z(self) -> float:
        return ETA_Y / self.ratio

    @property
    def name(self) -> str:
        """Of the family, or of the preset with its options."""
        return "symmetric" if self.point is not None else " ".join([self.preset, *(f"{v}" for _, v in self.options)])


def settings(size: MapSize) -> list[ValiditySetting]:
    """All of them. Where the classes have more tokens than M there is no setting (the maps begin above that)."""
    result = []
    for name, across in size.across.items():
        for overlap in np.linspace(*OVERLAP, size.up):
            for value in values(name, across):
                point = replace(MapPoint(overlap=float(overlap)), **{name: value})  # type: ignore[arg-type]
                result.append(ValiditySetting(name, point.ratio, point))
    for preset, options in _PRESETS:
        result += [ValiditySetting(GENERAL, ratio, None, preset, tuple(options.items())) for ratio in size.ratios]
    return result


def values(name: str, n: int) -> list[float] | list[int]:
    """Along the horizontal side of a map."""
    points: FloatArray = np.geomspace(*AXES[name], n)
    return [round(value) for value in points.tolist()] if name == "vocab_size" else points.tolist()


WRONG = 3.0  # times η_Z/η_Y


def memory(point: MapPoint, t: FloatArray, *, wrong: float = 1.0) -> FloatArray:
    """(n, 1, M) z by the memory equation with v̄; ``wrong`` is a factor on η_Z/η_Y."""
    f = _distinct(point)
    k, m, eta_y = point.n_classes, point.vocab_size, point.eta_y
    x = theory.frozen_decoder(t, eta_y=eta_y, n_classes=k, vocab_size=m, overlap=point.overlap).x
    prediction = theory.memory_tokens(
        x, eta_y=eta_y, eta_z=wrong * eta_y / point.ratio, n_classes=k, vocab_size=m, f_distinct=f, form="exact"
    )
    return _spread(point, prediction.z)


def no_memory(point: MapPoint, t: FloatArray) -> FloatArray:
    """(n, 1, M) z of the drive alone: f_l² B of a distinct token, −K(1 − ρ)B of the common one."""
    growth = theory.growth_drive(
        t, eta_y=point.eta_y, eta_z=point.eta_y / point.ratio, n_classes=point.n_classes, vocab_size=point.vocab_size,
        overlap=point.overlap, form="exact",
    )  # fmt: skip
    share = np.append(_distinct(point) ** 2, -point.n_classes * (1 - point.overlap))
    return _spread(point, np.asarray(growth)[:, None] * share)


@np.errstate(all="ignore")  # a response beyond its range is judged as it is: no claim holds on what is not a number
def along(classes: SequenceClasses, eta_y: float, eta_z: float, t: FloatArray, z: FloatArray) -> Evidence:
    """The evidence of a path z (n, Q, M) from 0 at t[0] = 0: attention by its definition, ż by a spline over ln t.

    Of g only what a claim on distinct tokens sees is known: g_l = ż_l/(η_Z p_n f_l) there, and on common tokens any g
    that leaves fᵀg = 0, which makes γι_n − f_nᵀg_n of it the ξ_n = Σ ż_l/(η_Z p_n Σ f_l²) of the distinct tokens.
    """
    rate = np.zeros_like(z)
    moves = z.any((0, 1))  # of M tokens, a few
    rate[1:, :, moves] = CubicSpline(np.log(t[1:]), z[1:, :, moves])(np.log(t[1:]), 1) / t[1:, None, None]
    row = np.searchsorted(classes.queries, classes.query)
    p = classes.p_context
    c = attention_of(p, z[:, row])
    f = c / np.linalg.norm(c, axis=-1, keepdims=True)
    g = np.zeros_like(f)
    for n in range(classes.n_classes):
        distinct, common = classes.distinct(n), classes.common_of(n)
        g[:, n, distinct] = rate[:, row[n]][:, distinct] / (eta_z * classes.p_class[n] * f[:, n, distinct])
        owed = (f[:, n] * g[:, n]).sum(-1, keepdims=True) / (f[:, n, common] ** 2).sum(-1, keepdims=True)
        g[:, n, common] = -owed * f[:, n, common]
    return Evidence(classes, eta_y, eta_z, "flow", math.inf, t, z, c, g, None)


def _distinct(point: MapPoint) -> FloatArray:
    """f_l of the distinct tokens of a class at the start; the same in every class."""
    classes = point.classes()
    p = classes.p_context[0]
    return np.asarray(p[classes.distinct(0)] / np.linalg.norm(p))


def _spread(point: MapPoint, z: FloatArray) -> FloatArray:
    """(n, 1, M) from those of a class's distinct tokens and, last, of the common one."""
    classes = point.classes()
    full = np.zeros((len(z), 1, classes.vocab_size))
    for n in range(classes.n_classes):
        full[:, 0, classes.distinct(n)] = z[:, :-1]
    full[:, 0, classes.common[0]] = z[:, -1]
    return full
