"""Attention seen from outside against the model's own maps, with controls that must fail."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.probe.capture import AttentionCall, watch_attention

B, T, WIDTH, HEADS = 2, 13, 16, 4


class Attention(nn.Module):
    """As one writes it by hand; ``way`` is how the probabilities are made, ``maps`` what they are."""

    def __init__(self, way: str, kv_heads: int = HEADS) -> None:
        super().__init__()
        self.way, self.kv_heads = way, kv_heads
        self.qkv = nn.Linear(WIDTH, WIDTH + 2 * kv_heads * (WIDTH // HEADS))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        d = WIDTH // HEADS
        q, k, v = self.qkv(x).split([WIDTH, self.kv_heads * d, self.kv_heads * d], dim=-1)
        q, k, v = (t.unflatten(-1, (-1, d)).transpose(1, 2) for t in (q, k, v))
        k_all, v_all = (t.repeat_interleave(HEADS // self.kv_heads, 1) for t in (k, v))
        logits = q @ k_all.mT / math.sqrt(d)
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        if mask is None:
            logits = logits.masked_fill(~causal, -math.inf)
        else:
            logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
        with torch._C.DisableTorchFunction():
            self.maps = torch.softmax(logits.detach(), dim=-1)
        if self.way == "sdpa":
            gqa = self.kv_heads != HEADS
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=gqa)
        else:
            p = {"softmax": lambda: F.softmax(logits, dim=-1), "method": lambda: logits.softmax(-1),
                 "torch": lambda: torch.softmax(logits, -1)}[self.way]()  # fmt: skip
            out = p @ v_all
        return out.transpose(1, 2).flatten(2)


class Net(nn.Module):
    def __init__(self, way: str, layers: int = 3, kv_heads: int = HEADS) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention(way, kv_heads) for _ in range(layers))
        self.words = nn.Linear(WIDTH, T)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, mask)
        return self.words(x).softmax(-1)  # as wide as the window is long, and no attention


def seen_in(
    model: nn.Module, call: Callable[[], object], queries: Tensor | None = None
) -> dict[tuple[str, int], Tensor]:
    found: dict[tuple[str, int], Tensor] = {}

    def keep(seen: AttentionCall) -> None:
        every = torch.arange(seen.shape[2]) if queries is None else queries
        found[seen.path, seen.number] = seen.rows(every).p

    with watch_attention(model, keep), torch.no_grad():
        call()
    return found


MASKS = {
    "causal": None,
    "boolean": torch.ones(T, T, dtype=torch.bool).tril(2),
    "padding": (torch.arange(T) < 9).expand(B, 1, 1, T),
    "bias": -0.1 * (torch.arange(T)[:, None] - torch.arange(T)).abs().float(),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("way", ["sdpa", "softmax", "method", "torch"])
def test_what_is_seen_is_what_the_model_computes(way: str, mask: str) -> None:
    torch.manual_seed(0)
    model, x = Net(way), torch.randn(B, T, WIDTH)
    found = seen_in(model, lambda: model(x, MASKS[mask]))
    assert list(found) == [(f"layers.{i}", 0) for i in range(3)]
    for (path, _), p in found.items():
        torch.testing.assert_close(p, model.get_submodule(path).maps, rtol=0, atol=1e-6)
    first, second = found["layers.0", 0], model.get_submodule("layers.1").maps
    assert (first - second).abs().max() > 1e-2, "the control: another layer's maps are others"
    if mask != "causal":
        without = seen_in(model, lambda: model(x))["layers.0", 0]
        assert (first - without).abs().max() > 1e-2, "the control: so are those without the mask"


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_keys_may_be_shared_by_groups_of_heads(kv_heads: int) -> None:
    torch.manual_seed(1)
    model, x = Net("sdpa", kv_heads=kv_heads), torch.randn(B, T, WIDTH)
    for (path, _), p in seen_in(model, lambda: model(x)).items():
        torch.testing.assert_close(p, model.get_submodule(path).maps, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("q", "k", "mask"),
    [
        ((T, 4), (T, 4), None),
        ((B, T, 4), (B, 7, 4), (B, T, 7)),
        ((B, T, 4), (B, 7, 4), (B, 1, 7)),
        ((B, 6, T, 4), (B, 6, 7, 4), (T, 7)),
        ((B, 6, T, 4), (B, 3, 7, 4), (B, 1, 1, 7)),
        ((B, 6, T, 4), (B, 2, T, 4), None),
        ((B, 2, 3, T, 4), (B, 2, 3, 7, 4), (B, 1, 1, T, 7)),
    ],
)
@pytest.mark.parametrize("numbers", [True, False])
def test_rows_give_what_attention_gives_in_any_number_of_dimensions(q, k, mask, numbers: bool) -> None:
    torch.manual_seed(7)
    query, key, value, out = torch.randn(q), torch.randn(k), torch.randn(k), []
    seen_by = None if mask is None else torch.randn(mask) if numbers else torch.rand(mask) < 0.8
    options = {"attn_mask": seen_by, "is_causal": mask is None, "enable_gqa": q[-3:-2] != k[-3:-2]}

    def give(seen: AttentionCall) -> None:
        p = seen.rows(torch.arange(seen.shape[2])).p
        assert p.shape == seen.shape
        v = value.reshape(p.shape[0], -1, *value.shape[-2:])
        out.append((p @ v.repeat_interleave(p.shape[1] // v.shape[1], 1)).nan_to_num(0.0))

    with watch_attention(nn.Identity(), give):
        given = F.scaled_dot_product_attention(query, key, value, **options)
    torch.testing.assert_close(out[0].reshape(given.shape), given, rtol=0, atol=1e-6)


def test_some_queries_are_rows_of_all() -> None:
    torch.manual_seed(2)
    model, x, queries = Net("sdpa"), torch.randn(B, T, WIDTH), torch.tensor([0, 5, 12])
    every, some = seen_in(model, lambda: model(x)), seen_in(model, lambda: model(x), queries)
    for name, p in some.items():
        torch.testing.assert_close(p, every[name][:, :, queries], rtol=0, atol=1e-7)


@pytest.mark.parametrize("need_weights", [True, False])
def test_torchs_own_attention_is_seen_through(need_weights: bool) -> None:
    torch.manual_seed(3)
    attention, x = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), torch.randn(B, T, WIDTH)
    _, maps = attention(x, x, x, need_weights=True, average_attn_weights=False)
    found = seen_in(attention, lambda: attention(x, x, x, need_weights=need_weights))
    assert list(found) == [("", 0)]
    torch.testing.assert_close(found["", 0], maps.detach(), rtol=0, atol=1e-6)


def test_an_encoder_shows_each_of_its_layers() -> None:
    torch.manual_seed(4)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
    encoder, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(B, T, WIDTH)
    found = seen_in(encoder, lambda: encoder(x))
    assert [path for path, _ in found] == ["layers.0.self_attn", "layers.1.self_attn"]


def test_a_module_that_is_used_twice_is_two_calls() -> None:
    torch.manual_seed(5)
    model = Net("sdpa", layers=1)
    x = torch.randn(B, T, WIDTH)
    found = seen_in(model, lambda: model.layers[0](model.layers[0](x)))
    assert list(found) == [("layers.0", 0), ("layers.0", 1)]


def test_cross_attention_is_told_from_self_attention() -> None:
    kinds = []
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    x = torch.randn(B, T, WIDTH)
    with watch_attention(attention, lambda seen: kinds.append((seen.kind, seen.shape))):
        attention(x, *[torch.randn(B, 7, WIDTH)] * 2, need_weights=False)
        attention(x, *[torch.randn(B, T, WIDTH)] * 2)  # as many, but others
        attention(x, x, x)
    assert kinds == [("cross", (B, HEADS, T, 7)), ("cross", (B, HEADS, T, T)), ("self", (B, HEADS, T, T))]


def test_the_result_is_as_if_nobody_looked() -> None:
    torch.manual_seed(6)
    model, x = Net("sdpa"), torch.randn(B, T, WIDTH)
    plain = model(x)
    with watch_attention(model, lambda seen: seen.rows(torch.arange(T))):
        watched = model(x)
    assert torch.equal(plain, watched)
    assert watched.grad_fn is not None
    assert not nn.modules.module._global_forward_hooks, "no hook is left"


def test_keys_that_may_be_looked_at_are_known_though_they_get_nothing() -> None:
    """Attention that has snapped gives the others exactly 0; the mask says who they were."""
    model = Net("sdpa", layers=1)
    with torch.no_grad():
        model.layers[0].qkv.weight.mul_(1e4)
    rows = []
    with watch_attention(model, lambda seen: rows.append(seen.rows(torch.arange(T)))):
        model(torch.randn(B, T, WIDTH))
    assert (rows[0].p == 0).sum() > B * HEADS * T * (T - 1) / 2, "it snapped"
    assert torch.equal(rows[0].visible, torch.ones(T, T, dtype=torch.bool).tril())


def test_nothing_is_kept_after_the_call() -> None:
    model, x, kept = Net("sdpa"), torch.randn(B, T, WIDTH), []
    soft = Net("softmax")

    def look(seen: AttentionCall) -> None:
        kept.extend([weakref.ref(seen), weakref.ref(seen.rows(torch.arange(T)).p)])
        kept.extend([weakref.ref(seen.products.q)] if seen.products else [])

    gc.disable()  # nor until somebody collects
    try:
        for one in (model, soft):
            with watch_attention(one, look), torch.no_grad():
                one(x)
        assert len(kept) == 3 * 3 + 3 * 2
        assert [ref() for ref in kept] == [None] * len(kept)
    finally:
        gc.enable()
