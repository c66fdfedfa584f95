"""Statistics of attention against loops that know nothing of tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scansnap.probe.capture import AttentionCall, Rows
from scansnap.probe.schema import STATISTICS
from scansnap.probe.statistics import Plan, gather

B, H, T, M = 2, 3, 17, 5
QUERIES = torch.tensor([0, 1, 4, 9, 16])


def a_pass(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(M, (B, T), generator=generator)
    logits = 3 * torch.randn(B, H, len(QUERIES), T, dtype=torch.float64, generator=generator)
    visible = torch.arange(T) <= QUERIES[:, None]
    return Rows(torch.softmax(logits.masked_fill(~visible, -torch.inf), -1), visible), tokens


def gathered(rows: Rows, queries: torch.Tensor, tokens: torch.Tensor, block: int = 1 << 22):
    """Value and baseline (B, H) by name."""
    place = {int(q): i for i, q in enumerate(queries)}

    def some(of: torch.Tensor) -> Rows:
        at = [place[int(q)] for q in of]
        return Rows(rows.p[:, :, at], rows.visible[..., at, :])

    b, h, _, s = rows.p.shape
    call = AttentionCall("a", 0, (b, h, s, s), rows.p.device, some)
    found = gather(call, Plan(queries, torch.tensor([0]), tokens), block)
    return {name: (found.value[i], found.uniform[i]) for i, name in enumerate(STATISTICS)}, found.n_queries


def by_hand(p: np.ndarray, tokens: np.ndarray, query: int) -> dict[str, float]:
    """One row of attention; a pattern without a key is left out."""
    keys = range(query + 1)
    share, taken = 0.0, 0
    for weight in sorted(p, reverse=True):
        if share >= 0.95:
            break
        share, taken = share + weight, taken + 1
    entropy = -sum(x * math.log(x) for x in p if x > 0)
    found = {"entropy": entropy, "entropy_rel": entropy / math.log(query + 1), "support": math.exp(entropy),
             "top1": max(p), "share95": taken / (query + 1), "sink": p[0], "self": p[query],
             "previous": p[query - 1]}  # fmt: skip
    own, following = tokens[query], tokens[query + 1] if query + 1 < len(tokens) else None
    sets = {"same_token": [k for k in keys if k < query and tokens[k] == own],
            "induction": [k for k in keys if k > 0 and tokens[k - 1] == own],
            "copy": [k for k in keys if tokens[k] == following]}  # fmt: skip
    return found | {name: sum(p[k] for k in some) for name, some in sets.items() if some}


@pytest.mark.parametrize("block", [1, 1 << 22])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_are_those_of_plain_loops(seed: int, block: int) -> None:
    rows, tokens = a_pass(seed)
    found, n_queries = gathered(rows, QUERIES, tokens, block)
    for b in range(B):
        for h in range(H):
            each = [by_hand(rows.p[b, h, i].numpy(), tokens[b].numpy(), q) for i, q in enumerate(QUERIES.tolist()) if q]
            even = [by_hand(np.where(np.arange(T) <= q, 1 / (q + 1), 0), tokens[b].numpy(), q)
                    for q in QUERIES.tolist() if q]  # fmt: skip
            assert int(n_queries[b, h]) == len(each)
            for name, both in found.items():
                for known, one in zip((each, even), both, strict=True):
                    pattern = name.removesuffix("_all")
                    values = [row.get(pattern, 0.0 if name != pattern else None) for row in known]
                    wanted = np.mean([value for value in values if value is not None])
                    assert float(one[b, h]) == pytest.approx(wanted, rel=1e-12), name


def test_uniform_attention_is_its_own_baseline() -> None:
    rows, tokens = a_pass()
    even = Rows((rows.visible / rows.visible.sum(-1, keepdim=True)).double().expand_as(rows.p), rows.visible)
    for name, (value, uniform) in gathered(even, QUERIES, tokens)[0].items():
        torch.testing.assert_close(value, uniform.to(value), rtol=1e-6, atol=0, equal_nan=True, msg=name)


def test_masked_rows_count_nowhere() -> None:
    rows, tokens = a_pass()
    p = rows.p.clone()
    p[0, 0, 3] = torch.nan
    found, n_queries = gathered(Rows(p, rows.visible), QUERIES, tokens)
    assert int(n_queries[0, 0]) == int(n_queries[0, 1]) - 1
    assert all(value.isfinite().all() for name, (value, _) in found.items() if name in ("entropy", "sink", "self"))
    nothing, _ = gathered(Rows(torch.full_like(p, torch.nan), rows.visible), QUERIES, tokens)
    assert nothing["entropy"][0].isnan().all()


def test_a_head_that_looks_back_one_is_told_from_one_that_copies() -> None:
    """The control of each pattern is the other."""
    tokens = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    queries = torch.arange(1, 8)
    visible = torch.arange(9) <= queries[:, None]
    back, induct = torch.zeros(2, 1, 1, 7, 9, dtype=torch.float64)
    for i, q in enumerate(queries.tolist()):
        back[0, 0, i, q - 1] = 1
        induct[0, 0, i, q - 3 if q >= 4 else 0] = 1
    for p, name, other in ((back, "previous", "induction"), (induct, "induction", "previous")):
        found, _ = gathered(Rows(p, visible), queries, tokens)
        assert float(found[name][0]) == 1.0
        assert float(found[other][0]) < 0.5
