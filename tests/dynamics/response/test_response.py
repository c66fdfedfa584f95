"""The linear response against the exact flow, and against its own equations written with dense tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import scansnap as ss
from refusals import refused
from scansnap.dynamics.flow import decoder_rows
from scansnap.dynamics.response import block

ETA_Y = 0.9


def asked(classes: ss.SequenceClasses, until: float = 100) -> np.ndarray:
    """From a tenth of t₀ on, ten a decade."""
    t0 = ss.theory.t_snap(eta_y=ETA_Y, n_classes=classes.n_classes, vocab_size=classes.vocab_size)
    return t0 * np.geomspace(0.1, until, 1 + round(10 * np.log10(until / 0.1)))


def apart(classes: ss.SequenceClasses, ratio: float, until: float = 100) -> tuple[np.ndarray, np.ndarray]:
    """Largest difference to the flow over the largest z, and its estimate; (t,) each."""
    t = asked(classes, until)
    tight = {"rtol": 1e-11, "atol": 1e-18}  # z is small, and what is compared is smaller
    found = ss.response(classes, ETA_Y, ETA_Y / ratio, t, **tight)
    z = ss.flow(classes, ETA_Y, ETA_Y / ratio, t, variables=["z"], **tight).z.values
    size = np.abs(z).max((1, 2))
    return np.abs(found.z.values - z).max((1, 2)) / size, found.error.max("query").values


def dense(classes: ss.SequenceClasses, eta_z: float, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """z and z_error (t, query, token): the module's equations as they stand there, with tables of all tokens.

    This is the reference: no blocks, no clock but t, the flow's own rate integrated like all the rest.
    """
    p, k = classes.p_context, classes.n_classes
    f = p / np.linalg.norm(p, axis=1, keepdims=True)  # (K, M)
    of = np.searchsorted(classes.queries, classes.query)
    m, n_queries = classes.vocab_size, len(classes.queries)
    each = np.append(np.ones(k), m - k)  # how many outputs a column stands for
    weight, own = classes.p_class[:, None], np.arange(k)

    def parts(x: np.ndarray) -> list[np.ndarray]:
        shapes = ((k, k + 1), (k, k + 1), (n_queries, m), (m, k + 1), (n_queries, m))
        ends = np.cumsum([a * b for a, b in shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(x, ends), shapes, strict=True)]

    def softmax(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        alpha = np.exp(logits - logits.max(1, keepdims=True)) * each
        alpha /= alpha.sum(1, keepdims=True)
        r = -alpha.copy()
        r[own, own] += 1
        return alpha, r

    def true_rate(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        c = p * np.exp(z[of])
        now = c / np.linalg.norm(c, axis=1, keepdims=True)
        g = softmax(now @ y)[1] @ y.T
        return by_query(now * (g - now * (now * g).sum(1, keepdims=True)))

    def by_query(dz: np.ndarray) -> np.ndarray:
        rate = np.zeros((n_queries, m))
        np.add.at(rate, of, eta_z * weight * dz)
        return rate

    def rates(_: float, x: np.ndarray) -> np.ndarray:
        a, da, z, dy, _ = parts(x)
        y = f.T @ a  # (M, J) of frozen attention
        alpha, r = softmax(f @ y)
        df = f * (z[of] - (f**2 * z[of]).sum(1, keepdims=True))
        dl = df @ y + f @ (f.T @ da + dy)
        dr = -alpha * (dl - (alpha * dl).sum(1, keepdims=True))
        kept = (a * r).sum(1, keepdims=True)
        others = r @ y.T - kept * f

        def across(v: np.ndarray) -> np.ndarray:
            return v - f * (f * v).sum(1, keepdims=True)

        felt = r @ dy.T + r @ (f.T @ da).T + dr @ y.T - df * kept
        dz = f * across(others) + f * across(felt) + df * across(others)
        dz -= f * (df * (f * others).sum(1, keepdims=True) + f * (df * others).sum(1, keepdims=True))
        z_rate, step = by_query(dz), ETA_Y * weight
        return np.concatenate([(step * r / each).ravel(), (step * dr / each).ravel(), z_rate.ravel(),
                               ((step * df).T @ (r / each)).ravel(),
                               (true_rate(z, y + f.T @ da + dy) - z_rate).ravel()])  # fmt: skip

    start = np.zeros(2 * k * (k + 1) + 2 * n_queries * m + m * (k + 1))
    found = solve_ivp(rates, (0, times[-1]), start, "DOP853", times, rtol=1e-9, atol=1e-14)
    return np.stack([parts(x)[2] for x in found.y.T]), np.stack([parts(x)[4] for x in found.y.T])


@pytest.mark.parametrize(("ratio", "least", "most"), [(1000, 1e-6, 5e-6), (45, 5e-4, 2e-3), (1, 1e-2, 4e-2)])
def test_it_is_the_flow_but_for_squares(ratio: float, least: float, most: float) -> None:
    """On textbook at 100 t₀. Without the change of α it would be off by 6e-4, 1e-2 and 6e-2."""
    error, _ = apart(ss.SequenceClasses.textbook(), ratio)
    assert least < error[-1] < most
    assert (error < most).all()


def test_its_error_is_of_second_order() -> None:
    """Squares of z are neglected beside a drive that does not depend on z, so the relative error falls as η_Z²: by 100
    from one ratio to the next. Were a term of first order missing, it would fall by 10."""
    errors = [apart(ss.SequenceClasses.syn_medium(3), ratio, until=10)[0][-1] for ratio in (500, 5000)]
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.05)


def unlike() -> ss.SequenceClasses:
    """Nothing in it is like anything else: probabilities, numbers of tokens, and a class without a token of its own."""
    contexts = [{0: 3, 1: 1, 2: 1, 10: 2, 11: 1, 12: 5}, {0: 1, 1: 2, 13: 1}, {0: 2, 2: 1}, {1: 1, 2: 4, 14: 3, 15: 1}]
    p = np.zeros((4, 24))
    for n, context in enumerate(contexts):
        p[n, list(context)] = list(context.values())
    p /= p.sum(1, keepdims=True)
    return ss.SequenceClasses(p, query=[20, 20, 20, 21], next_token=[16, 17, 18, 19], p_class=[0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("case", ["one query", "three queries", "unlike"])
def test_it_solves_its_equations(case: str) -> None:
    classes = unlike() if case == "unlike" else ss.SequenceClasses.syn_medium(1 if case == "one query" else 3)
    times = asked(classes, 10)
    found = ss.response(classes, ETA_Y, 0.05, times)
    z, off = dense(classes, 0.05, times)
    np.testing.assert_allclose(found.z.values, z, rtol=0, atol=1e-7 * np.abs(z).max())
    size = np.abs(off).max((1, 2), keepdims=True)  # by a polynomial in each step: right to a percent
    assert (np.abs(found.z_error.values - off) < 1e-2 * size + 1e-8 * size.max()).all()


def test_blocks_threads_and_sparse_products_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One block of classes or many, one thread or two; common tokens as a table or as a list of pairs."""
    classes = unlike()
    times = asked(classes, 10)
    wanted = ss.response(classes, ETA_Y, 0.05, times)
    before = torch.get_num_threads()
    monkeypatch.setattr(block, "_CACHED", 1)
    for threads, dense_share in ((1, 0.02), (2, 0.02), (2, 2.0)):
        monkeypatch.setattr(decoder_rows, "_DENSE", dense_share)
        torch.set_num_threads(threads)
        try:
            found = ss.response(classes, ETA_Y, 0.05, times)
        finally:
            torch.set_num_threads(before)
        for name in wanted.data_vars:
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("ratio", [1000, 10])
def test_the_default_tolerance_is_far_below_what_is_neglected(ratio: float) -> None:
    classes = ss.SequenceClasses.synthetic(2, 10)
    t = asked(classes)
    found, tight = (ss.response(classes, ETA_Y, ETA_Y / ratio, t, **given) for given in ({}, {"rtol": 1e-9}))
    apart = float(abs(found.z - tight.z).max())
    assert apart < 1e-6 * float(abs(tight.z).max())
    assert apart < 1e-3 * float(abs(tight.z_error).max())


def test_only_what_is_asked_for() -> None:
    classes = ss.SequenceClasses.syn_medium(1)
    t = asked(classes, 1)
    everything, some = ss.response(classes, t=t), ss.response(classes, t=t, variables=["gap", "z"])
    assert set(some.data_vars) == {"gap", "z", "error"}
    for name in some.data_vars:
        np.testing.assert_array_equal(some[name], everything[name])


def test_it_stops_where_it_has_lost_its_meaning() -> None:
    classes = ss.SequenceClasses.syn_medium(1)
    t = asked(classes)
    whole = ss.response(classes, ETA_Y, ETA_Y / 2, t)
    ended = ss.response(classes, ETA_Y, ETA_Y / 2, t, stop=0.3)
    assert (whole.attrs["stopped"], ended.attrs["stopped"]) == ("complete", "error")
    reached = len(ended.t)
    assert 0 < reached < len(t)
    np.testing.assert_array_equal(ended.z, whole.z[:reached])
    assert (whole.error[: reached - 5] < 0.3).all(), "not before"
    assert float(whole.error[reached].max()) > 0.3


@pytest.mark.parametrize("ratio", [5000, 50, 2])
def test_its_error_is_estimated(ratio: float) -> None:
    """By no less than half where it is trusted at all; where the memory is strong, by too much."""
    error, estimate = apart(ss.SequenceClasses.syn_medium(3), ratio)
    counts = (error > 1e-9) & (estimate < 0.5)  # else it is the integration's error, or nothing to trust
    assert counts.sum() > 5
    assert (estimate[counts] > 0.5 * error[counts]).all()
    assert (estimate[counts] < 20 * error[counts]).all()


def test_it_says_until_when_it_is_trusted() -> None:
    classes = ss.SequenceClasses.syn_medium(1)
    t = asked(classes)
    strong, weak = (ss.response(classes, ETA_Y, ETA_Y / ratio, t) for ratio in (2, 10_000))
    assert weak.attrs["trusted_until"] == np.inf
    until = strong.attrs["trusted_until"]
    assert t[0] < until < t[-1]
    late = strong.error.max("query").values > 0.1
    assert until == t[late][0]


def test_drive_and_memory_are_its_parts() -> None:
    classes = ss.SequenceClasses.textbook()
    found = ss.response(classes, ETA_Y, ETA_Y / 45, asked(classes, 10))
    np.testing.assert_allclose(found.drive + found.memory, found.z, rtol=1e-12)
    last = found.isel(t=-1)
    top = int(last.drive.argmax("token")[0])
    assert 0 < float(last.z[0, top]) < float(last.drive[0, top]), "the memory holds attention back"
    no_memory = ss.response(classes, ETA_Y, ETA_Y / 1e7, asked(classes, 10)).isel(t=-1)
    assert float(abs(no_memory.memory).max() / abs(no_memory.drive).max()) < 1e-4, "the control: η_Z → 0"


def test_its_growth_is_that_of_the_closed_form_where_attention_hardly_moves() -> None:
    classes = ss.SequenceClasses.textbook()
    t = asked(classes, 1)
    found = ss.response(classes, ETA_Y, ETA_Y / 1e6, t)
    common = classes.common
    overlap = float(found.f[0, 0, common[0]] * found.f[0, 1, common[0]])
    known = {"eta_y": ETA_Y, "eta_z": ETA_Y / 1e6, "n_classes": 2, "vocab_size": classes.vocab_size}
    wanted = ss.theory.growth_drive(t, **known, overlap=overlap, form="exact")
    np.testing.assert_allclose(found.growth[:, 0], wanted, rtol=2e-3)


@pytest.mark.parametrize(("given", "field"), [({"eta_y": 0.0}, "eta_y"), ({"eta_z": -1.0}, "eta_z"),
                                              ({"t": [2, 1]}, "t"), ({"trust": 0}, "trust"), ({"stop": 0}, "stop"),
                                              ({"variables": ["y"]}, "variables")])  # fmt: skip
def test_what_cannot_be(given: dict[str, object], field: str) -> None:
    with refused(field):
        ss.response(ss.SequenceClasses.syn_small(), **{"t": [1.0], **given})
