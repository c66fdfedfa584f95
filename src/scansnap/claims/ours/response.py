"""The linear response: every logit to first order, for any classes and queries (docs/derivations.md §3).

`scansnap.response` expands the flow around frozen attention and estimates its own range of validity: ``z_error``
is the contribution of squares of z, and ``trusted_until`` the time at which that exceeds a tenth. Both are tested on
the run: until then z must be right to a tenth, and the true error at most twice the estimated one.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours.path import (
    TOLERANCE,
    Deviation,
    PredictedPath,
    judged_times,
    largest_deviation,
    logits_by_seed,
    make_path,
    run_assumptions,
)
from scansnap.claims.time_windows import TRANSITION

RESPONSE = Statement(
    "response", "Response (ours, docs/derivations.md §3)",
    "every token's z is the linear response of the flow around frozen attention, within its range of validity",
    kind="ours",
)  # fmt: skip
ERROR = Statement(
    "response-error", "Response, its error (ours, §3)",
    "the error of the linear response is at most twice its own estimate", kind="ours",
)  # fmt: skip
STATEMENTS = (RESPONSE, ERROR)

# The estimate is of second order: without the third order and the memory of the second. Measured on flows it is
# 0.85 to 1.6 times the true error while that is below a half, and larger where the memory is strong.
ERROR_TOLERANCE = 2.0
# The integration error of flow and response, relative to the largest |z|; their tolerances are 1e-7 and better.
INTEGRATED = 1e-5


def predict_path(evidence: Evidence) -> PredictedPath | None:
    """The path of the response, from t = 0 to the last recorded time within its range of validity."""
    data = evidence.response
    t = data["t"].values
    trusted = t < data.attrs["trusted_until"]
    if trusted.sum() < 2:
        return None
    return make_path(evidence, t[trusted], data["z"].values[trusted])


def check(evidence: Evidence) -> list[Claim]:
    """z, and the estimate of its error."""
    assumed = run_assumptions(evidence)
    ours = predict_path(evidence)
    times = np.array([], dtype=int) if ours is None else judged_times(evidence, ours.t)
    reason = ""
    if ours is None or not len(times):
        until = evidence.response.attrs["trusted_until"] / evidence.t_snap
        reason = (
            f"no time is recorded in {TRANSITION.describe(evidence)} and before {until:.2g} t₀, the end of its validity"
        )
    else:
        with np.errstate(all="ignore"):
            z = logits_by_seed(evidence, ours.t[1:])
            off = largest_deviation(evidence, z[:, times - 1], ours.z[times], ours.t[times])
            if off is None:
                reason = "the logits do not move"
    if reason or ours is None or off is None:
        return [statement.not_applicable(reason, assumed) for statement in STATEMENTS]
    return [_logits(evidence, ours, z, times, off), _error(evidence, ours, z, times)]


def _logits(evidence: Evidence, ours: PredictedPath, z: Array, times: Array, off: Deviation) -> Claim:
    at, row, token = times[off.time], off.row, off.entry
    mean, query = z.mean(0), evidence.classes.queries[off.row]
    top = int(np.argmax(np.abs(ours.z[-1, row])))
    until = evidence.response.attrs["trusted_until"]
    trusted = f", valid until {until / evidence.t_snap:.2g} t₀" if np.isfinite(until) else ""
    return RESPONSE.judge(
        quantity=f"z of token {token} of query {query} at t = {ours.t[at]:.4g}, worst in "
        f"{TRANSITION.describe(evidence)}{trusted}, relative to the largest |z|",
        measured=mean[at - 1, row, token], predicted=ours.z[at, row, token], deviation=off.share, tolerance=TOLERANCE,
        assumptions=run_assumptions(evidence),
        failure=f"token {token} of query {query}, {evidence.format_time(ours.t[at])}: z = "
        f"{mean[at - 1, row, token]:.3g} against {ours.z[at, row, token]:.3g}, "
        f"off by {off.share:.1%} of the largest |z|",
        curve=Curve("t", f"z of token {top} of query {query}", ours.t[1:], mean[:, row, top], ours.z[1:, row, top]),
        interval=off.interval,
        remedy=off.remedy(len(z)),
    )  # fmt: skip


def _error(evidence: Evidence, ours: PredictedPath, z: Array, times: Array) -> Claim:
    """By query: the largest entry of the true error against that of the estimated one."""
    if evidence.source == "sgd":
        return ERROR.not_applicable("steps have errors of their own, which the estimate does not include")
    estimate = np.abs(evidence.response["z_error"].values[times]).max(-1)  # (n, Q)
    true = np.abs(z[0, times - 1] - ours.z[times]).max(-1)
    allowed = estimate + INTEGRATED * np.abs(ours.z[times]).max(-1)
    ratio = true / np.where(allowed > 0, allowed, 1)
    i, row = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    query, t = evidence.classes.queries[row], ours.t[times]
    return ERROR.judge(
        quantity=f"largest error of z of query {query} at t = {t[i]:.4g} against its estimate, worst in "
        f"{TRANSITION.describe(evidence)}; {INTEGRATED:g} of the largest |z| is allowed for the integrations",
        measured=true[i, row], predicted=estimate[i, row], deviation=ratio[i, row], tolerance=ERROR_TOLERANCE,
        failure=f"query {query}, {evidence.format_time(t[i])}: {ratio[i, row]:.2g} times the estimate",
        curve=Curve("t", f"error of z of query {query}", t, true[:, row], estimate[:, row], log_y=True),
    )  # fmt: skip
