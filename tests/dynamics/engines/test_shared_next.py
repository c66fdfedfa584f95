"""Classes of different queries with a common next token: trained by the engines, refused by what needs ψ."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from refusals import refused

PLAIN = ss.SequenceClasses.synthetic(n_queries=3, next_per_query=2, common=3, distinct=4)
NEXT = PLAIN.next_token[[0, 1, 0, 2, 1, 3]]  # 0 and 1 follow two queries each
COMMON = {
    "eta_y": 0.5, "eta_z": 0.3, "steps": 15, "batch_size": 8, "context": 12, "record": [0, 7, 15], "device": "cpu",
}  # fmt: skip


def shared(**options) -> ss.SequenceClasses:
    return ss.SequenceClasses(PLAIN.p_context, PLAIN.query, NEXT, PLAIN.p_class, shared_next=True, **options)


@pytest.mark.parametrize("options", [{"engine": "general", "dtype": "float64"}, {"engine": "fused"}])
@pytest.mark.parametrize("init", ["zero", "uniform"])
def test_the_compact_engine_gives_what_autograd_gives(options, init) -> None:
    """The module keeps all M outputs and knows nothing of classes."""
    from test_autograd import YZ

    classes = shared()
    hand = ss.simulate(classes, **COMMON, init=init, sampling="tokens", variables=["y", "z", "batch_loss"], **options)
    module = ss.simulate(classes, **COMMON, init=init, module=YZ(classes.vocab_size), attention=["z"],
                         variables=["y", "z", "batch_loss"], dtype="float64")  # fmt: skip
    atol = 1e-10 if "dtype" in options else 2e-5
    np.testing.assert_allclose(hand.y, module.y, rtol=0, atol=atol)
    np.testing.assert_allclose(hand.z, module.z[:, :, classes.queries], rtol=0, atol=atol)
    np.testing.assert_allclose(hand.batch_loss, module.batch_loss, rtol=1e-5)
    other = ss.simulate(PLAIN, **COMMON, init=init, sampling="tokens", variables=["z"], **options)
    assert np.abs(other.z.values - hand.z.values).max() > 1e-2, "sharing matters"


def test_toml_and_files_keep_it(tmp_path) -> None:
    classes = shared()
    classes.to_toml(tmp_path / "c.toml")
    again = ss.SequenceClasses.from_toml(tmp_path / "c.toml")
    assert again == classes
    assert again.shares_next
    assert "shared_next" not in PLAIN.as_toml()
    ss.save(ss.simulate(classes, **COMMON), tmp_path / "r.zarr")
    assert ss.load(tmp_path / "r.zarr").next_token.values.tolist() == NEXT.tolist()


@pytest.mark.parametrize("call", [lambda c: ss.flow(c, t=[1.0]), lambda c: ss.verify(c, eta_y=1.0, eta_z=0.1)])
def test_what_needs_psi_says_so(call) -> None:
    with refused("next_token", "30 for 2 classes", names="shared_next"):
        call(shared())


def test_it_must_be_asked_for() -> None:
    with refused("next_token", "30 for 2 classes"):
        ss.SequenceClasses(PLAIN.p_context, PLAIN.query, NEXT)
    with refused("shared_next", 1):
        ss.SequenceClasses(PLAIN.p_context, PLAIN.query, NEXT, shared_next=1)
