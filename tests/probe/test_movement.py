"""How far attention has moved, and in what order it stands, against SciPy and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from scansnap.probe.capture import AttentionRows
from scansnap.probe.statistics.sampled import (
    KeyScores,
    anchor_indices,
    chance_deviation,
    index_before_fold,
    needed_indices,
    rows_with_choice,
    total_variation,
)

B, H, Q, S = 3, 2, 4, 9


def attention(seed: int, ties: bool = False) -> AttentionRows:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(B, H, Q, S, generator=generator, dtype=torch.float64)
    logits = logits.round() if ties else logits
    visible = (torch.arange(S) <= torch.tensor([1, 4, 6, 8])[:, None]).expand(B, 1, Q, S)
    return AttentionRows(torch.softmax(logits.masked_fill(~visible, -math.inf), -1), visible)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_rank_correlation_is_scipys(seed: int, ties: bool) -> None:
    rows = attention(seed, ties)
    generator = torch.Generator().manual_seed(seed + 10)
    scores = torch.randn(3, B, Q, S, generator=generator, dtype=torch.float64)
    scores = scores.round() if ties else scores
    scores[2][scores[2] < -1] = -math.inf  # a pair that never occurs is the lowest
    scores[:, 0, :, 2] = math.nan  # a key of which nothing is known
    scores[1, 1, 2] = math.nan  # a query of which one measure knows nothing
    found = KeyScores(scores).correlation(rows.p, rows.visible)
    for h in range(H):
        for a in range(3):
            each = []
            for b in range(B):
                for q in range(Q):
                    known = rows.visible[b, 0, q] & ~scores[0, b, q].isnan()
                    x, y = rows.p[b, h, q][known].numpy(), scores[a, b, q][known].numpy()
                    if known.sum() > 2 and not np.isnan(y).any() and len(set(x)) > 1 and len(set(y)) > 1:
                        each.append(spearmanr(x, y).statistic)
            assert len(each) > 5
            assert float(found[h, a]) == pytest.approx(np.mean(each), abs=1e-12)


def test_an_order_and_its_opposite() -> None:
    p = torch.softmax(torch.arange(S, dtype=torch.float32), 0).expand(1, 1, 1, S)
    up, constant = torch.arange(S, dtype=torch.float32).expand(1, 1, S), torch.zeros(1, 1, S)
    visible = torch.ones(1, 1, 1, S, dtype=torch.bool)
    found = KeyScores(torch.stack([up, constant])).correlation(torch.cat([p, p.flip(-1)], 1), visible)
    torch.testing.assert_close(found, torch.tensor([[1.0, math.nan], [-1.0, math.nan]]), equal_nan=True)
    two = visible & (torch.arange(S) < 2)
    assert KeyScores(up[None]).correlation(p, two).isnan().all(), "two keys have no order to speak of"


def test_a_key_that_gets_nothing_is_a_key() -> None:
    """A softmax that underflows says 0, as a mask does: what another head looks at is no mask."""
    p = torch.zeros(1, 2, 1, 4)
    p[0, 0, 0], p[0, 1, 0] = torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([0.1, 0.2, 0.3, 0.4])
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(1, 1, 1, 4)
    found = KeyScores(scores).correlation(p, p > 0)
    assert float(found[0, 0]) == pytest.approx(spearmanr([0, 0, 0, 1], [1, 2, 3, 4]).statistic)


def test_distance_is_total_variation() -> None:
    now, then = attention(0), attention(1)
    each = (now.p - then.p).abs().sum(-1) / 2
    torch.testing.assert_close(total_variation(now.p - then.p, rows_with_choice(now)), each.mean((0, 2)))
    assert total_variation(now.p * math.nan, rows_with_choice(now)).isnan().all()


def test_layers_side_by_side_are_layers_one_by_one() -> None:
    first, second = attention(0), attention(1)
    shorter = second.visible & (torch.arange(S) < 7)  # a window of its own
    second = AttentionRows(torch.where(shorter, second.p, 0.0), shorter)
    both = AttentionRows(
        torch.stack([first.p, second.p]), torch.stack([one.visible.expand(B, H, Q, S) for one in (first, second)])
    )
    then = torch.stack([second.p, first.p])
    scores = torch.randn(3, B, Q, S, dtype=torch.float64)
    place, spread = torch.arange(B * S) % 5, torch.tensor(0.3)
    change, counts, keys = both.p - then, rows_with_choice(both), KeyScores(scores)
    for i, one in enumerate((first, second)):
        own = one.p - then[i], rows_with_choice(one)
        torch.testing.assert_close(total_variation(change, counts)[i], total_variation(*own))
        alone = chance_deviation(*own, place, spread)
        torch.testing.assert_close(chance_deviation(change, counts, place, spread)[i], alone)
        for _ in range(2):  # the ranks of the keys are those of the keys that are visible now
            alone = keys.correlation(one.p, one.visible)
            torch.testing.assert_close(keys.correlation(both.p, both.visible)[i], alone)


def test_rows_that_cannot_move_do_not_count() -> None:
    now, then = attention(0), attention(1)
    own, padded = torch.eye(S, dtype=torch.float64)[0], torch.zeros(S, dtype=torch.float64)
    p, q, visible = now.p.clone(), then.p.clone(), now.visible.clone()
    p[:, :, 0], q[:, :, 0] = own, own  # one key
    visible[:, :, 0] = own > 0
    p[1], q[1] = padded, padded  # no attention at all
    found = total_variation(p - q, rows_with_choice(AttentionRows(p, visible)))
    torch.testing.assert_close(found, ((now.p - then.p).abs().sum(-1) / 2)[[0, 2]][:, :, 1:].mean((0, 2)))


def test_chance_is_the_spread_over_all_ways_to_deal_distinctness_out() -> None:
    now, then = attention(0), attention(1)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 6, (B, S))
    values = rng.random(6)
    place, spread = torch.from_numpy(tokens.ravel()), torch.tensor(values.std(ddof=1))
    moved = now.p - then.p, rows_with_choice(now)
    found = chance_deviation(*moved, place, spread)
    change = (now.p - then.p).numpy()
    dealt = [(change * rng.permutation(values)[tokens][:, None, None]).sum(-1).mean((0, 2)) for _ in range(20_000)]
    assert np.mean(dealt, 0) == pytest.approx(0, abs=4 * float(found.max()) / np.sqrt(20_000))
    np.testing.assert_allclose(found, np.std(dealt, 0), rtol=0.03)  # 6 standard errors of a standard deviation
    unknown = place.clone()
    unknown[place == 5] = B * S
    assert (chance_deviation(*moved, unknown, spread) < found).all(), "tokens of which nothing is known add nothing"


STEPS = [0, *np.unique(np.rint(np.geomspace(1, 3000, 130)).astype(int)).tolist()]


def test_what_is_compared_over_an_e_fold_is_kept_until_then() -> None:
    """Also for a training that goes back by some measurements and finds what it would have had."""
    assert index_before_fold([0, 1, 2], 2) is None
    assert index_before_fold([0, 1, 2], 3) == 1
    kept: set[int] = set()
    for n in range(len(STEPS) - 1):
        kept = {i for i in kept | {n} if i in needed_indices(STEPS[: n + 1])}
        wanted = index_before_fold(STEPS[: n + 1], STEPS[n + 1])
        assert wanted is None or wanted in kept
        assert len(kept) <= 4
        for back in (1, 7, 16):
            before = STEPS[: max(n + 1 - back, 0)]
            if len(before) > 1:
                needed = {index_before_fold(before, step) for step in range(before[-1] + 1, 2 * before[-1] + 3)} - {
                    None
                }
                assert needed <= set(needed_indices(STEPS[: n + 1], back))
                assert anchor_indices(before) == [i for i in anchor_indices(STEPS[: n + 1]) if i < len(before)]
