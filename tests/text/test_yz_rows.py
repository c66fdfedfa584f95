"""Updates of a few rows: repeated ids, and what is not named stays."""

from __future__ import annotations

import pytest
import torch

from scansnap.text.yz.rows import NAMES, Rule, groups


def test_equal_ids_are_one_group():
    ids = torch.tensor([5, 2, 5, 5, 0, 2])
    at = groups(ids)
    assert at.sorted.tolist() == [0, 2, 2, 5, 5, 5]
    assert at.order.tolist() == [4, 1, 5, 0, 2, 3]
    assert at.group.tolist() == [2, 1, 2, 2, 0, 1]
    assert at.first.tolist() == [True, True, False, True, False, False]


@pytest.mark.parametrize("name", NAMES)
def test_rows_move_as_a_whole_table_of_the_touched_ones_would(name):
    generator = torch.Generator().manual_seed(0)
    rule = Rule(name)
    eta, table = torch.tensor(0.1, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64, generator=generator)
    whole, moments, whole_moments = table.clone(), rule.moments(table), rule.moments(table)
    for step in range(1, 4):
        ids = torch.tensor([6, 1, 1, 4, 6, 1])
        d = torch.randn(6, 3, dtype=torch.float64, generator=generator)
        dense = torch.zeros_like(table).index_add_(0, ids, d)
        now = torch.tensor(float(step), dtype=torch.float64)
        rule.move(whole, dense, whole_moments, eta, now)
        rule.move_rows(table, ids, d.clone(), moments, eta, now)
    torch.testing.assert_close(table, whole)  # the others have had no direction at all, so they stay in both
    for name_, moment in moments.items():
        torch.testing.assert_close(moment, whole_moments[name_])


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_are_those_of_torch(name):
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(4, 5, dtype=torch.float64, generator=generator)
    own, theirs = start.clone(), start.clone().requires_grad_()
    rule = Rule(name, momentum=0.7)
    moments = rule.moments(own)
    wanted = {
        "sgd": lambda: torch.optim.SGD([theirs], lr=0.1),
        "momentum": lambda: torch.optim.SGD([theirs], lr=0.1, momentum=0.7),
        "adam": lambda: torch.optim.Adam([theirs], lr=0.1),
    }[name]()
    for step in range(1, 5):
        d = torch.randn(4, 5, dtype=torch.float64, generator=generator)
        theirs.grad = -d
        wanted.step()
        eta, now = (torch.tensor(v, dtype=torch.float64) for v in (0.1, float(step)))
        rule.move(own, d.clone(), moments, eta, now)
    torch.testing.assert_close(own, theirs.detach())
