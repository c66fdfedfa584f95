"""Attention is known by what is computed, not by names: which softmaxes are attention, which heads are one layer."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.probe.capture import watch_attention
from scansnap.probe.measurement import AttentionCollector
from scansnap.probe.probe import Probe

B, T, D, H = 2, 9, 12, 3
CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()


class Block(nn.Module):
    """Attention written by hand under a name that says nothing, with a residual stream."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.norm, self.qkv, self.out = way, nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.inner = nn.MultiheadAttention(D, H, batch_first=True) if "multihead" in way else None

    def forward(self, x: Tensor) -> Tensor:
        if self.inner is not None:
            weights = self.way == "multihead weights"
            y = self.norm(x)
            return x + self.inner(y, y, y, attn_mask=~CAUSAL, need_weights=weights)[0]
        q, k, v = self.qkv(self.norm(x)).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        if self.way == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            product = torch.einsum("bhid,bhjd->bhij", q, k) if self.way == "einsum" else q @ k.transpose(-2, -1)
            p = (product / math.sqrt(D // H)).masked_fill(~CAUSAL, -torch.inf).softmax(-1)
            y = torch.einsum("bhij,bhjd->bhid", p, v) if self.way == "einsum" else p @ v
        return x + self.out(y.transpose(1, 2).reshape(B, T, D))


def collect(model: nn.Module, x: Tensor) -> AttentionCollector:
    collector = AttentionCollector(None, None)
    with watch_attention(model, collector, collector.add_output), torch.no_grad():
        model(x)
    return collector


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(B, T, D)


@pytest.mark.parametrize("way", ["softmax", "einsum", "sdpa", "multihead", "multihead weights"])
def test_all_numbers_of_attention_written_by_hand(way: str, x: Tensor) -> None:
    """Against plain formulas; with another head's output the share differs."""
    block = Block(way)
    (key, ours), *more = collect(nn.Sequential(block), x).magnitudes.items()
    assert not more
    assert key == ("0" if block.inner is None else "0.inner", 0)
    qkv, out = (block.qkv, block.out) if block.inner is None else (None, block.inner.out_proj)
    y = block.norm(x)
    mixed = qkv(y) if qkv else F.linear(y, block.inner.in_proj_weight, block.inner.in_proj_bias)
    q, k, v = mixed.view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
    logits = (q @ k.mT / math.sqrt(D // H)).masked_fill(~CAUSAL, -torch.inf)
    heads = (logits.softmax(-1) @ v)[:, :, 1:]  # the first query has no choice
    added = torch.stack([heads[:, h] @ out.weight[:, h * D // H : (h + 1) * D // H].T for h in range(H)])
    norms = added.norm(dim=-1)
    expected = {"max_logit": logits.amax((0, 2, 3)), "q_norm": q[:, :, 1:].norm(dim=-1).mean((0, 2)),
                "k_norm": k.norm(dim=-1).mean((0, 2)), "output_norm": norms.mean((1, 2)),
                "output_share": (norms / x[:, 1:].norm(dim=-1)).mean((1, 2))}  # fmt: skip
    for name, value in expected.items():
        torch.testing.assert_close(ours[name], value.detach(), rtol=1e-4, atol=1e-5, msg=name)
        assert not torch.allclose(ours[name], value.detach().flip(0), rtol=1e-3), f"the control: heads swapped, {name}"


def test_a_planted_dead_head_is_found_and_a_live_one_with_tiny_values_is_not(x: Tensor) -> None:
    block, d = Block("sdpa"), D // H
    with torch.no_grad():
        for parameter in (block.qkv.weight, block.qkv.bias):
            values = parameter.view(3, H, d, -1)[2]
            values[0] /= 1000
            values[1] = 0
        block.out.weight[:, :d] *= 1000
    probe = Probe(nn.Sequential(block), x)
    probe.measure(0)
    assert probe.dataset().is_dead.values.tolist() == [[0, 1, 0]]


class Other(nn.Module):
    """Softmaxes over as many entries as there are positions."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.weight, self.linear = kind, nn.Parameter(torch.randn(T, D)), nn.Linear(D, T)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "vocabulary":
            return torch.softmax(x @ self.weight.T, -1)
        if self.kind == "router":
            return torch.softmax(self.linear(x), -1) @ self.weight
        if self.kind == "pooling":
            return torch.softmax(self.linear(x)[..., 0], -1)[:, None] @ x
        if self.kind == "pooling by heads":
            return torch.softmax(self.linear(x).mT, -1) @ x
        scores = F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]  # then a router
        return torch.softmax(self.linear(scores), -1)


@pytest.mark.parametrize("kind", ["vocabulary", "router", "pooling", "pooling by heads", "after attention"])
def test_other_softmaxes_are_no_attention(kind: str, x: Tensor) -> None:
    assert len(collect(nn.Sequential(Other(kind)), x).results) == (kind == "after attention")


class Attn(nn.Module):
    """Attention whose parts are also named so."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_q, self.attn_k, self.attn_scores = nn.Linear(D, D), nn.Linear(D, D), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.attn_scores(self.attn_q(x) @ self.attn_k(x).mT), -1) @ x


def test_attention_around_parts_that_are_named_so(x: Tensor) -> None:
    model = nn.Sequential()
    model.add_module("attn", Attn())
    assert list(collect(model, x).results) == [("attn", 0)]


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(D, D // H, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.query(x), self.key(x)
        p = (q @ k.transpose(-2, -1) * (D // H) ** -0.5).masked_fill(~CAUSAL, -torch.inf).softmax(-1)
        return p @ self.value(x)


class Heads(nn.Module):
    """A module for each head, as many write it first."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.proj = nn.ModuleList(Head() for _ in range(H)), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.proj(torch.cat([head(x) for head in self.heads], -1))


class OneAfterAnother(nn.Module):
    """Layers with one head each, numbered in the same way."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head() for _ in range(H))

    def forward(self, x: Tensor) -> Tensor:
        for head in self.heads:
            x = x + F.pad(head(x), (0, D - D // H))
        return x


def test_modules_of_one_head_are_one_layer(x: Tensor) -> None:
    """Also over several measurements: movement is that of each head."""
    torch.manual_seed(0)
    model = nn.Sequential(Heads(), Heads())
    probe = Probe(model, x, every=1)
    probe.step(0)
    with torch.no_grad():
        model[0].heads[1].query.weight.mul_(3)
    probe.step(1)
    data = probe.dataset()
    assert data.path.values.tolist() == ["0.heads", "1.heads"]
    assert data.sizes["head"] == H
    assert (data.moved.values[1, 0] > 0).tolist() == [False, True, False]
    assert (data.moved.values[1, 1] > 0).all()
    alone = collect(model, x)
    for name in ("max_logit", "q_norm", "output_norm", "output_share"):
        expected = torch.stack([alone.magnitudes[f"0.heads.{h}", 0][name][0] for h in range(H)])
        torch.testing.assert_close(torch.tensor(data[name].values[1, 0]).float(), expected)
        assert torch.isfinite(expected).all()
    separate = Probe(OneAfterAnother(), x)
    separate.measure(0)
    assert separate.dataset().path.values.tolist() == [f"heads.{h}" for h in range(H)], "the control"
