"""What evidence is made of a trajectory: which run, and which of the others are its seeds."""

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.evidence import from_trajectory
from scansnap.claims.verify import verify

SMALL = ss.SequenceClasses.syn_small()


def test_a_run_that_was_selected_is_one_run():
    data = ss.simulate(SMALL, ss.grid(eta_y=[1.0, 0.5], eta_z=0.1, seed=range(2)), steps=60)
    one, first = verify(data=data.isel(run=2)), verify(data=data.isel(run=[2]))
    assert [(c.name, c.status, c.measured) for c in one] == [(c.name, c.status, c.measured) for c in first]
    assert "η_Y = 0.5" in one.setting


@pytest.mark.integration
def test_signs_in_sgd_take_several_seeds():
    """Eight by default; one leaves them open; and the seeds of a saved trajectory are all used."""
    classes = ss.SequenceClasses.synthetic(1, 2, common=1, distinct=2, common_weight=0.8, unused=100)
    options = {"eta_y": 0.9, "eta_z": 0.05, "context": 5000}
    report = verify(classes, **options)
    assert "SGD with 8 seeds" in report.setting
    assert report["theorem-2b"].observed == "holds"
    assert report["theorem-2b"].interval == (0, 0)
    assert verify(classes, **options, seeds=1)["theorem-2b"].observed == "undecided"
    data = ss.simulate(classes, ss.grid(eta_y=[0.9, 0.5], eta_z=0.05, seed=range(3)), steps=200, context=5000)
    seeds = from_trajectory(data, classes, run=4).z_seeds
    np.testing.assert_array_equal(seeds, data["z"].values[[4, 3, 5]])
    assert from_trajectory(data.isel(run=[0, 3]), classes).z_seeds is None
