"""The coefficients of Theorem 1: they are recovered, and what they cannot know they say."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from flows import composed, evolve, flow, judge

from scansnap import SequenceClasses
from scansnap.claims.theorems import gradient_decomposition as decomposition
from scansnap.claims.theorems.gradient_decomposition import compute_xi, decompose, thinned_window

check = partial(judge, "theorem-1")


def test_coefficients_are_recovered() -> None:
    evidence = flow("zipf")
    rng = np.random.default_rng(0)
    n, k = len(evidence.t), evidence.classes.n_classes
    gamma_iota, gamma_beta = rng.uniform(1, 2, (n, k)), rng.uniform(-1, 1, (n, k, k)) * (1 - np.eye(k))
    evidence = composed(evidence, gamma_iota, gamma_beta)
    times = np.arange(1, n)
    fit = decompose(evidence, times)
    np.testing.assert_allclose(fit.gamma_iota, gamma_iota[1:], rtol=1e-10)
    np.testing.assert_allclose(fit.gamma_beta, gamma_beta[1:], atol=1e-10)
    assert (fit.rest / fit.size).max() < 1e-12
    assert fit.determined.all()
    # ξ from its definition, although xi looks at the distinct tokens only
    expected = (gamma_beta * evidence.overlap).sum(-1)[1:]
    np.testing.assert_allclose(compute_xi(evidence, times, fit), expected, atol=1e-12)


def test_rest_is_what_lies_outside_the_span() -> None:
    """One tenth of g_n turned into a direction that no f_n' has on this context."""
    evidence = flow("textbook")
    n, gamma_iota = len(evidence.t), np.ones((len(evidence.t), 2))
    out = np.zeros_like(evidence.g)
    first, second = evidence.classes.distinct(0)[:2]
    f = evidence.f[:, 0]
    out[:, 0, first], out[:, 0, second] = f[:, second], -f[:, first]  # orthogonal to f_0, absent from f_1
    out[:, 0] *= 0.1 / np.linalg.norm(out[:, 0], axis=-1, keepdims=True)
    clean = composed(evidence, gamma_iota, np.zeros((n, 2, 2)))
    fit = decompose(replace(clean, g=clean.g + out), np.arange(1, n))
    np.testing.assert_allclose((fit.rest / fit.size)[:, 0], 0.1 / math.sqrt(1.01), rtol=1e-10)
    np.testing.assert_allclose(fit.across, fit.rest, atol=1e-12)  # β = 0: all of P⊥g is what was turned
    assert fit.rest[:, 1].max() < 1e-14


def test_parallel_classes_share_their_pull() -> None:
    """With one common token every f_n' is the same direction on the context of n; γι, ξ and signs are still known."""
    evidence = evolve(SequenceClasses.synthetic(1, 4, common=1, distinct=3, common_weight=0.5, unused=1000))
    times = thinned_window(evidence)
    fit = decompose(evidence, times)
    off = ~np.eye(4, dtype=bool)
    b = fit.gamma_beta[:, off].reshape(len(times), 4, 3)
    np.testing.assert_allclose(b, b.mean(-1, keepdims=True) * np.ones(3), rtol=1e-6)
    assert (b > 0).all()
    assert fit.determined.all()
    expected = (fit.gamma_beta * evidence.overlap[times]).sum(-1)
    np.testing.assert_allclose(compute_xi(evidence, times, fit), expected, rtol=0.01)


def test_xi_is_the_speed_of_distinct_tokens() -> None:
    evidence = flow("zipf")
    times = thinned_window(evidence)
    found = compute_xi(evidence, times, decompose(evidence, times))
    for n in range(evidence.classes.n_classes):
        ids = evidence.classes.distinct(n)
        rate = evidence.z_rate[times, evidence.class_query[n]][:, ids].sum(-1)
        weight = evidence.eta_z * evidence.classes.p_class[n] * (evidence.f[times, n][:, ids] ** 2).sum(-1)
        np.testing.assert_allclose(found[:, n], rate / weight, rtol=1e-6)


def test_large_problems_are_looked_at_fewer_times(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = flow("textbook")
    everything = thinned_window(evidence)
    monkeypatch.setattr(decomposition, "_WORK", 1.0)
    some = thinned_window(evidence)
    assert len(some) == 8
    assert (some[0], some[-1]) == (everything[0], everything[-1])
