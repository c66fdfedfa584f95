"""The flow with soft labels: the flow of the classes for hard labels, and right where a closed form is known."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.survey.soft_labels import SoftLabelFlow


@pytest.mark.parametrize("norm", ["l2", "none"])
def test_hard_labels_give_the_flow(norm: str) -> None:
    classes = ss.SequenceClasses.synthetic(n_queries=1, next_per_query=3, common=2, distinct=3)
    labels = np.eye(classes.vocab_size)[classes.next_token]
    t = np.geomspace(1, 1e4, 5)
    z, logits = SoftLabelFlow(classes.p_context, labels, classes.p_class, eta_z=0.3, norm=norm).integrate(t)
    exact = ss.flow(classes, 1.0, 0.3, t, norm=norm, variables=("z", "gap"))
    np.testing.assert_allclose(z, exact.z.values[:, 0], atol=1e-6)
    k, never = np.arange(3), np.setdiff1d(np.arange(classes.vocab_size), classes.next_token)[0]
    np.testing.assert_allclose(logits[:, k, classes.next_token] - logits[:, :, never], exact.gap.values, atol=1e-5)


def test_soft_labels_reach_their_odds() -> None:
    """One context whose next token is a coin: α tends to its odds."""
    flow = SoftLabelFlow(np.ones((1, 1)), np.array([[0.8, 0.2]]), np.ones(1))
    logits = flow.integrate(np.array([200.0]))[1][0, 0]
    assert logits[0] - logits[1] == pytest.approx(np.log(4), abs=1e-6)
