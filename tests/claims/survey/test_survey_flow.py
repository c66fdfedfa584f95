"""The survey's own flow: ours where it is ours, and right where it is not."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.survey import yz

CLASSES = ss.SequenceClasses.syn_medium(n_queries=2)
USED = CLASSES.p_context.sum(0) > 0


@pytest.mark.parametrize("norm", ["l2", "none"])
def test_without_extras_it_is_the_flow(norm: str) -> None:
    t = np.geomspace(1, 1e4, 6)
    ours = yz.flow(yz.Data.of(CLASSES), t, eta_z=0.3, norm=norm)
    exact = ss.flow(CLASSES, 1.0, 0.3, t, norm=norm, variables=("z", "y", "attention"))
    np.testing.assert_allclose(ours.z, exact.z.values[..., USED], atol=2e-6)
    np.testing.assert_allclose(
        ours.y[..., : CLASSES.n_classes], exact.y.values[:, USED][..., CLASSES.next_token], atol=2e-6
    )
    np.testing.assert_allclose(ours.attention, exact.attention.values[..., USED], atol=2e-6)


@pytest.mark.parametrize(("decay_y", "decay_z"), [(0.05, 0.0), (0.0, 0.05)])
def test_decay_is_that_of_simulate(decay_y: float, decay_z: float) -> None:
    """Small steps on expected gradients follow the flow with the same decay."""
    run = ss.simulate(
        CLASSES, eta_y=0.05, eta_z=0.05, steps=800, batch_size=None, context=np.inf, init="zero", record=[800],
        weight_decay_y=decay_y, weight_decay_z=decay_z, dtype="float64", device="cpu", variables=("z",),
    )  # fmt: skip
    flow = yz.flow(yz.Data.of(CLASSES), np.array([40.0]), decay_y=decay_y, decay_z=decay_z)
    np.testing.assert_allclose(flow.z[0], run.z.values[0, 0][:, USED], rtol=0.02, atol=1e-3)


def test_soft_labels_are_followed_to_their_entropy() -> None:
    """One context whose next token is a coin: α goes to its odds."""
    data = yz.Data(np.ones((1, 1)), np.zeros(1, dtype=np.int64), np.array([[0.8, 0.2]]), np.ones(1), np.ones(2))
    logits = yz.flow(data, np.array([200.0])).logits[0, 0]
    assert logits[0] - logits[1] == pytest.approx(np.log(4), abs=1e-6)
