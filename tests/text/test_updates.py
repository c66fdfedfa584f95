"""Registered rules on the weights of text models: whole tables, a few rows, repeated ids; what is not named stays."""

from __future__ import annotations

import pytest
import torch

from refusals import refused
from scansnap.text import updates
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.updates import Update, groups
from scansnap.text.yz.settings import YZSettings

NAMES = ["sgd", "momentum", "nesterov", "adam", "adamw", "sign"]


def chosen(name: str, momentum: float | None = None, weight_decay: float = 0.0) -> Update:
    return Update.of(name, momentum, weight_decay, beta1=0.9, beta2=0.95, eps=1e-8)


def numbers(*values: float) -> list[torch.Tensor]:
    return [torch.tensor(value, dtype=torch.float64) for value in values]


def test_equal_ids_are_one_group():
    ids = torch.tensor([5, 2, 5, 5, 0, 2])
    at = groups(ids)
    assert at.sorted.tolist() == [0, 2, 2, 5, 5, 5]
    assert at.order.tolist() == [4, 1, 5, 0, 2, 3]
    assert at.group.tolist() == [2, 1, 2, 2, 0, 1]
    assert at.first.tolist() == [True, True, False, True, False, False]


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("name", NAMES)
def test_an_update_in_place_is_the_registered_rule(name, decay, monkeypatch):
    """Also where the table is worked on in blocks."""
    monkeypatch.setattr(updates, "BLOCK", 10)  # two rows of five
    generator = torch.Generator().manual_seed(0)
    update = chosen(name, weight_decay=decay)
    own = torch.randn(7, 5, dtype=torch.float64, generator=generator)
    theirs, moments = own[None].clone(), update.moments(own)
    their_moments = update.optimizer.start(theirs)
    for step in range(4):
        d = torch.randn(7, 5, dtype=torch.float64, generator=generator)
        eta, mu, wd = (x[None] for x in numbers(0.1, update.momentum, decay))
        theirs, their_moments = update.optimizer.update(
            theirs, d[None], their_moments, step=step, eta=eta, momentum=mu, weight_decay=wd
        )
        update.move(own, d.clone(), moments, *numbers(0.1, step + 1))
    torch.testing.assert_close(own, theirs[0], rtol=1e-13, atol=1e-14)
    for key, moment in moments.items():
        torch.testing.assert_close(moment, their_moments[key][0], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_rows_move_as_a_whole_table_of_the_touched_ones_would(name):
    generator = torch.Generator().manual_seed(0)
    update = chosen(name)
    eta, table = torch.tensor(0.1, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64, generator=generator)
    whole, moments, whole_moments = table.clone(), update.moments(table), update.moments(table)
    for step in range(1, 4):
        ids = torch.tensor([6, 1, 1, 4, 6, 1])
        d = torch.randn(6, 3, dtype=torch.float64, generator=generator)
        dense = torch.zeros_like(table).index_add_(0, ids, d)
        now = torch.tensor(float(step), dtype=torch.float64)
        update.move(whole, dense, whole_moments, eta, now)
        update.move_rows(table, ids, d.clone(), moments, eta, now)
    torch.testing.assert_close(table, whole)  # the others have had no direction at all, so they stay in both
    for name_, moment in moments.items():
        torch.testing.assert_close(moment, whole_moments[name_])


def test_rows_that_are_not_touched_do_not_decay():
    update, table = chosen("adamw", weight_decay=0.5), torch.ones(4, 2, dtype=torch.float64)
    moments = update.moments(table)
    update.move_rows(table, torch.tensor([1]), torch.zeros(1, 2, dtype=torch.float64), moments, *numbers(0.1, 1))
    assert table.tolist() == [[1, 1], [0.95, 0.95], [1, 1], [1, 1]]


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam", "adamw"])
def test_the_rules_are_those_of_torch(name):
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(4, 5, dtype=torch.float64, generator=generator)
    own, theirs = start.clone(), start.clone().requires_grad_()
    update = chosen(name, momentum=0.7 if name in ("momentum", "nesterov") else None, weight_decay=0.2)
    moments = update.moments(own)
    betas = {"betas": (0.9, 0.95), "weight_decay": 0.2}
    wanted = {
        "sgd": lambda: torch.optim.SGD([theirs], lr=0.1, weight_decay=0.2),
        "momentum": lambda: torch.optim.SGD([theirs], lr=0.1, momentum=0.7, weight_decay=0.2),
        "nesterov": lambda: torch.optim.SGD([theirs], lr=0.1, momentum=0.7, nesterov=True, weight_decay=0.2),
        "adam": lambda: torch.optim.Adam([theirs], lr=0.1, **betas),
        "adamw": lambda: torch.optim.AdamW([theirs], lr=0.1, **betas),
    }[name]()
    for step in range(1, 5):
        d = torch.randn(4, 5, dtype=torch.float64, generator=generator)
        theirs.grad = -d
        wanted.step()
        update.move(own, d.clone(), moments, *numbers(0.1, float(step)))
    torch.testing.assert_close(own, theirs.detach())


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
    assert YZSettings(10).update.momentum == 0
    assert chosen("momentum", momentum=0.8) == chosen("sgd", momentum=0.8)
