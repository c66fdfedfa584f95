"""Every statement held against one setting: on the exact flow, on SGD, or on a saved trajectory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from scansnap.checks import InputError, real
from scansnap.claims import (
    conservation,
    lemma1,
    lemma2,
    lemma3,
    lemma4,
    theorem1,
    theorem2,
    theorem3,
    theorem4,
    theorem4_rates,
)
from scansnap.claims.claim import Claim, Report
from scansnap.claims.evidence import Evidence, from_flow, from_trajectory
from scansnap.classes import SequenceClasses
from scansnap.theory import t_snap

_Y_BYTES = 5e8  # memory for the recorded tables Y of an SGD run

Check = Callable[[Evidence], Claim | list[Claim]]
Progress = Callable[[int, int], None]

CHECKS: dict[str, Check] = {
    "lemma-1": lemma1.check,
    "lemma-2": lemma2.check,
    "lemma-3": lemma3.check,
    "theorem-1": theorem1.check,
    "lemma-4": lemma4.check,
    "theorem-2": theorem2.check,
    "theorem-3": theorem3.check,
    "theorem-4": theorem4.check,
    "theorem-4-rates": theorem4_rates.check,
    "conservation": conservation.check,
}


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
    progress: Progress | None = None,
) -> Report:
    """Judge every lemma and theorem for these classes and rates.

    By default on the exact T → ∞ flow, to ``t_end`` (100 t₀ unless given). With a finite ``context`` an SGD run at
    that length is made and judged (batch 128, plain SGD, to 10 t₀). With ``data``, a trajectory from
    :func:`scansnap.simulate` or :func:`scansnap.load`, its run number ``run`` is judged; classes and rates are
    its own.
    """
    if data is not None:
        from scansnap.trajectory import classes_of

        own = classes_of(data)
        if classes is not None and classes != own:
            raise InputError("classes", classes, "left out or those of the trajectory")
        evidence = from_trajectory(data, own, run)
    else:
        if not isinstance(classes, SequenceClasses):
            raise InputError("classes", classes, "a SequenceClasses object (or give data)")
        evidence = gather(classes, eta_y=eta_y, eta_z=eta_z, context=context, t_end=t_end, seed=seed)
    return judge(evidence, progress)


def gather(
    classes: SequenceClasses, *, eta_y: float, eta_z: float, context: float, t_end: float | None, seed: int = 0
) -> Evidence:
    """The flow, or an SGD run at finite T, for these rates."""
    eta_y, eta_z = real("eta_y", eta_y, above=0), real("eta_z", eta_z, above=0)
    snap = float(t_snap(eta_y=eta_y, n_classes=classes.n_classes, vocab_size=classes.vocab_size))
    if t_end is not None:
        t_end = real("t_end", t_end, above=0)
    if math.isinf(context):
        return from_flow(classes, eta_y=eta_y, eta_z=eta_z, t_end=t_end or 100 * snap)
    from scansnap.dynamics.simulate import simulate

    steps = math.ceil(t_end or 10 * snap)
    n_records = int(np.clip(_Y_BYTES / (8 * classes.vocab_size**2), 12, 80))
    data = simulate(classes, eta_y=eta_y, eta_z=eta_z, seed=seed, context=context, steps=steps, dtype="float64",
                    record=f"log:{n_records}", variables=("attention", "z", "y"), device="cpu")  # fmt: skip
    return from_trajectory(data, classes)


def judge(evidence: Evidence, progress: Progress | None = None) -> Report:
    """All claims on given evidence, in the order of the paper."""
    claims: list[Claim] = []
    for i, check in enumerate(CHECKS.values()):
        found: Any = check(evidence)
        claims += found if isinstance(found, list) else [found]
        if progress is not None:
            progress(i + 1, len(CHECKS))
    where = "exact flow" if evidence.source == "flow" else "SGD"
    length = "∞" if math.isinf(evidence.context) else f"{evidence.context:g}"
    setting = (
        f"{evidence.classes}, η_Y = {evidence.eta_y:g}, η_Z = {evidence.eta_z:g}, T = {length}, {where} "
        f"to t = {evidence.t[-1]:.4g} ({evidence.t[-1] / evidence.t_snap:.3g} t₀)"
    )
    return Report(setting, tuple(claims))
