"""For each statement a control in which it must fail, or, where it fails, one in which it would have held."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scansnap.claims.survey import causal, class_imbalance, joma, late_attention, separators, sinks, soft_labels


def test_the_integral_holds_before_attention_moves_and_not_after() -> None:
    assert joma.judge_integral(joma.LATE, *joma.errors(50.0, 0.1)).status == "holds"
    assert joma.judge_integral(joma.EQUAL, *joma.errors(1.0, 0.1)).status == "holds"
    late = joma.judge_integral(joma.EARLY, *joma.errors(50.0, 1e3))
    assert late.status == "fails"
    assert "0.999" in late.reason  # a correlation would have passed it


def test_the_mean_attention_of_the_start_serves_the_integral_better() -> None:
    assert joma.errors(50.0, 1e3)[0] < joma.errors(50.0, 1e3, present=True)[0]


def test_the_rebound_is_seen_where_there_is_one() -> None:
    nonlinear, linear = joma.rebound(joma.reduced(True)), joma.rebound(joma.reduced(False))
    assert joma.judge_rebound(joma.REDUCED, float(linear)).status == "fails"
    assert joma.judge_rebound(joma.RELU, float(nonlinear)).status == "holds"
    assert joma.judge_rebound(joma.LINEAR, float(nonlinear)).status == "fails"


def test_the_rebound_of_a_curve() -> None:
    assert joma.rebound(np.array([3.0, 1.0, 2.0])) == 0.5
    assert joma.rebound(np.array([3.0, 2.0, 1.0])) == 0.0
    assert joma.rebound(np.array([3.0, 3.0, 3.5])) == 0.0  # nothing fell, so nothing comes back


def test_the_trained_mlp_learns_and_attention_moves() -> None:
    """Otherwise no rebound would say nothing."""
    for nonlinear in (True, False):
        entropy = joma.trained(nonlinear, 2, 300)
        assert (entropy[-1] < entropy[0] - 0.3).all()


def test_a_target_for_the_logits_brings_no_rebound_either() -> None:
    """What is shared is the residual: when it is gone, no token has a reason to catch up."""
    entropy = joma.trained(True, 2, 600, soft=0.2)
    assert (entropy[-1] < entropy[0] - 0.3).all()
    assert (joma.rebound(entropy) < joma.LEAST).all()


def test_polarisation_falls_with_the_norm() -> None:
    without, with_norm = late_attention.POLARISATIONS[:2]
    assert late_attention.judge_polarisation(without, *late_attention.late_exponent("l2", decades=4)).status == "fails"
    assert (
        late_attention.judge_polarisation(with_norm, *late_attention.late_exponent("none", decades=4)).status == "holds"
    )


def test_class_losses() -> None:
    shared = class_imbalance.heavy_tailed()
    slope = class_imbalance.by_sign(shared)
    assert class_imbalance.judge_sign(class_imbalance.SIGN, slope).status == "fails"  # where classes share tokens
    assert class_imbalance.judge_descent(slope, 1.0).status == "fails"  # no law of gradient descent
    assert class_imbalance.by_sign(shared, rate=0.01) == pytest.approx(slope, abs=0.02)  # and none of the step's size
    apart = class_imbalance.by_sign(class_imbalance.heavy_tailed(common=0))
    assert class_imbalance.judge_sign(class_imbalance.SHARED, apart).status == "holds"


def test_max_margin_of_other_tokens() -> None:
    each = np.array([separators.angles(separators.draw_margin(seed), runner_up=True) for seed in range(6)])
    assert separators.judge_margin(each).status == "fails"


def test_each_parametrisation_is_not_the_others_separator() -> None:
    """The norms exchanged: the merged W is not of least nuclear norm, nor the product of least Frobenius norm."""
    exchanged = []
    for seed in range(6):
        problem, end = separators.draw_factors(seed), np.array([1e100])
        constraints = problem.constraints(np.zeros(5, dtype=np.int64))
        a, b = separators.factors(problem, end, np.random.default_rng(seed + 1000))
        apart, together = a[0] @ b[0].T, separators.merged(problem, end)[0]
        best = separators.least_nuclear(constraints), separators.least_frobenius(constraints)
        norms = [np.linalg.norm(w, norm) / (constraints * w).sum((1, 2)).min()
                 for w, norm in ((together, "nuc"), (best[0], "nuc"), (apart, "fro"), (best[1], "fro"))]  # fmt: skip
        exchanged.append([0.0, -0.4, norms[0] / norms[1], norms[2] / norms[3]])
    rank, nuclear, frobenius = separators.judge_factors(np.array(exchanged))
    assert rank.status == "fails"  # equal ranks
    assert nuclear.status == "fails"
    assert frobenius.status == "fails"


def test_without_decay_nothing_becomes_a_nuclear_norm() -> None:
    rates = np.array([separators.excess_rate(seed, decay=0.0) for seed in range(6)])
    assert separators.judge_decay(rates).status == "fails"


def test_without_decay_attention_neither_sharpens_like_ln_t_nor_comes_back() -> None:
    none = late_attention.decayed(0.0, 0.0)
    assert late_attention.judge_y(none).status == "fails"
    assert late_attention.judge_z(none).status == "fails"


def test_sinks() -> None:
    softmax = sinks.train(((0.0, 0.0),), 6).weight[0]
    reads = sinks.train(((0.0, 0.0),), 6, dormant_reads=True).weight[0]
    assert sinks.judge_sink(sinks.FORMS, softmax).status == "holds"
    assert sinks.judge_sink(sinks.FORMS, reads).status == "fails"  # who must read does not look away
    assert sinks.judge_sink(sinks.SIGMOID, softmax).status == "fails"
    assert sinks.judge_sink(sinks.SGD, softmax).status == "fails"
    assert sinks.judge_sink(sinks.DECAY, softmax - reads).status == "holds"
    for statement in (sinks.DECAY, sinks.DRAINS, sinks.DRAINED):
        assert sinks.judge_sink(statement, 0 * softmax).status == "fails"  # no effect is not an effect


def test_what_is_held_stays() -> None:
    value, logit = (sinks.train(((0.0, 0.0),), 2, steps=60, hold=hold) for hold in ("value", "logit"))
    begun = sinks.train(((0.0, 0.0),), 2, steps=0)
    np.testing.assert_array_equal(value.value, begun.value)
    assert (value.weight > 3 * begun.weight).all()
    assert (logit.weight < begun.weight).all()  # others' logits rise, its own do not
    assert (logit.value > begun.value).all()


def test_retrieval_needs_an_order_among_components() -> None:
    ordered = soft_labels.fixed_head(soft_labels.GRAPH)
    assert soft_labels.judge_growth(soft_labels.HARD, soft_labels.fixed_head(soft_labels.NO_ORDER)).status == "fails"
    assert soft_labels.judge_growth(soft_labels.TRAINED, ordered).status == "holds"
    assert soft_labels.judge_mixture(soft_labels.GRAPH, ordered[:1]).status == "fails"  # before it has converged
    assert soft_labels.judge_mixture(soft_labels.GRAPH, soft_labels.trained_head(soft_labels.GRAPH)).status == "fails"


@pytest.mark.parametrize("eta_z", [0.0, pytest.param(1.0, marks=pytest.mark.integration)])
def test_contexts_that_cannot_be_told_apart_have_no_log_odds(eta_z: float) -> None:
    found = soft_labels.logits(eta_z, same_contexts=True)
    assert soft_labels.judge_inside(soft_labels.FROZEN, found).status == "fails"
    assert soft_labels.judge_outside(soft_labels.OUT_MOVING, found).status == "fails"


def test_balance() -> None:
    descent = np.array([class_imbalance.imbalance(class_imbalance.descent(), seed) for seed in range(2)])
    polar = class_imbalance.imbalance(class_imbalance.polar(), 0)
    assert class_imbalance.judge_balance(class_imbalance.MUON, float(descent[0])).status == "fails"
    assert class_imbalance.judge_balance(class_imbalance.MUON_AS_USED, polar).status == "holds"
    assert (
        class_imbalance.judge_balance(class_imbalance.ADAM, class_imbalance.imbalance(class_imbalance.adam(), 0)).status
        == "fails"
    )
    assert (
        class_imbalance.judge_balance(
            class_imbalance.ADAM_ROTATED, class_imbalance.imbalance(class_imbalance.adam(), None)
        ).status
        == "fails"
    )
    assert descent[0] == pytest.approx(-1.59, abs=0.01)
    assert descent[0] == pytest.approx(descent[1], abs=1e-6)  # gradient descent does not see the rotation


def test_causal_parents_of_another_graph_are_not_found() -> None:
    problems = [causal.draw(seed) for seed in range(20)]
    found = [causal.gradient(*problem) for problem in problems]
    others = np.array([causal.recall(one, causal.draw(seed + 100)[0]) for seed, one in enumerate(found)])
    assert causal.judge(others).status == "fails"
    without = np.full((causal.S, causal.S), 1 / causal.S) + 1e-9 * np.random.default_rng(0).normal(size=(6, 6))
    assert causal.recall(causal.gradient(problems[0][0], without), problems[0][0]) < 0.9  # nothing is copied


def test_the_covariances_are_those_of_the_sequences() -> None:
    """Against every sequence of a small tree with its probability, and the gradient against autograd's."""
    parent, pi = np.array([0, 0, 1]), np.array([[0.7, 0.3, 0.0], [0.1, 0.5, 0.4], [0.2, 0.2, 0.6]])
    words = np.stack(np.meshgrid(*[np.arange(3)] * 4, indexing="ij"), -1).reshape(-1, 4)
    p = np.prod([pi[words[:, parent[i]], words[:, i + 1]] for i in range(3)], axis=0) / 3
    one = np.eye(3)[words]  # (81, 4, 3)
    joint = np.einsum("w,wja,wib->ijab", p, one, one)
    np.testing.assert_allclose(causal.covariances(parent, pi), joint - 1 / 9, atol=1e-12)

    x, weight = torch.tensor(one), torch.tensor(p)
    a, mask = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True), torch.tril(torch.ones(4, 4), -1).bool()
    y = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)

    def loss() -> torch.Tensor:
        s = torch.softmax(a.masked_fill(~mask, -torch.inf)[1:], dim=1)
        alpha = torch.log_softmax(torch.einsum("ij,wja,ab->wib", s, x, y), dim=2)
        return -(weight * (alpha * x[:, 1:]).sum((1, 2))).sum()

    (dy,) = torch.autograd.grad(loss(), y)
    with torch.no_grad():
        y -= 1e-6 * dy
    (da,) = torch.autograd.grad(loss(), a)
    ours, theirs = causal.gradient(parent, pi)[mask.numpy()], -da.numpy()[mask.numpy()]
    np.testing.assert_allclose(theirs / np.abs(theirs).max(), ours / np.abs(ours).max(), atol=1e-5)


def test_a_bound_with_half_of_the_norm_is_broken() -> None:
    """One logit above equal ones is on the bound: with a smaller σ it would be below it."""
    one_above = 3.0 * np.eye(20)[0]
    found, bound = late_attention.entropies(one_above)
    assert found == pytest.approx(bound, abs=1e-12)
    assert found < late_attention.least_entropy(np.linalg.norm(one_above - one_above.mean()) / 2, 20)
    assert late_attention.judge_bound(one_above[None] + 1e-12).status == "holds"


def test_no_logits_are_below_the_bound() -> None:
    drawn = np.random.default_rng(0).normal(size=(2000, 20)) * np.geomspace(0.01, 30, 2000)[:, None]
    assert late_attention.judge_bound(drawn).measured >= 0


def test_a_bound_that_is_broken_is_seen(monkeypatch) -> None:
    monkeypatch.setattr(late_attention, "least_entropy", lambda sigma, keys: np.log(keys) * np.exp(-sigma / 20))
    assert late_attention.judge_bound(np.random.default_rng(0).normal(size=(200, 20)) * 3).status == "fails"


def test_only_logits_of_one_token_are_near_the_bound() -> None:
    assert late_attention.judge_tight(late_attention.TIGHT_L2, 8.0 * np.eye(20)[:2]).status == "holds"
    spread = np.random.default_rng(0).normal(size=(2, 20))
    assert late_attention.judge_tight(late_attention.TIGHT, spread).status == "fails"
    early = late_attention.attention_logits("none", decades=1)
    assert late_attention.judge_tight(late_attention.TIGHT, early[0]).status == "fails"  # before attention has moved


def test_a_query_that_must_read_has_no_sink_that_grows() -> None:
    for held in (True, False):
        assert sinks.judge_logit(sinks.HELD, sinks.gap(held=held, dormant_reads=True)).status == "fails"


def test_a_logit_that_slows_down_in_ln_t_is_seen() -> None:
    slow = np.log(np.log(sinks.TIMES))
    assert sinks.judge_logit(sinks.TRAINED, slow).status == "fails"
    assert sinks.judge_logit(sinks.TRAINED, 0.5 * np.log(sinks.TIMES)).status == "holds"
