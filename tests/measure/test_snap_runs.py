"""The measured snapping time on flows and SGD."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import brentq

import scansnap as ss
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.measure.snap import snap_time


def slope(found: xr.Dataset) -> tuple[float, float]:
    """d ln t_fastest/d ln η_Y by weighted least squares, and its standard error from the quoted intervals."""
    x, y = np.log(found["eta_y"].values), np.log(found["t_fastest"].values)
    weight = (np.log(found["t_snap_high"] / found["t_snap_low"]).values / 2) ** -2
    x = x - np.average(x, weights=weight)
    return float((weight * x * y).sum() / (weight * x * x).sum()), float((weight * x * x).sum() ** -0.5)


@pytest.mark.parametrize("common_weight", [1.0, 2.0])
def test_closed_form_near_the_orthonormal_limit(common_weight: float) -> None:
    """Nearly orthogonal classes, η_Y ≫ η_Z: the maximum of [u(e^{ρu} − 1) − ρu²/2]/t, to second order in ρ.

    Overlap makes it later by 2ρ. That is more than the uncertainty, and so is half of it, a rate (1 − ρ)η_Y.
    """
    classes = SequenceClasses.synthetic(1, 8, common=1, distinct=300, common_weight=common_weight)
    k, m = classes.n_classes, classes.vocab_size
    f = classes.p_context / np.linalg.norm(classes.p_context, axis=1, keepdims=True)
    rho = float((f @ f.T)[0, 1])
    u = brentq(lambda u: np.exp(u) * (u - 2) - (m - 1) * u + 2, 2.1, 60)
    orthonormal = k * (np.expm1(u) + (m - 1) * u) / m
    assert 1 < orthonormal / ss.theory.t_scan(eta_y=1.0, n_classes=k, vocab_size=m) < 2
    gap = np.linspace(1, 3 * np.log(m), 100_000)
    times = k * (np.expm1(gap) + (m - 1) * gap) / m
    predicted = times[np.argmax((gap * np.expm1(rho * gap) - rho * gap**2 / 2) / times)]
    assert predicted == pytest.approx(orthonormal * (1 + 2 * rho), rel=0.3 * rho)
    t = np.concatenate([[0], predicted * np.geomspace(0.01, 20, 120)])
    snap = snap_time(flow(classes, 1.0, 1e-3, t=t, rtol=1e-7, device="cpu", variables=("attention",)), classes)
    mid, half = float(snap["t_snap"]), float(snap["t_snap_high"] - snap["t_snap_low"]) / 2
    tolerance = rho**2 + half / mid
    assert tolerance < rho / 2
    words = f"t_snap {mid:.2f} ± {half:.2f}, predicted {predicted:.2f} (ρ = {rho:.3f})"
    assert abs(math.log(mid / predicted)) < tolerance, words
    for other in (orthonormal, orthonormal / (1 - rho)):
        assert abs(math.log(mid / other)) > tolerance, words


def test_flows_snap_like_1_over_eta_y() -> None:
    classes = SequenceClasses.syn_small()
    t = np.concatenate([[0], np.geomspace(0.3, 400, 80)])  # overlap lets it go on as a power of t: no farther than this
    results = xr.concat(
        [
            snap_time(flow(classes, eta_y, 0.01, t=t / eta_y, rtol=1e-6, device="cpu"), classes).assign_coords(
                eta_y=eta_y
            )
            for eta_y in (0.5, 2.0, 8.0)
        ],
        "eta_y",
    )
    assert results["has_snapped"].all(), results["reason"].values
    exponent, error = slope(results)
    assert abs(exponent + 1) < 3 * error + 0.002, f"slope {exponent:.4f} ± {error:.4f}, expected −1"


def test_sgd_snaps_like_1_over_eta_y() -> None:
    classes = SequenceClasses.syn_small()
    runs = ss.grid(eta_y=[0.05, 0.1, 0.2, 0.4], eta_z=0.005, seed=range(6))
    data = ss.simulate(
        classes, runs, steps=2500, batch_size=32, context=128, momentum=0.0, record="log:60",
        variables=("attention",), device="cpu",
    )  # fmt: skip
    snap = snap_time(data, classes)
    assert snap["n_runs"].values.tolist() == [6] * 4
    # fastest in all four; the record is long enough to see the two faster decoders slow down to half of it
    assert snap["has_snapped"].values.tolist() == [False, False, True, True], snap["reason"].values
    assert (snap["over"] == "6 training seeds").all()
    exponent, error = slope(snap)
    assert error < 0.05
    assert abs(exponent + 1) < 3 * error, f"slope {exponent:.3f} ± {error:.3f}, expected −1"
    # seeds differ by more than one run can know of itself, but not by another order of magnitude
    single = snap_time(data, classes, pool=False)
    spread = single["t_fastest"].groupby("eta_y").map(lambda g: np.log(g).std(ddof=1))
    quoted = (np.log(single["t_snap_high"] / single["t_snap_low"]) / 2).groupby("eta_y").mean()
    assert (spread / quoted < 15).all(), (spread.values, quoted.values)


def test_momentum_and_larger_classes_from_random_starts() -> None:
    classes = SequenceClasses.syn_medium(3)
    runs = ss.grid(eta_y=[0.1, 0.4], eta_z=0.02, seed=range(4))
    data = ss.simulate(
        classes, runs, steps=1500, batch_size=32, momentum=0.9, init="uniform", variables=("attention",),
        device="cpu",
    )  # fmt: skip
    snap = snap_time(data, classes)
    assert snap["has_snapped"].all(), snap["reason"].values
    late, early = snap["t_snap"].values
    assert 1.5 < late / early < 4, (late, early)  # less than 4, as momentum has its own delay
