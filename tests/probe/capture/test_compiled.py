"""Flex attention, and models that are compiled: seen as they were written, and not compiled again."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from scansnap.probe.capture import AttentionCall, AttentionRows, sources, watch_attention

pytestmark = [  # of torch's compiler, about itself
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]
B, H, G, T, D = 2, 4, 2, 13, 8
NEAR, FAR = 1e-6, 1e-2
_SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.05])
_DOCUMENT = (torch.arange(T) > 4).long().expand(B, T)


def alibi(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score - _SLOPES[h] * (q - k).abs()


def capped(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return 0.5 * torch.tanh(score / 0.5)


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def packed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q >= k) & (_DOCUMENT[b, q] == _DOCUMENT[b, k])


MODS = {None: lambda logits, at: logits, alibi: lambda logits, at: logits - _SLOPES[:, None, None] * at.abs(),
        capped: lambda logits, at: 0.5 * torch.tanh(logits / 0.5)}  # fmt: skip
MASKS = {None: torch.ones(T, T, dtype=torch.bool), causal: torch.ones(T, T, dtype=torch.bool).tril(),
         packed: torch.ones(T, T, dtype=torch.bool).tril() & (_DOCUMENT[0][:, None] == _DOCUMENT[0])}  # fmt: skip


class Flexible(nn.Module):
    def __init__(self, function: Callable[..., Any], score_mod: Any, mask_mod: Any) -> None:
        super().__init__()
        self.function, self.score_mod = function, score_mod
        self.block_mask = None if mask_mod is None else create_block_mask(mask_mod, B, None, T, T, device="cpu")

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.function(q, k, v, score_mod=self.score_mod, block_mask=self.block_mask, enable_gqa=True)


def rows_in(model: nn.Module, *args: Any) -> tuple[dict[str, AttentionRows], Tensor]:
    found: dict[str, AttentionRows] = {}

    def keep(call: AttentionCall) -> None:
        found[call.path] = call.rows(torch.arange(call.shape[2]))

    with watch_attention(model, keep), torch.no_grad():
        result = model(*args)
    return found, result


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("score_mod", MODS)
@pytest.mark.parametrize("mask_mod", MASKS)
def test_scores_and_masks_of_flex_attention(score_mod: Any, mask_mod: Any, compiled: bool) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(B, H, T, D), torch.randn(B, G, T, D), torch.randn(B, G, T, D)
    at = torch.arange(T)[:, None] - torch.arange(T)
    logits = MODS[score_mod](q @ k.repeat_interleave(H // G, 1).mT / D**0.5, at)
    own = logits.masked_fill(~MASKS[mask_mod], -torch.inf).softmax(-1)
    function = torch.compile(flex_attention) if compiled else flex_attention  # never compiled: only watched
    found, result = rows_in(Flexible(function, score_mod, mask_mod), q, k, v)
    assert (found[""].p - own).abs().max() < NEAR
    assert torch.equal(found[""].visible.expand(own.shape), (own > 0))
    torch.testing.assert_close(result, own @ v.repeat_interleave(H // G, 1))
    if mask_mod is not None:
        assert (logits.softmax(-1) - found[""].p).abs().max() > FAR, "the control: without the mask"


def test_a_sink_beside_the_keys_takes_its_share() -> None:
    """Flex attention leaves it to be put in afterwards, by what the logits add up to."""
    torch.manual_seed(3)
    q, k, v = torch.randn(B, H, T, D), torch.randn(B, G, T, D), torch.randn(B, G, T, D)
    model = Flexible(flex_attention, None, causal)
    model.sinks = nn.Parameter(torch.randn(H))
    found, _ = rows_in(model, q, k, v)
    logits = (q @ k.repeat_interleave(H // G, 1).mT / D**0.5).masked_fill(~MASKS[causal], -torch.inf)
    own = logits.exp() / (logits.exp().sum(-1, keepdim=True) + model.sinks.detach().exp()[:, None, None])
    assert (found[""].p - own).abs().max() < NEAR
    assert found[""].p.sum(-1).max() < 1


def test_flex_attention_makes_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("scansnap.probe.capture.watcher")
    torch.manual_seed(1)
    q, k, v = torch.randn(B, H, T, D), torch.randn(B, G, T, D), torch.randn(B, G, T, D)
    model = Flexible(flex_attention, alibi, packed)
    whole, at_once = rows_in(model, q, k, v)
    sizes: list[int] = []
    flex_in_blocks = sources.flex_in_blocks

    def spied(flex: Any, args: Any, block: int) -> Any:
        return flex_in_blocks(lambda *some: sizes.append(some[0].shape[2]) or flex(*some), args, block)

    monkeypatch.setattr(module, "BLOCK", 5 * B * H * T)
    monkeypatch.setattr(module, "flex_in_blocks", spied)
    again, in_parts = rows_in(model, q, k, v)
    assert sizes == [5, 5, 3]
    torch.testing.assert_close(in_parts, at_once)
    assert torch.equal(again[""].p, whole[""].p)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def whole(model: nn.Sequential) -> nn.Module:
    return torch.compile(model, backend="aot_eager")


def in_place(model: nn.Sequential) -> nn.Module:
    model.compile(backend="aot_eager")
    return model


def by_block(model: nn.Sequential) -> nn.Module:
    return nn.Sequential(*(torch.compile(block, backend="aot_eager") for block in model))


@pytest.mark.parametrize("how", [whole, in_place, by_block])
def test_a_compiled_model_is_seen_and_stays_compiled(how: Callable[[nn.Sequential], nn.Module]) -> None:
    torch.manual_seed(2)
    torch._dynamo.reset()
    counters.clear()
    model, x = nn.Sequential(Attention(), Attention()), torch.randn(B, T, D)
    plain, _ = rows_in(model, x)
    compiled = how(model)
    before = compiled(x)
    graphs = counters["stats"]["unique_graphs"]
    assert graphs > 0, "it is compiled"
    for _ in range(2):
        found, _ = rows_in(compiled, x)
        assert {path: rows.p.tolist() for path, rows in found.items()} == {
            path: rows.p.tolist() for path, rows in plain.items()
        }, "as if it were not compiled, under the same names"
        with torch.compiler.set_stance("fail_on_recompile"):
            after = compiled(x)
        assert torch.equal(before, after)
    assert counters["stats"]["unique_graphs"] == graphs, "nothing is compiled again"
    assert not counters["graph_break"]
