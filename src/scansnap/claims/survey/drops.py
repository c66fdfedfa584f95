"""One drop of the loss or several: merged against separate query and key weights.

Source (Zhang et al. 2025, as we read the abstract): multi-head linear attention is trained on in-context linear
regression. With key and query merged into one matrix the loss has a single, abrupt drop; with separate ones it has
saddle-to-saddle dynamics, in which the model learns one principal component of the inputs after the other.

**Linear attention**, the source's setting with contexts of infinite length: inputs of covariance Λ, weights of the
task from N(0, 1), heads h with values v_h,

    prediction = x_qᵀ Σ_h v_h W_h Λ w,   W_h merged, or k_h q_hᵀ;   loss = ½ tr[Rᵀ Λ R],   R = I − Σ_h v_h W_h Λ

four components of variance 4, 3, 2, 1, four heads, normal initial weights of size 0.01, exact flow. **Softmax
attention** with a fixed head: the problem of `scansnap.claims.survey.separators` (5 contexts of 4 random tokens in R⁶),
W from 0, factors from 0.001.

The measure is the number of drops. A drop is a maximum of −dL/dt that stands out from the minima on both sides by a
factor of 2 or more, and with which at least 2% of the whole fall happens. *Single* is 1, and *several* at least 2 (the
source: one for each component). Each seed draws the initial weights, and for softmax attention the data."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.signal import find_peaks
from scipy.special import softmax

from scansnap.checks.arrays import FloatArray
from scansnap.claims.survey.separators import SeparatorProblem, draw_factors, factors, merged
from scansnap.claims.survey.statement import (
    Citation,
    SurveyCheck,
    SurveyClaim,
    SurveyEffort,
    SurveyStatement,
    integrate_in_log_time,
    survey_statement,
)

ZHANG = Citation(
    "Zhang, Singh, Latham and Saxe 2025", "Training Dynamics of In-Context Learning in Linear Attention", "2501.16265",
    "abstract",
)  # fmt: skip
VARIANCES = (4.0, 3.0, 2.0, 1.0)
STANDS_OUT, LEAST_FALL = 2.0, 0.02

_ONE, _SEVERAL = (
    "with merged key and query the loss drops once",
    "with separate key and query the loss drops several times",
)
_LINEAR = "linear attention, 4 heads, in-context regression with 4 components, infinite contexts, flow from 0.01"
_SOFTMAX = "softmax, fixed head, no norm, 5 contexts of 4 random tokens in R⁶, flow to 10⁸"
MERGED = survey_statement("drops-merged", _ONE, source=ZHANG, setting=_LINEAR)
SEPARATE = survey_statement("drops-separate", _SEVERAL, source=ZHANG, setting=_LINEAR)
MERGED_SOFTMAX = survey_statement("drops-merged-softmax", _ONE, source=ZHANG, setting=_SOFTMAX)
SEPARATE_SOFTMAX = survey_statement("drops-separate-softmax", _SEVERAL, source=ZHANG, setting=_SOFTMAX)


def count_drops(t: FloatArray, loss: FloatArray) -> int:
    """The drops of a loss along its flow."""
    rate = -np.diff(loss) / np.diff(t)
    height = np.log(np.maximum(rate, 1e-9 * rate.max()))
    around = np.concatenate([[height.min() - 1], height, [height.min() - 1]])  # a maximum at an end counts
    peaks = find_peaks(around, prominence=np.log(STANDS_OUT))[0] - 1
    valleys = [int(a + height[a:b].argmin()) for a, b in pairwise(peaks)]
    falls = -np.diff(loss[[0, *valleys, len(loss) - 1]])
    return int((falls >= LEAST_FALL * (loss[0] - loss[-1])).sum())


def linear_loss(
    seed: int, *, separate: bool, variances: tuple[float, ...] = VARIANCES
) -> tuple[FloatArray, FloatArray]:
    """Times and loss along the flow of linear attention."""
    d = len(variances)
    cov, identity, rng = np.diag(variances), np.eye(d), np.random.default_rng(seed)
    sizes = (d, d * d, d * d) if separate else (d, d**3)  # v; k and q, or W, of d heads
    times = np.geomspace(1e-2, 1e5, 3000)

    def heads(state: FloatArray) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
        v, *rest = np.split(state, np.cumsum(sizes)[:-1])
        if not separate:
            return v, rest[0].reshape(d, d, d), []
        k, q = (x.reshape(d, d) for x in rest)
        return v, k[:, :, None] * q[:, None, :], [k, q]

    def residual(v: FloatArray, w: FloatArray) -> FloatArray:
        return identity - np.einsum("h,hij->ij", v, w) @ cov

    def rates(state: FloatArray) -> FloatArray:
        v, w, kq = heads(state)
        g = cov @ residual(v, w) @ cov
        dv = np.einsum("ij,hij->h", g, w)
        if not separate:
            return np.concatenate([dv, (v[:, None, None] * g).ravel()])
        k, q = kq
        return np.concatenate([dv, (v[:, None] * (q @ g.T)).ravel(), (v[:, None] * (k @ g)).ravel()])

    path = integrate_in_log_time(rates, 0.01 * rng.normal(size=sum(sizes)), times)
    loss = []
    for state in path:
        r = residual(*heads(state)[:2])
        loss.append(0.5 * np.trace(r.T @ cov @ r))
    return times, np.array(loss)


def softmax_loss(seed: int, *, separate: bool) -> tuple[FloatArray, FloatArray]:
    """Times and loss along the flow of softmax attention with a fixed head."""
    problem, times = draw_factors(seed), np.geomspace(1e-2, 1e8, 1500)
    if not separate:
        return times, _loss_of(problem, merged(problem, times))
    a, b = factors(problem, times, np.random.default_rng(seed + 1000))
    return times, _loss_of(problem, a @ b.transpose(0, 2, 1))


def _loss_of(problem: SeparatorProblem, w: FloatArray) -> FloatArray:
    s = softmax(np.einsum("ntd,mde,ne->mnt", problem.x, w, problem.q), axis=-1)
    return np.asarray(np.logaddexp(0, -(s * problem.value).sum(-1)).mean(1))


def judge(statement: SurveyStatement, drops: FloatArray) -> SurveyClaim:
    one = statement in (MERGED, MERGED_SOFTMAX)
    return statement.judge_values(
        drops, predicted=1.0 if one else len(VARIANCES), bound=1.5 if one else 2.0,
        quantity="number of drops of the loss", failure="there are several" if one else "there is one",
    )  # fmt: skip


def _check(effort: SurveyEffort) -> list[SurveyClaim]:
    def each(loss: object, separate: bool) -> FloatArray:
        return np.array([float(count_drops(*loss(s, separate=separate))) for s in range(effort.seeds)])  # type: ignore[operator]

    return [
        judge(MERGED, each(linear_loss, False)), judge(SEPARATE, each(linear_loss, True)),
        judge(MERGED_SOFTMAX, each(softmax_loss, False)), judge(SEPARATE_SOFTMAX, each(softmax_loss, True)),
    ]  # fmt: skip


DROPS = SurveyCheck((MERGED, SEPARATE, MERGED_SOFTMAX, SEPARATE_SOFTMAX), _check)
