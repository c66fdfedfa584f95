"""Draws against their distributions, and the two samplers against each other, number by number.

Seeds are fixed, so a statistical test that passes always passes; LEAST_P is the p-value it may not fall below.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import special, stats

from scansnap.kernels.cpu import library
from scansnap.kernels.cpu import sampling as compiled_sampling
from scansnap.sampling import counts as sampling
from scansnap.sampling.counts import (
    INVERSION_LIMIT,
    SamplingTable,
    binomial,
    sample_classes,
    sample_counts,
    sample_tokens,
    weighted_counts,
)

LEAST_P = 1e-4
compiled = pytest.mark.skipif(not library.available(), reason="the kernels were not compiled")


def torch_sample(
    table: SamplingTable, seeds: list[int], steps: list[int], batch_size: int, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Classes and counts from the torch sampler."""
    seed, step = torch.tensor(seeds), torch.tensor(steps)
    cls = sample_classes(table, seed, step, batch_size)
    return cls.numpy(), sample_counts(table, cls, seed, step, length).numpy()


def one_class(p: list[float]) -> SamplingTable:
    return SamplingTable(np.ones(1), np.array([p]))


def merged(observed: np.ndarray, expected: np.ndarray, least: float = 10.0) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring cells put together until each expects enough for a χ² test."""
    group = np.minimum(np.cumsum(expected) // least, expected.sum() // least - 1).astype(int)
    together = [np.bincount(group, weights=x) for x in (observed, expected)]
    keep = together[1] > 0
    return together[0][keep], together[1][keep]


def chi_square(observed: np.ndarray, p: np.ndarray) -> float:
    """The p-value of observed cell counts under cell probabilities p."""
    counts_, expected = merged(observed, p / p.sum() * observed.sum())
    return float(stats.chisquare(counts_, expected).pvalue)


# --- the two samplers (each build of the compiled one: tests/kernels/test_cpu_sampling.py) ------------------------


@st.composite
def tables(draw: st.DrawFn) -> SamplingTable:
    """Class tables with padding, holes, single-token supports, and probabilities over twelve decades."""
    k, s = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    weight = st.just(0.0) | st.floats(0.1, 1) | st.floats(-12, 0).map(lambda e: 10.0**e)
    rows = [draw(st.lists(weight, min_size=s, max_size=s).filter(lambda row: sum(row) > 0)) for _ in range(k)]
    classes = draw(st.lists(weight, min_size=k, max_size=k).filter(lambda row: sum(row) > 0))
    p_slot, p_class = np.array(rows), np.array(classes)
    return SamplingTable(p_class / p_class.sum(), p_slot / p_slot.sum(1, keepdims=True))


@compiled
@settings(max_examples=80, deadline=None)
@given(
    table=tables(),
    seeds=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=3),
    first=st.sampled_from([0, 1, 1000, 2**32 - 9]),
    batch_size=st.integers(1, 9),
    context=st.sampled_from([2, 3, 128, 10**4, 10**6]),
)
def test_compiled_and_torch_samplers_draw_the_same(
    table: SamplingTable, seeds: list[int], first: int, batch_size: int, context: int
) -> None:
    steps = list(range(first, first + 4))
    cls, counts = torch_sample(table, seeds, steps, batch_size, context - 1)
    fast_cls, fast_counts = compiled_sampling.sample(table, np.array(seeds), np.array(steps), batch_size, context - 1)
    assert_array_equal(fast_cls, cls, "classes differ")
    assert_array_equal(fast_counts, counts, "counts differ")
    assert_array_equal(counts.sum(-1), context - 1)
    assert (counts >= 0).all()
    assert_array_equal(counts, np.floor(counts))
    assert (table.p_class[cls] > 0).all(), "a class without probability was drawn"
    assert not counts[table.p_slot[cls] == 0].any(), "a slot without probability was drawn"


@compiled
def test_compiled_sampler_draws_classes_alone() -> None:
    table = SamplingTable(np.array([0.2, 0.5, 0.3]), np.eye(3))
    cls, counts = compiled_sampling.sample(table, np.arange(4), np.arange(5), 6, None)
    assert_array_equal(cls, torch_sample(table, [0, 1, 2, 3], [0, 1, 2, 3, 4], 6, 1)[0])
    assert counts.shape == (4, 5, 6, 0)


# --- binomials -------------------------------------------------------------------------------------------

N_DRAWS = 100_000


def binomials(n: float, p: float, slot: int = 0) -> np.ndarray:
    sample = torch.arange(N_DRAWS)
    many = torch.full((N_DRAWS,), float(n), dtype=torch.float64)
    place = (torch.tensor(20230516), torch.tensor(4), sample)
    return binomial(many, torch.full_like(many, p), place, slot).numpy()


REGIMES = {
    "inversion": [(1, 0.3), (5, 0.5), (20, 0.1), (127, 0.05), (23, 0.5), (10**6, 3e-6), (10**9, 1.19e-8)],
    "inversion, p above one half": [(1, 0.9), (7, 0.75), (127, 0.97), (10**6, 1 - 5e-6)],
    "rejection": [(24, 0.5), (30, 0.4), (127, 0.1), (127, 0.5), (10**4, 0.0013), (10**6, 0.25), (10**9, 1e-7)],
    "rejection, p above one half": [(40, 0.7), (127, 0.8), (10**4, 0.99), (10**6, 1 - 1e-4)],
}


@pytest.mark.parametrize(("regime", "n", "p"), [(name, *case) for name, cases in REGIMES.items() for case in cases])
def test_binomial_against_its_exact_distribution(regime: str, n: int, p: float) -> None:
    least = n * min(p, 1 - p)
    assert ("inversion" in regime) == (least < INVERSION_LIMIT), "the case no longer tests what it says"
    drawn = binomials(n, p)
    assert drawn.min() >= 0, drawn.min()
    assert drawn.max() <= n, drawn.max()
    assert_array_equal(drawn, np.rint(drawn))
    spread = np.sqrt(n * p * (1 - p))
    low, high = max(0, int(n * p - 9 * spread)), min(n, int(n * p + 9 * spread + 20))
    if high - low <= 5000:
        cells = stats.binom.pmf(np.arange(low, high + 1), n, p)
        value = chi_square(np.bincount((drawn - low).astype(int), minlength=len(cells)), cells)
    else:  # cells of equal width instead of single values
        edges = np.unique(np.linspace(low, high, 400).astype(int))
        cells = np.diff(stats.binom.cdf(edges, n, p))
        value = chi_square(np.histogram(drawn, edges + 0.5)[0], cells)
    assert value > LEAST_P, f"Binomial({n}, {p}) by {regime}: p = {value:.1e}"


def test_binomial_at_the_ends() -> None:
    n = torch.tensor([0.0, 5.0, 10.0**6, 5.0, 10.0**6], dtype=torch.float64)
    p = torch.tensor([0.5, 0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    place = (torch.tensor(0), torch.tensor(0), torch.arange(5))
    assert_array_equal(binomial(n, p, place, 0), [0, 0, 0, 5, 10**6])


def test_stirling_remainder_makes_the_rejection_exact() -> None:
    """ln k! rebuilt from the remainder, against SciPy's gammaln; 1e-11 is the first term the series leaves out."""
    k = torch.cat([torch.arange(200.0, dtype=torch.float64), torch.tensor([1e3, 1e6, 1e9], dtype=torch.float64)])
    x = k.numpy()
    leading = (x + 0.5) * np.log(x + 1) - (x + 1) + 0.5 * np.log(2 * np.pi)
    error = np.abs(sampling._stirling(k).numpy() - (special.gammaln(x + 1) - leading))
    floor = 4e-16 * np.abs(leading)  # what rounding leaves of the difference of two large numbers
    assert (error <= 1e-10 + floor).all(), f"off by {error.max():.1e} at k = {x[error.argmax()]:.0f}"


def test_draws_of_different_slots_are_independent() -> None:
    a, b = binomials(5, 0.4, slot=0), binomials(5, 0.4, slot=1)
    p = stats.chi2_contingency(np.histogram2d(a, b, bins=np.arange(7) - 0.5)[0]).pvalue
    assert p > LEAST_P, f"slots 0 and 1 depend on each other: p = {p:.1e}"


# --- multinomials, tokens, classes -----------------------------------------------------------------------


def test_multinomial_against_its_exact_distribution() -> None:
    """All 35 outcomes of four positions over four slots with mass, with holes before, between and after."""
    p = np.array([0.0, 0.5, 0.0, 0.15, 0.3, 0.05, 0.0])
    _, counts = torch_sample(one_class(list(p)), [1], list(range(40)), 1000, 4)
    counts = counts.reshape(-1, len(p)).astype(int)
    outcomes, observed = np.unique(counts, axis=0, return_counts=True)
    every = [k for k in np.ndindex(5, 5, 5, 5) if sum(k) == 4]
    cells = stats.multinomial.pmf(every, 4, p[p > 0])
    result = {tuple(row[p > 0]): n for row, n in zip(outcomes, observed, strict=True)}
    order = np.argsort(cells)
    value = chi_square(np.array([result.get(k, 0) for k in every])[order], cells[order])
    assert value > LEAST_P, f"p = {value:.1e}"


@pytest.mark.parametrize("context", [128, 10**4, 10**6])
def test_multinomial_means_and_covariances(context: int) -> None:
    p, n = np.array([0.4, 0.3, 0.02, 0.2, 0.08]), context - 1
    _, counts = torch_sample(one_class(list(p)), [2], list(range(20)), 1000, n)
    counts = counts.reshape(-1, len(p))
    covariance = n * (np.diag(p) - np.outer(p, p))
    off = (counts.mean(0) - n * p)[:-1]  # the last slot follows from the others
    distance = len(counts) * off @ np.linalg.solve(covariance[:-1, :-1], off)
    value = stats.chi2.sf(distance, len(off))
    assert value > LEAST_P, f"means {counts.mean(0)} instead of {n * p}: p = {value:.1e}"
    measured = np.cov(counts.T)
    variances = np.diag(covariance)
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / len(counts))  # of a Gaussian's covariance
    values = 2 * stats.norm.sf(np.abs(measured - covariance) / error)
    assert values.min() > LEAST_P / values.size, f"covariances\n{measured}\ninstead of\n{covariance}"


def test_token_sequences_have_the_class_frequencies_at_every_position() -> None:
    rng = np.random.default_rng(1)
    p_slot = rng.dirichlet(np.ones(6), size=3)
    p_slot[0, 2] = p_slot[1, 5] = p_slot[2, 0] = 0
    p_slot[1, :3] = 0
    table = SamplingTable(np.array([0.2, 0.3, 0.5]), p_slot / p_slot.sum(1, keepdims=True))
    seeds, steps = torch.tensor([5]), torch.arange(30)
    cls = sample_classes(table, seeds, steps, 500)
    slots = sample_tokens(table, cls, seeds, steps, 4)
    assert slots.shape == (1, 30, 500, 4)
    cls, slots = cls.flatten().numpy(), slots.flatten(0, 2).numpy()
    for n in range(3):
        mass = table.p_slot[n] > 0
        for position in range(4):
            observed = np.bincount(slots[cls == n, position], minlength=6)
            assert not observed[~mass].any(), f"class {n} has tokens without probability: {observed}"
            value = stats.chisquare(observed[mass], table.p_slot[n, mass] * observed.sum()).pvalue
            assert value > LEAST_P, f"class {n}, position {position}: p = {value:.1e}"
        pairs = np.histogram2d(slots[cls == n, 0], slots[cls == n, 1], bins=np.arange(7) - 0.5)[0]
        value = stats.chi2_contingency(pairs[mass][:, mass]).pvalue
        assert value > LEAST_P, f"positions of class {n} depend on each other: p = {value:.1e}"


def test_class_frequencies() -> None:
    p = np.array([0.0, 0.5, 0.001, 0.3, 0.0, 0.199, 0.0])
    table = SamplingTable(p, np.ones((7, 1)))
    cls = sample_classes(table, torch.tensor([0, 1]), torch.arange(100), 500).numpy()
    observed = np.bincount(cls.ravel(), minlength=7)
    assert not observed[p == 0].any(), f"classes without probability were drawn: {observed}"
    value = stats.chisquare(observed[p > 0], p[p > 0] * observed.sum()).pvalue
    assert value > LEAST_P, f"{observed} drawn with probabilities {p}: p = {value:.1e}"


def test_rounding_of_the_last_edge_cannot_lose_a_draw() -> None:
    """Probabilities that sum to less than 1, here by far: what is left over falls on the last one with mass."""
    table = SamplingTable(np.array([0.3, 0.2, 0.0]), np.array([[0.2, 0.4, 0.0], [0.1, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    seeds, steps = torch.tensor([0]), torch.arange(20)
    cls = sample_classes(table, seeds, steps, 50)
    assert_array_equal(np.unique(cls), [0, 1])
    slots = sample_tokens(table, cls, seeds, steps, 9)
    assert_array_equal(np.unique(slots[cls == 0]), [0, 1])
    assert_array_equal(np.unique(slots[cls == 1]), [0])
    assert (cls == 1).double().mean() > 0.6
    if library.available():
        assert_array_equal(compiled_sampling.sample(table, seeds.numpy(), steps.numpy(), 50, 9)[0], cls)


def test_weighted_counts_are_sums_by_slot() -> None:
    slots = torch.tensor([[[[2, 0, 2, 1]], [[3, 3, 3, 3]]]])
    weight = torch.tensor([1.0, 10.0, 100.0, 1000.0], dtype=torch.float64)
    expected = [[[[10, 1000, 101, 0]], [[0, 0, 0, 1111]]]]
    assert_array_equal(weighted_counts(slots, 4, weight), expected)
    assert_array_equal(weighted_counts(slots, 4, torch.ones(4))[0, :, 0], [[1, 1, 2, 0], [0, 0, 0, 4]])


def test_token_counts_have_the_multinomial_distribution() -> None:
    """Counting sampled tokens and drawing counts are two ways to the same distribution."""
    p = np.array([0.5, 0.1, 0.4])
    table, seeds, steps = one_class(list(p)), torch.tensor([9]), torch.arange(20)
    cls = sample_classes(table, seeds, steps, 1000)
    counts = weighted_counts(sample_tokens(table, cls, seeds, steps, 12), 3, torch.ones(12))
    assert_array_equal(counts.sum(-1), 12)
    for slot in range(3):
        observed = np.bincount(counts[..., slot].flatten().numpy().astype(int), minlength=13)
        value = chi_square(observed, stats.binom.pmf(np.arange(13), 12, p[slot]))
        assert value > LEAST_P, f"slot {slot}: p = {value:.1e}"


# --- a pure function of seed, step and sample ------------------------------------------------------------

TABLE = SamplingTable(np.array([0.3, 0.7]), np.array([[0.2, 0.5, 0.3, 0.0], [0.0, 0.1, 0.2, 0.7]]))
SEEDS, STEPS = [3, 2**62, 0], [0, 7, 8, 2**32 - 2]


@pytest.mark.parametrize("length", [1, 40, 10**5])
def test_data_do_not_depend_on_what_is_asked_for_together(length: int) -> None:
    cls, counts = torch_sample(TABLE, SEEDS, STEPS, 5, length)
    tokens = sample_tokens(TABLE, torch.from_numpy(cls), torch.tensor(SEEDS), torch.tensor(STEPS), min(length, 40))
    for g, seed in enumerate(SEEDS):
        for n, step in enumerate(STEPS):
            alone, alone_counts = torch_sample(TABLE, [seed], [step], 3, length)  # also a smaller batch
            assert_array_equal(alone[0, 0], cls[g, n, :3])
            assert_array_equal(alone_counts[0, 0], counts[g, n, :3])
            place = torch.from_numpy(alone), torch.tensor([seed]), torch.tensor([step])
            assert_array_equal(sample_tokens(TABLE, *place, 1)[0, 0, :, 0], tokens[g, n, :3, 0])
            if library.available():
                fast, fast_counts = compiled_sampling.sample(TABLE, np.array([seed]), np.array([step]), 4, length)
                assert_array_equal(fast[0, 0], cls[g, n, :4])
                assert_array_equal(fast_counts[0, 0], counts[g, n, :4])


@pytest.mark.parametrize("what", ["seed", "step", "sample"])
def test_data_differ_between_seeds_steps_and_samples(what: str) -> None:
    _, counts = torch_sample(SamplingTable(np.ones(1), np.full((1, 8), 0.125)), [0, 1], [0, 1], 2, 10**4)
    a, b = {
        "seed": (counts[0, 0, 0], counts[1, 0, 0]),
        "step": (counts[0, 0, 0], counts[0, 1, 0]),
        "sample": (counts[0, 0, 0], counts[0, 0, 1]),
    }[what]
    assert (a != b).any()


@compiled
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = TABLE, np.arange(30), np.arange(11), 6, 127
    expected = compiled_sampling.sample(*everything)
    for threads in (1, 3, 8):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for result, reference in zip(compiled_sampling.sample(*everything), expected, strict=True):
            assert_array_equal(result, reference, f"{threads} threads")
