"""What is no attention is not taken for one, and odd calls harm nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.probe.capture import AttentionCall, AttentionRows, watch_attention

B, T, WIDTH, HEADS = 2, 13, 12, 3


def seen_in(model: nn.Module, x: Tensor) -> dict[tuple[str, int], AttentionCall]:
    found: dict[tuple[str, int], AttentionCall] = {}
    with watch_attention(model, lambda call: found.update({(call.path, call.number): call})), torch.no_grad():
        model(x)
    return found


class Router(nn.Module):
    """As wide as the window is long."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Linear(WIDTH, T)

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(self.experts(x), dim=-1) @ x


class Attention(nn.Module):
    """``inside`` is what it does beside attention, on (B, T, width)."""

    def __init__(self, inside: Callable[[Tensor], Tensor] | nn.Module | None = None, name: str = "inside") -> None:
        super().__init__()
        self.qk, self.num_heads, self.inside = nn.Linear(WIDTH, 2 * WIDTH), HEADS, None
        setattr(self, name, inside)
        self.name, self.attn_norm, self.attn_dropout = name, nn.LayerNorm(WIDTH), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qk(self.attn_norm(x)).chunk(2, -1))
        y = self.attn_dropout((q @ k.mT).softmax(-1)) @ x[:, None]
        inside = getattr(self, self.name)
        return y.mean(1) + (0 if inside is None else inside(x))


class AttentionModel(nn.Module):
    """A model that is called after its attention, with words as many as the window is long."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention, self.lm_head = attention, nn.Linear(WIDTH, T)

    def forward(self, x: Tensor) -> Tensor:
        return self.lm_head(self.attention(x)).softmax(-1)


def over_experts(x: Tensor) -> Tensor:
    return x.softmax(-1)


def over_queries(x: Tensor) -> Tensor:
    return (x @ x.mT).softmax(1) @ x


def into(x: Tensor) -> Tensor:
    logits = x @ x.mT
    torch.softmax(logits[0], -1, out=logits[0])
    torch.softmax(logits[0, 0], dim=0)
    torch.ones(()).softmax(0)
    torch.softmax(input=logits[0], dim=-1)
    return x


@pytest.mark.parametrize(
    ("inside", "name"),
    [(None, "inside"), (Router(), "router"), (Router(), "moe"), (over_experts, "inside"), (over_queries, "inside"),
     (into, "inside")],
    ids=["alone", "router", "experts", "of width", "over queries", "odd calls"],
)  # fmt: skip
def test_only_attention_is_seen(inside: Callable[[Tensor], Tensor] | None, name: str) -> None:
    model = AttentionModel(Attention(inside, name))
    assert [*seen_in(model, torch.randn(B, T, WIDTH))] == [("attention", 0)]


def test_a_stack_that_is_called_attention_may_do_other_softmaxes() -> None:
    class AttentionStack(nn.ModuleList):
        def forward(self, x: Tensor) -> Tensor:
            for one in self:
                x = one(x)
            return (x @ words.T).softmax(-1) @ words

    words = torch.randn(T, WIDTH)
    model = nn.Sequential(AttentionStack([Attention(), Attention()]))
    assert [path for path, _ in seen_in(model, torch.randn(B, T, WIDTH))] == ["0.0", "0.1"]


def test_heads_that_are_modules_of_their_own() -> None:
    class HeadSummary(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x @ x.mT).softmax(-1) @ x

    class MultiHeadAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList(HeadSummary() for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([head(x) for head in self.heads]).sum(0)

    found = seen_in(MultiHeadAttention(), torch.randn(B, T, WIDTH))
    assert {name: call.shape for name, call in found.items()} == {
        ("heads.0", 0): (B, 1, T, T),
        ("heads.1", 0): (B, 1, T, T),
    }


def test_a_softmax_that_is_a_module_belongs_to_its_attention() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.softmax = nn.Softmax(dim=-1)

        def forward(self, x: Tensor) -> Tensor:
            return self.softmax(x @ x.mT) @ x

    assert [*seen_in(nn.Sequential(Attention()), torch.randn(B, T, WIDTH))] == [("0", 0)]


class Folded(nn.Module):
    """Heads folded into the batch, or beside groups that share keys."""

    def __init__(self, groups: bool) -> None:
        super().__init__()
        self.qk, self.num_heads, self.groups = nn.Linear(WIDTH, 2 * WIDTH), 4, groups

    def forward(self, x: Tensor) -> Tensor:
        q, k = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qk(x).chunk(2, -1))
        self.maps = (q @ k.mT).softmax(-1)
        if self.groups:
            q, k = (t.unflatten(1, (2, 2)) for t in (q, k))
        else:
            q, k = (t.flatten(0, 1) for t in (q, k))
        return ((q @ k.mT).softmax(-1) @ k).sum() + x


@pytest.mark.parametrize("groups", [True, False])
def test_heads_are_told_from_sequences(groups: bool) -> None:
    model, x = nn.Sequential(), torch.randn(B, T, WIDTH)
    model.attn = Folded(groups)
    rows: list[AttentionRows] = []
    with watch_attention(model, lambda call: rows.append(call.rows(torch.arange(T)))), torch.no_grad():
        model(x)
    assert len(rows) == 2  # its own maps and what it uses
    torch.testing.assert_close(rows[1].p, rows[0].p)


@pytest.mark.parametrize("lowest", [-float("inf"), torch.finfo(torch.float32).min, -1e9, -1e4])
@pytest.mark.parametrize("sdpa", [True, False])
def test_masked_keys_are_known_however_they_are_masked(lowest: float, sdpa: bool) -> None:
    """Also where attention has snapped, so that keys that may be looked at get exactly nothing."""

    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mask = torch.zeros(T, T).masked_fill(torch.ones(T, T).triu(1).bool(), lowest)
            if sdpa:
                return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=mask)
            return (x @ x.mT / WIDTH**0.5 + mask).softmax(-1) @ x

    x = 20 * torch.randn(B, T, WIDTH, generator=torch.Generator().manual_seed(0))
    (call,) = seen_in(Attention(), x).values()
    found = call.rows(torch.arange(T))
    below = torch.ones(T, T).tril().bool()
    assert ((found.p == 0) & below).any(), "it snapped"
    assert torch.equal(found.visible.expand(found.p.shape), below.expand(found.p.shape))


def test_rows_that_are_all_masked_are_nan_and_harm_nobody() -> None:
    """Padding on the left, before which there is nothing to look at."""

    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            keys = torch.arange(T) >= torch.tensor([0, 4])[:, None, None, None]
            mask = torch.ones(T, T).tril().bool() & keys
            return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=mask)

    (call,) = seen_in(nn.Sequential(Attention()), torch.randn(B, T, WIDTH)).values()
    rows = call.rows(torch.arange(T))
    assert rows.p[1, :, :4].isnan().all()
    assert rows.p[1, :, 4:].isfinite().all()
    assert not rows.visible.expand(rows.p.shape)[1, :, :4].any()
