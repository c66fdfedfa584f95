"""Simulation tends to the flow as sequences grow (Lemma 2); test_flow_norms.py has the limit of small rates."""

import math

import numpy as np

import scansnap as ss

CLASSES = ss.SequenceClasses.syn_medium(1)


def test_finite_sequences_approach_the_limit_with_slope_minus_one_half():
    """Same seeds draw the same classes at every T, so that only the sequences' own noise is left.

    A single run is off by noise of order T^−1/2 (Lemma 2) and by a drift of order 1/T, since the gradient is not
    linear in the counts; many samples and steps average the noise, not the drift, so the two are told apart.
    """
    lengths = np.array([65, 257, 1025, 4097])
    runs = ss.grid(eta_y=0.2, eta_z=0.05, seed=range(12))
    options = {"steps": 200, "batch_size": 64, "dtype": "float64", "record": [200], "variables": ["z", "attention"]}
    limit = ss.simulate(CLASSES, runs, context=math.inf, **options)
    noise, drift = [], []
    for length in lengths:
        off = ss.simulate(CLASSES, runs, context=int(length), **options).attention - limit.attention
        noise.append(float(np.sqrt(off.var("run", ddof=1).mean())))
        drift.append(float(np.sqrt((off.mean("run") ** 2).mean())))
    slope = np.polyfit(np.log(lengths - 1), np.log(noise), 1)[0]
    assert abs(slope + 0.5) < 0.05, f"slope {slope:.3f} of the noise {noise}"
    slope = np.polyfit(np.log(lengths - 1)[:3], np.log(drift)[:3], 1)[0]  # the last is mostly noise
    assert abs(slope + 1) < 0.15, f"slope {slope:.3f} of the drift {drift}"
    exact = ss.flow(CLASSES, eta_y=0.2, eta_z=0.05, t=[200.0]).attention[0]
    mean, spread = limit.attention.mean("run")[0], limit.attention.std("run")[0] / math.sqrt(len(runs))
    off = np.abs(mean.values - exact.values).max()
    allowed = 5 * float(spread.max()) + 0.02 * float(exact.max())  # sampled classes, and the rate's own O(η)
    assert off < allowed, f"mean of {len(runs)} runs is off the flow by {off:.2g}, allowed {allowed:.2g}"
