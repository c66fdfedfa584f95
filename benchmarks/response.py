"""How fast the linear response is: ``python benchmarks/response.py [--classes 1000] [--rtol 1e-6] [--flow]``.

Each line is one call of ``response`` to 100 t₀, read at 31 times. Beside it, in the same process:

    plain    the same equations as dynamics/response/field.py states them, with tables of all tokens and BLAS products;
             one evaluation's processor time is multiplied by the number of evaluations that ours needed
    limit    reading once, at each evaluation, what the method must read: the rows a_n, e_n and δY_l and on average
             eight stages of the first two, at the speed at which this machine reads a table that no cache holds
    flow     (``--flow``) the exact flow at the same tolerance, which answers without any expansion

Processor time is that of all threads together; on a busy machine it says more than seconds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
import torch

from scansnap.checks.arrays import FloatArray
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.response.solve import response
from scansnap.theory import t_snap
from timing import timed

SMALL = ("z", "drive", "memory", "z_error", "gap", "growth")  # all but the tables by class and token


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the linear response.")
    parser.add_argument("--classes", type=int, default=1000, help="number of classes")
    parser.add_argument("--rtol", type=float, default=1e-6, help="tolerance of response and flow")
    parser.add_argument("--flow", action="store_true", help="run the exact flow, too")
    given = parser.parse_args()
    k = given.classes
    cases = {  # classes, η_Y/η_Z, stop
        "1 query, 10 distinct tokens each": (SequenceClasses.synthetic(1, k), 1e5, None),
        "K/2 queries, 3 distinct tokens": (SequenceClasses.synthetic(k // 2, 2, distinct=3), 1e5, None),
        "1 query, rates 50 : 1, until error 1": (SequenceClasses.synthetic(1, k), 50, 1.0),
    }
    response(SequenceClasses.syn_small(), t=[1.0])  # the first call loads the libraries
    speed = reading_speed()
    print(f"K = {k}, {torch.get_num_threads()} threads, rtol {given.rtol:g}, tables are read at {speed / 1e9:.1f} GB/s")
    print(f"{'case':38s} {'M':>6s} {'steps':>6s} {'evaluations':>12s} {'seconds':>8s} {'processor':>10s} {'limit':>7s} "
          f"{'plain':>8s} {'flow':>7s} {'to':>9s} {'trusted until':>14s}")  # fmt: skip
    for name, (classes, ratio, stop) in cases.items():
        m = classes.vocab_size
        t0 = float(t_snap(eta_y=1.0, n_classes=k, vocab_size=m))
        t = t0 * np.geomspace(0.1, 100, 31)
        ours = timed(response, classes, 1.0, 1 / ratio, t, rtol=given.rtol, stop=stop, variables=SMALL)
        data = ours.result
        n, until = data.attrs["n_evaluations"], data.attrs["trusted_until"] / t0
        d = max(len(classes.distinct(i)) for i in range(k))
        limit = n * 8 * k * (k + 1) * (d + 2 + 2 * 8) / speed
        plain = n * timed(plain_field(classes, 1.0, 1 / ratio)).processor
        exact = math.nan
        if given.flow:
            options = {"rtol": given.rtol, "variables": ("z",), "device": "cpu"}
            exact = timed(flow, classes, 1.0, 1 / ratio, t, **options).wall
        print(f"{name:38s} {m:6d} {data.attrs['n_steps']:6d} {n:12d} {ours.wall:8.1f} {ours.processor:10.1f} "
              f"{limit:7.1f} {plain:8.0f} {exact:7.1f} {float(data.t[-1]) / t0:6.3g} t₀ {until:11.3g} t₀",
              flush=True)  # fmt: skip


def reading_speed() -> float:
    """Bytes a second, summing a table of 256 MiB with all threads; best of five."""
    table = torch.ones(2**25, dtype=torch.float64)
    return 8 * len(table) / min(timed(table.sum).wall for _ in range(5))


def plain_field(classes: SequenceClasses, eta_y: float, eta_z: float) -> Callable[[], tuple[FloatArray, ...]]:
    """One evaluation of the response's equations with tables of all tokens, at some state."""
    p, k, m = classes.p_context, classes.n_classes, classes.vocab_size
    f = p / np.linalg.norm(p, axis=1, keepdims=True)  # (K, M)
    of = np.searchsorted(classes.queries, classes.query)
    each, weight, own = np.append(np.ones(k), m - k), classes.p_class[:, None], np.arange(k)
    rng = np.random.default_rng(0)
    a, da, dy = (rng.standard_normal((rows, k + 1)) for rows in (k, k, m))
    z = rng.standard_normal((len(classes.queries), m))

    def across(v: FloatArray) -> FloatArray:
        return v - f * (f * v).sum(1, keepdims=True)

    def rates() -> tuple[FloatArray, ...]:
        y = f.T @ a  # (M, J)
        logits = f @ y
        alpha = np.exp(logits - logits.max(1, keepdims=True)) * each
        alpha /= alpha.sum(1, keepdims=True)
        r = -alpha
        r[own, own] += 1
        df = f * (z[of] - (f**2 * z[of]).sum(1, keepdims=True))
        change = f.T @ da + dy
        dl = df @ y + f @ change
        dr = -alpha * (dl - (alpha * dl).sum(1, keepdims=True))
        along = (a * r).sum(1, keepdims=True)
        others = r @ y.T - along * f
        felt = r @ change.T + dr @ y.T - df * along
        dz = f * across(others) + f * across(felt) + df * across(others)
        dz -= f * (df * (f * others).sum(1, keepdims=True) + f * (df * others).sum(1, keepdims=True))
        z_rate = np.zeros_like(z)
        np.add.at(z_rate, of, eta_z * weight * dz)
        step = eta_y * weight
        return step * r / each, step * dr / each, z_rate, (step * df).T @ (r / each)

    return rates


if __name__ == "__main__":
    main()
