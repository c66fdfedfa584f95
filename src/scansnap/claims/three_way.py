"""Closed form, exact flow and SGD on one setting, and when they diverge.

The closed form is the paper's prediction, the flow its model in the limits T → ∞ and small steps, SGD actual training.
Where closed form and flow diverge, an idealisation of the theorems fails; where flow and SGD diverge, the cause is
noise, sequence length or step size.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from scansnap.checks import InputError, check_float, check_integer
from scansnap.claims.evidence import Array, Evidence, from_trajectory, gradients_and_gap
from scansnap.claims.theorems.theorem4_growth import predict
from scansnap.claims.time_windows import WINDOW_END
from scansnap.classes import SequenceClasses
from scansnap.progress import Progress
from scansnap.runs import Runs, grid
from scansnap.theory import t_snap, u

if TYPE_CHECKING:
    from scansnap.dynamics.state_view import StateView

SOURCES = ("closed form", "flow", "sgd")
PAIRS = (("closed form", "flow"), ("closed form", "sgd"), ("flow", "sgd"))
MEANING = {
    "gap": "logit of the right output less that of one that is never right, mean over classes",
    "growth": "growth exponent B_n, mean over classes with distinct tokens",
    "logit": "z(t) − z(0) of the class's strongest distinct token, mean over classes; no closed form",
}

_N_TIMES = 40
_NOISE = 3.0  # standard errors that are not a divergence
_FLOOR = 0.01  # of the largest value: smaller values are ignored


def three_way(
    classes: SequenceClasses,
    *,
    eta_y: float,
    eta_z: float,
    context: float = 128,
    batch_size: int | None = 128,
    seeds: int = 4,
    t_end: float | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """The logit gap and the growth of attention by all three, at the same times.

    classes, eta_y, eta_z    the setting; plain SGD from zero tables
    context, batch_size      of SGD; ``context=math.inf`` with ``batch_size=None`` is SGD without noise, run once
    seeds                    number of SGD runs, at least 2 where there is noise
    t_end                    in batch-size-1 steps, default 10 t₀; one SGD step on a mini-batch mean counts 1
    progress                 called with (done, total)

    Dims t and source; variables ``gap``, ``growth`` and ``logit``, each with the standard error of its mean over seeds
    (``gap_error``, …; 0 but for SGD). The closed form takes C₀ from the flow's earliest times, as Theorem 4 does,
    and has no logit (NaN). Left out: ``gap`` where every output is the right one of some class, ``growth`` and
    ``logit`` where no class has distinct tokens.
    """
    eta_y, eta_z = check_float("eta_y", eta_y, above=0), check_float("eta_z", eta_z, above=0)
    quiet = math.isinf(context) and batch_size is None
    seeds = 1 if quiet else check_integer("seeds", seeds, least=2)
    k, m = classes.n_classes, classes.vocab_size
    if t_end is None:
        t_end = WINDOW_END * float(t_snap(eta_y=eta_y, n_classes=k, vocab_size=m))
    last = math.ceil(check_float("t_end", t_end, above=0))
    t = np.unique(np.concatenate([[0], np.rint(np.geomspace(1, last, _N_TIMES)).astype(np.int64)]))
    flow = _flow(classes, eta_y, eta_z, t)
    runs = _sgd(classes, grid(eta_y=eta_y, eta_z=eta_z, seed=range(seeds)), context, batch_size, t, progress)
    curves = {"closed form": [_closed_form(flow)], "flow": [_measure(flow)], "sgd": [_measure(run) for run in runs]}
    variables: dict[str, tuple[tuple[str, str], Array, dict[str, str]]] = {}
    for name, meaning in MEANING.items():
        if name not in curves["flow"][0]:
            continue
        values = [np.array([curve[name] for curve in curves[source]]) for source in SOURCES]  # each (runs, t)
        variables[name] = (("t", "source"), np.stack([x.mean(0) for x in values], -1), {"long_name": meaning})
        error = [x.std(0, ddof=1) / math.sqrt(len(x)) if len(x) > 1 else np.zeros(len(t)) for x in values]
        variables[f"{name}_error"] = (
            ("t", "source"), np.stack(error, -1), {"long_name": f"standard error of {name} over seeds"},
        )  # fmt: skip
    attrs = {"eta_y": eta_y, "eta_z": eta_z, "context": float(context), "seeds": seeds, "n_classes": k,
             "vocab_size": m, "batch_size": "expectation" if batch_size is None else batch_size,
             "t_snap": flow.t_snap, "t_scan": flow.t_scan}  # fmt: skip
    return xr.Dataset(variables, {"t": t.astype(np.float64), "source": list(SOURCES)}, attrs)


def divergence_times(data: xr.Dataset, tolerance: float = 0.1) -> xr.Dataset:
    """For each quantity and pair of sources the first time at which they differ by more than ``tolerance``.

    The difference counts beyond 3 standard errors, relative to the larger of the two values, and only once that has
    reached a hundredth of its largest: before, single steps and rounding decide. Variables along ``quantity`` and
    ``pair``: ``divergence_t``, NaN for never; ``compared``, False where one of the two has no such quantity;
    ``largest`` and ``final``, the largest and the last relative difference beyond noise. Curves that part may meet
    again: SGD's logits lag behind the flow's by about a step, which is much at t = 5 and nothing at t = 500.
    """
    tolerance = check_float("tolerance", tolerance, above=0)
    names = [name for name in MEANING if name in data]
    if not names or "source" not in data.dims:
        raise InputError("data", f"with {', '.join(map(str, data.data_vars)) or 'nothing'}", "what three_way returns")
    shape = (len(names), len(PAIRS))
    when, largest, final = np.full((3, *shape), np.nan)
    compared = np.zeros(shape, dtype=bool)
    for i, name in enumerate(names):
        for j, pair in enumerate(PAIRS):
            off = _difference(data, name, *pair)
            if off is None:
                continue
            compared[i, j], largest[i, j], final[i, j] = True, off.max(), off[-1]
            if (off > tolerance).any():
                when[i, j] = data["t"].values[np.argmax(off > tolerance)]
    return xr.Dataset(
        {
            "divergence_t": (("quantity", "pair"), when, {"long_name": f"first time of a difference > {tolerance:g}"}),
            "compared": (("quantity", "pair"), compared, {"long_name": "whether both sources have the quantity"}),
            "largest": (("quantity", "pair"), largest, {"long_name": "largest relative difference beyond noise"}),
            "final": (("quantity", "pair"), final, {"long_name": "relative difference beyond noise at the end"}),
        },
        {"quantity": names, "pair": [f"{a} – {b}" for a, b in PAIRS]},
        {"tolerance": tolerance, "t_snap": data.attrs.get("t_snap", math.nan)},
    )


def _difference(data: xr.Dataset, name: str, a: str, b: str) -> Array | None:
    """(t,) relative to the larger value, beyond noise; ∞ where one is not a number; None where one has no numbers."""
    x, y = (data[name].sel(source=source).values for source in (a, b))
    if np.isnan(x).all() or np.isnan(y).all():
        return None
    x, y = (np.where(np.isfinite(values), values, np.nan) for values in (x, y))
    noise = np.hypot(*(data[f"{name}_error"].sel(source=source).values for source in (a, b)))
    size = np.maximum(np.abs(x), np.abs(y))
    begun = (size > 0) & (size >= _FLOOR * np.nanmax(size))
    off = np.zeros(len(size))
    off[begun] = np.maximum(np.abs(x - y) - _NOISE * noise, 0)[begun] / size[begun]
    off[np.isnan(x - y)] = np.inf
    return off


# --- the three sources -------------------------------------------------------------------------------------------


def _flow(classes: SequenceClasses, eta_y: float, eta_z: float, t: Array) -> Evidence:
    from scansnap.dynamics.flow.integrate import flow

    data = flow(classes, eta_y=eta_y, eta_z=eta_z, t=t, variables=("z", "attention", "g", "gap"))
    return from_trajectory(data, classes)


def _sgd(
    classes: SequenceClasses, runs: Runs, context: float, batch_size: int | None, t: Array, progress: Progress | None
) -> list[Evidence]:
    """Each run; of Y only the gap is recorded, so that M may be large."""
    from scansnap.dynamics.simulate import simulate

    def record_gap(state: StateView) -> dict[str, Array]:
        _, gap = gradients_and_gap(classes, state["attention"], state["y"])
        return {} if gap is None else {"gap": gap}

    data = simulate(
        classes, runs, steps=int(t[-1]), context=context, batch_size=batch_size, record=t.tolist(),
        variables=("z", "attention"), record_fn=record_gap, dtype="float64", progress=progress,
    )  # fmt: skip
    gaps = data["gap"].values if "gap" in data else [None] * len(runs)
    return [replace(from_trajectory(data, classes, i), gap=gap) for i, gap in enumerate(gaps)]


# --- what is compared --------------------------------------------------------------------------------------------


def _measure(evidence: Evidence) -> dict[str, Array]:
    """The quantities of one run, (n,) each."""
    values: dict[str, Array] = {}
    if evidence.gap is not None:
        values["gap"] = evidence.gap.mean(-1)
    tops = []
    for n in evidence.classes_with_distinct:
        tokens = evidence.classes.distinct(n)
        top = tokens[np.argmax(evidence.attention[0, n, tokens])]
        z = evidence.z[:, evidence.class_query[n], top]
        tops.append(z - z[0])
    if tops:
        values["growth"] = evidence.measured_growth[:, evidence.classes_with_distinct].mean(-1)
        values["logit"] = np.mean(tops, axis=0)
    return values


def _closed_form(flow: Evidence) -> dict[str, Array]:
    """u of Lemma 6 and B_n of Theorem 4; B_n is NaN for a class whose ξ_n begins at 0 or below: it has no C₀."""
    classes = flow.classes
    s = flow.t / classes.n_classes
    nothing = np.full(len(s), np.nan)
    curves = {"gap": np.asarray(u(s, eta_y=flow.eta_y, vocab_size=classes.vocab_size)), "logit": nothing}
    curves["growth"] = nothing
    if predictions := [predict(flow, n) for n in flow.classes_with_distinct]:
        curves["growth"] = np.mean([p(flow.t, flow) if p.c0 > 0 else nothing for p in predictions], axis=0)
    return curves
