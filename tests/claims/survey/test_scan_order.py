"""The reason for the reversed scan order: sign descent on its first steps, and where it comes to rest."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.survey import scan_order

CLASSES = ss.SequenceClasses.syn_medium(n_queries=3)
COMMON, DISTINCT = CLASSES.common, CLASSES.distinct(0)


def two_steps(rule: str, eta: float, norm: str = "l2", steps: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Y and the first query's z after sign steps on expected gradients."""
    run = ss.simulate(
        CLASSES, eta_y=eta, eta_z=eta, steps=steps, batch_size=None, context=np.inf, optimizer=rule, norm=norm,
        init="zero", variables=("z", "y"), dtype="float64", device="cpu", record=[steps],
    )  # fmt: skip
    m = CLASSES.vocab_size
    return run.y.values.reshape(m, m), run.z.values.reshape(-1, m)[0]


def test_the_first_step_of_sign_descent_knows_no_frequencies() -> None:
    """Y of a distinct token is +η_Y on its next token and −η_Y elsewhere; of a common one +η_Y on all next tokens."""
    y, z = two_steps("sign", 0.03, steps=1)
    next_token = np.isin(np.arange(CLASSES.vocab_size), CLASSES.next_token)
    own = np.arange(CLASSES.vocab_size) == CLASSES.next_token[0]
    np.testing.assert_allclose(y[DISTINCT], np.tile(np.where(own, 0.03, -0.03), (10, 1)))
    np.testing.assert_allclose(y[COMMON], np.tile(np.where(next_token, 0.03, -0.03), (10, 1)))
    assert not z.any()


@pytest.mark.parametrize(("eta", "some_fall"), [(1e-3, True), (0.03, True), (0.3, False)])
def test_the_second_step_is_the_formula(eta: float, some_fall: bool) -> None:
    """With small steps frequent tokens fall at once; after one large step f* is above every token."""
    f, f_star = scan_order.first_steps(CLASSES, eta)
    z = two_steps("sign", eta)[1][DISTINCT]
    np.testing.assert_allclose(z, eta * np.sign(f_star - f[DISTINCT]))
    assert (z > 0).any()
    assert (z < 0).any() == some_fall
    if some_fall:
        assert f[DISTINCT][z > 0].max() < f[DISTINCT][z < 0].min()  # an order, and the reversed one


def test_sgd_and_muon_stay_in_the_span_of_the_attention_and_sign_does_not() -> None:
    basis = np.linalg.qr((CLASSES.p_context / np.linalg.norm(CLASSES.p_context, axis=1, keepdims=True)).T)[0]

    def outside(rule: str, eta: float) -> float:
        y = two_steps(rule, eta, steps=1)[0]
        return float(np.linalg.norm(y - basis @ (basis.T @ y)) / np.linalg.norm(y))

    assert max(outside("sgd", 1.0), outside("muon", 0.1)) < 1e-9
    assert min(outside("sign", 0.03), outside("adam", 0.03)) > 0.5


def test_gradient_steps_raise_distinct_tokens_as_their_squares() -> None:
    """After two small SGD steps Δz_l ∝ f_l²."""
    f, _ = scan_order.first_steps(CLASSES, 1.0)
    z = two_steps("sgd", 1e-3)[1][DISTINCT]
    np.testing.assert_allclose(z / z[-1], (f[DISTINCT] / f[DISTINCT][-1]) ** 2, rtol=1e-3)


def test_controls_of_the_first_steps_and_of_the_rest() -> None:
    assert scan_order.judge_first().status == "holds"
    assert scan_order.judge_first(norm="none").status == "fails"  # all distinct tokens rise alike
    assert scan_order.judge_first(rule="sgd").status == "fails"
    assert scan_order.judge_rest("sign", steps=300).status == "holds"
    assert scan_order.judge_rest("sign", norm="none", steps=300).status == "fails"


@pytest.mark.integration
def test_controls_of_the_orders() -> None:
    """Each verdict falls when the runs are those of another rule, or of no order at all."""
    sgd, adam = (scan_order.scan_orders(rule, (eta, eta), 6)[0] for rule, eta in (("sgd", 1.0), ("adam", 0.03)))
    level = scan_order.scan_orders("sign", (0.03, 0.03), 6, norm="none")[0]
    says = scan_order.ORDERS
    assert scan_order.judge(says["sgd", 1], sgd).status == "holds"
    assert scan_order.judge(says["adam", 1], adam).status == "holds"
    assert scan_order.judge(says["sgd", 1], adam).status == "fails"
    assert scan_order.judge(says["adam", 1], sgd).status == "fails"
    assert {scan_order.judge(says[rule, 1], level).status for rule in ("sgd", "sign")} == {"fails"}


def test_the_sign_must_be_on_the_decoder() -> None:
    """Adam on Z alone keeps the order: it is Y that must forget the frequencies."""
    kept = scan_order.scan_orders({"y": "sgd", "z": "adam"}, (1.0, 0.1), 6)[0]
    assert scan_order.judge(scan_order.ORDERS["sgd", 1], kept).status == "holds"
