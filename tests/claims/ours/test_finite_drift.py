"""The drift of finite sequences as a claim: it holds on SGD, and fails where the prediction or the runs are wrong."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.evidence import Evidence, from_flow, from_trajectory
from scansnap.claims.ours import drift
from scansnap.claims.verify import verify

SETTINGS = {
    "textbook": (ss.SequenceClasses.textbook(), 512),
    "syn-small": (ss.SequenceClasses.syn_small(), 2048),
    "syn-medium": (ss.SequenceClasses.syn_medium(1), 2048),
}


@cache
def evidence_of(name: str) -> Evidence:
    """Only its setting and its end are asked for."""
    classes, context = SETTINGS[name]
    data = ss.simulate(classes, eta_y=0.9, eta_z=0.02, steps=80, context=context, record=[0, 80], dtype="float64",
                       variables=("z", "attention"))  # fmt: skip
    return from_trajectory(data, classes)


@cache
def _pairs(name: str, record: tuple[int, ...], context: float, seeds: range, **rates: float) -> np.ndarray:
    return drift.simulate_pairs(SETTINGS[name][0], record=list(record), context=context, seeds=seeds, **rates)


def once(classes: ss.SequenceClasses, *, record: list[int], **setting: object) -> np.ndarray:
    """The claim's own runs, made once for all predictions held against them."""
    name = next(name for name, (own, _) in SETTINGS.items() if own is classes)
    return _pairs(name, record=tuple(record), **setting)


@pytest.mark.parametrize("name", SETTINGS)
def test_holds_on_sgd(name: str) -> None:
    claim, fates = drift.check(evidence_of(name), runs=once)
    assert claim.status == "holds", claim
    assert claim.measured == pytest.approx(1, abs=0.07)
    assert all(a.met for a in claim.assumptions)
    assert claim.interval[1] < drift.TOLERANCE
    assert fates.status == "holds", fates
    if name == "textbook":  # Theorem 2(a) has them all rise
        assert "6 of 10 distinct ones falling" in fates.quantity


# --- it can fail --------------------------------------------------------------------------------------------------


Forecast = tuple[np.ndarray, np.ndarray]


def other_sign(*args: object, **setting: object) -> Forecast:
    limit, found = drift.predict_drift(*args, **setting)
    return limit, -found


def half_as_long(*args: object, context: float, **setting: object) -> Forecast:
    return drift.predict_drift(*args, context=context / 2, **setting)


def twice_as_long(*args: object, context: float, **setting: object) -> Forecast:
    return drift.predict_drift(*args, context=2 * context, **setting)


def blind_to_frequency(classes: ss.SequenceClasses, **setting: object) -> Forecast:
    """The right size on every class, but each distinct token gets what another one should."""
    limit, found = drift.predict_drift(classes, **setting)
    for n in range(classes.n_classes):
        own = classes.distinct(n)
        found[..., own] = found[..., own[::-1]]
    return limit, found


def as_theorem_2_has_it(*args: object, **setting: object) -> Forecast:
    """Next to no drift: every distinct token rises."""
    limit, found = drift.predict_drift(*args, **setting)
    return limit, 1e-6 * found


@pytest.mark.parametrize(
    ("forecast", "slope"),
    [
        (other_sign, -1.0),
        (half_as_long, 0.5),
        (twice_as_long, 2.0),
        (blind_to_frequency, None),
        (as_theorem_2_has_it, None),
    ],
)
def test_wrong_predictions_fail(forecast: drift.Pairs, slope: float | None) -> None:
    claim, fates = drift.check(evidence_of("textbook"), runs=once, predict=forecast)
    assert claim.status == "fails", claim
    assert (fates.status == "fails") == (slope not in (0.5, 2.0)), fates  # the signs survive a wrong size
    assert "instead of" in claim.reason
    if slope is not None:
        assert claim.measured == pytest.approx(slope, rel=0.1)


def endless(classes: ss.SequenceClasses, *, context: float, **setting: object) -> np.ndarray:
    """Runs that have noise, but no drift: the mean is taken off."""
    found = once(classes, context=context, **setting)
    return found - found.mean(0)


def nothing(*args: object, **setting: object) -> np.ndarray:
    """Runs at T = ∞ on either side."""
    return np.zeros_like(once(*args, **setting))


def longer(*args: object, context: float, **setting: object) -> np.ndarray:
    return drift.simulate_pairs(*args, context=1.5 * context, **setting)


@pytest.mark.parametrize(("runs", "slope"), [(endless, 0.0), (nothing, 0.0), (longer, 2 / 3)])
def test_other_runs_fail(runs: drift.Pairs, slope: float) -> None:
    claim, _ = drift.check(evidence_of("textbook"), runs=runs)
    assert claim.status == "fails", claim
    assert claim.measured == pytest.approx(slope, abs=0.06)


def test_runs_that_are_not_finite_fail() -> None:
    def broken(*args: object, **setting: object) -> np.ndarray:
        return np.full_like(once(*args, **setting), np.nan)

    assert [claim.status for claim in drift.check(evidence_of("syn-small"), runs=broken)] == ["fails", "fails"]


def test_few_seeds_leave_it_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "_SEEDS", 3)
    monkeypatch.setattr(drift, "_ROUNDS", 1)
    monkeypatch.setattr(drift, "_BATCH", 8)
    claim, fates = drift.check(evidence_of("textbook"))
    assert (claim.status, fates.status) == ("undecided", "undecided"), claim
    assert "more seeds would decide" in claim.reason


# --- where it does not speak --------------------------------------------------------------------------------------


def test_what_it_does_not_speak_of() -> None:
    classes = ss.SequenceClasses.syn_small()
    for claim in drift.check(from_flow(classes, eta_y=0.9, eta_z=0.02, t_end=10, n_times=6)):
        assert (claim.status, "--finite-T" in claim.reason) == ("not applicable", True)
    short = verify(classes, eta_y=0.5, eta_z=0.05, context=16, t_end=30, seeds=1, checks=["finite-drift"])
    assert short["finite-drift"].status == "not applicable"
    assert "long sequences" in short["finite-drift"].reason
    assert short["finite-drift"].measured is not None
    fast = verify(classes, eta_y=1.5, eta_z=0.05, context=64, t_end=30, seeds=1, checks=["finite-drift"])
    assert "not below 1" in fast["finite-drift"].reason
    alone = ss.SequenceClasses([[1.0, 0, 0, 0], [0, 1.0, 0, 0]], query=[2, 2], next_token=[2, 3])
    found = verify(alone, eta_y=0.5, eta_z=0.05, context=64, t_end=30, seeds=1, checks=["finite-drift"])
    assert "single token" in found["finite-drift"].reason


# --- against the flow ---------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_small_rates_follow_the_flow_with_its_drift() -> None:
    """SGD at η_Y = 0.2 and T = 257 in the mean over seeds, less the flow: what flow and drift differ by, to 10%.

    The runs at T = ∞ on the same classes take the noise of the classes away; they are O(η) from the flow themselves.
    """
    from scipy.integrate import solve_ivp

    classes = ss.SequenceClasses.syn_medium(1)
    steps, rates = 100, {"eta_y": 0.2, "eta_z": 0.04}
    field = drift.SampledFlow(classes, **rates)
    n_y = math.prod(field.y_shape)

    def follow(context: float | None) -> np.ndarray:
        def move(_: float, state: np.ndarray) -> np.ndarray:
            at = state[:n_y].reshape(field.y_shape), state[n_y:].reshape(field.z_shape)
            parts = [field.flow(*at)] + ([field.drift(*at, context=context)] if context else [])
            return np.concatenate([sum(p.y for p in parts).ravel(), sum(p.z for p in parts).ravel()])

        run = solve_ivp(
            move, (0, steps), np.zeros(n_y + math.prod(field.z_shape)), method="LSODA", rtol=1e-8, atol=1e-12
        )
        return run.y[n_y:, -1].reshape(field.z_shape)

    flow = ss.flow(classes, **rates, t=[float(steps)], variables=("z",)).z.values[0]
    limit = follow(None)
    np.testing.assert_allclose(limit, flow, atol=1e-5 * np.abs(flow).max())
    p = follow(257) - limit
    found = drift.simulate_pairs(classes, **rates, context=257, record=[steps], seeds=range(40))[:, 0]
    inside = np.abs(p) > 0
    lever = p[inside] / found[:16, inside].var(0, ddof=1)
    slopes = found[16:, inside] @ lever / (lever @ p[inside])
    error = slopes.std(ddof=1) / math.sqrt(len(slopes))
    assert abs(slopes.mean() - 1) < 0.05 + 3 * error, (slopes.mean(), error)
    assert error < 0.03
