"""The claims for the run on screen, from the frames and tables it has kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_softmax

from scansnap.checks import InputError
from scansnap.claims.claim import Claim
from scansnap.claims.evidence import Evidence, from_trajectory
from scansnap.claims.instead import with_instead
from scansnap.claims.registry import CHECKS, none_applies
from scansnap.explorer.pages import applies
from scansnap.explorer.pages.predict import Cancelled, why_not
from scansnap.explorer.setups.blueprint import Blueprint, query_tokens
from scansnap.results.trajectory import assemble, identity, labels

_MOST_TIMES = 100
_FEWEST_TIMES = 8
_BYTES = 128 << 20  # for tables by class and token over time, several of which are alive at once


def judge_frames(
    blueprint: Blueprint,
    marks: list[dict[str, Any]],
    steps: np.ndarray,
    rows: np.ndarray,
    stop: Any = lambda: False,
    failed_step: int | None = None,
    until: int | None = None,
) -> dict[str, Any]:
    """Every claim as JSON. ``rows`` are frames followed by the table Y, (n, floats + L·J), at ``steps``.

    Judged is the run as it was at the step ``until``: what came later, changes of the rates included, is left out.
    """
    if until is not None:
        steps, marks = steps[steps <= until], [m for m in marks if m["step"] <= until]
        rows = rows[: len(steps)]
        failed_step = failed_step if failed_step is not None and failed_step <= until else None
    reason = why_not(blueprint, failed_step)
    if not reason and any(m["step"] > 0 for m in marks):
        reason = f"the rates were changed on the way, at step {next(m['step'] for m in marks if m['step'] > 0)}"
    if not reason and len(steps) < _FEWEST_TIMES:
        reason = f"only {len(steps)} steps are recorded so far"
    if not reason and _chosen(blueprint, steps) is None:
        reason = "there are too many tokens and classes to judge beside a live run; scansnap verify does it"
    if reason:
        return {"setting": "", "claims": _none(reason)}
    if marks:
        blueprint = _with_rates(blueprint, marks[-1])
    which = _chosen(blueprint, steps)
    try:
        evidence = gather(blueprint, steps[which], rows[which])
    except InputError as error:
        return {"setting": "", "claims": _none(str(error))}
    claims: list[Claim] = []
    with np.errstate(all="ignore"):
        for check in CHECKS.values():
            if stop():
                raise Cancelled
            found = check(evidence)
            claims += found if isinstance(found, list) else [found]
        claims = with_instead(claims, evidence)
    share = evidence.t[-1] / evidence.t_snap
    return {"setting": f"to step {int(evidence.t[-1])}, {share:.3g} t₀", "claims": [_as_json(c) for c in claims]}


def gather(blueprint: Blueprint, steps: np.ndarray, rows: np.ndarray) -> Evidence:
    """Evidence from frames and tables: what ``from_trajectory`` makes of a recorded run, without the M×M tables."""
    lay, classes = blueprint.layout, blueprint.classes
    k, m = classes.n_classes, classes.vocab_size
    first = 1 + 3 * k
    attention = np.zeros((len(steps), k, m))
    for n in range(k):
        size = int(lay.n_slots[n])
        attention[:, n, lay.slots[n, :size]] = rows[:, first : first + size]
        first += size
    z = np.zeros((len(steps), len(lay.queries), m))  # what is never attended to stays where it began
    for q, tokens in enumerate(query_tokens(lay)[1]):
        z[:, q, tokens] = rows[:, first : first + len(tokens)]
        first += len(tokens)
    records = {"attention": attention[None], "z": z[None]}
    described = blueprint.settings.to_dict()
    dims = {"attention": ("class", "token"), "z": ("query", "token")}
    data = assemble(blueprint.runs, described, [int(s) for s in steps], records, dims, np.array([-1]), "complete")
    data = data.assign_coords(labels(classes, data.dims)).assign_attrs(identity(classes))
    evidence = from_trajectory(data, classes)
    y = rows[:, first:].reshape(len(steps), len(lay.rows), len(lay.columns)).astype(np.float64)
    g, gap = _votes(blueprint, evidence, y)
    times = np.unique([len(steps) // 3, 2 * len(steps) // 3, len(steps) - 1])
    full = None
    if 8 * len(times) * m * m <= _BYTES:
        full = np.zeros((len(times), m, m))
        full[:, lay.rows] = lay.expand_columns(y[times])
    return replace(evidence, g=g, gap=gap, y=full, y_times=None if full is None else times)


def _votes(blueprint: Blueprint, evidence: Evidence, y: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """g_n = Y(e_n − α_n) on the class's context, (n, K, M), and the logit gap, (n, K); columns may stand for many."""
    lay, k = blueprint.layout, np.arange(blueprint.classes.n_classes)
    logits = evidence.f[..., lay.rows] @ y  # (n, K, J)
    r = -np.exp(log_softmax(logits + np.log(lay.multiplicity), axis=-1))
    r[:, k, lay.target] += 1
    g = np.zeros_like(evidence.attention)
    g[..., lay.rows] = r @ y.transpose(0, 2, 1)
    g = np.where(blueprint.classes.p_context > 0, g, 0.0)
    never = np.setdiff1d(np.arange(len(lay.columns)), lay.target)
    if len(never) == 0:
        return g, None
    return g, logits[:, k, lay.target] - logits[:, :, never].mean(-1)


def _chosen(blueprint: Blueprint, steps: np.ndarray) -> Any:
    """Which of the recorded steps are judged: evenly in log step, as many as memory allows; None if too few."""
    per_time = 8 * blueprint.classes.vocab_size * (4 * blueprint.classes.n_classes + 2 * len(blueprint.layout.queries))
    most = min(_MOST_TIMES, _BYTES // per_time)
    if most < _FEWEST_TIMES:
        return None
    if len(steps) <= most:
        return np.arange(len(steps))
    wanted = np.concatenate([[0], np.geomspace(1, max(int(steps[-1]), 2), most - 1)])
    return np.unique(np.minimum(np.searchsorted(steps, wanted), len(steps) - 1))


def _with_rates(blueprint: Blueprint, mark: dict[str, Any]) -> Blueprint:
    eta_y, eta_z = np.array([mark["eta_y"]]), np.array([mark["eta_z"]])
    return replace(blueprint, runs=replace(blueprint.runs, eta_y=eta_y, eta_z=eta_z))


def _none(reason: str) -> list[dict[str, Any]]:
    return [_as_json(claim) for claim in none_applies(reason)]


def _as_json(claim: Claim) -> dict[str, Any]:
    curve, instead = claim.curve, claim.instead
    return {
        "name": claim.name, "reference": claim.reference, "statement": claim.statement, "status": claim.status,
        "kind": claim.kind,
        "quantity": claim.quantity, "measured": claim.measured, "predicted": claim.predicted,
        "margin": claim.margin if claim.margin is None or math.isfinite(claim.margin) else None,
        "tolerance": claim.tolerance, "why": claim.why,
        "assumptions": [{"name": a.name, "value": a.value, "threshold": a.threshold, "met": a.met}
                        for a in claim.assumptions],
        "curve": None if curve is None else {
            "x_label": curve.x_label, "y_label": curve.y_label, "x": curve.x, "measured": curve.measured,
            "predicted": curve.predicted, "log_x": curve.log_x, "log_y": curve.log_y},
        "instead": None if instead is None else {
            "name": instead.claim.name, "reference": instead.claim.reference, "statement": instead.claim.statement,
            "status": instead.claim.status, "words": instead.verdict, "off": instead.off, "theirs": instead.theirs,
            "x": instead.x, "y": instead.y},
        "where": applies.where(claim.name) if claim.status == "not applicable" else None,
        "command": applies.command(claim.name) if claim.status == "not applicable" else "",
    }  # fmt: skip
