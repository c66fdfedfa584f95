"""The experiment that figures and benchmarks share."""

import numpy as np

import scansnap as ss
from scansnap.paper.shared.medium_runs import SYN_MEDIUM


def test_the_full_size_is_the_papers():
    runs = SYN_MEDIUM.runs(SYN_MEDIUM.seeds)
    assert len(SYN_MEDIUM.n_queries) * len(runs) == 640
    assert sorted(set(zip(runs.eta_z, runs.ratio, strict=True))) == [
        (z, r) for z in (0.5, 1.0, 2.0, 3.0) for r in (1.0, 2.0, 5.0, 10.0)
    ]
    assert sorted(set(runs.seed)) == list(range(10))


def test_it_trains_as_the_paper_does():
    classes, runs = ss.SequenceClasses.syn_medium(1), ss.grid(eta_z=1.0, ratio=2.0, seed=3)
    found = SYN_MEDIUM.train(classes, runs, device="cpu")
    plain = ss.simulate(classes, runs, steps=100, batch_size=128, context=128, momentum=0.9, optimizer="sgd",
                        init="uniform", record=[100], device="cpu")  # fmt: skip
    np.testing.assert_array_equal(found.z, plain.z)
    assert found.step.values.tolist() == [100]
