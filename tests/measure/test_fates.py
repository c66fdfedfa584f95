"""Fates and scan order: curves whose answers are known, then real runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from refusals import refused
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.measure.fates import fates, scan_order, scan_rank_correlation

# token 0 common, 1–3 distinct to class 0, 4–5 to class 1; queries 7 and 6, so that ids and order differ
CLASSES = SequenceClasses(
    p_context=[[0.4, 0.1, 0.2, 0.3, 0, 0, 0, 0], [0.5, 0, 0, 0, 0.2, 0.3, 0, 0]], query=[7, 6], next_token=[1, 2]
)


def trajectory(times: np.ndarray, z: np.ndarray, classes: SequenceClasses = CLASSES, dim: str = "t") -> xr.Dataset:
    """A trajectory with these logits, z of shape (…run, time, query, token)."""
    row = np.searchsorted(classes.queries, classes.query)
    c = classes.p_context * np.exp(z[..., row, :])
    dims = ("run", dim, "query", "token")[-z.ndim :]
    return xr.Dataset(
        {"z": (dims, z), "attention": ((*dims[:-2], "seq_class", "token"), c / c.sum(-1, keepdims=True))},
        {dim: times, "query": classes.queries, "token": np.arange(classes.vocab_size)},
    )


def straight(times: np.ndarray, rates: dict[tuple[int, int], float]) -> xr.Dataset:
    """Logits that grow in proportion to ln(1 + t), at the given rates by query and token."""
    z = np.zeros((len(times), 2, 8))
    for (query, token), rate in rates.items():
        z[:, query - 6, token] = rate * np.log1p(times)
    return trajectory(times, z)


TIMES = np.concatenate([[0.0], np.geomspace(0.1, 1000, 60)])
RATES = {(7, 0): -1.0, (7, 1): 0.1, (7, 2): 0.3, (7, 3): 0.6, (6, 0): -0.2, (6, 4): 0.25, (6, 5): -0.05}


def test_fates_of_known_curves() -> None:
    table = fates(straight(TIMES, RATES), CLASSES)
    assert table["seq_class"].values.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert table["token"].values.tolist() == [0, 1, 2, 3, 0, 4, 5]
    assert table["query"].values.tolist() == [7, 7, 7, 7, 6, 6, 6]
    assert table["kind"].values.tolist() == ["common", *["distinct"] * 3, "common", "distinct", "distinct"]
    expected = np.array(list(RATES.values())) * np.log(1001)
    np.testing.assert_allclose(table["z_change"], expected)
    assert table["rises"].values.tolist() == [False, True, True, True, False, True, False]
    assert table["rise_share"].values.tolist() == [0, 1, 1, 1, 0, 1, 0]
    for n in range(2):  # what one token wins the others lose
        np.testing.assert_allclose(table["attention_change"].values[table["seq_class"] == n].sum(), 0, atol=1e-15)
    np.testing.assert_allclose(table["attention_start"], table["p_context"])


def test_rise_share_counts_intervals_and_leaves_out_those_without_movement() -> None:
    z = np.zeros((5, 2, 8))
    z[:, 1, 1] = [0, 1, 1, 0.5, 3]  # up, still, down, up
    table = fates(trajectory(np.arange(5), z, dim="step"), CLASSES)
    assert table["rise_share"].values[1] == pytest.approx(2 / 3)
    assert np.isnan(table["rise_share"].values[2])
    assert not table["rises"].values[2]


def test_layout_turns_into_a_table_a_grid_and_keeps_runs() -> None:
    one = straight(TIMES, RATES)
    both = xr.concat([one, -one], "run").assign_coords(run=[0, 1], eta_y=("run", [1.0, 2.0]))
    both["attention"] = xr.concat([one["attention"]] * 2, "run")
    found = fates(both, CLASSES)
    assert found["z_change"].dims == ("run", "pair")
    assert found["eta_y"].values.tolist() == [1, 2]
    np.testing.assert_array_equal(found["z_change"].isel(run=1), -found["z_change"].isel(run=0))
    table = fates(one, CLASSES).to_dataframe()
    assert len(table) == 7
    assert {"seq_class", "token", "kind", "z_change", "rises"} <= set(table.columns)
    grid = fates(one, CLASSES).set_index(pair=["seq_class", "token"])["z_change"].unstack()
    assert grid.sel(seq_class=1, token=4) == pytest.approx(0.25 * np.log(1001))


def test_local_kinds_follow_the_query() -> None:
    kinds = fates(straight(TIMES, RATES), CLASSES, local=True)["kind"]
    assert set(kinds.values.tolist()) == {"distinct"}  # each query has one class: nothing is shared


@pytest.mark.parametrize("fraction", [0.5, 0.8])
def test_drop_times_of_known_curves(fraction: float) -> None:
    """Ratio (1 + t)^(rate_l − rate_winner), so it reaches the fraction at t = fraction^(−1/difference) − 1."""
    order = scan_order(straight(TIMES, RATES), CLASSES, fraction)
    assert order["token"].values.tolist() == [1, 2, 3, 4, 5]
    assert order["winner"].values.tolist() == [False, False, True, True, False]
    truth = [fraction ** (-1 / d) - 1 for d in (0.5, 0.3)] + [np.nan, np.nan, fraction ** (-1 / 0.3) - 1]
    np.testing.assert_allclose(order["drop_time"], truth, rtol=2e-3)  # ln(1 + t) taken as linear between records


def test_drops_between_0_and_the_first_time_and_never() -> None:
    z = np.zeros((3, 2, 8))
    z[:, 1, 3] = [0, 4, 4]  # past ln 2 at 17% of the first interval
    z[:, 0, 4] = [0, 0.1, 0.2]
    order = scan_order(trajectory(np.array([0.0, 10, 100]), z), CLASSES)["drop_time"].values
    np.testing.assert_allclose(order[:2], 10 * np.log(2) / 4)
    assert np.isnan(order[2:]).all()


def test_a_token_that_comes_back_drops_when_it_goes_for_good() -> None:
    z = np.zeros((5, 2, 8))
    z[:, 1, 3] = [0, 1, 0, 2, 2]
    z[:, 1, 1] = [0, 0, 0, 0, 2]  # drops twice and is back at the end
    order = scan_order(trajectory(np.array([1.0, 10, 100, 1000, 10000]), z), CLASSES)["drop_time"].values
    assert np.isnan(order[0])
    assert order[1] == pytest.approx(100 * 10 ** (np.log(2) / 2))


def test_rank_correlation_of_known_orders() -> None:
    weights = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    classes = SequenceClasses.synthetic(n_queries=1, next_per_query=2, common=1, distinct=5, distinct_weights=weights)
    times = np.geomspace(1, 1000, 40)

    def correlation(rates: list[float]) -> np.ndarray:
        z = np.zeros((len(times), 1, classes.vocab_size))
        z[:, 0, 1:6] = np.log(times)[:, None] * rates
        return scan_rank_correlation(trajectory(times, z, classes), classes).values

    correlations = correlation([0.1, 0.2, 0.3, 0.4, 1.0])
    assert correlations[0] == pytest.approx(1)
    assert np.isnan(correlations[1])  # nothing of class 1 drops
    assert correlation([1.0, 0.4, 0.3, 0.2, 0.1])[0] == pytest.approx(-1)
    # drop ranks 1, 2, 4, 4, 4: three never drop (within 0.1 of the winner: ratio 1000^−0.1 ≈ 0.501)
    tied = correlation([0.1, 0.2, 0.95, 0.92, 1.0])[0]
    assert tied == pytest.approx(np.corrcoef([1, 2, 4, 4, 4], [1, 2, 3, 4, 5])[0, 1])


def test_rank_correlation_needs_an_order() -> None:
    equal = SequenceClasses.synthetic(n_queries=1, common=1, distinct=4, distinct_weights=np.full(4, 0.3))
    z = np.zeros((3, 1, equal.vocab_size))
    z[1:, 0, 1] = 5
    assert np.isnan(scan_rank_correlation(trajectory(np.arange(3.0), z, equal), equal)).all()
    two = scan_rank_correlation(straight(TIMES, RATES), CLASSES)
    assert two.dims == ("seq_class",)
    assert two.values[0] == pytest.approx(np.corrcoef([1, 2, 3], [1, 2, 3])[0, 1])
    assert np.isnan(two.values[1])  # two distinct tokens only


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d.drop_vars("z"), ("data", "without z")),
        (lambda d: d.drop_vars("attention"), ("data", "without attention")),
        (lambda d: d.isel(t=[3]), ("t", "1 recorded values")), (lambda d: d.isel(t=[3, 1, 2]), "t"),
        (lambda d: d.isel(t=0, drop=True), "data"), (lambda d: d.isel(token=slice(5)), "classes"),
        (lambda d: d.assign_coords(query=[0, 1]), ("classes", "with the query 6")), (lambda d: d["z"], "data"),
    ],
)  # fmt: skip
def test_bad_trajectories_are_refused_in_words(change, field) -> None:  # type: ignore[no-untyped-def]
    with refused(field):
        fates(change(straight(TIMES, RATES)), CLASSES)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, math.nan, "half"])
def test_fractions_outside_0_to_1_are_refused(fraction: object) -> None:
    with refused("fraction"):
        scan_order(straight(TIMES, RATES), CLASSES, fraction)  # type: ignore[arg-type]


# --- real runs ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> SequenceClasses:
    return SequenceClasses.syn_small()


@pytest.fixture(scope="module")
def sgd(small: SequenceClasses) -> xr.Dataset:
    runs = ss.grid(eta_y=1.0, eta_z=1.0, seed=range(6))
    return ss.simulate(small, runs, steps=200, momentum=0.9, device="cpu")


def test_distinct_rise_and_common_fall_in_the_limit_of_long_contexts(small: SequenceClasses) -> None:
    """Theorem 2 for momentum 0.9 and sampled classes: every fate, in every recorded interval."""
    runs = ss.grid(eta_y=1.0, eta_z=[0.1, 0.3], seed=range(2))
    table = fates(ss.simulate(small, runs, steps=100, context=math.inf, momentum=0.9, device="cpu"), small)
    distinct = (table["kind"] == "distinct").values
    assert (table["rises"] == distinct).all(), table["z_change"].values
    np.testing.assert_array_equal(table["rise_share"].transpose("run", "pair"), np.tile(distinct, (4, 1)))
    # ż_ml ∝ f_nl²: ten times as frequent, some hundred times as far
    change = table["z_change"].values[:, 10:20]
    np.testing.assert_allclose(change[:, -1] / change[:, 0], 100, rtol=0.15)


def test_fates_in_noisy_runs(small: SequenceClasses, sgd: xr.Dataset) -> None:
    """With T = 128 the rarest distinct token (0.8 occurrences expected) is not sure to rise; the rest are."""
    table = fates(sgd, small)
    common = table.isel(pair=(table["kind"] == "common").values)
    frequent = table.isel(pair=((table["kind"] == "distinct") & (table["p_context"] > 0.02)).values)
    assert not common["rises"].any()
    assert (common["attention_change"] < 0).all()
    assert frequent["rises"].all()
    # the exact invariant Σ_l ż = 0, in float32
    total = table["z_change"].groupby("seq_class").sum("pair")
    assert float(abs(total).max()) < 1e-3, total.values


def test_scan_order_follows_p_in_noisy_runs(small: SequenceClasses, sgd: xr.Dataset) -> None:
    correlation = scan_rank_correlation(sgd, small)
    assert correlation.dims == ("run", "seq_class")
    mean, spread = float(correlation.mean()), float(correlation.std())
    assert mean > 0.9, f"rank correlation {mean:.3f} ± {spread:.3f}, expected above 0.9"
    dropped = scan_order(sgd, small)["drop_time"]
    assert dropped.notnull().any()
    assert float(dropped.min()) > 0
    assert float(dropped.max()) <= 200


def test_scan_order_is_that_of_p_in_the_flow(small: SequenceClasses) -> None:
    data = flow(small, 1.0, 1.0, t=np.concatenate([[0], np.geomspace(0.1, 1e4, 60)]), rtol=1e-6, device="cpu")
    assert fates(data, small)["rise_share"].isin([0, 1]).all()
    order = scan_order(data, small, 0.9)
    np.testing.assert_array_equal(order["winner"], order["p_context"] == order["p_context"].max())
    times = order["drop_time"].values[:10]
    n_dropped = int(np.isfinite(times).sum())
    assert 3 <= n_dropped < 9  # attention freezes before the last have dropped
    assert (np.diff(times[:n_dropped]) > 0).all()
    assert np.isnan(times[n_dropped:]).all()
    ranks = np.where(np.arange(10) < n_dropped, np.arange(10), (n_dropped + 9) / 2)  # those that stay share one rank
    truth = np.corrcoef(ranks, np.arange(10))[0, 1]
    np.testing.assert_allclose(scan_rank_correlation(data, small, 0.9), truth)
    assert truth > 0.98
