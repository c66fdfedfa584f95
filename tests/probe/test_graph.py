"""Measurements that are replayed: the same numbers, and nothing left behind."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scansnap.probe.probe import Probe

M, T, B, STEPS = 23, 17, 4, 6


class Language(nn.Module):
    """One layer with dropout, and a buffer that its pass counts in."""

    def __init__(self, asks: bool = False) -> None:
        super().__init__()
        self.asks = asks  # whether Python asks the device something on the way
        self.embed, self.out = nn.Embedding(M, 32), nn.Linear(32, M)
        self.qkv = nn.Linear(32, 96)
        self.dropout = nn.Dropout(0.2)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, ids: Tensor) -> Tensor:
        self.passes += 1
        x = self.embed(ids)
        if self.asks and float(x.detach().sum()) == 0.1:
            x = 2 * x
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(self.dropout(x + y.transpose(1, 2).flatten(2)))


def trained(graph: bool | None, device: str, asks: bool = False, moved_at: int = -1) -> tuple[nn.Module, Probe | None]:
    torch.manual_seed(0)
    model = Language(asks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    ids = torch.arange(B * T, device=device).reshape(B, T) % M
    probe = None if graph is None else Probe(model, ids, every=1, graph=graph)
    for step in range(STEPS):
        if step == moved_at:
            model.qkv.weight.data = model.qkv.weight.data.clone()
        x = torch.randint(M, (4, T), device=device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()
        if probe is not None:
            probe.step(step)
    return model, probe


def assert_same(one: Probe | None, other: Probe | None) -> None:
    assert one is not None
    assert other is not None
    left, right = one.dataset(), other.dataset()
    assert left.step.values.tolist() == list(range(STEPS))
    for name, values in right.data_vars.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(left[name].values, values.values, rtol=1e-5, atol=1e-6, err_msg=str(name))
    assert len(np.unique(left.entropy.values[:, 0, 0])) == STEPS, "the control: training changes what is seen"


def test_without_a_gpu_it_says_so_and_measures_all_the_same() -> None:
    with pytest.warns(UserWarning, match="without a CUDA graph: the model is on cpu") as said:
        model, probe = trained(True, "cpu")
    assert len([one for one in said if "CUDA graph" in str(one.message)]) == 1
    plain, usual = trained(False, "cpu")
    assert_same(probe, usual)
    for a, b in zip(model.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("moved_at", [-1, 4])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_replayed_measurements_are_those_of_passes_as_they_are_written(moved_at: int) -> None:
    """Also after the weights have come to lie elsewhere, where the old graph would read old weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, probe = trained(True, "cuda", moved_at=moved_at)
    assert probe is not None
    assert probe._recorded is not None
    _, usual = trained(False, "cuda", moved_at=moved_at)
    assert_same(probe, usual)
    plain, _ = trained(None, "cuda", moved_at=moved_at)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_pass_that_cannot_be_recorded_is_run() -> None:
    """Training draws random numbers afterwards, which a recording that is broken off would have forbidden."""
    with pytest.warns(UserWarning, match="without a CUDA graph"):
        model, probe = trained(True, "cuda", asks=True)
    _, usual = trained(False, "cuda", asks=True)
    assert_same(probe, usual)
    plain, _ = trained(None, "cuda", asks=True)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name
