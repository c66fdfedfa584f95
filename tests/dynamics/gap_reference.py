"""The population flow as it stands on paper, and awkward classes to try it on. Written without library code."""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from scansnap.classes import SequenceClasses


def ragged(seed: int = 0, n_classes: int = 6, vocab: int = 30, n_queries: int = 2) -> SequenceClasses:
    """Awkward classes: all sizes and overlaps of supports, unequal p_n, next tokens that occur in contexts."""
    rng = np.random.default_rng(seed)
    p = np.zeros((n_classes, vocab))
    for n in range(n_classes):
        ids = rng.choice(vocab - 4, size=rng.integers(2, 12), replace=False)
        p[n, ids] = rng.dirichlet(np.full(len(ids), 0.7))
    p[0] = p[1]  # a class without distinct tokens
    p[0, np.flatnonzero(p[1])[0]] *= 0.5
    p[0] /= p[0].sum()
    p[2] = 0  # and one without common tokens
    p[2, vocab - 3 : vocab - 1] = 0.4, 0.6
    query = rng.permutation(vocab)[:n_queries][np.arange(n_classes) % n_queries]
    return SequenceClasses(p, query, rng.permutation(vocab)[:n_classes], rng.dirichlet(np.full(n_classes, 3.0)))


class Plain:
    """The flow as it stands on paper: full M × M tables, one class after the other, no library code."""

    def __init__(self, classes: SequenceClasses, eta_y: float, eta_z: float) -> None:
        self.classes, self.eta_y, self.eta_z = classes, eta_y, eta_z
        self.p_context, self.m = classes.p_context, classes.vocab_size
        self.queries = np.unique(classes.query)

    def rates(self, y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        dy, dz = np.zeros_like(y), np.zeros_like(z)
        for n in range(self.classes.n_classes):
            row = np.searchsorted(self.queries, self.classes.query[n])
            f = self.p_context[n] * np.exp(z[row])
            f = f / np.sqrt(f @ f)
            alpha = np.exp(y.T @ f)
            e = -alpha / alpha.sum()
            e[self.classes.next_token[n]] += 1
            p = self.classes.p_class[n]
            dy += self.eta_y * p * np.outer(f, e)
            dz[row] += self.eta_z * p * f * ((np.eye(self.m) - np.outer(f, f)) @ (y @ e))
        return dy, dz

    def unpack(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x[: self.m**2].reshape(self.m, self.m), x[self.m**2 :].reshape(len(self.queries), self.m)

    def __call__(self, _: float, x: np.ndarray) -> np.ndarray:
        return np.concatenate([part.ravel() for part in self.rates(*self.unpack(x))])

    def solve(self, t: np.ndarray, method: str, rtol: float, z0: np.ndarray | None = None) -> list:
        start = np.zeros(self.m**2 + len(self.queries) * self.m)
        if z0 is not None:
            start[self.m**2 :] = z0.ravel()
        found = solve_ivp(self, (0, t[-1]), start, method, t, rtol=rtol, atol=rtol * 1e-3)
        return [self.unpack(x) for x in found.y.T]


def exact_gap(s: float, eta_y: float, m: int) -> float:
    """u with e^u + (M − 1)u = Mη_Y s + 1 (Lemma 3), by bisection."""
    right = m * eta_y * s
    return float(brentq(lambda u: np.expm1(u) + (m - 1) * u - right, 0, 50, xtol=1e-15, rtol=1e-15))
