"""Update rules on tables of text models: whole tables, a few rows, repeated ids; other rows stay."""

import pytest
import torch

from refusals import refused
from scansnap.text.table_optimizer import TableOptimizer, group_ids
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.settings import YZSettings

NAMES = ["sgd", "momentum", "nesterov", "adam", "adamw", "sign"]


def optimizer(name, momentum=None, weight_decay=0.0):
    return TableOptimizer.of(name, momentum, weight_decay, beta1=0.9, beta2=0.95, eps=1e-8)


def at(step):
    return {"eta": torch.tensor(0.1, dtype=torch.float64), "step": torch.tensor(float(step), dtype=torch.float64)}


def test_equal_ids_are_one_group():
    groups = group_ids(torch.tensor([5, 2, 5, 5, 0, 2]))
    assert groups.sorted.tolist() == [0, 2, 2, 5, 5, 5]
    assert groups.order.tolist() == [4, 1, 5, 0, 2, 3]
    assert groups.group.tolist() == [2, 1, 2, 2, 0, 1]


@pytest.mark.parametrize("name", NAMES)
def test_touched_rows_are_updated_as_in_a_whole_table(name):
    generator = torch.Generator().manual_seed(0)
    rule, table = optimizer(name), torch.randn(7, 3, dtype=torch.float64, generator=generator)
    whole, moments, whole_moments = table.clone(), rule.start(table), rule.start(table)
    for step in range(3):
        ids = torch.tensor([6, 1, 1, 4, 6, 1])
        d = torch.randn(6, 3, dtype=torch.float64, generator=generator)
        rule.update(whole, torch.zeros_like(table).index_add_(0, ids, d), whole_moments, **at(step))
        rule.update_rows(table, ids, d.clone(), moments, **at(step))
    torch.testing.assert_close(table, whole)
    for key, moment in moments.items():
        torch.testing.assert_close(moment, whole_moments[key])


def test_rows_that_are_not_touched_do_not_decay():
    rule, table = optimizer("adamw", weight_decay=0.5), torch.ones(4, 2, dtype=torch.float64)
    rule.update_rows(table, torch.tensor([1]), torch.zeros(1, 2, dtype=torch.float64), rule.start(table), **at(0))
    assert table.tolist() == [[1, 1], [0.95, 0.95], [1, 1], [1, 1]]


@pytest.mark.parametrize("settings", [YZSettings, TransformerSettings])
def test_what_a_rule_cannot_use_is_refused(settings):
    with refused("momentum", 0.5, names="adam"):
        settings(10, optimizer="adam", momentum=0.5)
    with refused("optimizer", "muon"):
        settings(10, optimizer="muon")
    with refused("optimizer", "lion", names="nesterov"):
        settings(10, optimizer="lion")
    for field, value in (("weight_decay", -1.0), ("momentum", 1.0), ("beta1", 1.0), ("eps", 0.0)):
        with refused(field):
            settings(10, optimizer="sign", **{field: value})


def test_momentum_is_sgd_with_one():
    assert YZSettings(10, optimizer="momentum").momentum == 0.9
    assert YZSettings(10).table_optimizer.momentum == 0
    assert optimizer("momentum", momentum=0.8) == optimizer("sgd", momentum=0.8)
