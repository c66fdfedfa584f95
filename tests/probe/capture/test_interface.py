"""Attention of transformers that cannot be seen into: replaced or compared while it is watched, and put back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers.masking_utils
from model_families import B, M, T, built, inputs, seen_in, takes
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from scansnap.probe.capture import watch_attention
from scansnap.probe.capture.modules import Coverage


def weighted(weights: Tensor, value: Tensor) -> tuple[Tensor, None]:
    return (weights @ value).transpose(1, 2), None


def scores(module: nn.Module, query: Tensor, key: Tensor, scaling: float) -> Tensor:
    hidden = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).triu(1)
    return (query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT * scaling).masked_fill(
        hidden, -torch.inf
    )


def sigmoid(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **_: Any) -> Any:
    p = torch.sigmoid(scores(module, query, key, scaling))
    return weighted(p, value.repeat_interleave(query.shape[1] // value.shape[1], 1))


def visible(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **_: Any) -> Any:
    p = torch.softmax(2 * scores(module, query, key, scaling), dim=-1)
    return weighted(p, value.repeat_interleave(query.shape[1] // value.shape[1], 1))


@pytest.fixture
def registered() -> Iterator[None]:
    AttentionInterface.register("of sigmoids", sigmoid)
    AttentionInterface.register("sharper", visible)
    yield
    del AttentionInterface._global_mapping["of sigmoids"], AttentionInterface._global_mapping["sharper"]


def names() -> list[list[str]]:
    return [sorted(interface._global_mapping) for interface in (AttentionInterface, AttentionMaskInterface)]


def test_what_is_no_softmax_is_not_taken_for_one(registered: None) -> None:
    model = built("llama", "eager")
    takes(model, "of sigmoids")
    found, watched = seen_in(model, inputs("llama", padded=False))
    assert not found
    assert watched.coverage() == Coverage(0, 2, ("layers.0.self_attn", "layers.1.self_attn"))


def test_what_can_be_seen_inside_is_seen_there_and_once(registered: None) -> None:
    model = built("llama", "eager")
    takes(model, "sharper")
    found, _ = seen_in(model, inputs("llama", padded=False))
    assert [(one.path, one.number) for one in found] == [("layers.0.self_attn", 0), ("layers.1.self_attn", 0)]
    takes(model, "eager")
    plain, _ = seen_in(model, inputs("llama", padded=False))
    assert (found[0].rows.p.amax(-1) - plain[0].rows.p.amax(-1)).max() > 0.01, "what it computes, not what q and k say"


def test_packed_sequences_do_not_see_each_other() -> None:
    """Flash attention is told of them by positions that start again."""
    model = built("llama", "eager")
    batch = {
        "input_ids": torch.arange(T)[None] % M,
        "position_ids": torch.cat([torch.arange(5), torch.arange(T - 5)])[None],
    }
    with torch.no_grad():
        own = model(**batch, output_attentions=True, use_cache=False).attentions
    takes(model, "flash_attention_2")
    found, _ = seen_in(model, {**batch, "use_cache": False})
    for one, whole in zip(found, own, strict=True):
        assert (one.rows.p - whole).abs().max() < 1e-5
    assert not found[0].rows.visible.expand(own[0].shape)[..., 5:, :5].any()


def test_a_pass_that_fails_leaves_no_trace() -> None:
    model, before = built("llama", "eager"), names()
    takes(model, "flash_attention_2")

    def fails(call: Any) -> None:
        assert model.config._attn_implementation == "scansnap"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), watch_attention(model, fails), torch.no_grad():
        model(**inputs("llama"))
    assert model.config._attn_implementation == "flash_attention_2"
    assert names() == before
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss"])
def test_what_the_replacement_gives_is_what_the_model_gives(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capped scores and sinks, which torch's own attention does not have, some queries at a time."""
    monkeypatch.setattr("scansnap.probe.capture.interface.BLOCK", 4 * B * 4 * T)
    model, batch = built(family, "eager"), inputs(family)
    batch["attention_mask"] = batch["attention_mask"].flip(1)  # before the first there is nothing to look at
    with torch.no_grad():
        plain = model(**batch).last_hidden_state
    takes(model, "flash_attention_2")
    with watch_attention(model, lambda call: None), torch.no_grad():
        replaced = model(**batch).last_hidden_state
    assert replaced.isfinite().all()
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(replaced[real], plain[real], rtol=0, atol=1e-4 * float(plain.abs().max()))


def test_parts_that_choose_their_attention_when_they_are_made_are_left_alone() -> None:
    model = built("falcon", "eager")
    takes(model, "flash_attention_2")
    with watch_attention(model, lambda call: None):
        assert model.config._attn_implementation == "flash_attention_2"


def test_torch_and_transformers_are_not_imported_before_they_are_needed() -> None:
    code = """
import sys, scansnap, scansnap.probe
assert "torch" not in sys.modules
scansnap.probe.record
import torch
from scansnap.probe.capture import watch_attention
model = torch.nn.MultiheadAttention(8, 2)
with watch_attention(model, lambda call: None):
    model(*[torch.zeros(3, 1, 8)] * 3)
assert not [name for name in sys.modules if name.startswith(("transformers", "torch._dynamo"))]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_library_still_has_what_is_used_of_it() -> None:
    assert "sdpa" in AttentionInterface._global_mapping
    assert transformers.masking_utils.sdpa_mask is AttentionMaskInterface._global_mapping["sdpa"]


def test_left_padding_in_what_a_user_has_registered(registered: None) -> None:
    """Rows in which all is masked may come out as anything."""

    def by_hand(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, **_: Any
    ) -> Any:
        logits = (query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT * scaling).where(mask, -1e9)
        e = (logits - logits.amax(-1, keepdim=True)).exp()
        return weighted(e / e.sum(-1, keepdim=True), value.repeat_interleave(query.shape[1] // value.shape[1], 1))

    AttentionInterface.register("of sigmoids", by_hand)
    AttentionMaskInterface.register("of sigmoids", transformers.masking_utils.sdpa_mask)
    model, batch = built("llama", "eager"), inputs("llama")
    batch["attention_mask"] = batch["attention_mask"].flip(1)
    takes(model, "of sigmoids")
    try:
        found, watched = seen_in(model, batch)
    finally:
        del AttentionMaskInterface._global_mapping["of sigmoids"]
    assert watched.coverage().complete
    assert found[0].rows.p[1, :, :4].isnan().all()
