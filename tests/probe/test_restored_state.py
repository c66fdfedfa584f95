"""Each thing that a forward pass can change is as it was after a look, and after one that failed."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from refusals import refused
from scansnap.probe.probe import Probe
from scansnap.probe.state import allow_nondeterminism, preserve_state

X = torch.arange(6)


class Wild(nn.Module):
    """Its forward pass leaves its marks wherever it can."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8, max_norm=0.5)  # shortens rows in place as they are looked up
        self.inner = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(2))
        self.register_buffer("table", torch.zeros(2))
        self.register_buffer("wide", torch.zeros(1).expand(4))  # four places, one number
        self.cache = torch.zeros(3)  # a plain tensor, written to
        self.frames = [torch.zeros(2), torch.zeros(2)]
        self.pairs: dict[str, object] = {"deep": {"list": [1, 2]}}
        self.seen = {1}
        self.own = torch.Generator().manual_seed(3)
        self.numpy, self.python = np.random.default_rng(3), random.Random(3)
        self.longest = 0
        with torch.inference_mode():
            self.rope = torch.zeros(2)  # made while somebody validated

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.table = self.table + 1
        self.wide[0].add_(1)
        self.cache[0] = 5.0
        self.frames[0].add_(1)
        self.frames.append(torch.ones(1))
        self.pairs["deep"]["list"].append(3)
        self.pairs["new"] = 1
        self.seen.add(2)
        torch.rand(2, generator=self.own), self.numpy.random(), self.python.random()
        torch.rand(2), np.random.rand(), random.random()  # noqa: NPY002
        self.longest += len(x)
        self.lazily = torch.ones(2)
        self.register_buffer("late", torch.ones(1))
        self.added = nn.Linear(2, 2)
        with torch.inference_mode():
            self.rope.add_(1)
        torch.set_default_dtype(torch.float64)
        torch.set_default_dtype(torch.float32)
        return self.inner(self.embed(x)).sum()


def everything(model: Wild) -> list[object]:
    """All of it, in words, and the next numbers of every generator (drawn from copies of their states)."""
    states = [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist(),  # noqa: NPY002
              model.own.get_state().tolist(), model.numpy.bit_generator.state, model.python.getstate()]  # fmt: skip
    tensors = [*model.parameters(), *model.buffers(), model.cache, model.rope, *model.frames]
    names = [sorted(module.__dict__) + sorted(module._buffers) for module in model.modules()]
    grads = [(p.requires_grad, p.grad is None) for p in model.parameters()]
    modes = [module.training for module in model.modules()]
    versions = [t._version for t in tensors if not t.is_inference()]
    return [states, [t.tolist() for t in tensors], list(map(id, tensors)), names, grads, modes, versions,
            repr(model.pairs), model.seen, model.longest, torch.get_default_dtype(), torch.is_grad_enabled(),
            torch.is_autocast_cache_enabled(), torch.is_autocast_enabled("cpu")]  # fmt: skip


@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
def test_all_is_as_it_was(fails: bool) -> None:
    torch.manual_seed(0)
    model = Wild()
    model.inner.eval()  # one part was not training
    model.inner.weight.requires_grad_(False)
    before = everything(model)

    def look() -> None:
        with preserve_state(model):
            assert not model.training
            model(X)
            assert everything(model)[1:] != before[1:]
            if fails:
                torch.set_default_dtype(torch.float64)
                raise ZeroDivisionError

    if fails:
        with pytest.raises(ZeroDivisionError):
            look()
    else:
        look()
    for now, then in zip(everything(model), before, strict=True):
        assert now == then
    assert model.training
    assert not model.inner.training


def test_a_look_between_forward_and_backward() -> None:
    """Tensors that autograd has saved for the backward pass are written to and put back: it must not notice."""

    class Turning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("angle", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            if not self.training:
                self.angle.mul_(2)
            return (self.linear(x) * self.angle).square().sum()

    def gradient(look: bool) -> Tensor:
        torch.manual_seed(0)
        model = Turning()
        loss = model(torch.ones(2, 4))
        if look:
            with preserve_state(model):
                model(torch.ones(2, 4))
        loss.backward()
        return model.linear.weight.grad

    assert torch.equal(gradient(look=False), gradient(look=True))


def in_autocast(look: Callable[[nn.Module, Tensor], None] | None, before: bool = False) -> dict[str, Tensor]:
    """Two passes and one backward pass in one region, a look before or between; gradients."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)), torch.randn(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        if look is not None and before:
            look(model, x)
        loss = model(x).float().square().sum()
        if look is not None and not before:
            look(model, x)
        loss = loss + model(2 * x).float().sum()
    loss.backward()
    return {name: torch.zeros(1) if p.grad is None else p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("before", [True, False])
def test_casts_of_weights_that_autocast_keeps_are_those_of_the_training(before: bool) -> None:
    """Weights cast without gradients and kept would have none (in older torch); clearing what is kept adds the
    gradients of two passes in another order: the control."""

    def quiet(model: nn.Module, x: Tensor) -> None:
        with preserve_state(model):
            assert model(x).dtype == torch.bfloat16
        assert torch.is_autocast_cache_enabled()

    def clearing(model: nn.Module, x: Tensor) -> None:
        quiet(model, x)
        torch.clear_autocast_cache()

    plain = in_autocast(None)
    for name, gradient in in_autocast(quiet, before).items():
        assert torch.equal(gradient, plain[name]), name
    control = in_autocast(clearing)
    assert any(not torch.equal(gradient, plain[name]) for name, gradient in control.items())


def test_gradients_gathered_so_far_stay() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model(torch.randn(2, 5, 8)).sum().backward()
    before = [(p.grad, p.grad.clone()) for p in model.parameters()]
    Probe(model, torch.randn(2, 5, 8)).measure(0)
    for p, (grad, content) in zip(model.parameters(), before, strict=True):
        assert p.grad is grad
        assert torch.equal(grad, content)
        assert p.requires_grad


def test_a_module_used_twice_and_one_in_two_places() -> None:
    shared = nn.BatchNorm1d(4)
    model = nn.Sequential(shared, nn.Sequential(shared, nn.Dropout(0.5)), shared)
    with preserve_state(model):
        model(torch.randn(3, 4))
        shared.running_mean += 1
    assert torch.equal(shared.running_mean, torch.zeros(4))
    assert shared.training


def test_checkpoints_do_not_complain_in_a_look() -> None:
    """Reentrant ones warn that nothing needs gradients; here nothing does. (Warnings are errors in these tests.)"""

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.layer, x, use_reentrant=True)

    probe = Probe(Checkpointed(), torch.randn(2, 5, 8))
    probe.measure(0)
    assert probe.dataset().path.values.tolist() == ["layer.self_attn"]


def test_weights_that_a_pass_writes_to_are_said() -> None:
    class Clamping(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.weight.clamp_(-0.1, 0.1)
            return super().forward(x)

    def look() -> None:
        with preserve_state(model):
            model(torch.randn(2, 4))

    model = nn.Sequential(Clamping(4, 4))
    with pytest.warns(UserWarning, match=r"changes its weights 0.weight"):
        look()


def test_weights_that_are_not_there_yet_are_said() -> None:
    model = nn.Sequential(nn.LazyLinear(4))
    with refused("model"), preserve_state(model):
        pass
    assert nn.parameter.is_lazy(model[0].weight)


def test_statistics_may_add_in_any_order_and_the_model_may_not() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with allow_nondeterminism():
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_default_dtype_changes_nothing_of_what_is_looked_at(dtype: torch.dtype) -> None:
    """511 positions are not all numbers in bfloat16."""
    torch.manual_seed(0)
    model, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(1, 511, 8)
    found = []
    for default in (torch.float32, dtype):
        torch.set_default_dtype(default)
        try:
            probe = Probe(model, x, queries=100)
            probe.measure(0)
        finally:
            torch.set_default_dtype(torch.float32)
        found.append(probe.dataset())
    assert found[0].n_queries.values.tolist() == [[[100.0, 100.0]]]
    assert found[0].entropy.equals(found[1].entropy)
