"""The benchmark compares like with like: the plain loop and the engine train to the same place."""

import numpy as np

import scansnap as ss
from scansnap.bench import plain
from scansnap.bench.scaling import Line


def test_the_plain_loop_and_the_engine_agree_within_their_noise():
    classes = ss.SequenceClasses.syn_medium(1)
    n = 4
    theirs = [
        ss.measure.distinct_entropy(
            plain.train(classes, eta_y=2.0, eta_z=1.0, seed=s, steps=40).numpy(), classes
        ).mean()
        for s in range(n)
    ]
    ours = ss.simulate(classes, ss.grid(eta_z=1.0, eta_y=2.0, seed=range(4 * n)), steps=40, momentum=0.9,
                       init="uniform", record=[40]).entropy.mean(("class", "step"))  # fmt: skip
    error = np.hypot(np.std(theirs, ddof=1) / np.sqrt(n), float(ours.std(ddof=1)) / np.sqrt(4 * n))
    gap = abs(np.mean(theirs) - float(ours.mean()))
    assert gap < 5 * error, f"plain {np.mean(theirs):.4f}, engine {float(ours.mean()):.4f}, standard error {error:.4f}"
    assert np.mean(theirs) < 2.1  # it learnt something: the start is 2.15


def test_exponent_of_a_straight_line():
    values = np.array([1, 2, 4, 8, 16, 32])
    assert abs(Line("runs", values, 0.1 * values).exponent - 1) < 1e-12
