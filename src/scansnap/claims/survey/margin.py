"""Attention with a fixed head: its gradient flow to very late times, and the max-margin programs it is said to solve.

A problem has n contexts of T tokens x ∈ R^d, a query q for each, and a fixed head: token t of context i is worth
γ_it. With logits X_i W q_i, s = softmax, loss log(1 + e^{−γᵀs}) averaged over contexts (Tarzanagh et al.). The flow
is integrated in ln t, with gradients that keep their relative precision when 1 − s is 10⁻⁵⁰.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import minimize, nnls
from scipy.special import expit, softmax

from scansnap.checks.arrays import FloatArray, IntArray

_START = 1e-3


@dataclass(frozen=True)
class Contexts:
    """Tokens, queries and what the fixed head gives for each token."""

    x: FloatArray  # (n, T, d)
    q: FloatArray  # (n, e)
    worth: FloatArray  # (n, T)

    def gradient(self, w: FloatArray) -> FloatArray:
        """The ascent direction in W, (d, e)."""
        s = softmax(np.einsum("ntd,de,ne->nt", self.x, w, self.q), axis=1)
        top = np.take_along_axis(self.worth, s.argmax(1)[:, None], axis=1)
        less = self.worth - top  # 0 at the selected token: what is left has no cancellation
        pull = s * (less - (s * less).sum(1, keepdims=True))  # (n, T)
        error = expit(-(s * self.worth).sum(1)) / len(s)
        return np.asarray(np.einsum("n,nt,ntd,ne->de", error, pull, self.x, self.q))

    def selected(self, w: FloatArray) -> IntArray:
        """The token with the largest attention in each context, (n,)."""
        return np.asarray(np.einsum("ntd,de,ne->nt", self.x, w, self.q).argmax(1))

    def constraints(self, chosen: IntArray) -> FloatArray:
        """(x_chosen − x_t) qᵀ for all other tokens: W separates where each product is at least 1, (C, d, e)."""
        return np.array([
            np.outer(x[best] - x[t], q)
            for x, q, best in zip(self.x, self.q, chosen, strict=True) for t in range(len(x)) if t != best
        ])  # fmt: skip


def merged(problem: Contexts, times: FloatArray) -> FloatArray:
    """W along its own gradient flow from 0, (N, d, e)."""
    shape = problem.x.shape[2], problem.q.shape[1]
    found = _late(lambda w: problem.gradient(w.reshape(shape)).ravel(), np.zeros(shape[0] * shape[1]), times)
    return found.reshape(-1, *shape)


def factors(
    problem: Contexts, times: FloatArray, rng: np.random.Generator, *, size: float = 1e-3, decay: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """A and B along the gradient flow of W = ABᵀ, with L2 ``decay`` on both, from normal entries of this size."""
    d = problem.x.shape[2]

    def rates(both: FloatArray) -> FloatArray:
        a, b = both.reshape(2, d, d)
        g = problem.gradient(a @ b.T)
        return np.concatenate([(g @ b - decay * a).ravel(), (g.T @ a - decay * b).ravel()])

    found = _late(rates, size * rng.normal(size=2 * d * d), times).reshape(-1, 2, d, d)
    return found[:, 0], found[:, 1]


def least_frobenius(constraints: FloatArray) -> FloatArray:
    """The W of least Frobenius norm whose margins are at least 1 (Lawson and Hanson's reduction to NNLS)."""
    flat = constraints.reshape(len(constraints), -1)
    e = np.vstack([flat.T, np.ones(len(flat))])
    target = np.append(np.zeros(flat.shape[1]), 1.0)
    rest = e @ nnls(e, target, maxiter=10_000)[0] - target
    return np.asarray((-rest[:-1] / rest[-1]).reshape(constraints.shape[1:]))


def least_nuclear(constraints: FloatArray) -> FloatArray:
    """The W of least nuclear norm with margins of at least 1: half the squared Frobenius norms of two full factors."""
    d = constraints.shape[1]
    left, values, right = np.linalg.svd(least_frobenius(constraints))
    start = np.stack([left * np.sqrt(values), right.T * np.sqrt(values)])
    start = start + 1e-3 * np.random.default_rng(0).normal(size=start.shape)  # off the rank it begins with

    def margins(both: FloatArray) -> FloatArray:
        a, b = both.reshape(2, d, d)
        return np.asarray((constraints * (a @ b.T)).sum((1, 2)) - 1)

    def slopes(both: FloatArray) -> FloatArray:
        a, b = both.reshape(2, d, d)
        parts = constraints @ b, constraints.transpose(0, 2, 1) @ a
        return np.concatenate([part.reshape(len(constraints), -1) for part in parts], axis=1)

    found = minimize(
        lambda both: (0.5 * both @ both, both), start.ravel(), jac=True, method="SLSQP",
        constraints=[{"type": "ineq", "fun": margins, "jac": slopes}], options={"maxiter": 1000, "ftol": 1e-12},
    )  # fmt: skip
    a, b = found.x.reshape(2, d, d)
    return np.asarray(a @ b.T)


def _late(rates: Callable[[FloatArray], FloatArray], start: FloatArray, times: FloatArray) -> FloatArray:
    """The flow at these times, from t = 10⁻³ on in ln t; (N, state)."""
    clock = np.log(times)
    run = solve_ivp(
        lambda c, state: np.exp(c) * rates(state), (np.log(_START), clock[-1]), start, t_eval=clock,
        method="LSODA", rtol=1e-7, atol=1e-9,
    )  # fmt: skip
    if not run.success:
        raise RuntimeError(f"the flow with a fixed head stopped: {run.message}")
    return np.asarray(run.y.T)
