"""What the theory says about a set-up: times, assumptions, closed-form curves, and the T → ∞ flow beside the run."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import xarray as xr

from scansnap.checks import InputError
from scansnap.claims.assumptions import check_assumptions, overlap_matrix
from scansnap.claims.windows import LAST
from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.explorer.setups.blueprint import Blueprint, query_tokens
from scansnap.measure.entropy import masked_entropy
from scansnap.theory import gamma, growth, t_scan, t_snap
from scansnap.theory.outside import RATE_IS_ZERO, SMALLEST_RATE, outside_theory

CLOCK = (
    "The theory's t counts SGD steps with one sequence each; a step on a batch's mean gradient moves as far, so "
    "t = step. Momentum μ acts as both rates divided by 1 − μ."
)
_SMALLEST = 1e-12  # of 1/C₀: below it the closed forms have nothing to say


class Cancelled(Exception):
    """The one who asked is gone, or the time is over."""


def effective_rates(blueprint: Blueprint) -> tuple[float, float]:
    """η_Y and η_Z with momentum counted in."""
    boost = 1 / (1 - float(blueprint.runs.momentum[0]))
    return float(blueprint.runs.eta_y[0]) * boost, float(blueprint.runs.eta_z[0]) * boost


def why_not(blueprint: Blueprint, failed_step: int | None = None) -> str:
    """Why the theory does not speak of this run; empty where it does."""
    runs = blueprint.runs
    eta_y, eta_z = float(runs.eta_y[0]), float(runs.eta_z[0])
    decay = max(float(runs.weight_decay_y[0]), float(runs.weight_decay_z[0]))
    failed = -1 if failed_step is None else failed_step
    return outside_theory(
        blueprint.settings.to_dict(), eta_y=eta_y, eta_z=eta_z, weight_decay=decay, failed_step=failed
    )


def engine_of(blueprint: Blueprint) -> str:
    """Which path a run takes: the compiled kernel, or torch."""
    engine = Engine(blueprint.layout, blueprint.settings, blueprint.runs, torch.device("cpu"))
    return "fused" if engine.fused and engine.bounded.all() else "general"


def theory(blueprint: Blueprint) -> dict[str, Any]:
    """``Theory`` of the protocol."""
    eta_y, eta_z = effective_rates(blueprint)
    size = {"n_classes": blueprint.classes.n_classes, "vocab_size": blueprint.classes.vocab_size}
    timed = eta_y >= SMALLEST_RATE and blueprint.classes.vocab_size >= 2
    judged = timed and eta_z >= SMALLEST_RATE
    found = []
    if judged:
        # t ≫ K² is asked of sampled steps, at the end of what is judged
        t = (
            None
            if blueprint.settings.batch_size is None
            else min(blueprint.settings.steps, LAST * t_snap(eta_y=eta_y, **size))
        )
        found = check_assumptions(blueprint.classes, eta_y=eta_y, eta_z=eta_z, context=blueprint.settings.context, t=t)
    return {
        "applies": why_not(blueprint) == "", "why": why_not(blueprint), "eta_y": eta_y, "eta_z": eta_z,
        "ratio": eta_y / eta_z if eta_z >= SMALLEST_RATE else None,
        "t_scan": float(t_scan(eta_y=eta_y, **size)) if timed else None,
        "t_snap": float(t_snap(eta_y=eta_y, **size)) if timed else None,
        "c0": c0_of(blueprint.classes), "clock": CLOCK, "assumptions": [asdict(a) for a in found],
    }  # fmt: skip


def c0_of(classes: SequenceClasses) -> float | None:
    """C₀ from the overlaps at Z = 0: 1/C₀ = mean of Σ_{n'≠n} (f_nᵀf_n')²; None where classes do not overlap."""
    overlap = overlap_matrix(classes)
    np.fill_diagonal(overlap, 0.0)
    inverse = float((overlap**2).sum(1).mean())
    return 1 / inverse if inverse > _SMALLEST else None


def dominant_share(classes: SequenceClasses, n: int) -> float | None:
    """f_nl₀(0) of the class's dominant distinct token at Z = 0."""
    tokens, p = classes.support(n)
    own = np.isin(tokens, classes.distinct(n))
    return float(p[own].max() / np.linalg.norm(p)) if own.any() else None


def curves(blueprint: Blueprint, last: int, points: int = 200, c0: float | None = None) -> dict[str, Any]:
    """The closed forms on a grid of steps from 0 to ``last``, dense at the start."""
    eta_y, eta_z = effective_rates(blueprint)
    k, m = blueprint.classes.n_classes, blueprint.classes.vocab_size
    if eta_y < SMALLEST_RATE:
        raise InputError("eta_y", eta_y, "above 0 for the closed forms")
    if m < 2:
        raise InputError("vocab_size", m, "at least 2 for the closed forms")
    size: dict[str, Any] = {"n_classes": k, "vocab_size": m}
    constant = c0_of(blueprint.classes) if c0 is None else c0
    t = grid(last, points)
    b = np.zeros((k, len(t)))
    if constant is not None and eta_z >= SMALLEST_RATE:
        p = blueprint.classes.p_class
        p_query = np.array([p[blueprint.classes.query == m].sum() for m in blueprint.classes.query])
        b = np.asarray(growth(t, eta_y=eta_y, eta_z=eta_z, c0=constant, p_class=p[:, None],
                              p_query=np.minimum(p_query, 1.0)[:, None], **size))  # fmt: skip
    share = np.array([[s if (s := dominant_share(blueprint.classes, n)) is not None else np.nan] for n in range(k)])
    return {
        "t": t, "growth": b, "chi_lower": 2 * share**2 * b, "chi_upper": np.where(np.isnan(share), np.nan, 2 * b),
        "gamma": gamma(t, eta_y=eta_y, **size), "t_scan": float(t_scan(eta_y=eta_y, **size)),
        "t_snap": float(t_snap(eta_y=eta_y, **size)), "c0": constant,
    }  # fmt: skip


def grid(last: int, points: int) -> np.ndarray:
    """Half of the points evenly, half evenly in log t: smooth on either axis."""
    even = np.linspace(0, last, max(2, points // 2))
    return np.unique(np.concatenate([even, np.geomspace(min(0.1, last / 2), last, max(2, points - len(even)))]))


def check_flow(blueprint: Blueprint) -> None:
    """Refuses a set-up for which there is no flow."""
    reason = why_not(blueprint)
    if reason and reason != RATE_IS_ZERO:
        raise InputError("flow", reason, "left out: the T → ∞ flow is that of the paper's model from Y = Z = 0")
    if effective_rates(blueprint)[0] < SMALLEST_RATE:
        raise InputError("eta_y", float(blueprint.runs.eta_y[0]), "above 0 for the flow")


def flow_overlay(blueprint: Blueprint, last: int, points: int, stop: Any, by: str = "flow") -> dict[str, Any]:
    """The T → ∞ flow at the effective rates, in the layout of the frames. ``stop()`` is asked at every step.

    By ``response``, the linear response in its place, as far as it is to be trusted.
    """

    def progress(_: float) -> None:
        if stop():
            raise Cancelled

    began = time.monotonic()
    data = (
        _response(blueprint, last, points, progress) if by == "response" else _flow(blueprint, last, points, progress)
    )
    _, tokens = query_tokens(blueprint.layout)
    c, z, query = data.attention.values, data.z.values, blueprint.layout.class_query
    log_chi = []
    for n in range(blueprint.classes.n_classes):
        distinct = blueprint.classes.distinct(n)
        if len(distinct) == 0:
            log_chi.append(np.full(len(z), np.nan))
            continue
        top = distinct[np.argmax(c[0, n, distinct])]
        log_chi.append(2 * (z[:, query[n], top] - z[0, query[n], top]))
    slots = [blueprint.layout.slots[n, : blueprint.layout.n_slots[n]] for n in range(blueprint.classes.n_classes)]
    return {
        "t": data.t.values, "loss": data.loss.values, "entropy": data.entropy.values.T, "log_chi": log_chi,
        "growth": data.growth.values.T, "trusted_until": data.attrs.get("trusted_until"),
        "attention": [c[:, n, own].T for n, own in enumerate(slots)],
        "z": [z[:, q, own].T for q, own in enumerate(tokens)], "seconds": time.monotonic() - began,
    }  # fmt: skip


def _flow(blueprint: Blueprint, last: int, points: int, progress: Any) -> xr.Dataset:
    from scansnap.claims.evidence import from_trajectory
    from scansnap.dynamics.flow.integrate import flow

    eta_y, eta_z = effective_rates(blueprint)
    data = flow(blueprint.classes, eta_y=eta_y, eta_z=eta_z, t=grid(last, points), rtol=1e-6, atol=1e-9, device="cpu",
                progress=progress)  # fmt: skip
    return data.assign(growth=(("t", "class"), from_trajectory(data, blueprint.classes).measured_growth))


def _response(blueprint: Blueprint, last: int, points: int, progress: Any) -> xr.Dataset:
    """Up to where it is trusted; it has no loss, and says of the entropy what its attention has."""
    from scansnap.dynamics.response.solve import response

    eta_y, eta_z = effective_rates(blueprint)
    data = response(blueprint.classes, eta_y, eta_z, grid(last, points), stop=1.0, progress=progress,
                    variables=("z", "attention", "growth"))  # fmt: skip
    data = data.isel(t=data.t.values <= data.attrs["trusted_until"])
    distinct = np.zeros(data.attention.shape[1:], dtype=bool)
    for n in range(blueprint.classes.n_classes):
        distinct[n, blueprint.classes.distinct(n)] = True
    entropy = masked_entropy(data.attention.values, distinct)
    return data.assign(entropy=(("t", "class"), entropy), loss=("t", np.full(len(entropy), np.nan)))
