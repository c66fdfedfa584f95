"""``verify``: every statement on one setting, and for each failure the claim of ours that holds in its place.

A statement names, where it is declared, the claims that may hold instead (``Statement.alternatives``), and its curve
how to measure it on a path of our theory (``Curve.along``). Only failures are compared, since each path takes a
second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError, check_choice, check_float, check_integer
from scansnap.claims.claim import Alternative, Claim, Curve
from scansnap.claims.evidence import Array, Evidence, from_flow, from_trajectory, reason_outside_theory
from scansnap.claims.ours import fates, memory, response
from scansnap.claims.ours.path import PredictedPath
from scansnap.claims.registry import Check, CheckFunction, checks_by_claim, select_checks
from scansnap.claims.report import Report
from scansnap.claims.time_windows import WINDOW_END
from scansnap.classes import SequenceClasses
from scansnap.progress import Progress
from scansnap.theory import t_snap

SEEDS = 8  # runs behind a verdict on SGD: a t interval is then 2.4 standard errors wide on either side

_Y_BYTES = 5e8  # memory for the recorded tables Y of an SGD run

# The paths of attention that claims of ours predict.
PATHS: dict[str, Callable[[Evidence], PredictedPath | None]] = {
    "memory": memory.predict_path, "response": response.predict_path, "late-fates": fates.predict_path,
}  # fmt: skip


def verify(
    classes: SequenceClasses | None = None,
    *,
    eta_y: float = 0.9,
    eta_z: float = 0.02,
    context: float = math.inf,
    batch_size: int | None = None,
    t_end: float | None = None,
    data: xr.Dataset | None = None,
    run: int = 0,
    seed: int = 0,
    seeds: int = SEEDS,
    checks: Iterable[str | CheckFunction] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check every lemma and theorem of the paper for these classes and rates.

    By default on the exact T → ∞ flow; with a finite ``context`` or a ``batch_size`` on plain SGD; with ``data`` on a
    saved flow or trajectory. A run outside the theory (`scansnap.theory.applicability`) gets no verdicts: every
    built-in statement is not applicable, the identities included, since their code is that of the paper's model.

    Parameters
    ----------
    classes
        The data distribution; not needed with ``data``.
    eta_y, eta_z
        Learning rates of Y and Z.
    context
        Sequence length T.
    batch_size
        Sequences per update; 1 is the case of Theorem 1. Default: the flow at T = ∞, else 128.
    t_end
        End of the run: default 100 t₀ for the flow, 10 t₀ for SGD. Statements are judged up to 10 t₀
        (`scansnap.claims.time_windows`).
    data, run
        A flow or a trajectory (`scansnap.simulate`, `scansnap.load`), and which of its runs. Runs that
        differ from it in their seed alone contribute to claims about means.
    seed, seeds
        Seed of the SGD run, and the number of SGD runs for claims about signs that noise may hide.
    checks
        What to check, in this order: names (keys of `scansnap.CHECKS`), and functions from `Evidence` to
        a `Claim`, or several, made by ``Statement.judge``. Functions run on runs outside the theory too, as
        long as Y and Z are those of the paper's model. Default: the built-in checks of statements about a run.
    progress
        Called as ``progress(done, total)`` after each check.

    Returns
    -------
    Report
        One claim per statement.

    Examples
    --------
    >>> import scansnap as ss
    >>> report = ss.verify(ss.SequenceClasses.textbook(), eta_y=0.9, eta_z=0.02, checks=["theorem-2"])
    >>> report["theorem-2a"].status
    'holds'
    >>> report.to_dataframe()["status"].to_dict()
    {'theorem-2a': 'holds', 'theorem-2a-rate': 'fails', 'theorem-2b': 'holds', 'corollary-2': 'not applicable'}
    """
    selected = select_checks(checks)
    if data is not None:
        from scansnap.results.trajectory import classes_of

        own = classes_of(data)
        if classes is not None and classes != own:
            raise InputError("classes", classes, "None, or the classes of data")
        own.need_one_class_per_next_token("verify")
        run = check_integer("run", run, most=data.sizes.get("run", 1) - 1)
        reason = reason_outside_theory(data, run)
        usable = {"z", "attention"} <= set(data)  # data outside the theory need not have what evidence needs
        if reason and all(check.excludes(reason) or (check.statements and not usable) for check in selected):
            claims = tuple(claim for check in selected for claim in check.not_applicable(reason))
            return Report(f"{own}: {reason}", claims)
        evidence = from_trajectory(data, own, run)
    else:
        if not isinstance(classes, SequenceClasses):
            raise InputError("classes", classes, "a SequenceClasses object (or data)")
        classes.need_one_class_per_next_token("verify")
        evidence = gather_evidence(
            classes, eta_y=eta_y, eta_z=eta_z, context=context, batch_size=batch_size, t_end=t_end, seed=seed,
            seeds=seeds,
        )  # fmt: skip
    return judge_evidence(evidence, progress, selected)


def gather_evidence(
    classes: SequenceClasses,
    *,
    eta_y: float,
    eta_z: float,
    context: float = math.inf,
    batch_size: int | None = None,
    t_end: float | None = None,
    seed: int = 0,
    seeds: int = SEEDS,
) -> Evidence:
    """The flow, or SGD runs, for these rates."""
    eta_y, eta_z = check_float("eta_y", eta_y, above=0), check_float("eta_z", eta_z, above=0)
    snap = float(t_snap(eta_y=eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    if t_end is not None:
        t_end = check_float("t_end", t_end, above=0)
    if math.isinf(context) and batch_size is None:
        return from_flow(classes, eta_y=eta_y, eta_z=eta_z, t_end=t_end or 100 * snap)
    from scansnap.dynamics.simulate import simulate
    from scansnap.runs import grid

    seeds = check_integer("seeds", seeds, least=1)
    steps = math.ceil(t_end) if t_end else max(int(WINDOW_END * snap), 1)  # the last one is inside the window
    n_records = int(np.clip(_Y_BYTES / (8 * classes.vocab_size**2), 12, 80))
    options: dict[str, Any] = {"context": context, "batch_size": batch_size or 128, "steps": steps, "dtype": "float64",
                               "device": "cpu", "record": f"log:{n_records}"}  # fmt: skip
    data = simulate(classes, eta_y=eta_y, eta_z=eta_z, seed=seed, variables=("attention", "z", "y", "loss"), **options)
    evidence = from_trajectory(data, classes)
    if seeds == 1:
        return evidence
    # Y of every seed would exceed the memory, and the claims need only z of the others.
    others = grid(eta_y=eta_y, eta_z=eta_z, seed=range(seed + 1, seed + seeds))
    more = simulate(classes, others, variables=("z",), **options)
    finite = more["failed_step"].values < 0
    return replace(evidence, z_seeds=np.concatenate([evidence.z[None], more["z"].values[finite]]))


def judge_evidence(evidence: Evidence, progress: Progress | None = None, checks: list[Check] | None = None) -> Report:
    """All claims on this evidence, in the order of the paper."""
    claims: list[Claim] = []
    checks = select_checks(None) if checks is None else checks
    for i, check in enumerate(checks):
        claims += check.judge(evidence)
        if progress is not None:
            progress(i + 1, len(checks))
    names = [claim.name for claim in claims]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError("the name of a claim", repeated[0], "a unique name: two claims have this one")
    claims = add_alternatives(claims, evidence)
    if evidence.why_not_applicable:
        return Report(f"{evidence.classes}: {evidence.why_not_applicable}", tuple(claims))
    method = "exact flow" if evidence.source == "flow" else "SGD"
    if evidence.z_seeds is not None:
        method += f" with {len(evidence.z_seeds)} seeds"
    length = "∞" if math.isinf(evidence.context) else f"{evidence.context:g}"
    setting = (
        f"{evidence.classes}, η_Y = {evidence.eta_y:g}, η_Z = {evidence.eta_z:g}, T = {length}, {method} "
        f"to t = {evidence.t[-1]:.4g} ({evidence.t[-1] / evidence.t_snap:.3g} t₀)"
    )
    return Report(setting, tuple(claims))


# --- what holds in the place of a failure ------------------------------------------------------------------------


def add_alternatives(claims: Iterable[Claim], evidence: Evidence) -> list[Claim]:
    """The claims; each measured failure with its alternative, also where an assumption is not met."""
    claims = list(claims)
    known = {claim.name: claim for claim in claims}
    paths: dict[str, PredictedPath | None] = {}

    def judged(name: str) -> Claim:
        if name not in known:
            checks = checks_by_claim()
            check = checks[check_choice("alternatives", name, checks)]
            known.update((claim.name, claim) for claim in check.judge(evidence))
        return known[name]

    def with_alternative(claim: Claim) -> Claim:
        if claim.observed != "fails" or not claim.alternatives:
            return claim
        ours = choose_alternative([judged(name) for name in claim.alternatives])
        if ours.name in PATHS and ours.name not in paths:
            paths[ours.name] = PATHS[ours.name](evidence)
        path = paths.get(ours.name)
        if path is None:
            return replace(claim, alternative=Alternative(ours))
        until = f"{path.t[-1] / evidence.t_snap:.2g} t₀"
        if claim.curve is None or claim.curve.along is None:
            return replace(claim, alternative=Alternative(ours, until))
        with np.errstate(all="ignore"):
            x, y = claim.curve.along(path)
            return replace(claim, alternative=Alternative(ours, until, x, y, *curve_errors(claim.curve, x, y)))

    return [with_alternative(claim) for claim in claims]


def curve_errors(curve: Curve, x: Array, y: Array) -> tuple[float | None, float | None]:
    """Distance of a curve, and of the predicted one, from the measured one, over the axis that all of them cover."""
    order = np.argsort(curve.x)
    predictions = np.broadcast_to(curve.predicted, curve.x.shape)
    measured, predicted = (np.interp(x, curve.x[order], values[order]) for values in (curve.measured, predictions))
    inside = (x >= curve.x[order[0]]) & (x <= curve.x[order[-1]]) & (measured != 0)
    if not inside.any():
        return None, None
    size = np.abs(measured[inside]) if curve.log_y else np.abs(measured[inside]).max()
    ours, paper = (float((np.abs(values - measured)[inside] / size).max()) for values in (y, predicted))
    return ours, paper


def choose_alternative(claims: list[Claim]) -> Claim:
    """The first that holds; else the first that is undecided, else that fails; else the last one."""
    for status in ("holds", "undecided", "fails"):
        for claim in claims:
            if claim.status == status:
                return claim
    return claims[-1]
