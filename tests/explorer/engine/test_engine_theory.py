"""Flow, response and closed forms of the page's engine are Python's."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_engine import answer, answers, needs_node, spelled_out
from references import grid
from test_engine_draws import CLASSES
from test_engine_runs import OTHERS

from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.flow import integrators
from scansnap.dynamics.flow.integrate import flow
from scansnap.dynamics.response.solve import response
from scansnap.dynamics.settings import ModelConfig
from scansnap.theory import gamma, growth, h, t_scan, t_snap, u

pytestmark = needs_node
TIMES = [0.0, 0.5, 3.0, 20.0, 100.0, 300.0]


def by_slot(classes: SequenceClasses, model: ModelConfig, attention: np.ndarray) -> np.ndarray:
    """(…, K, M) on the slots of each class, one class after the other."""
    layout = make_layout(classes, model, decays=False)
    return np.concatenate([attention[..., n, layout.slots[n, :size]] for n, size in enumerate(layout.n_slots)], axis=-1)


def test_coefficients() -> None:
    own = answer(ask="coefficients")
    for i, row in enumerate(own["A"]):
        assert row == integrators.A[i, : len(row)].tolist()
    for name in ("B", "E3", "E5", "D"):
        theirs = getattr(integrators, name)
        assert np.array_equal(np.array(own[name]), theirs[..., : np.array(own[name]).shape[-1]])


@pytest.mark.hypothesis
def test_flows() -> None:
    cases: list[tuple[SequenceClasses, ModelConfig, dict[str, float]]] = []

    @settings(max_examples=8)
    @given(st.sampled_from(CLASSES[:3] + OTHERS[:2]), st.sampled_from(["l2", "l2", "none", "layernorm"]),
           st.sampled_from(["none", "none", "normed", "plain"]), st.sampled_from([0.3, 1.0, 5.0]),
           st.sampled_from([0.02, 0.5, 2.0]))  # fmt: skip
    def collect(classes: SequenceClasses, norm: str, residual: str, eta_y: float, eta_z: float) -> None:
        cases.append((classes, ModelConfig(norm=norm, residual=residual), {"eta_y": eta_y, "eta_z": eta_z}))

    collect()
    found = answers([{"ask": "flow", "classes": spelled_out(classes), "model": vars(model), "times": TIMES,
                      "rtol": 1e-9, "atol": 1e-13} | rates for classes, model, rates in cases])  # fmt: skip
    for (classes, model, rates), points in zip(cases, found, strict=True):
        data = flow(classes, t=TIMES, norm=model.norm, residual=model.residual, rtol=1e-9, atol=1e-13, device="cpu",
                    variables=("z", "loss", "attention", "entropy"), **rates)  # fmt: skip
        close(np.array([point["z"] for point in points]), data.z.values.reshape(len(TIMES), -1), 1e-7)
        close(np.array([point["loss"] for point in points]), data.loss.values, 1e-7)
        close(
            np.array([np.concatenate(point["attention"]) for point in points]),
            by_slot(classes, model, data.attention.values),
            1e-7,
        )
        entropy = np.array([point["entropy"] for point in points], dtype=float)
        np.testing.assert_allclose(entropy, data.entropy.values, rtol=0, atol=1e-7)


def close(own: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    assert own.shape == theirs.shape
    assert np.abs(own - theirs).max() <= tolerance * max(1.0, np.abs(theirs).max())


def test_a_flow_at_other_rates_differs() -> None:
    question = {"ask": "flow", "classes": spelled_out(CLASSES[0]), "model": vars(ModelConfig()), "times": [50.0]}
    right, wrong = answers([question | {"eta_y": 1.0, "eta_z": eta_z} for eta_z in (0.5, 0.500001)])
    theirs = flow(CLASSES[0], 1.0, 0.5, [50.0], rtol=1e-6, atol=1e-9, device="cpu").z.values.ravel()
    assert np.abs(np.array(right[0]["z"]) - theirs).max() <= 1e-7
    assert np.abs(np.array(wrong[0]["z"]) - theirs).max() > 1e-7


@pytest.mark.parametrize("classes", [CLASSES[0], CLASSES[2], OTHERS[0]], ids=repr)
def test_responses(classes: SequenceClasses) -> None:
    rates: dict[str, Any] = {"eta_y": 1.0, "eta_z": 0.003, "rtol": 1e-9}
    points = answer(ask="response", classes=spelled_out(classes), model=vars(ModelConfig()), times=TIMES, **rates)
    data = response(classes, t=TIMES, **rates)
    for name in ("z", "drive"):
        close(np.array([point[name] for point in points]) * 1e3, data[name].values.reshape(len(TIMES), -1) * 1e3, 1e-7)
    attention = np.array([np.concatenate(point["attention"]) for point in points])
    close(attention, by_slot(classes, ModelConfig(), data.attention.values), 1e-7)
    off = np.array([point["z_error"] for point in points])
    theirs = data.z_error.values.reshape(len(TIMES), -1)
    assert np.abs(off - theirs).max() <= 0.02 * np.abs(theirs).max()  # Python's is an estimate to a percent
    error = np.array([point["error"] for point in points])
    np.testing.assert_allclose(error, data.error.max("query").values, rtol=0.03, atol=1e-12)
    assert error[-1] > 0


@pytest.mark.hypothesis
def test_closed_forms() -> None:
    cases: list[dict[str, float]] = []

    @settings(max_examples=30)
    @given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e2), st.integers(2, 64), st.integers(2, 20000), st.floats(1e-3, 1e6))
    def collect(eta_y: float, eta_z: float, k: int, m: int, c0: float) -> None:
        cases.append({"eta_y": eta_y, "eta_z": eta_z, "K": k, "M": m, "c0": c0, "p_class": 0.5 / k, "p_query": 0.5})

    collect()
    times = [0.0, 1e-6, 0.1, 10.0, 1e3, 1e7]
    for case, own in zip(
        cases, answers([{"ask": "closed", "times": times, "sizes": case} for case in cases]), strict=True
    ):
        size: dict[str, Any] = {"eta_y": case["eta_y"], "n_classes": case["K"], "vocab_size": case["M"]}
        s, gap = np.array(times) / case["K"], {"eta_y": case["eta_y"], "vocab_size": case["M"]}
        np.testing.assert_allclose(own["gap"], u(s, **gap), rtol=1e-13)
        np.testing.assert_allclose(own["h"], h(s, **gap), rtol=1e-13)
        np.testing.assert_allclose(own["gamma"], gamma(np.array(times), **size), rtol=1e-12)
        theirs = growth(np.array(times), eta_z=case["eta_z"], c0=case["c0"], p_class=case["p_class"],
                        p_query=case["p_query"], **size)  # fmt: skip
        np.testing.assert_allclose(own["growth"], theirs, rtol=1e-12)
        np.testing.assert_allclose([own["t_scan"], own["t_snap"]], [t_scan(**size), t_snap(**size)], rtol=1e-14)


def test_the_grid_of_times() -> None:
    for last, points in ((1, 2), (100, 200), (5000, 31)):
        np.testing.assert_allclose(answer(ask="grid", last=last, points=points), grid(last, points), rtol=1e-12)
