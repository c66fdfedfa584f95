"""The measured snapping time: curves with a known knee, with and without noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from refusals import refused
from scansnap.classes import SequenceClasses
from scansnap.measure.snap import log_odds, snap_time
from scansnap.measure.snap_curves import EARLIER, FROZEN, HARDLY_BEGUN, NOT_YET, e_folds, estimate_snap, in_t

CLASSES = SequenceClasses.synthetic(n_queries=1, next_per_query=2, common=2, distinct=3)
TIMES = np.concatenate([[0.0], np.geomspace(0.3, 3000, 80)])
KNEE = 30.0


def knee(times: np.ndarray, gain: float, at: float = KNEE) -> np.ndarray:
    """S with χ − 1 = gain x²/(1 + x²), x = t/at: its exponent 2/(1 + x²) is 1 at x = 1, whatever the gain."""
    x = times / at
    return np.log1p(gain * x**2 / (1 + x**2)) / 2


def trajectory(
    times: np.ndarray, s: np.ndarray, dim: str = "t", classes: SequenceClasses = CLASSES, dtype: str = "float64"
) -> xr.Dataset:
    """Attention whose log-odds are s, of shape (…run, time) or (…run, time, class)."""
    s = s if s.ndim and s.shape[-1] == classes.n_classes else np.repeat(s[..., None], classes.n_classes, axis=-1)
    c = np.broadcast_to(classes.p_context, (*s.shape, classes.vocab_size)).copy()
    for n in range(classes.n_classes):
        c[..., n, classes.distinct(n)] *= np.exp(s[..., n, None])
    c /= c.sum(-1, keepdims=True)
    dims = ("run", dim, "seq_class", "token")[-c.ndim :]
    data = xr.Dataset({"attention": (dims, c.astype(dtype))}, {dim: times})
    return data.assign_coords(run=np.arange(len(c)), seed=("run", np.arange(len(c)))) if "run" in dims else data


def walk(rng: np.random.Generator, times: np.ndarray, size: float, n: int) -> np.ndarray:
    """Noise that adds up like that of SGD: zero at the start, standard deviation ``size`` at the knee."""
    steps = np.sqrt(np.diff(times, prepend=0.0) / KNEE) * size
    return np.cumsum(rng.normal(size=(n, len(times))) * steps, axis=1)


# --- the definition ----------------------------------------------------------------------------------------


def test_log_odds_of_known_curves() -> None:
    s = np.stack([knee(TIMES, 3.0), -knee(TIMES, 1.0)], axis=-1)
    odds = log_odds(trajectory(TIMES, s), CLASSES)
    assert odds.dims == ("t", "seq_class")
    np.testing.assert_allclose(odds, s, atol=1e-14)


def test_log_odds_reads_the_contexts_off_the_attention() -> None:
    data = trajectory(TIMES, knee(TIMES, 3.0))
    xr.testing.assert_identical(log_odds(data), log_odds(data, CLASSES))


@pytest.mark.parametrize("gain", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_a_smooth_knee_is_found(gain: float, exponent: float) -> None:
    truth = KNEE * math.sqrt(2 / exponent - 1)
    snap = snap_time(trajectory(TIMES, knee(TIMES, gain)), CLASSES, exponent=exponent)
    assert snap["t_snap"].dims == ()
    low, mid, high = (float(snap[name]) for name in ("t_snap_low", "t_snap", "t_snap_high"))
    assert bool(snap["has_snapped"]), snap["reason"].item()
    assert snap["reason"].item() == ""
    message = f"t_snap {mid:.3f} in [{low:.3f}, {high:.3f}], truth {truth:.3f}"
    assert low < mid < high, message
    assert abs(math.log(mid / truth)) < 0.02, message
    assert high / low < 1.1, message
    assert low / 1.01 < truth < high * 1.01, message


@pytest.mark.parametrize(
    "times",
    [
        np.concatenate([[0], np.geomspace(3, 300, 12)]),  # sparse
        np.arange(0, 601),  # every step: averaged into fewer
        np.concatenate([[0], np.geomspace(0.3, 150, 60)]),  # ends when it is at half its greatest speed
        np.geomspace(0.3, 3e6, 100),  # goes on for long, without a start
    ],
    ids=["sparse", "all", "short", "long"],
)
def test_the_answer_does_not_depend_on_the_record(times: np.ndarray) -> None:
    snap = snap_time(trajectory(times, knee(times, 2.0)), CLASSES)
    mid, half = float(snap["t_snap"]), float(snap["t_snap_high"] - snap["t_snap_low"]) / 2
    assert abs(mid - KNEE) < 2 * half + 0.01 * KNEE, f"t_snap {mid:.3f} ± {half:.3f}, truth {KNEE:g}"


def test_float32_and_steps() -> None:
    steps = np.unique(np.concatenate([[0], np.geomspace(1, 2000, 60)]).astype(int))
    snap = snap_time(trajectory(steps, knee(steps, 2.0), dim="step", dtype="float32"), CLASSES)
    assert snap.attrs["time"] == "step"
    assert float(snap["t_snap"]) == pytest.approx(KNEE, rel=0.02)


def test_classes_for_themselves() -> None:
    s = np.stack([knee(TIMES, 1.0, at=10.0), knee(TIMES, 1.0, at=90.0)], axis=-1)
    snap = snap_time(trajectory(TIMES, s), CLASSES, per_class=True)
    assert snap["t_snap"].dims == ("seq_class",)
    np.testing.assert_allclose(snap["t_snap"], [10, 90], rtol=0.02)
    together = float(snap_time(trajectory(TIMES, s), CLASSES)["t_snap"])
    assert 9 < together < 90


def test_one_definition_for_every_curve() -> None:
    """Between evenly spaced times it is a parabola's peak; on recorded steps alone, the step next to it."""
    x = np.linspace(0.0, 8.0, 161)
    gone = np.exp(2 * x) / (1 + np.exp(2 * (x - math.log(KNEE))))  # t²/(1 + (t/at)²): gone/t is largest at the knee
    assert float(in_t(x, gone, between=True)[0]) == pytest.approx(math.log(KNEE), abs=1e-4)
    on_records = float(in_t(x, gone, between=False)[0])
    assert on_records in x
    assert abs(on_records - math.log(KNEE)) <= 0.025
    when, why = in_t(x, np.exp(np.stack([2 * x, 0.5 * x])), between=True)
    np.testing.assert_array_equal(when, [np.inf, -np.inf])  # the ends of the record
    assert why.tolist() == [NOT_YET, EARLIER]


# --- which clock -------------------------------------------------------------------------------------------


def test_a_logarithm_snaps_in_t_and_never_in_ln_t() -> None:
    """S ∝ ln(1 + (t/at)²): frozen in t, as fast as ever in ln t."""
    snap = snap_time(trajectory(TIMES, 0.01 * np.log1p((TIMES / KNEE) ** 2)), CLASSES)
    assert bool(snap.has_snapped)
    assert not bool(snap.has_snapped_ln)
    assert "not frozen" in snap.reason_ln.item()
    assert np.isnan(snap.t_snap_ln)


def test_an_iterated_logarithm_snaps_in_both() -> None:
    """ln ln: the speed per ln t falls as 1/ln t; the record must be long enough to see it fall to half."""
    times = np.geomspace(0.3, 3e6, 120)
    snap = snap_time(trajectory(times, 0.01 * np.log1p(np.log1p((times / KNEE) ** 2))), CLASSES)
    assert bool(snap.has_snapped_ln), snap.reason_ln.item()
    assert 0.5 < float(snap.t_snap_ln) / (2 * KNEE) < 2
    assert float(snap.t_snap_ln_low) < float(snap.t_snap_ln) < float(snap.t_snap_ln_high)


def test_a_step_in_ln_t_is_found_with_an_interval_over_seeds() -> None:
    """χ of a knee in x = t/at has its steepest S in ln t where d/dx says; eight seeds with noise hold it."""
    x = np.geomspace(0.1, 100, 20_000)
    s = knee(x * KNEE, 2.0)
    width = int(np.searchsorted(np.log(x), math.log(x[0]) + 1))
    truth = KNEE * x[np.argmax(s[width:] - s[:-width])] * math.exp(0.5)
    data = trajectory(TIMES, knee(TIMES, 2.0) + walk(np.random.default_rng(11), TIMES, 0.002, 8))
    found = snap_time(data, CLASSES).isel(setting=0)
    assert found.over.item() == "8 training seeds"
    low, mid, high = (float(found[name]) for name in ("t_snap_ln_low", "t_snap_ln", "t_snap_ln_high"))
    assert abs(math.log(mid / truth)) < 2 * math.log(high / low) + 0.02, (low, mid, high, truth)
    assert snap_time(data, CLASSES, pool=False).over.values[0] == "one run, its own noise"


def words(steps: np.ndarray, seeds: int = 5) -> np.ndarray:
    """How far a YZ model's attention moved on WikiText-2: as t^0.6 from step 10 on, farthest at step 2,700."""
    rng = np.random.default_rng(0)
    base = 0.4 * (1 - np.exp(-((steps / 700) ** 0.6))) * np.where(steps > 3000, (3000 / steps) ** 0.1, 1.0)
    early = np.minimum(steps / 10, 1.0) ** 0.8
    return base * early * (1 + 0.02 * rng.normal(size=(seeds, 1)))


@pytest.mark.parametrize("seeds", [1, 5])
def test_what_has_hardly_begun_to_move_has_not_snapped(seeds: int) -> None:
    """The mean speed since the start is greatest at step 10 or so, with a thirtieth of the way gone: no snap there."""
    steps = np.unique(np.rint(np.geomspace(1, 20_000, 40)))
    moved = words(steps, seeds)
    fastest = steps[np.argmax(moved.mean(0) / steps)]
    assert 3 < fastest < 30, "the curve is the one that was marked"
    assert moved.mean(0)[steps == fastest] < 0.1 * moved.mean(0).max()
    estimate = estimate_snap(steps, moved, np.random.default_rng(0))
    assert not estimate.t.has_snapped
    assert HARDLY_BEGUN in estimate.t.reason
    assert estimate.t.describe() == "has not snapped"
    assert str(in_t(np.log(steps), moved[0], between=False)[1]) == HARDLY_BEGUN


def test_attention_that_goes_round_has_not_frozen_in_ln_t() -> None:
    """Its distance from the start stands still while it goes on: what it goes over e-folds decides."""
    steps = np.unique(np.rint(np.geomspace(1, 20_000, 40)))
    moved = words(steps)
    start, end = e_folds(steps)
    assert (steps[end] / steps[start] >= math.e - 1e-6).all()
    assert (steps[end] / steps[np.minimum(start + 1, end)] < math.e).all()
    middle, way = np.sqrt(steps[start] * steps[end]), moved[:, end]
    slow, steady = (np.abs(moved[:, end] - moved[:, start]), np.full_like(way, 0.2) * np.minimum(middle / 500, 1.0))
    assert estimate_snap(steps, moved, np.random.default_rng(0), folds=(middle, slow, way)).ln.has_snapped
    estimate = estimate_snap(steps, moved, np.random.default_rng(0), folds=(middle, steady, way)).ln
    assert not estimate.has_snapped


def test_what_is_still_half_as_fast_has_not_snapped() -> None:
    """The record ends at twice the knee: past the peak, at 0.8 of it."""
    times = np.geomspace(0.3, 2 * KNEE, 60)
    assert FROZEN < 0.8
    snap = snap_time(trajectory(times, knee(times, 2.0)), CLASSES)
    assert not bool(snap.has_snapped)
    assert "not frozen" in snap.reason.item()
    assert float(snap.t_fastest) == pytest.approx(KNEE, rel=0.02)
    assert np.isnan(snap.t_snap)


# --- noise -------------------------------------------------------------------------------------------------


def share_inside(found: xr.Dataset, truth: float) -> tuple[float, str]:
    inside = (found["t_snap_low"] <= truth) & (truth <= found["t_snap_high"])
    spread = np.log(found["t_snap"] / truth)
    half = np.log(found["t_snap_high"] / found["t_snap_low"]) / 2
    return float(inside.mean()), (
        f"{float(inside.mean()):.2f} of the 68% intervals hold the truth {truth:g}: "
        f"ln(t_snap/truth) {float(spread.mean()):.4f} ± {float(spread.std()):.4f}, quoted ± {float(half.mean()):.4f}"
    )


def test_seeds_are_pooled_and_their_interval_is_honest() -> None:
    """60 settings of 8 seeds: the 68% intervals hold the truth about that often (binomial sd 6%)."""
    rng = np.random.default_rng(1)
    n_settings, n_seeds = 60, 8
    s = knee(TIMES, 2.0) + walk(rng, TIMES, 0.05, n_settings * n_seeds)
    data = trajectory(TIMES, s).assign_coords(
        eta_y=("run", np.repeat(np.arange(n_settings) + 1.0, n_seeds)),
        seed=("run", np.tile(np.arange(n_seeds), n_settings)),
    )
    snap = snap_time(data, CLASSES)
    assert snap["t_snap"].dims == ("setting",)
    assert snap["eta_y"].values.tolist() == list(range(1, n_settings + 1))
    assert (snap["n_runs"] == n_seeds).all()
    assert snap["has_snapped"].all(), set(snap["reason"].values.tolist())
    share, message = share_inside(snap, KNEE)
    assert 0.5 < share < 0.86, message
    shift = np.log(snap["t_snap"] / KNEE)
    assert abs(float(shift.mean())) < 4 * float(shift.std()) / math.sqrt(n_settings) + 0.005, message


def test_single_runs_quote_their_own_noise() -> None:
    rng = np.random.default_rng(2)
    data = trajectory(TIMES, knee(TIMES, 2.0) + walk(rng, TIMES, 0.02, 60))
    snap = snap_time(data, CLASSES, pool=False)
    assert snap["t_snap"].dims == ("run",)
    assert snap["seed"].values.tolist() == list(range(60))
    assert snap["has_snapped"].mean() > 0.9, set(snap["reason"].values.tolist())
    share, message = share_inside(snap.isel(run=snap["has_snapped"].values), KNEE)
    assert 0.5 < share < 0.86, message


def test_noise_alone_is_seldom_taken_for_an_answer() -> None:
    data = trajectory(TIMES, walk(np.random.default_rng(9), TIMES, 0.1, 60))
    single = snap_time(data, CLASSES, pool=False)["has_snapped"].mean()
    pooled = snap_time(data.assign_coords(eta_y=("run", np.repeat(np.arange(15), 4))), CLASSES)["has_snapped"].mean()
    assert float(single) <= 0.1
    assert float(pooled) <= 0.1


def test_more_noise_means_a_wider_interval() -> None:
    rng = np.random.default_rng(3)
    noise = walk(rng, TIMES, 1.0, 10)
    widths = []
    for size in (0.003, 0.03):
        found = snap_time(trajectory(TIMES, knee(TIMES, 2.0) + size * noise), CLASSES).isel(setting=0)
        widths.append(float(np.log(found["t_snap_high"] / found["t_snap_low"])))
    assert widths[1] > 2 * widths[0], widths


def test_the_interval_is_reproducible_and_moves_little_with_the_resampling() -> None:
    data = trajectory(TIMES, knee(TIMES, 2.0) + walk(np.random.default_rng(4), TIMES, 0.03, 10))
    xr.testing.assert_identical(snap_time(data, CLASSES), snap_time(data, CLASSES))
    results = xr.concat([snap_time(data, seed=seed) for seed in (0, 1)], "resampling")
    widths = np.log(results["t_snap_high"] / results["t_snap_low"]).values
    np.testing.assert_allclose(widths[0], widths[1], rtol=0.3)


# --- when there is nothing to find -------------------------------------------------------------------------


def linear_noise(times: np.ndarray) -> np.ndarray:
    return walk(np.random.default_rng(5), times, 0.1, 1)[0]


@pytest.mark.parametrize(
    ("curve", "reason", "interval"),
    [
        (lambda t: knee(t, 1.0, at=1e4), "had not frozen by the end", (3000, math.inf)),
        (lambda t: knee(t, 1.0, at=1e-3), "slows down from the first recorded times on", (0, TIMES[3])),
        (lambda t: 0 * t, "did not move", (0, math.inf)),
        (lambda t: -knee(t, 0.5), "did not move", (0, math.inf)),
        (lambda t: 1e-3 * knee(t, 1.0) + linear_noise(t), "", None),
    ],
    ids=["too short", "too late", "still", "backwards", "noise"],
)
def test_not_found_says_why(
    curve: Callable[[np.ndarray], np.ndarray], reason: str, interval: tuple[float, float] | None
) -> None:
    snap = snap_time(trajectory(TIMES, curve(TIMES)), CLASSES)
    assert not bool(snap["has_snapped"]), float(snap["t_snap"])
    assert np.isnan(snap["t_snap"])
    assert snap["reason"].item()
    assert reason in snap["reason"].item()
    if interval:
        np.testing.assert_allclose((snap["t_snap_low"], snap["t_snap_high"]), interval)


def test_classes_without_common_tokens_are_said_to_be_none() -> None:
    alone = SequenceClasses.synthetic(n_queries=1, next_per_query=2, common=0, distinct=3)
    c = np.broadcast_to(alone.p_context, (len(TIMES), 2, alone.vocab_size))
    snap = snap_time(xr.Dataset({"attention": (("t", "seq_class", "token"), c)}, {"t": TIMES}), alone)
    assert snap["reason"].item() == "no class has both distinct and common tokens"


def test_runs_that_became_non_finite_do_not_count_as_frozen() -> None:
    s = np.stack([knee(TIMES, 2.0), knee(TIMES, 2.0, at=2.0), knee(TIMES, 2.0)])
    data = trajectory(TIMES, s).assign_coords(failed_step=("run", [-1, 5, -1]), eta_y=("run", [1.0, 1.0, 2.0]))
    snap = snap_time(data, CLASSES)
    np.testing.assert_allclose(snap["t_snap"], KNEE, rtol=0.02)
    single = snap_time(data, CLASSES, pool=False)
    assert single["has_snapped"].values.tolist() == [True, False, True]
    assert single["reason"].values[1] == "every run became non-finite"


def test_attention_that_underflows_ends_the_record() -> None:
    s = knee(TIMES, 2.0) + np.where(TIMES > 500, 200.0, 0.0)  # e^−200 is 0 in float32
    snap = snap_time(trajectory(TIMES, s, dtype="float32"), CLASSES)
    assert float(snap["t_snap"]) == pytest.approx(KNEE, rel=0.02)


def test_runs_without_a_seed_are_not_pooled() -> None:
    s = np.stack([knee(TIMES, 2.0), knee(TIMES, 2.0, at=60.0)])
    snap = snap_time(trajectory(TIMES, s).drop_vars("seed"), CLASSES)
    np.testing.assert_allclose(snap["t_snap"], [30, 60], rtol=0.02)
    snap = snap_time(trajectory(TIMES, s).isel(run=1), CLASSES)
    assert snap["t_snap"].dims == ()
    assert int(snap["seed"]) == 1


@pytest.mark.parametrize(
    ("change", "options", "field"),
    [
        (lambda d: d.drop_vars("attention"), {}, ("data", "without attention")),
        (lambda d: d.isel(t=slice(8)), {}, ("t", 7)),
        (lambda d: d.expand_dims(head=2), {}, ("attention", "dimension head")),
        (lambda d: d.isel(token=slice(4)), {}, "classes"), (lambda d: d, {"exponent": 2}, "exponent"),
        (lambda d: d, {"exponent": 0}, "exponent"), (lambda d: d, {"resamples": 3}, "resamples"),
        (lambda d: d, {"classes": None, "local": True}, "local"), (lambda d: d, {"classes": "syn-small"}, "classes"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words(change, options, field) -> None:  # type: ignore[no-untyped-def]
    data = change(trajectory(TIMES, knee(TIMES, 1.0)))
    with refused(field):
        snap_time(data, **{"classes": CLASSES, **options})
