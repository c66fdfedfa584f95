"""Every statement held against one setting: on the exact flow, on SGD, or on a saved trajectory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError, check_float, check_integer
from scansnap.claims.claim import Claim, Report
from scansnap.claims.evidence import Evidence, from_flow, from_trajectory, why_outside
from scansnap.claims.instead import with_instead
from scansnap.claims.registry import AskedCheck, Check, asked
from scansnap.claims.windows import LAST
from scansnap.classes import SequenceClasses
from scansnap.progress import Progress
from scansnap.theory import t_snap

SEEDS = 8  # runs behind a verdict on SGD: a t interval is then 2.4 standard errors wide on either side

_Y_BYTES = 5e8  # memory for the recorded tables Y of an SGD run


def verify(
    classes: SequenceClasses | None = None,
    *,
    eta_y: float = 0.9,
    eta_z: float = 0.02,
    context: float = math.inf,
    t_end: float | None = None,
    data: xr.Dataset | None = None,
    run: int = 0,
    seed: int = 0,
    seeds: int = SEEDS,
    checks: Iterable[str | Check] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Judge every lemma and theorem for these classes and rates.

    By default on the exact T → ∞ flow, to ``t_end`` (100 t₀ unless given; statements are judged up to 10 t₀, see
    claims/windows.py). With a finite ``context`` SGD runs at that length are made and judged (batch 128, plain SGD,
    to 10 t₀): the run with ``seed``, and for the signs that noise may hide as many as ``seeds``. With ``data``, a
    flow or a trajectory from :func:`scansnap.simulate` or :func:`scansnap.load`, its run number ``run`` is judged,
    beside those that differ from it in their seed; classes and rates are its own.

    A run that the theory does not speak of (:mod:`scansnap.theory.outside`) gets no verdicts: every statement is not
    applicable, for that reason, the identities among them too, since their code is that of the paper's model.

    ``checks`` says what is judged, in this order: names of ours (the keys of ``scansnap.CHECKS``), and functions of
    one's own that take the :class:`Evidence` and return a :class:`Claim`, or several, as ``Statement.judge`` makes
    them. One's own are asked of runs outside the theory too, as long as Y and Z are those of the paper's model.
    """
    chosen = asked(checks)
    if data is not None:
        from scansnap.results.trajectory import classes_of

        own = classes_of(data)
        if classes is not None and classes != own:
            raise InputError("classes", classes, "left out or those of the trajectory")
        own.need_one_class_per_next_token("verify")
        run = check_integer("run", run, most=data.sizes.get("run", 1) - 1)
        reason = why_outside(data, run)
        if reason and all(one.statements for one in chosen):  # no need for evidence, which there may be none of
            return Report(f"{own}: {reason}", tuple(claim for one in chosen for claim in one.none_applies(reason)))
        evidence = from_trajectory(data, own, run)
    else:
        if not isinstance(classes, SequenceClasses):
            raise InputError("classes", classes, "a SequenceClasses object (or give data)")
        classes.need_one_class_per_next_token("verify")
        evidence = gather(classes, eta_y=eta_y, eta_z=eta_z, context=context, t_end=t_end, seed=seed, seeds=seeds)
    return judge(evidence, progress, chosen)


def gather(
    classes: SequenceClasses,
    *,
    eta_y: float,
    eta_z: float,
    context: float,
    t_end: float | None,
    seed: int = 0,
    seeds: int = SEEDS,
) -> Evidence:
    """The flow, or SGD runs at finite T, for these rates."""
    eta_y, eta_z = check_float("eta_y", eta_y, above=0), check_float("eta_z", eta_z, above=0)
    snap = float(t_snap(eta_y=eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    if t_end is not None:
        t_end = check_float("t_end", t_end, above=0)
    if math.isinf(context):
        return from_flow(classes, eta_y=eta_y, eta_z=eta_z, t_end=t_end or 100 * snap)
    from scansnap.dynamics.simulate import simulate
    from scansnap.runs import grid

    seeds = check_integer("seeds", seeds, least=1)
    steps = math.ceil(t_end) if t_end else max(int(LAST * snap), 1)  # the last one is inside the window
    n_records = int(np.clip(_Y_BYTES / (8 * classes.vocab_size**2), 12, 80))
    options: dict[str, Any] = {"context": context, "steps": steps, "dtype": "float64", "device": "cpu",
                               "record": f"log:{n_records}"}  # fmt: skip
    data = simulate(classes, eta_y=eta_y, eta_z=eta_z, seed=seed, variables=("attention", "z", "y", "loss"), **options)
    evidence = from_trajectory(data, classes)
    if seeds == 1:
        return evidence
    # Y of every seed would not fit into memory, and only z is asked of the others.
    others = grid(eta_y=eta_y, eta_z=eta_z, seed=range(seed + 1, seed + seeds))
    more = simulate(classes, others, variables=("z",), **options)
    finite = more["failed_step"].values < 0
    return replace(evidence, z_seeds=np.concatenate([evidence.z[None], more["z"].values[finite]]))


def judge(evidence: Evidence, progress: Progress | None = None, checks: list[AskedCheck] | None = None) -> Report:
    """All claims on given evidence, in the order of the paper; none of ours applies to what is outside the theory."""
    claims: list[Claim] = []
    chosen = asked(None) if checks is None else checks
    for i, check in enumerate(chosen):
        claims += check.claims(evidence)
        if progress is not None:
            progress(i + 1, len(chosen))
    names = [claim.name for claim in claims]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError("the name of a claim", twice[0], "its own: two claims have this one")
    claims = with_instead(claims, evidence)
    if evidence.outside:
        return Report(f"{evidence.classes}: {evidence.outside}", tuple(claims))
    where = "exact flow" if evidence.source == "flow" else "SGD"
    if evidence.z_seeds is not None:
        where += f" with {len(evidence.z_seeds)} seeds"
    length = "∞" if math.isinf(evidence.context) else f"{evidence.context:g}"
    setting = (
        f"{evidence.classes}, η_Y = {evidence.eta_y:g}, η_Z = {evidence.eta_z:g}, T = {length}, {where} "
        f"to t = {evidence.t[-1]:.4g} ({evidence.t[-1] / evidence.t_snap:.3g} t₀)"
    )
    return Report(setting, tuple(claims))
