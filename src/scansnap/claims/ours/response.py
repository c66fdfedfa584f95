"""The linear response: every logit to first order, for any classes and queries (docs/theory.md §3).

:func:`scansnap.response` expands the flow around frozen attention and says itself how far it can be trusted: its
``z_error`` is what squares of z would add, and ``trusted_until`` when that passes a tenth. Both are held against the
run: until then z is to be right to a tenth, and the true error no more than twice the estimated one.
"""

from __future__ import annotations

import numpy as np

from scansnap.claims.claim import Claim, Curve, Statement
from scansnap.claims.evidence import Array, Evidence
from scansnap.claims.ours.path import TOLERANCE, Off, Path, distance, judged_times, of_a_run, path, runs
from scansnap.claims.windows import TRANSITION

RESPONSE = Statement(
    "response",
    "Response (ours, docs/theory.md §3)",
    "every token's z is the linear response of the flow around frozen attention, as long as that trusts itself",
    kind="ours",
)
ERROR = Statement(
    "response-error",
    "Response, its error (ours, §3)",
    "the error of the linear response is at most twice what it says itself",
    kind="ours",
)
STATEMENTS = (RESPONSE, ERROR)

# The estimate is of second order: it leaves out what third order and the memory of the second add. Measured on flows
# it is 0.85 to 1.6 times the true error while that is below a half, and larger where the memory is strong.
ERROR_TOLERANCE = 2.0
# What the integrations of flow and response leave, relative to the largest |z|; their tolerances are 1e-7 and better.
INTEGRATED = 1e-5


def follow(evidence: Evidence) -> Path | None:
    """Where the response takes attention, from t = 0 to the last recorded time at which it trusts itself."""
    data = evidence.response
    t = data["t"].values
    trusted = t < data.attrs["trusted_until"]
    if trusted.sum() < 2:
        return None
    return path(evidence, t[trusted], data["z"].values[trusted])


def check(evidence: Evidence) -> list[Claim]:
    """z, and the estimate of its error."""
    assumed = of_a_run(evidence)
    ours = follow(evidence)
    times = np.array([], dtype=int) if ours is None else judged_times(evidence, ours.t)
    why = ""
    if ours is None or not len(times):
        until = evidence.response.attrs["trusted_until"] / evidence.t_snap
        why = f"no time is recorded in {TRANSITION.words(evidence)} and before {until:.2g} t₀, its trusted time"
    else:
        with np.errstate(all="ignore"):
            z = runs(evidence, ours.t[1:])
            off = distance(evidence, z[:, times - 1], ours.z[times], ours.t[times])
            if off is None:
                why = "the logits do not move"
    if why or ours is None or off is None:
        return [statement.not_applicable(why, assumed) for statement in STATEMENTS]
    return [_logits(evidence, ours, z, times, off), _error(evidence, ours, z, times)]


def _logits(evidence: Evidence, ours: Path, z: Array, times: Array, off: Off) -> Claim:
    at, row, token = times[off.time], off.row, off.entry
    mean, query = z.mean(0), evidence.classes.queries[off.row]
    top = int(np.argmax(np.abs(ours.z[-1, row])))
    until = evidence.response.attrs["trusted_until"]
    trusted = f", trusted until {until / evidence.t_snap:.2g} t₀" if np.isfinite(until) else ""
    return RESPONSE.judge(
        quantity=f"z of token {token} of query {query} at t = {ours.t[at]:.4g}, worst in {TRANSITION.words(evidence)}"
        f"{trusted}, relative to the largest |z|",
        measured=float(mean[at - 1, row, token]),
        predicted=float(ours.z[at, row, token]),
        deviation=off.share,
        tolerance=TOLERANCE,
        assumptions=of_a_run(evidence),
        where=f"token {token} of query {query}, {evidence.when(ours.t[at])}: z = {mean[at - 1, row, token]:.3g} "
        f"against {ours.z[at, row, token]:.3g}, off by {off.share:.1%} of the largest |z|",
        curve=Curve("t", f"z of token {top} of query {query}", ours.t[1:], mean[:, row, top], ours.z[1:, row, top]),
        interval=off.interval,
        to_decide=off.words(len(z)),
    )


def _error(evidence: Evidence, ours: Path, z: Array, times: Array) -> Claim:
    """By query: the largest entry of the true error against that of the estimated one."""
    if evidence.source == "sgd":
        return ERROR.not_applicable("steps have errors of their own, which the estimate does not know")
    said = np.abs(evidence.response["z_error"].values[times]).max(-1)  # (n, Q)
    true = np.abs(z[0, times - 1] - ours.z[times]).max(-1)
    allowed = said + INTEGRATED * np.abs(ours.z[times]).max(-1)
    ratio = true / np.where(allowed > 0, allowed, 1)
    i, row = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    query, t = evidence.classes.queries[row], ours.t[times]
    return ERROR.judge(
        quantity=f"largest error of z of query {query} at t = {t[i]:.4g} against its estimate, worst in "
        f"{TRANSITION.words(evidence)}; {INTEGRATED:g} of the largest |z| is left to the integrations",
        measured=float(true[i, row]),
        predicted=float(said[i, row]),
        deviation=float(ratio[i, row]),
        tolerance=ERROR_TOLERANCE,
        where=f"query {query}, {evidence.when(t[i])}: {ratio[i, row]:.2g} times the estimate",
        curve=Curve("t", f"error of z of query {query}", t, true[:, row], said[:, row], log_y=True),
    )
