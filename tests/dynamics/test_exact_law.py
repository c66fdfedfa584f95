"""An exact law of the flow, for any classes, overlaps and queries (docs/derivations.md), from zero start:

Σ_m z_ml/η_Z − ½‖Y_l‖²/η_Y = −∫ Σ_n p_n f_nl² (f_nᵀ Y r_n) dt        for every token l
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import cumulative_simpson

import scansnap as ss

CASES = {
    "one query": (ss.SequenceClasses.syn_medium(1), 1.0, 0.5),
    "three queries": (ss.SequenceClasses.syn_medium(3), 1.0, 0.1),
    "unequal classes": (ss.SequenceClasses.zipf(60, 4), 2.0, 2.0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_flow_keeps_it(name: str) -> None:
    classes, eta_y, eta_z = CASES[name]
    t = np.concatenate([[0.0], np.geomspace(1e-4, 1, 1001)]) * 20 * classes.n_classes / eta_y
    flow = ss.flow(classes, eta_y, eta_z, t, variables=["z", "y", "f", "g"], rtol=1e-11, atol=1e-14)
    f = flow.f.values  # (t, class, token)
    pulled = np.nansum(f * flow.g.values, -1)  # (t, class)  f_nᵀ Y r_n
    rate = -np.einsum("tnl,tn,n->tl", f**2, pulled, classes.p_class)
    law = cumulative_simpson(rate, x=t, axis=0, initial=0)
    stored, moved = (flow.y.values**2).sum(-1) / (2 * eta_y), flow.z.values.sum(1) / eta_z  # (t, token) each
    size = np.abs(stored).max()
    np.testing.assert_allclose(moved - stored, law, rtol=0, atol=1e-6 * size)
    assert np.abs(law).max() > 1e-2 * size, "there is something to keep"
    assert np.abs(moved / 2 - stored - law).max() > 1e-3 * size, "the control: another rate of attention"
    if len(classes.queries) > 1:  # the law is of the sum over queries, not of one of them
        one = flow.z.values[:, 0] / eta_z
        assert np.abs(one - stored - law).max() > 1e-3 * size
