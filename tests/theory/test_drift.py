"""The drift of finite sequences against exact expectations and samples of the engine's own gradient, and its fates."""

from __future__ import annotations

from functools import cache

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.stats import chi2, multinomial

import scansnap as ss
from refusals import refused
from scansnap import theory
from scansnap.dynamics import yz
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import ModelConfig, Settings
from scansnap.theory.drift import Noise, SampledFlow, _dawson_integral

CPU = torch.device("cpu")
MODEL = ModelConfig(init="normal(1)")  # any Y: no column stands for several


@cache
def contexts(n: int, size: int) -> np.ndarray:
    """Every way to share n tokens among ``size``."""
    if size == 1:
        return np.array([[n]])
    parts = []
    for first in range(n + 1):
        rest = contexts(n - first, size - 1)
        parts.append(np.hstack([np.full((len(rest), 1), first), rest]))
    return np.concatenate(parts)


def engine(
    classes: ss.SequenceClasses, y: np.ndarray, z: np.ndarray, batch: yz.CountBatch
) -> tuple[np.ndarray, np.ndarray]:
    """Lemma 1's gradients in the mean over a weighted batch, by the engine; (M, M) and (Q, M)."""
    layout = make_layout(classes, MODEL, decays=False)
    tables = yz.Tables.of(layout, CPU, torch.float64)
    found = yz.gradients(torch.tensor(y[layout.rows])[None], torch.tensor(z)[None, None], batch, tables, MODEL)
    dy = np.zeros_like(y)
    dy[layout.rows] = found.dy[0].numpy()
    return dy, found.dz[0, 0].numpy()


def expected(classes: ss.SequenceClasses, y: np.ndarray, z: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The exact expectation over all contexts of n tokens."""
    layout = make_layout(classes, MODEL, decays=False)
    every = contexts(n, layout.slot_p.shape[1])
    weight = [p * multinomial(n, row).pmf(every) for p, row in zip(classes.p_class, layout.slot_p, strict=True)]
    batch = yz.CountBatch(
        torch.arange(classes.n_classes).repeat_interleave(len(every))[None],
        torch.tensor(np.tile(every, (classes.n_classes, 1)), dtype=torch.float64)[None],
        torch.tensor(np.concatenate(weight))[None],
    )
    return engine(classes, y, z, batch)


THREE = ss.SequenceClasses(
    [[0.5, 0.3, 0.2, 0, 0, 0, 0, 0, 0], [0.6, 0, 0, 0.3, 0.1, 0, 0, 0, 0], [0.1, 0.2, 0, 0, 0, 0.7, 0, 0, 0]],
    query=[6, 6, 7], next_token=[6, 7, 8], p_class=[0.5, 0.3, 0.2],
)  # fmt: skip


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), size=st.floats(0.05, 1.5))
def test_exact_expectations_leave_only_one_over_t_squared(seed: int, size: float) -> None:
    """At any state: the expectation over all contexts less the flow falls as 1/N, less the drift as 1/N²."""
    rng = np.random.default_rng(seed)
    y, z = size * rng.normal(size=(9, 9)), 0.5 * size * rng.normal(size=(2, 9))
    field = SampledFlow(THREE, 1.0, 1.0, lump=False)
    flow = field.flow(y, z)
    lengths, left = np.array([50, 100, 200]), []
    for n in lengths:
        drift = field.drift(y, z, context=n + 1)
        for found, limit, part in zip(expected(THREE, y, z, n), (flow.y, flow.z), (drift.y, drift.z), strict=True):
            left += [np.linalg.norm(found - limit), np.linalg.norm(found - limit - part)]
    for i, slope in enumerate((-1, -2, -1, -2)):
        found = np.polyfit(np.log(lengths), np.log(left[i::4]), 1)[0]
        assert found == pytest.approx(slope, abs=0.12), (i, left)
    assert left[-1] < 0.2 * left[-2]


def test_the_engines_own_samples() -> None:
    """200,000 contexts of T = 257 from the engine's sampler: within the noise, which T/2 or the other sign is not."""
    rng = np.random.default_rng(1)
    y, z = rng.normal(size=(9, 9)), 0.5 * rng.normal(size=(2, 9))
    field = SampledFlow(THREE, 1.0, 1.0, lump=False)
    flow = field.flow(y, z)
    layout = make_layout(THREE, MODEL, decays=False)
    data = Batches(layout, Settings(context=257, batch_size=2000, dtype="float64"), np.array([3]), CPU).take(0, 100)
    means = [engine(THREE, y, z, data.batch(i, torch.zeros(1, dtype=torch.int64)))[1] for i in range(100)]
    # the classes' own noise is large and known: replace the sampled p_n by the true ones
    share = np.array([np.bincount(data.cls[0, i], minlength=3) / 2000 for i in range(100)])
    by_class = [SampledFlow(_alone(n), 1.0, 1.0, lump=False).flow(y, _row(z, n)).z for n in range(3)]
    for i in range(100):
        for n in range(3):
            means[i][THREE.queries == THREE.query[n]] -= (share[i, n] - THREE.p_class[n]) * by_class[n]
    off = np.array(means) - flow.z
    inside = np.abs(off).max(0) > 1e-12
    off = off[:, inside]

    def misfit(context: float, sign: float = 1.0) -> float:
        miss = off.mean(0) - sign * field.drift(y, z, context=context).z[inside]
        return float((miss**2 / (off.var(0, ddof=1) / 100)).sum())

    limit = chi2.isf(1e-3, inside.sum())
    assert misfit(257) < limit
    assert min(misfit(129), misfit(257, -1.0), misfit(1e9)) > 2 * limit


def _alone(n: int) -> ss.SequenceClasses:
    return ss.SequenceClasses(
        THREE.p_context[[n]], query=THREE.query[[n]], next_token=THREE.next_token[[n]], p_class=[1.0]
    )


def _row(z: np.ndarray, n: int) -> np.ndarray:
    return z[THREE.queries == THREE.query[n]]


@pytest.mark.parametrize("p_rare", [0.02, 1e-3, 1e-4])
def test_rare_tokens_are_within_reach(p_rare: float) -> None:
    """P_l N from 2 to 0.01: what must be small is f_l/(N P_l), what one occurrence adds to f, not 1/(N P_l)."""
    p = [[0.6, 0.4 - p_rare, p_rare, 0, 0], [0.6, 0, 0, 0.4, 0]]
    classes = ss.SequenceClasses(p, query=[4, 4], next_token=[3, 4])
    y = np.zeros((5, 5))
    field = SampledFlow(classes, 1.0, 1.0, lump=False)
    for _ in range(8):
        y += field.flow(y, np.zeros((1, 5))).y
    drift = field.drift(y, np.zeros((1, 5)), context=101).z[0, 2]
    found = expected(classes, y, np.zeros((1, 5)), 100)[1][0, 2] - field.flow(y, np.zeros((1, 5))).z[0, 2]
    assert found == pytest.approx(drift, rel=0.03)
    assert drift < 0


def test_bias_and_covariance() -> None:
    p, z = np.array([0.5, 0.3, 0.2]), np.array([0.3, -0.4, 0.9])
    f = p * np.exp(z) / np.linalg.norm(p * np.exp(z))
    noise = Noise.of(f, p)
    cov = noise.times(np.eye(3))
    np.testing.assert_allclose(cov @ f, 0, atol=1e-15)
    np.testing.assert_allclose(np.trace(cov), -2 * f @ noise.bias, rtol=1e-13)
    np.testing.assert_allclose(np.diag(cov), noise.variance, rtol=1e-13)
    left = []
    for n in (150, 300):
        k = contexts(n, 3)
        q = k * np.exp(z)
        q = q / np.linalg.norm(q, axis=1, keepdims=True)
        weight = multinomial(n, p).pmf(k)
        mean = weight @ q
        left.append([np.abs(n * (mean - f) - noise.bias).max(),
                     np.abs(n * ((q - mean).T * weight) @ (q - mean) - cov).max()])  # fmt: skip
    np.testing.assert_allclose(np.array(left[0]) / left[1], 2, rtol=0.05)  # 1/N of a relative 1/N


def test_conservation_and_lumping() -> None:
    """Σ_j Ẏ = 0 by row and Σ_l ż = 0 by query, for the drift too; a lumped column is what its outputs are."""
    classes = ss.SequenceClasses.syn_medium(2)
    k, m = classes.n_classes, classes.vocab_size
    lumped, full = SampledFlow(classes, 0.7, 0.3), SampledFlow(classes, 0.7, 0.3, lump=False)
    y, z = np.zeros(lumped.y_shape), np.zeros(lumped.z_shape)
    wide = np.zeros((m, m))
    for _ in range(12):
        step, whole = lumped.drift(y, z, context=50), full.drift(wide, z, context=50)
        move, all_ = lumped.flow(y, z), full.flow(wide, z)
        for part, table in ((step, whole), (move, all_)):
            np.testing.assert_allclose(table.y[:, classes.next_token], part.y[:, :k], atol=1e-14)
            np.testing.assert_allclose(table.y[:, 0], part.y[:, k], atol=1e-14)
            np.testing.assert_allclose(table.z, part.z, atol=1e-14)
            np.testing.assert_allclose(part.y @ lumped.multiplicity, 0, atol=1e-14)
            np.testing.assert_allclose(part.z.sum(1), 0, atol=1e-14)
        y, wide, z = y + move.y + step.y, wide + all_.y + whole.y, z + move.z + step.z
    assert np.abs(step.z).max() > 1e-6
    state = ss.flow(classes, 0.7, 0.3, [0.0, 1.0], variables=("z_rate",))
    np.testing.assert_allclose(lumped.flow(np.zeros_like(y), np.zeros_like(z)).z, state.z_rate[0], atol=1e-15)


# --- the symmetric family -----------------------------------------------------------------------------------------


def follow(classes: ss.SequenceClasses, eta_y: float, eta_z: float, t: np.ndarray, context: float | None) -> np.ndarray:
    """z (t, Q, M) of the flow with the drift, or without."""
    field = SampledFlow(classes, eta_y, eta_z)
    used = np.unique(field.token)
    columns = field.y_shape[1]
    n_y = len(used) * columns

    def tables(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y, z = np.zeros(field.y_shape), np.zeros(field.z_shape)
        y[used], z[:, used] = state[:n_y].reshape(-1, columns), state[n_y:].reshape(-1, len(used))
        return y, z

    def rates(_: float, state: np.ndarray) -> np.ndarray:
        at = tables(state)
        parts = [field.flow(*at)] + ([field.drift(*at, context=context)] if context else [])
        return np.concatenate([sum(p.y for p in parts)[used].ravel(), sum(p.z for p in parts)[:, used].ravel()])

    start = np.zeros(n_y + len(used) * field.z_shape[0])
    run = solve_ivp(rates, (0, t[-1]), start, t_eval=t, method="LSODA", rtol=1e-9, atol=1e-13)
    return np.array([tables(state)[1] for state in run.y.T])


@pytest.mark.parametrize("ratio", [1000.0, 45.0, 1.0])
def test_the_family_in_closed_form(ratio: float) -> None:
    """`textbook` at T = 1001: what the drift adds to z, to 4% of its largest at t₀ and 9% at 10 t₀, memory included."""
    classes = ss.SequenceClasses.textbook()
    own, common = classes.distinct(0), classes.common
    f = classes.p_context[0] / np.linalg.norm(classes.p_context[0])
    t = np.array([0.1, 1, 10]) * theory.t_snap(eta_y=0.9, n_classes=2, vocab_size=2014)
    drifted, flow = (follow(classes, 0.9, 0.9 / ratio, t, context) for context in (1001, None))
    measured = (drifted - flow)[:, 0, [*own, *common]]
    u = theory.u(t / 2, eta_y=0.9, vocab_size=2014)
    given_ = {"eta_y": 0.9, "eta_z": 0.9 / ratio, "n_classes": 2, "f_distinct": f[own]}
    found = theory.drift_tokens(u, **given_, context=1001).z
    off = np.abs(found - measured).max(1) / np.abs(measured).max(1)
    assert (off < [0.005, 0.04, 0.09]).all(), off
    np.testing.assert_allclose(found[:, 4] / measured[:, 4], 1, atol=0.012)  # the dominant token
    np.testing.assert_allclose(2 * found[:, :5].sum(1), -found[:, 5], rtol=1e-10)
    assert measured[-1, 0] < -10 * flow[-1, 0, own[0]], "the rarest distinct token falls, by more than it would rise"
    if ratio == 1:  # where the memory holds everything
        free = 0.5 * u[-1] ** 2 / ratio * theory.sampling_push(f[[*own, *common]], context=1001)
        assert abs(free[4] / measured[-1, 4]) > 3


def test_the_equation_of_the_drift() -> None:
    """dv/du = ε s (w − u f²(v − v̄)), integrated; several common tokens."""
    f, common = np.array([0.1, 0.3, 0.5]), np.array([0.4, 0.7])
    common *= np.sqrt((1 - (f**2).sum()) / (common**2).sum())
    every, k, ratio = np.append(f, common), 3, 5.0
    push, s = theory.sampling_push(every, context=77), np.array([1, 1, 1, k, k])

    def equation(u: float, state: np.ndarray) -> np.ndarray:
        v = state[5:]
        return np.append(v, s / ratio * (push - u * every**2 * (v - every**2 @ v)))

    u = np.array([0.5, 5.0, 40.0])
    run = solve_ivp(equation, (0, 40.0), np.zeros(10), t_eval=u, method="LSODA", rtol=1e-11, atol=1e-15)
    found = theory.drift_tokens(
        u, eta_y=1.0, eta_z=1 / ratio, n_classes=k, f_distinct=f, f_common=common, context=77
    )  # fmt: skip
    np.testing.assert_allclose(found.z, run.y[:5].T, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(found.v, run.y[5:].T, rtol=1e-6, atol=1e-10)
    assert push.sum() == pytest.approx(0, abs=1e-16)


def test_the_integral_of_dawsons_function() -> None:
    """y² ₂F₂(1, 1; 3/2, 2; −y²)/2, to 1e-12."""
    y = np.array([1e-6, 1e-2, 0.5, 2.0, 7.0, 20.0])
    with mpmath.workdps(40):
        true = [float(x**2 * mpmath.hyp2f2(1, 1, 1.5, 2, -(x**2)) / 2) for x in map(mpmath.mpf, y)]
    np.testing.assert_allclose(_dawson_integral(y), true, rtol=1e-12)
    large = np.array([1e3, 1e6])
    np.testing.assert_allclose(
        _dawson_integral(large), np.log(large) / 2 + np.euler_gamma / 4 + np.log(2) / 2, rtol=1e-6
    )


def crossing(context: float, m: int, t: float, weights: np.ndarray) -> tuple[float, float]:
    """P_l N at which flow and drift together are 0 on a frozen decoder, by interpolation, and as predicted."""
    n = len(weights)
    p = np.zeros((2, m))
    p[:, 0] = 1.0
    p[0, 1 : 1 + n], p[1, 1 + n : 1 + 2 * n] = weights, weights
    p /= p.sum(1, keepdims=True)
    classes = ss.SequenceClasses(p, query=[2 * n + 1] * 2, next_token=[2 * n + 1, 2 * n + 2])
    field = SampledFlow(classes, 1.0, 1.0)
    f = p[0] / np.linalg.norm(p[0])
    state = theory.frozen_decoder(t, eta_y=1.0, n_classes=2, vocab_size=m, overlap=f[0] ** 2)
    a = np.array([[state.own, state.other, state.rest], [state.other, state.own, state.rest]])
    y = (p / np.linalg.norm(p, axis=1, keepdims=True)).T @ a
    # Y is along E f̂, not along f: what the drift of Y has summed up to
    bias = np.stack([np.zeros(m), np.zeros(m)])
    for i in range(2):
        bias[i, p[i] > 0] = Noise.of(f[p[0] > 0], p[0][p[0] > 0]).bias / (context - 1)
    y = y + bias.T @ a
    z = np.zeros(field.z_shape)
    rate = (field.flow(y, z).z + field.drift(y, z, context=context).z)[0, 1 : 1 + n] / weights**2
    assert (np.diff(rate) > 0).all()
    assert rate[0] < 0 < rate[-1]
    found = np.interp(0.0, rate, p[0, 1 : 1 + n] * (context - 1))
    u = theory.u(t / 2, eta_y=1.0, vocab_size=m)
    return float(found), theory.fall_below(
        u, n_classes=2, vocab_size=m, f_distinct=f[1 : 1 + n], context=context
    )  # fmt: skip


@pytest.mark.parametrize(("context", "t"), [(300, 4.0), (300, 30.0), (3e4, 4.0), (3e4, 30.0), (1e7, 4.0), (1e7, 20.0)])
def test_where_tokens_begin_to_fall(context: float, t: float) -> None:
    """Among 60 distinct tokens of every frequency, the P_l N at which ż = 0; T from far below M to far above."""
    found, predicted = crossing(context, 10**5, t, np.geomspace(1e-5, 1.0, 60))
    assert predicted == pytest.approx(found, rel=0.06)


def test_fates_on_textbook() -> None:
    """The P_l N below which a distinct token falls, at 0.1, 1 and 10 t₀; the tokens have 28 to 282 at T = 1001."""
    classes = ss.SequenceClasses.textbook()
    f = classes.p_context[0] / np.linalg.norm(classes.p_context[0])
    t = np.array([0.1, 1, 10]) * theory.t_snap(eta_y=0.9, n_classes=2, vocab_size=2014)
    u = theory.u(t / 2, eta_y=0.9, vocab_size=2014)
    sizes = {"n_classes": 2, "vocab_size": 2014, "f_distinct": f[classes.distinct(0)]}
    np.testing.assert_allclose(theory.fall_below(u, **sizes, context=1001), [211, 176, 143], atol=0.5)
    np.testing.assert_allclose(theory.fall_below(u, **sizes, context=100_001), [4408, 666, 320], atol=0.5)
    p = classes.p_context[0, classes.distinct(0)]
    np.testing.assert_allclose(1000 * p, [28, 92, 155, 218, 282], atol=0.5)


@pytest.mark.parametrize(
    ("name", "context", "flow", "drift"),
    [("textbook", 500, [4.2e-6, 3.71e-4], [-2.95e-4, 1.391e-3]),
     ("textbook", 128, [4.2e-6, 3.71e-4], [-1.138e-3, 5.34e-3]),
     ("syn_small", 128, [1.07e-4, 1.074e-2], [-2.66e-4, -1.43e-4])],
)  # fmt: skip
def test_how_large_the_drift_is(name: str, context: int, flow: list[float], drift: list[float]) -> None:
    """z of the rarest and the dominant distinct token at 2 t₀, η_Y = 0.9, η_Z = 0.02, and what the length adds."""
    classes = getattr(ss.SequenceClasses, name)()
    own = classes.distinct(0)[[0, -1]]
    steps = int(2 * theory.t_snap(eta_y=0.9, n_classes=2, vocab_size=classes.vocab_size))
    limit, more = drift_by_steps(classes, context, steps)
    np.testing.assert_allclose(limit[0, own], flow, rtol=0.01)
    np.testing.assert_allclose(more[0, own], drift, rtol=0.01)


def drift_by_steps(classes: ss.SequenceClasses, context: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    field = SampledFlow(classes, 0.9, 0.02)
    found = []
    for share in (0, 1):
        y, z = np.zeros(field.y_shape), np.zeros(field.z_shape)
        for _ in range(steps):
            move, more = field.flow(y, z), field.drift(y, z, context=context)
            y, z = y + move.y + share * more.y, z + move.z + share * more.z
        found.append(z)
    return found[0], found[1] - found[0]


def test_fall_below_has_its_limits() -> None:
    f = np.array([0.05, 0.2, 0.5, 0.6])
    rho = 1 - (f**2).sum()
    every = np.append(f, np.sqrt(rho))
    sizes = {"n_classes": 3, "vocab_size": 10**4, "f_distinct": f}
    long = theory.fall_below([0.0, 5.0], **sizes, context=1e12)
    drive = theory.drive([1e-6, 5.0], n_classes=3, vocab_size=10**4, overlap=rho)
    np.testing.assert_allclose(long, [1e-6, 5.0] / drive, rtol=1e-5)
    assert long[0] == pytest.approx(10**4 / (2 * rho), rel=1e-5)  # M/((K − 1)ρ)
    s, q = every.sum(), (every**3).sum()
    c = s - 2 * q
    assert theory.fall_below(1.0, **sizes, context=3) == pytest.approx(4 / (s * (c + np.sqrt(c**2 + 8))), rel=1e-3)
    push = theory.sampling_push(every, context=100)
    np.testing.assert_allclose(99 * push, s * every * (every * c - 1 + 2 * every**2), rtol=1e-12)
    late = theory.fall_below(400.0, **sizes | {"vocab_size": 10**7}, context=1e12, form="exact")
    kappa = 1 + rho
    assert late == pytest.approx(kappa**2 / (2 * rho**2 * (1 + kappa)), rel=0.1)


def test_bad_input_is_named() -> None:
    field = SampledFlow(THREE, 1.0, 1.0)
    y, z = np.zeros(field.y_shape), np.zeros(field.z_shape)
    for call, message in (
        (lambda: field.drift(y, z, context=1), "context"),
        (lambda: field.flow(y.T, z), "y"),
        (lambda: theory.sampling_push([0.5, 0.5], context=1), "context"),
        (lambda: theory.memory_tokens(1.0, eta_y=1, eta_z=1, n_classes=2, vocab_size=9, f_distinct=[0.6],
                                      f_common=[0.6]),
         "f_common"),
    ):  # fmt: skip
        with refused(message):
            call()
