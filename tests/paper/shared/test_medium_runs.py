"""The runs behind Figures 6, 11 and 12: made once for an effort, with their progress, and never half."""

from dataclasses import replace

import pytest

from scansnap.paper.figure import Effort
from scansnap.paper.figures import fig6, fig11, fig12
from scansnap.paper.shared import medium_runs


@pytest.fixture
def small(monkeypatch):
    """Two sizes, one seed, and a list of the sizes that were trained."""
    trained = []
    real = medium_runs.SYN_MEDIUM

    class Counted(type(real)):
        def train(self, classes, runs, **options):
            trained.append(len(classes.queries))
            return super().train(classes, runs, **options)

    settings = {name: getattr(real, name) for name in real.__dataclass_fields__} | {"n_queries": (1, 3)}
    monkeypatch.setattr(medium_runs, "SYN_MEDIUM", Counted(**settings))
    monkeypatch.setattr(medium_runs, "QUICK_SEEDS", 1)
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
    seen = []
    medium_runs.medium_runs(effort, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (200, 200)
    stopped = Effort(quick=True, device="cpu")

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        medium_runs.medium_runs(stopped, stop)
    assert not stopped.shared_runs
