"""The drift of finite sequences (**ours**): the mean difference between SGD at length T and the same SGD as T → ∞.

Runs at length T and at T = ∞ that draw the same classes differ by the sampling of their contexts alone. The mean of
that difference over seeds, D, is compared with the contribution P of the drift of order 1/T
(`scansnap.theory.drift.SampledFlow`) to expected steps, computed with and without it. The measure is their
distance ‖D − P‖/‖P‖ over all tokens and recorded times, each in units of its noise (the standard deviation over
separate seeds; rare tokens move little and have little noise). The noise of D does not contribute: ‖D − P‖² is the
mean of (D_i − P)·(D_j − P) over pairs of different seeds, with a jackknife interval. The slope of D on P is reported,
1 where size and sign are right.

The second claim is about the sign of z itself at the end: T → ∞ steps and drift together predict which tokens rise.

Neglected are 1/T² (a few hundredths where sequences are long) and the effect of noise in the tables, of relative order
η_Y/batch. The claim makes its own runs, plain SGD at the rates of the evidence: seeds of other runs do not share their
classes, and the noise of the classes would exceed the drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from scansnap.claims.assumptions import Assumption
from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.classes import SequenceClasses
from scansnap.measure.comparison import LEVEL, sure_signs
from scansnap.theory.drift import SampledFlow

STATEMENT = Statement(
    "finite-drift", "Finite-T drift (ours)",
    "SGD at length T differs from its T → ∞ limit, in the mean, by the drift of order 1/T of its sampled contexts",
    kind="ours",
)  # fmt: skip
FATES = Statement(
    "finite-fates", "Fates at finite T (ours)",
    "each token rises or falls as its T → ∞ limit and the drift together predict; rare distinct tokens may fall",
    kind="ours",
)  # fmt: skip
STATEMENTS = (STATEMENT, FATES)

TOLERANCE = 0.1  # on the slope: 1/T² contributes some (1/‖P‖² − 1)/T, at most a few times 0.01 for long sequences
_ASSUMED = ("long sequences", "eta_y below 1")
_BATCH, _SEEDS, _ROUNDS = 128, 16, 8
_ENOUGH = TOLERANCE**2 / 3  # rounds end when the squared distance is known this well, or to a quarter
_LAST, _STEPS = 2.0, 1000  # in t₀, and steps at most: later the noise grows, the drift does not
_RECORDS = 8
_LARGEST = 10**6  # entries of Y by class: seconds for a thousand steps

SimulatePairs = Callable[..., Array]
Predict = Callable[..., tuple[Array, Array]]


def simulate_pairs(
    classes: SequenceClasses, *, eta_y: float, eta_z: float, context: float, record: list[int], seeds: range
) -> Array:
    """z at length T less z at T = ∞ of runs with the same classes, (R, n, Q, M)."""
    from scansnap.dynamics.simulate import simulate
    from scansnap.runs import grid

    runs = grid(eta_y=eta_y, eta_z=eta_z, seed=seeds)
    finite, limit = (
        simulate(classes, runs, context=length, steps=record[-1], batch_size=_BATCH, dtype="float64", device="cpu",
                 record=record, variables=("z",))["z"].values
        for length in (int(context), math.inf)
    )  # fmt: skip
    return np.asarray(finite - limit)


def predict_drift(
    classes: SequenceClasses, *, eta_y: float, eta_z: float, context: float, record: list[int]
) -> tuple[Array, Array]:
    """z of expected steps as T → ∞, and the contribution of the drift, each (n, Q, M)."""
    field = SampledFlow(classes, eta_y, eta_z)
    paths = []
    for with_drift in (True, False):
        y, z, path = np.zeros(field.y_shape), np.zeros(field.z_shape), []
        for step in range(record[-1]):
            move = field.flow(y, z)
            more = field.drift(y, z, context=context) if with_drift else None
            y, z = y + move.y + (more.y if more else 0), z + move.z + (more.z if more else 0)
            if step + 1 in record:
                path.append(z)
        paths.append(np.array(path))
    return paths[1], paths[0] - paths[1]


def check(
    evidence: Evidence, *, runs: SimulatePairs = simulate_pairs, predict: Predict = predict_drift, seed: int = 0
) -> list[Claim]:  # fmt: skip
    """At the length and rates of an SGD run, to 2 t₀ or its end. ``runs``, ``predict`` replace the functions above."""
    assumptions = evidence.select_assumptions(*_ASSUMED)
    last = int(min(evidence.t[-1], _LAST * evidence.t_snap, _STEPS))
    if reason := _reason_not_applicable(evidence, last):
        return [statement.not_applicable(reason, assumptions) for statement in STATEMENTS]
    record = np.unique(np.linspace(0, last, _RECORDS + 1).astype(int))[1:].tolist()
    setting = {"eta_y": evidence.eta_y, "eta_z": evidence.eta_z, "context": evidence.context, "record": record}
    limit, p = predict(evidence.classes, **setting)
    if not np.abs(p).max() > 0:
        reason = "no drift is predicted: every context is a single token"
        return [statement.not_applicable(reason, assumptions) for statement in STATEMENTS]
    noise = np.sqrt(runs(evidence.classes, **setting, seeds=range(seed, seed + _SEEDS)).var(0, ddof=1))
    noise[noise == 0] = 1.0  # where nothing moves; nowhere, if the contexts are not sampled
    unit = math.sqrt(((p / noise) ** 2).sum())
    measured = np.empty((0, *p.shape))
    square, half = math.nan, math.nan
    for start in range(seed + _SEEDS, seed + (1 + _ROUNDS) * _SEEDS, _SEEDS):
        measured = np.concatenate([measured, runs(evidence.classes, **setting, seeds=range(start, start + _SEEDS))])
        square, error = _distance(((measured - p) / noise / unit).reshape(len(measured), -1))
        half = float(stats.t.isf(LEVEL / 2, len(measured) - 1) * error)
        if not half > max(_ENOUGH, square / 4):
            break
    low, off, high = (math.sqrt(max(value, 0.0)) for value in (square - half, square, square + half))
    mean = measured.mean(0)
    slope = float((mean * p / noise**2).sum()) / unit**2
    row, token = np.unravel_index(int(np.argmax(np.abs(p[-1]))), p.shape[1:])
    name = f"token {token} of query {evidence.classes.queries[row]}"
    where = f"t ≤ {last} ({last / evidence.t_snap:.3g} t₀), T = {evidence.context:g}, {len(measured)} seeds"
    size = STATEMENT.judge(
        quantity=f"slope of the mean deviation of z from T = ∞ on the predicted one, all tokens, {where}; "
        "the verdict is about their distance",
        measured=slope, predicted=1.0, deviation=off, tolerance=TOLERANCE, assumptions=assumptions,
        failure=f"{name} is off by {mean[-1, row, token]:.3g} instead of {p[-1, row, token]:.3g} at t = {last}",
        curve=Curve(
            "t", f"z − z(T = ∞) of {name}", np.array(record, dtype=float), mean[:, row, token], p[:, row, token],
            log_x=False,
        ),
        interval=(low, high),
        remedy=f"more seeds would decide: the distance is between {low:.2g} and {high:.2g}",
    )  # fmt: skip
    return [size, _fates(evidence, assumptions, where, limit[-1] + measured[:, -1], (limit + p)[-1])]


def _reason_not_applicable(evidence: Evidence, last: int) -> str:
    classes = evidence.classes
    if math.isinf(evidence.context):
        return "T = ∞ has no drift; a finite length is needed (--finite-T)"
    size = int(classes.support_sizes.max()) * classes.n_classes * (classes.n_classes + 1)
    if size > _LARGEST:
        return f"{classes.n_classes} classes are too many to follow step by step"
    if not evidence.assumptions["eta_y below 1"].met:  # expected steps do not predict such large ones
        return f"η_Y = {evidence.eta_y:.3g} is not below 1: the claim makes no runs"
    return "" if last else "the run has no steps"


def _fates(evidence: Evidence, assumptions: list[Assumption], where: str, moved: Array, predicted: Array) -> Claim:
    """Signs of z at the end: ``moved`` (R, Q, M) by seed, with the noise of the classes taken out; predicted (Q, M)."""
    rows, tokens = np.nonzero(predicted)
    along = moved[:, rows, tokens] * np.sign(predicted[rows, tokens])  # (R, p), positive where it agrees
    known = sure_signs(along) if np.isfinite(along).all() else None
    own = np.isin(tokens, [token for n in evidence.classes_with_distinct for token in evidence.classes.distinct(n)])
    falls = int((predicted[rows, tokens][own] < 0).sum())
    worst = int(np.argmin(along.mean(0)))
    n_open = 0 if known is None else int((~(known[0] | known[1])).sum())
    return FATES.judge_cases(
        along.mean(0) > 0,
        quantity=f"share of tokens that move as predicted, {falls} of {int(own.sum())} distinct ones falling, {where}",
        failure=f"token {tokens[worst]} of query {evidence.classes.queries[rows[worst]]} moved by "
        f"{moved[:, rows[worst], tokens[worst]].mean():.3g} instead of {predicted[rows[worst], tokens[worst]]:.3g}",
        assumptions=assumptions, known=known,
        remedy=f"the seeds leave the sign of {n_open} of {len(tokens)} tokens open; more would decide",
        curve=Curve(
            "predicted z", "z at the end, mean over seeds", predicted[rows, tokens], moved.mean(0)[rows, tokens],
            predicted[rows, tokens], log_x=False,
        ),
    )  # fmt: skip


def _distance(off: Array) -> tuple[float, float]:
    """The squared length of the mean of ``off`` (R, n) without its noise, and its jackknife error."""
    n_runs = len(off)
    total, each = off.sum(0), (off**2).sum(1)
    all_pairs, own = float(total @ total), float(each.sum())
    square = (all_pairs - own) / (n_runs * (n_runs - 1))
    # without run i: ‖Σ − o_i‖² − Σ_j≠i ‖o_j‖²
    left = (all_pairs - 2 * off @ total + each - (own - each)) / ((n_runs - 1) * (n_runs - 2))
    return square, float(np.sqrt((n_runs - 1) / n_runs * ((left - left.mean()) ** 2).sum()))
