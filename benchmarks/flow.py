"""How fast and how exact the population flow is: ``python benchmarks/flow.py [--device cuda] [--small] [--plain]``.

Each line is one call of ``flow`` at rtol 1e-8, read at 200 times; with ``--plain`` on the plain field, which other
norms and residual connections (``--norm``, ``--residual``) take anyway. The error is that of the attention, relative
and at its worst over classes, tokens and times, against the same flow at rtol 1e-12 (small problems only). Memory is
the peak of the process so far, so the lines are in order of size.
"""

from __future__ import annotations

import argparse
import math
import resource
from typing import Any

import numpy as np
import torch

from scansnap.classes import SequenceClasses
from scansnap.dynamics.flow.integrate import flow
from timing import timed

CASES = {  # name: classes, eta_z, end in units of t₀ = 2K ln M/η_Y, whether to measure the error
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
    parser.add_argument("--plain", action="store_true", help="the plain field, not the fast one")
    parser.add_argument("--norm", default="l2", help="l2, none or layernorm")
    parser.add_argument("--residual", default="none", help="none, normed or plain")
    options = parser.parse_args()
    model: dict[str, Any] = {"norm": options.norm, "residual": options.residual, "device": options.device,
                             "field": "plain" if options.plain else "auto"}  # fmt: skip
    first = flow(SequenceClasses.syn_small(), t=[1.0], **model)  # the first call loads the libraries
    setting = ", ".join(f"{name} {first.attrs[name]}" for name in ("norm", "residual", "field", "device"))
    print(f"{setting}, {torch.get_num_threads()} threads")
    print(f"{'case':24s} {'to':>8s} {'steps':>6s} {'seconds':>8s} {'error':>8s} {'memory':>9s}")
    for name, (classes, eta_z, end, check) in CASES.items():
        if options.small and classes.n_classes > 100:
            continue
        t = np.geomspace(0.1, end * 2 * classes.n_classes * math.log(classes.vocab_size), 200)
        variables = ("attention", "entropy", "loss") if check else ("entropy", "loss")
        call = timed(flow, classes, 1.0, eta_z, t, variables=variables, **model)
        data = call.result
        error = math.nan
        if check:
            exact = flow(classes, 1.0, eta_z, t, rtol=1e-12, atol=1e-15, variables=variables, **model)
            used = exact.attention.values > 0
            error = float(np.abs(data.attention.values[used] / exact.attention.values[used] - 1).max())
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        steps = data.attrs["n_steps"]
        print(f"{name:24s} {end:5d} t₀ {steps:6d} {call.wall:8.2f} {error:8.0e} {memory:6.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
