"""Push and memory for any overlaps, against the symmetric family, the flow and the closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from refusals import refused
from scansnap import theory

M, ETA_Y = 3000, 0.9


def normalized(*rows: list[float]) -> np.ndarray:
    return np.array(rows) / np.linalg.norm(rows, axis=1, keepdims=True)


LEANING = normalized([0.126, 0.112, 0.386, 0.376, 0, 0], [0.5, 0, 0, 0, 0.357, 0.143])
SYMMETRIC = np.sqrt([[0.24, 0.5, 0.26, 0, 0], [0.24, 0, 0, 0.5, 0.26]])


def times(u: np.ndarray) -> np.ndarray:
    """t/t₀ at the gap u for two classes."""
    return 2 * (np.expm1(u) + (M - 1) * u) / (M * ETA_Y) / (4 * np.log(M) / ETA_Y)


@pytest.mark.parametrize("form", ["leading", "exact"])
def test_the_symmetric_family_is_a_special_case(form: str) -> None:
    u = np.array([0.5, 5.0, 12.0])
    known = {"eta_y": ETA_Y, "eta_z": 0.09, "vocab_size": M, "form": form}
    symmetric = theory.memory_tokens(u, n_classes=2, f_distinct=SYMMETRIC[0, 1:3], **known)
    general = theory.memory_by_token(u, f=SYMMETRIC, **known)
    np.testing.assert_allclose(general.v[:, [1, 2, 0]], symmetric.v, rtol=1e-6)
    np.testing.assert_allclose(general.z[:, [1, 2, 0]], symmetric.z, rtol=1e-6)


def test_late_fates_in_closed_form() -> None:
    """A⁺b′/u, its closed form with one common token, its sign for two classes, and conservation."""
    rng = np.random.default_rng(3)
    for k in (2, 3, 4):
        n = rng.integers(1, 5, k)
        f = np.zeros((k, 1 + n.sum()))
        f[:, 0] = np.sqrt(rng.uniform(0.02, 0.7, k))
        for i, end in enumerate(np.cumsum(n)):
            f[i, 1 + end - n[i] : 1 + end] = np.sqrt((1 - f[i, 0] ** 2) * rng.dirichlet(np.ones(n[i])))
        v = theory.held_speed(20.0, f=f, vocab_size=M)
        common, distinct = theory.held_speed_one_common(20.0, f_common=f[:, 0], n_distinct=n, vocab_size=M)
        np.testing.assert_allclose(v, np.append(common, np.repeat(distinct, n)), rtol=1e-8)
        assert abs(v.sum()) < 1e-12 < -common
    for ratio in (1.30, 1.36):  # of f_1c² to f_0c², around 1 + 1/3
        _, distinct = theory.held_speed_one_common(
            20.0, f_common=np.sqrt([0.05, 0.05 * ratio]), n_distinct=[3, 1], vocab_size=1e7
        )
        assert (distinct[1] < 0) == (ratio > 4 / 3)


def test_when_the_distinct_tokens_of_a_leaning_class_fall() -> None:
    """0.56 and 0.64 t₀ on the flow at ratio 10; the drive alone has them rise for ever."""
    u = np.linspace(0.1, 12, 400)
    v = theory.memory_by_token(u, eta_y=ETA_Y, eta_z=0.09, f=LEANING, vocab_size=M).v
    falls = [times(u[np.argmax(v[:, token] < 0)]) for token in (4, 5)]
    assert falls == pytest.approx([0.56, 0.64], abs=0.02)
    up, down = theory.token_push(u, f=LEANING, vocab_size=M)
    assert ((up - down)[:, 0, 1:] > 0).all()
    held = theory.held_speed(u[-1], f=LEANING, vocab_size=M)
    assert (held[[4, 5]] < 0).all()
    assert (held[1:4] > 0).all()


def test_with_a_residual_connection_the_push_turns() -> None:
    """A token of one class in each of two queries: the flow at ratio 1000, and never without a common token."""

    def classes(common: float) -> ss.SequenceClasses:
        p = np.zeros((4, M))
        p[:, 0], p[[0, 2], 1] = np.sqrt(common), np.sqrt(0.2)
        for n in range(4):
            own = 2 + 3 * n
            p[n, own : own + 3] = np.sqrt((1 - common - 0.2 * (n % 2 == 0)) / 3)
        return ss.SequenceClasses(p / p.sum(1, keepdims=True), query=[20, 20, 21, 21], next_token=[22, 23, 24, 25])

    t = np.linspace(0.02, 1, 50) * 8 * np.log(M) / ETA_Y
    u = theory.u(t / 4, eta_y=ETA_Y, vocab_size=M)
    for common, rises in ((0.1, True), (0.0, False)):
        f = normalized(*classes(common).p_context)[:, :14]
        (up, down), without = (theory.token_push(u, f=f, vocab_size=M, query=[0, 0, 1, 1], residual=residual)
                               for residual in (True, False))  # fmt: skip
        push = (up - down)[:, 0, 1]
        flow = ss.flow(classes(common), ETA_Y, ETA_Y / 1000, t, residual="normed", variables=("z_rate",))
        np.testing.assert_array_equal(push > 0, flow.z_rate.values[:, 0, 1] > 0)
        assert push[0] < 0
        assert (push[-1] > 0) == rises
        assert (np.subtract(*without)[:, 0, 1] < 0).all()


def test_rows_must_have_length_1() -> None:
    with refused("f"):
        theory.held_speed(1.0, f=[[0.5, 0.5]], vocab_size=M)
