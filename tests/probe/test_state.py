"""Weights after training with looks in between are those without, bit by bit; with a careless look they are not."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scansnap.probe.capture import watch_attention
from scansnap.probe.state import preserve_state


class Small(nn.Module):
    """Dropout, running statistics, and an attribute and a buffer that a forward pass replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.encode = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.norm, self.out = nn.BatchNorm1d(8), nn.Linear(8, 11)
        self.register_buffer("calls", torch.zeros(1))
        self.longest = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        self.longest = max(self.longest, x.shape[1])
        return self.out(self.norm(self.encode(self.embed(x)).flatten(0, 1)))


def careful(model: nn.Module, x: Tensor) -> None:
    with preserve_state(model), watch_attention(model, lambda seen: seen.rows(torch.arange(seen.shape[2]))):
        model(x)


def careless(model: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        model(x)


def trained(look: Callable[[nn.Module, Tensor], None] | None) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = Small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(6):
        x = torch.randint(11, (4, 9))
        if look is not None and step % 2:
            look(model, torch.arange(10).expand(3, 10) % 11)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), x.flatten()).backward()
        optimizer.step()
    assert all(module.training for module in model.modules())
    return {**model.state_dict(), "longest": torch.tensor(model.longest), "next": torch.rand(3)}


def test_training_does_not_notice_a_look() -> None:
    plain, looked = trained(None), trained(careful)
    for name, tensor in plain.items():
        assert torch.equal(tensor, looked[name]), name


def test_a_careless_look_is_noticed() -> None:
    plain, looked = trained(None), trained(careless)
    assert any(not torch.equal(tensor, looked[name]) for name, tensor in plain.items() if name.endswith("weight"))
    assert looked["longest"] == 10


def test_all_is_put_back_when_the_pass_fails() -> None:
    model = Small()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    expected = torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002

    def fails() -> None:
        with preserve_state(model):
            model(torch.zeros(2, 9, dtype=torch.long))
            torch.rand(5), random.random(), np.random.rand()  # noqa: NPY002
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (torch.rand(1), random.random(), np.random.rand()) == expected  # noqa: NPY002
    assert model.training
    assert model.encode.training
    assert model.longest == 0
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
