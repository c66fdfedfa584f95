"""The runs behind Figures 6, 11 and 12: made once for an effort, with their progress, and never half."""

from dataclasses import replace

import numpy as np
import pytest
from least_entropy import any_least_entropy

import scansnap as ss
from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig6, fig11, fig12
from scansnap.paper.shared import medium_runs


@pytest.fixture
def small(monkeypatch):
    """Two sizes, one seed, and a list of the sizes that were trained; without the finer grid of Figure 6."""
    trained = []
    real = medium_runs.SYN_MEDIUM

    class Counted(type(real)):
        def train(self, classes, runs, **options):
            trained.append(len(classes.queries))
            return super().train(classes, runs, **options)

    settings = {name: getattr(real, name) for name in real.__dataclass_fields__} | {"n_queries": (1, 3)}
    monkeypatch.setattr(medium_runs, "SYN_MEDIUM", Counted(**settings))
    monkeypatch.setattr(medium_runs, "QUICK_SEEDS", 1)
    monkeypatch.setattr(fig6, "least_entropy", lambda *_: any_least_entropy())
    return trained


def test_the_figures_of_an_effort_share_their_runs(small, tmp_path):
    effort = Effort(quick=True, device="cpu")
    for i, figure in enumerate((fig6, fig11, fig12)):
        figure.compute(replace(effort, cache_folder=tmp_path / str(i)))  # as the command hands it on
    assert small == [1, 3]


def test_another_effort_has_its_own(small):
    """Nothing is left behind in the module: what was made goes with the effort it was made for."""
    fig6.compute(Effort(quick=True, device="cpu"))
    fig6.compute(Effort(quick=True, device="cpu"))
    assert small == [1, 3, 1, 3]
    effort = Effort(quick=True, device="cpu")
    fig6.compute(effort)
    fig6.compute(replace(effort, data="other text"))
    assert len(small) == 8
    assert effort == Effort(quick=True, device="cpu")  # what it has made is no part of what it asks for


def test_progress_and_interruption(small):
    effort = Effort(quick=True, device="cpu")
    calls = []
    medium_runs.medium_runs(effort, lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (200, 200)
    stopped = Effort(quick=True, device="cpu")

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        medium_runs.medium_runs(stopped, stop)
    assert not stopped.shared_runs


def test_the_full_size_is_the_papers():
    runs = medium_runs.SYN_MEDIUM.runs(medium_runs.SYN_MEDIUM.seeds)
    assert len(medium_runs.SYN_MEDIUM.n_queries) * len(runs) == 640
    assert sorted(set(zip(runs.eta_z, runs.ratio, strict=True))) == [
        (z, r) for z in (0.5, 1.0, 2.0, 3.0) for r in (1.0, 2.0, 5.0, 10.0)
    ]
    assert sorted(set(runs.seed)) == list(range(10))


def test_it_trains_as_the_paper_does():
    classes, runs = ss.SequenceClasses.syn_medium(1), ss.grid(eta_z=1.0, ratio=2.0, seed=3)
    found = medium_runs.SYN_MEDIUM.train(classes, runs, device="cpu")
    plain = ss.simulate(classes, runs, steps=100, batch_size=128, context=128, momentum=0.9, optimizer="sgd",
                        init="uniform", record=[100], device="cpu")  # fmt: skip
    np.testing.assert_array_equal(found.z, plain.z)
    assert found.step.values.tolist() == [100]
