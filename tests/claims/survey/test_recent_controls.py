"""Statements of 2024 to 2026: for each a control in which it must fail, or, where it fails, one in which it holds."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.claims.survey import drops, rank_collapse, separator_paths, sink_cost, trigger
from scansnap.claims.survey.speed import circuits, emergence, focus, logit_steps, zipf

SEEDS = range(6)


def test_a_short_path_from_a_decoder_that_has_learned_is_a_line() -> None:
    short = circuits.path_exponent(started=True, first=0.9999, last=0.999)
    assert circuits.judge_exponent(circuits.LINE_STARTED, short).status == "holds"
    assert circuits.judge_exponent(circuits.LINE, 2.0).status == "fails"  # the parabola of the exact law


def test_slow_attention_moves_in_proportion_to_its_rate() -> None:
    ratios = np.array([1e-4, 1e-3])
    sizes = [circuits.at_equal_loss(1.0, ratio)[0] for ratio in ratios]
    slope = float(np.diff(np.log(sizes))[0] / np.diff(np.log(ratios))[0])
    assert circuits.judge_exponent(circuits.SPEEDS, slope).status == "holds"


@pytest.mark.integration
def test_only_the_ratio_sharpens() -> None:
    same = np.array([circuits.at_equal_loss(eta, eta)[1] for eta in (0.5, 1.0, 2.0)])
    assert np.ptp(same) < circuits.LEAST_FALL
    assert circuits.judge_sharper(circuits.SHARPER, same).status == "fails"
    faster = np.array([circuits.at_equal_loss(1.0, ratio)[1] for ratio in (0.5, 1.0, 2.0, 4.0)])
    assert circuits.judge_sharper(circuits.SHARPER_L2, faster).status == "holds"


@pytest.mark.integration
def test_the_time_of_emergence_bends_between_two_mechanisms() -> None:
    assert emergence.judge_length(*emergence.line(1e-4)).status == "fails"
    misfit, slope = emergence.line(lengths=2 ** np.arange(10, 15))
    assert emergence.judge_length(misfit, slope).status == "holds"  # long contexts
    assert slope == pytest.approx(1.0, abs=0.05)  # t ∝ T


def test_repeating_a_token_of_both_classes_gains_nothing() -> None:
    assert emergence.judge_repetition(emergence.speed_up(of_common=True)).status == "fails"


def test_slow_attention_makes_no_progress_before_the_loss_falls() -> None:
    slow = emergence.progress_of(emergence.PLATEAU, eta_z=1e-6)
    assert emergence.judge_progress(emergence.PLATEAU, slow).status == "fails"
    plateau = emergence.progress_of(emergence.PLATEAU)
    assert emergence.judge_progress(emergence.NO_PLATEAU, plateau).status == "holds"


def test_without_zipf_no_power_of_the_vocabulary() -> None:
    words, classes = zipf.WORDS, zipf.CLASSES[:3]
    uniform = zipf.fitted(words, [zipf.linear_descent(int(d), 0.0) for d in words])
    assert zipf.judge(zipf.DESCENT_LINEAR, uniform).status == "fails"
    alike = zipf.fitted(classes, [zipf.descent_steps(int(k), uniform=True) for k in classes])
    assert zipf.judge(zipf.DESCENT, alike).status == "fails"


def test_each_optimiser_has_its_own_power() -> None:
    words = zipf.WORDS[:2]
    sign = zipf.fitted(words, [zipf.linear_sign(int(d)) for d in words])
    descent = zipf.fitted(words, [zipf.linear_descent(int(d)) for d in words])
    assert zipf.judge(zipf.DESCENT_LINEAR, sign).status == "fails"
    assert zipf.judge(zipf.SIGN_LINEAR, descent).status == "fails"
    assert zipf.judge(zipf.SIGN, sign).status == "holds"


def test_the_steps_of_sign_descent_are_those_of_a_simulation() -> None:
    start = 1 / np.arange(1, 31.0)
    fewest = []
    for eta in np.geomspace(0.1, 10, 41) / np.sqrt(30):
        x, errors = start.copy(), []
        for _ in range(200):
            x = x - eta * np.sign(x)
            errors.append((x**2).sum() / (start**2).sum())
        pairs = np.maximum(errors[:-1], errors[1:])
        fewest += [int(np.flatnonzero(pairs <= zipf.ERROR)[0]) + 1] if (pairs <= zipf.ERROR).any() else []
    assert zipf.linear_sign(30) == min(fewest)


@pytest.mark.parametrize(("steps", "drops_seen"), [((1.0,), 1), ((1.0, 2.0, 3.0), 3)])
def test_the_drops_of_a_staircase(steps: tuple[float, ...], drops_seen: int) -> None:
    t = np.geomspace(0.1, 1e4, 2000)
    loss = sum(0.5 - 0.5 * np.tanh(5 * (t / 10.0**s - 1)) for s in steps)
    assert drops.count_drops(t, np.asarray(loss)) == drops_seen


def test_drops_of_the_other_parametrisation_and_of_one_component() -> None:
    several = np.array([float(drops.count_drops(*drops.linear_loss(seed, separate=True))) for seed in SEEDS])
    assert drops.judge(drops.MERGED, several).status == "fails"
    assert drops.judge(drops.SEPARATE_SOFTMAX, several).status == "holds"
    lone = [drops.count_drops(*drops.linear_loss(seed, separate=True, variances=(4.0,))) for seed in SEEDS]
    assert drops.judge(drops.SEPARATE, np.array(lone, dtype=float)).status == "fails"


def test_equal_queries_that_share_no_token_do_not_collapse() -> None:
    equal = np.array([rank_collapse.measures(seed, (1 / 3,) * 3, own=True)[1] for seed in SEEDS])
    assert rank_collapse.judge_rank(rank_collapse.RANK, equal).status == "fails"
    one = np.array([rank_collapse.measures(seed) for seed in SEEDS])
    assert rank_collapse.judge_rank(rank_collapse.RANK_OWN, one[:, 1]).status == "holds"
    early = np.array([rank_collapse.measures(seed, share=0.98)[0] for seed in SEEDS])
    assert rank_collapse.judge_static(early).status == "holds"


def test_at_equal_path_length_normalised_descent_has_no_gain() -> None:
    each = np.array([separator_paths.gains(seed, equal_length=True, steps=1000) for seed in SEEDS])
    assert separator_paths.judge_sparser(each[:, 0]).status == "fails"
    assert separator_paths.judge_direction(each[:, 1]).status == "fails"


@pytest.mark.parametrize("p", separator_paths.MIRROR)
def test_gradient_descent_does_not_go_to_the_separator_of_another_norm(p: float) -> None:
    each = np.array([separator_paths.mirror_angle(seed, p, flow_p=2.0) for seed in SEEDS])
    assert separator_paths.judge_mirror(separator_paths.MIRROR[p], each).status == "fails"


def test_the_least_norm_of_two_constraints() -> None:
    """w ≥ 1 along each axis: ones, whatever p; along (1, 1) and (1, 0): p decides, and p = 2 is the Frobenius norm."""
    axes = np.eye(2)[:, :, None]
    np.testing.assert_allclose(separator_paths.least_norm(axes, 1.5)[:, 0], [1, 1], atol=1e-6)
    slanted = np.array([[2.0, 1.0]])[:, :, None]
    np.testing.assert_allclose(separator_paths.least_norm(slanted, 2.0)[:, 0], [0.4, 0.2], atol=1e-6)
    w = separator_paths.least_norm(slanted, 3.0)[:, 0]
    assert w[0] ** 2 / w[1] ** 2 == pytest.approx(2.0, rel=1e-4)  # w^{p−1} ∝ (2, 1)


def test_a_query_that_always_reads_has_no_sink() -> None:
    weight, loss = trigger.train(relu=False, always=True)
    assert loss < 1e-3
    assert trigger.judge(trigger.SOFTMAX, weight, loss).status == "fails"
    assert trigger.judge(trigger.RELU, *trigger.train(relu=False)).status == "fails"


def test_a_sink_costs_no_less_where_embeddings_are_orthogonal_or_the_patterns_exchanged() -> None:
    aligned = np.array([sink_cost.log_ratio(sink_cost.embeddings(seed)) for seed in SEEDS])
    assert sink_cost.judge(sink_cost.ALIGNED, sink_cost.log_ratio(np.eye(9))).status == "fails"
    assert sink_cost.judge(sink_cost.ALIGNED, -aligned).status == "fails"
    assert sink_cost.judge(sink_cost.TABLES, aligned).status == "holds"


def test_without_the_rule_logit_steps_grow_with_the_weights() -> None:
    plain = np.array([logit_steps.exponent(seed, rule=False) for seed in SEEDS])
    assert logit_steps.judge(plain).status == "fails"
    assert plain.mean() == pytest.approx(1.0, abs=0.1)


def test_among_distinct_tokens_the_frequent_rise_in_tables_too() -> None:
    assert focus.judge_focus(focus.TABLES, focus.table_correlation(distinct=True)).status == "holds"


def test_attention_with_a_residual_connection_decides_nothing() -> None:
    correlation, gone = focus.focus(2, 100.0, residual=True)
    assert focus.judge_focus(focus.EMBEDDINGS, correlation).status == "not applicable"
    assert focus.judge_dilution(gone).status == "not applicable"


def test_no_focus_without_frequencies() -> None:
    """Larger initial weights, since otherwise attention takes too long to move."""
    correlation, _ = focus.focus(6, 300.0, uniform=True, size=0.3)
    assert focus.judge_focus(focus.EMBEDDINGS, correlation).status == "fails"


@pytest.mark.parametrize(("sizes", "status"), [((0.1, 0.5, 1.0), "fails"), ((0.1, 1.0, 0.3), "holds")])
def test_a_focus_that_grows_is_not_diluted(sizes: tuple[float, ...], status: str) -> None:
    pi = np.tile(focus.chain(np.random.default_rng(0))[1], (6, 1))
    logits = np.array([size * np.tile(np.log(pi)[:, None], (1, focus.TOKENS, 1)) for size in sizes])
    assert focus.judge_dilution(focus.dilution(logits, pi)).status == status
