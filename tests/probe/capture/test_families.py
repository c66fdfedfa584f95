"""Attention of the families people train, seen in every way they compute it, against their own eager maps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from model_families import CONFIGS, OWN_CODE, TWO, as_it_comes, built, compared, inputs, takes
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from scansnap.probe.capture import watch_attention

pytestmark = [  # of the libraries
    pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
]
NO_FLEX = (*OWN_CODE, "gpt2", "gpt_oss", "t5")  # refused, for sinks on a CPU too; T5's bias is read beyond its end


def written_by_hand(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, softcap: float | None = None, s_aux: Tensor | None = None,
    position_bias: Tensor | None = None, is_causal: bool | None = None, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """What a user may register: no softmax in it that anybody could see."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if position_bias is not None:
        logits = logits + position_bias
    if attention_mask is not None:
        logits = logits.masked_fill(~attention_mask, -torch.inf)
    elif module.is_causal if is_causal is None else is_causal:
        logits = logits.masked_fill(torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    most = logits.amax(-1, keepdim=True)
    total = (logits - most).exp().sum(-1, keepdim=True)
    if s_aux is not None:
        total = total + (s_aux[None, :, None, None] - most).exp()
    return ((logits - most).exp() / total @ value).transpose(1, 2), None


@pytest.fixture
def by_hand() -> Iterator[str]:
    AttentionInterface.register("by_hand", written_by_hand)
    AttentionMaskInterface.register("by_hand", sdpa_mask)
    yield "by_hand"
    del AttentionInterface._global_mapping["by_hand"], AttentionMaskInterface._global_mapping["by_hand"]


@pytest.mark.parametrize("family", CONFIGS)
def test_as_they_come(family: str) -> None:
    compared(family, as_it_comes(family))


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "bert", "bart", "falcon", "t5"])
def test_eager(family: str) -> None:
    compared(family, built(family, "eager"))


@pytest.mark.parametrize("family", [family for family in CONFIGS if family not in NO_FLEX])
def test_flex_attention(family: str) -> None:
    compared(family, built(family, "flex_attention"))


@pytest.mark.parametrize("family", [family for family in CONFIGS if family not in OWN_CODE])
def test_a_kernel_that_is_replaced_while_it_is_watched(family: str) -> None:
    model = built(family, "eager")
    takes(model, "flash_attention_2")  # not there at all: it would fail if it ran
    compared(family, model)
    assert {m.config._attn_implementation for m in model.modules() if "config" in m.__dict__} == {"flash_attention_2"}


@pytest.mark.parametrize("family", [family for family in CONFIGS if family not in OWN_CODE])
def test_what_a_user_has_registered(family: str, by_hand: str) -> None:
    model = built(family, "eager")
    takes(model, by_hand)
    compared(family, model)


@pytest.mark.parametrize("family", TWO)
def test_cross_attention_of_equal_lengths_is_told_from_self_attention(family: str) -> None:
    kinds = {}
    model, batch = built(family), inputs(family)
    with watch_attention(model, lambda call: kinds.update({call.path: call.kind})), torch.no_grad():
        model(**{**batch, "decoder_input_ids": batch["input_ids"]})
    assert {path for path, kind in kinds.items() if kind == "cross"} == {
        path for path in kinds if "EncDec" in path or "encoder_attn" in path
    }
    assert list(kinds.values()).count("cross") == 2
