"""How fast and how exact the population flow is: ``python benchmarks/flow.py [--device cuda] [--small]``.

Each line is one call of ``flow`` at rtol 1e-8, read at 200 times. *Plain* is ``solve_ivp`` of SciPy with DOP853, the
same rtol and the field in NumPy (processor time of one call). The error is that of the attention, relative and at its
worst over classes, tokens and times, against the same flow at rtol 1e-12 (small problems only). Memory is the peak of
the process so far, so the lines are in order of size. ``--norm`` and ``--residual`` take other models, without *plain*.
"""

from __future__ import annotations

import argparse
import math
import resource
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp

from scansnap.checks.arrays import FloatArray
from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from timing import timed

CASES = {  # name: classes, eta_z, end in units of t₀ = 2K ln M/η_Y, whether to measure the error
    "Syn-Small": (SequenceClasses.syn_small(), 0.02, 100, True),
    "K=20, 10 queries": (SequenceClasses.syn_medium(10), 0.02, 1000, True),
    "K=20, 1 query": (SequenceClasses.synthetic(1, 20), 0.02, 1000, True),
    "K=20, 1 query, η_Z = 2": (SequenceClasses.synthetic(1, 20), 2.0, 1000, True),
    "K=10, Zipf, M = 1000": (SequenceClasses.zipf(1000, 10), 0.02, 1000, True),
    "K=1000, 20 tokens each": (SequenceClasses.synthetic(1, 1000), 0.02, 100, False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and check the population flow.")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--small", action="store_true", help="leave out the large problem")
    parser.add_argument("--norm", default="l2", help="l2, none or layernorm")
    parser.add_argument("--residual", default="none", help="none, normed or plain")
    options = parser.parse_args()
    model: dict[str, Any] = {"norm": options.norm, "residual": options.residual, "device": options.device}
    first = flow(SequenceClasses.syn_small(), t=[1.0], **model)  # the first call loads the libraries
    setting = ", ".join(f"{name} {first.attrs[name]}" for name in ("norm", "residual", "device"))
    print(f"{setting}, {torch.get_num_threads()} threads")
    print(
        f"{'case':24s} {'to':>8s} {'steps':>6s} {'seconds':>8s} {'processor':>9s} {'plain':>7s} {'error':>8s} "
        f"{'memory':>10s}"
    )
    for name, (classes, eta_z, end, check) in CASES.items():
        if options.small and classes.n_classes > 100:
            continue
        t = np.geomspace(0.1, end * 2 * classes.n_classes * math.log(classes.vocab_size), 200)
        variables = ("attention", "entropy", "loss") if check else ("entropy", "loss")
        calls = [timed(flow, classes, 1.0, eta_z, t, variables=variables, **model) for _ in range(3 if check else 1)]
        call = min(calls, key=lambda call: call.processor)
        data = call.result
        error = plain = math.nan
        if check:
            if options.norm == "l2" and options.residual == "none" and classes.vocab_size < 1000:
                plain = timed(scipy_flow, classes, eta_z, t).processor
            exact = flow(classes, 1.0, eta_z, t, rtol=1e-12, atol=1e-15, variables=variables, **model)
            used = exact.attention.values > 0
            error = float(np.abs(data.attention.values[used] / exact.attention.values[used] - 1).max())
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        steps = data.attrs["n_steps"]
        print(f"{name:24s} {end:5d} t₀ {steps:6d} {call.wall:8.3f} {call.processor:9.3f} {plain:7.2f} {error:8.0e} "
              f"{memory:6.2f} GiB", flush=True)  # fmt: skip


def scipy_flow(classes: SequenceClasses, eta_z: float, t: FloatArray) -> FloatArray:
    """z at the times t, at η_Y = 1, as one would write it with SciPy."""
    p, k, m = classes.p_context, classes.n_classes, classes.vocab_size
    query, weight, own = np.searchsorted(classes.queries, classes.query), classes.p_class[:, None], np.arange(k)
    shapes = (m, m), (len(classes.queries), m)

    def rates(_: float, x: FloatArray) -> FloatArray:
        y, z = x[: m * m].reshape(shapes[0]), x[m * m :].reshape(shapes[1])
        c = p * np.exp(z[query] - z[query].max(1, keepdims=True))
        f = c / np.linalg.norm(c, axis=1, keepdims=True)
        logits = f @ y
        r = np.exp(logits - logits.max(1, keepdims=True))
        r /= -r.sum(1, keepdims=True)
        r[own, classes.next_token] += 1
        g = r @ y.T
        dz = np.zeros_like(z)
        np.add.at(dz, query, eta_z * weight * f * (g - f * (f * g).sum(1, keepdims=True)))
        return np.concatenate([((weight * f).T @ r).ravel(), dz.ravel()])

    start = np.zeros(m * m + math.prod(shapes[1]))
    solution = solve_ivp(rates, (0, t[-1]), start, "DOP853", t, rtol=1e-8, atol=1e-12)
    return np.asarray(solution.y[m * m :])


if __name__ == "__main__":
    main()
