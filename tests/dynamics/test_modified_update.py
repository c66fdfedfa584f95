"""The modified update of the paper's proof (Eq. 26): flow, decoder flow and SGD agree, and where it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from refusals import Field, refused
from scansnap.dynamics.flow.decoder import decoder_flow
from scansnap.dynamics.update import decoder_input
from scansnap.theory import u

CLASSES = ss.SequenceClasses.syn_medium(3)
SGD: dict[str, Any] = {"eta_y": 0.9, "eta_z": 0.0, "steps": 6, "batch_size": 1, "context": np.inf,
                       "update": "modified", "dtype": "float64", "device": "cpu"}  # fmt: skip


def test_the_direction_is_the_modification_of_the_paper() -> None:
    """f_n − F E′e_n, with E′ as it is defined and not as a dual vector."""
    f = torch.rand(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    f /= f.norm(dim=1, keepdim=True)
    e_prime = torch.eye(4) - torch.linalg.inv(f @ f.mT)
    torch.testing.assert_close(decoder_input(f, "modified"), f - e_prime @ f)
    torch.testing.assert_close(f @ decoder_input(f, "modified").mT, torch.eye(4).double())
    assert decoder_input(f, "gradient") is f


def test_rows_of_w_learn_alone_in_the_flow() -> None:
    """The gap of each class is u(p_n t) exactly, whatever the overlaps (0.8 here); the gradient flow's is not."""
    p = CLASSES.p_context
    f = p / np.linalg.norm(p, axis=1, keepdims=True)
    classes = ss.SequenceClasses(p, CLASSES.query, CLASSES.next_token, [0.1, 0.1, 0.2, 0.2, 0.3, 0.1])
    t = np.append(0, np.geomspace(0.1, 1e5, 20))
    gap = u(classes.p_class * t[:, None], eta_y=0.9, vocab_size=classes.vocab_size)
    whole = ss.flow(classes, 0.9, 0.0, t, update="modified", variables=("gap", "z", "loss"))
    alone = decoder_flow(f.T, classes.p_class, 0.9, t, classes.vocab_size, update="modified")
    np.testing.assert_allclose(whole.gap, gap, rtol=1e-7)
    np.testing.assert_allclose(alone.gap, gap, rtol=1e-7)
    np.testing.assert_allclose(alone.loss, whole.loss, rtol=1e-6)
    assert (whole.z == 0).all()
    assert whole.attrs["update"] == alone.attrs["update"] == "modified"
    assert np.abs(ss.flow(classes, 0.9, 0.0, t, variables="gap").gap.values - gap).max() > 0.1


def test_a_drawn_class_moves_its_own_row_alone() -> None:
    data = ss.simulate(CLASSES, **SGD, record="all", variables=("y", "loss", "attention"))
    f = data.attention.values[0, 0] / np.linalg.norm(data.attention.values[0, 0], axis=1, keepdims=True)
    w = f @ data.y.values[0]  # (step, K, M)
    moved = np.abs(np.diff(w, axis=0)).max(-1)  # (step, K)
    assert (np.sort(moved, axis=1)[:, :-1] < 1e-14).all()
    assert (moved.max(1) > 0.5).all()
    plain = ss.simulate(CLASSES, **(SGD | {"update": "gradient"}), record="all", variables="y")
    moved = np.abs(np.diff(f @ plain.y.values[0], axis=0)).max(-1)
    assert (np.sort(moved, axis=1)[:, -2] > 0.1).all()


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("eta_z", {"eta_z": 0.1}), ("batch_size", {"batch_size": 2}), ("batch_size", {"batch_size": None}),
        ("context", {"context": 128}), ("optimizer", {"optimizer": "adam"}),
        ("clip", {"optimizer": {"name": "sgd", "clip": 1.0}}), ("update", {"update": "other"}),
        ("engine", {"engine": "fused", "dtype": "float32"}),
        ("update", {"module": torch.nn.Identity(), "batch_size": 8, "context": 8}),
    ],
)  # fmt: skip
def test_sgd_refuses_it(field: Field, change: dict[str, Any]) -> None:
    with refused(field):
        ss.simulate(CLASSES, **(SGD | change))


def test_only_y_needs_plain_steps() -> None:
    assert ss.simulate(CLASSES, **SGD, optimizer={"y": "sgd", "z": "adam"}).attrs["complete"]


def test_dependent_classes_and_moving_attention_are_refused() -> None:
    p = np.zeros((2, 6))
    p[:, :2] = 0.5
    alike = ss.SequenceClasses(p, [2, 2], [3, 4])
    with refused("update"):
        ss.flow(alike, 0.9, 0.0, [1.0], update="modified")
    with refused("update"):
        ss.simulate(alike, **SGD)
    with refused("update"):
        decoder_flow(np.ones((3, 2)), None, 0.9, [1.0], 5, update="modified")
    with refused("eta_z"):
        ss.flow(CLASSES, 0.9, 0.1, [1.0], update="modified")


def test_the_paper_model_says_nothing_about_it() -> None:
    data = ss.simulate(CLASSES, **SGD, variables=("z", "attention", "y"))
    report = ss.verify(data=data, checks=["theorem-1"])
    assert {claim.status for claim in report} == {"not applicable"}
    assert "modified update" in report.setting
