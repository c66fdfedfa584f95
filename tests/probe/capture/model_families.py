"""Tiny models with random weights of the families people train, none of them downloaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
import transformers as tf
from torch import Tensor, nn

from scansnap.probe.capture import AttentionCall, AttentionRows, DotProducts, watch_attention
from scansnap.probe.capture.watcher import AttentionWatcher

WIDTH, HEADS, T, B, M = 64, 4, 13, 2, 37  # heads 16 wide: compiled flex attention takes no less
NEAR, FAR = 1e-5, 1e-2
TWO = ("bart", "t5")
OWN_CODE = ("bloom", "falcon", "mpt", "deberta")  # they compute attention themselves, whatever is registered
LEARNED = 0.3  # spread of the weights: what models start with hardly attends to anything

_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SMALL = {"vocab_size": M, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS, **_SPECIAL}
_USUAL = {**_SMALL, "intermediate_size": 48, "max_position_embeddings": 64}
_GROUPED = {**_USUAL, "num_key_value_heads": 2}
_WINDOW = {**_GROUPED, "head_dim": 16, "sliding_window": 5}
_LAYERS = {"layer_types": ["sliding_attention", "full_attention"]}
_LATENT = {**_USUAL, "num_key_value_heads": HEADS, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
           "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}  # fmt: skip
_BART = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS,
         "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "decoder_start_token_id": 1, "forced_eos_token_id": 2,
         **_SPECIAL}  # fmt: skip

CONFIGS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: tf.GPT2Config(
        vocab_size=M, n_embd=WIDTH, n_layer=2, n_head=HEADS, n_positions=64, bos_token_id=1, eos_token_id=2
    ),
    "llama": lambda: tf.LlamaConfig(**_GROUPED),
    "gpt_neox": lambda: tf.GPTNeoXConfig(**_USUAL),
    "mistral": lambda: tf.MistralConfig(**_WINDOW),
    "qwen2": lambda: tf.Qwen2Config(**_GROUPED),
    "gemma3": lambda: tf.Gemma3TextConfig(**_WINDOW, **_LAYERS),
    "mixtral": lambda: tf.MixtralConfig(**_GROUPED, num_local_experts=T, num_experts_per_tok=2),  # routed as wide as T
    "opt": lambda: tf.OPTConfig(**_SMALL, ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=WIDTH),
    "deepseek_v2": lambda: tf.DeepseekV2Config(**_LATENT, n_shared_experts=1),
    "deepseek_v3": lambda: tf.DeepseekV3Config(**_LATENT, n_shared_experts=1),
    "bert": lambda: tf.BertConfig(**_USUAL),
    "modernbert": lambda: tf.ModernBertConfig(
        **_USUAL, local_attention=6, global_attn_every_n_layers=2, cls_token_id=1, sep_token_id=2
    ),
    "albert": lambda: tf.AlbertConfig(**_USUAL, embedding_size=16),
    "distilbert": lambda: tf.DistilBertConfig(
        vocab_size=M, dim=WIDTH, n_layers=2, n_heads=HEADS, hidden_dim=48, max_position_embeddings=64
    ),
    "bart": lambda: tf.BartConfig(vocab_size=M, d_model=WIDTH, max_position_embeddings=64, **_BART),
    "vit": lambda: tf.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=48,
        image_size=12,
        patch_size=4,
    ),
    "t5": lambda: tf.T5Config(
        vocab_size=M, d_model=WIDTH, d_kv=8, d_ff=48, num_layers=2, num_heads=HEADS, decoder_start_token_id=0
    ),
    "bloom": lambda: tf.BloomConfig(vocab_size=M, hidden_size=WIDTH, n_layer=2, n_head=HEADS),
    "falcon": lambda: tf.FalconConfig(**_SMALL),
    "mpt": lambda: tf.MptConfig(vocab_size=M, d_model=WIDTH, n_layers=2, n_heads=HEADS, max_seq_len=64),
    "deberta": lambda: tf.DebertaV2Config(
        **_USUAL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8
    ),
    "gemma2": lambda: tf.Gemma2Config(**_WINDOW, attn_logit_softcapping=0.5, query_pre_attn_scalar=16),
    "gpt_oss": lambda: tf.GptOssConfig(
        **_WINDOW,
        **_LAYERS,
        num_local_experts=4,
        num_experts_per_tok=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    ),
}


class Found(NamedTuple):
    """One attention that was seen, all of its queries."""

    path: str
    number: int
    rows: AttentionRows
    unmasked: Tensor | None  # what q and k say if the mask is dropped, where they are known


def inputs(family: str, padded: bool = True) -> dict[str, Tensor]:
    """Two sequences, one of them padded at its end; for two stacks the second is given fewer tokens."""
    chance = torch.Generator().manual_seed(0)
    if family == "vit":
        return {"pixel_values": torch.randn(B, 3, 12, 12, generator=chance)}
    ids = torch.randint(3, M, (B, T), generator=chance)
    mask = torch.ones(B, T, dtype=torch.long)
    mask[1, 9:] = 0 if padded else 1
    return {"input_ids": ids, "attention_mask": mask} | ({"decoder_input_ids": ids[:, :7]} if family in TWO else {})


PRECISE = ("t5", "bart")  # compared in float64: in float32 their own maps are no nearer to themselves than 1e-5


@cache
def weights(family: str) -> dict[str, Tensor]:
    model = tf.AutoModel.from_config(CONFIGS[family](), attn_implementation="eager")
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.ndim == 2 or "sinks" in name:
                tensor.normal_(0, LEARNED, generator=chance)
    return model.state_dict()


def built(family: str, implementation: str | None = None) -> nn.Module:
    """The family's model, with the attention it takes by itself if none is said."""
    said = {} if implementation is None else {"attn_implementation": implementation}
    model = tf.AutoModel.from_config(CONFIGS[family](), **said)
    model.load_state_dict(weights(family))
    return (model.double() if family in PRECISE else model).eval()


def as_it_comes(family: str) -> nn.Module:
    """With the attention it takes by itself; some versions of transformers give Gemma-2 one without its softcap."""
    model = built(family)
    if family == "gemma2" and model.config._attn_implementation == "sdpa":
        pytest.skip("this transformers leaves the softcap out, so there are no maps of its own to compare with")
    return model


def takes(model: nn.Module, implementation: str) -> None:
    """Name an attention that cannot run here, or that only the user knows."""
    for module in model.modules():
        if "config" in module.__dict__:
            module.config._attn_implementation_internal = implementation


@cache
def maps(family: str) -> dict[str, list[Tensor]]:
    """The model's own, by the stack they are of."""
    with torch.no_grad():
        out = built(family, "eager")(**inputs(family), output_attentions=True)
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions") if family in TWO else ("attentions",)
    return {name: list(out[name]) for name in names}


def seen_in(model: nn.Module, batch: dict[str, Any]) -> tuple[list[Found], AttentionWatcher]:
    found: list[Found] = []

    def keep(call: AttentionCall) -> None:
        rows = call.rows(torch.arange(call.shape[2], device=call.device))
        found.append(Found(call.path, call.number, AttentionRows(*(t.cpu() for t in rows)), unmasked(call.products)))

    with watch_attention(model, keep) as watched, torch.no_grad():
        model(**{name: t.to(model.device) if isinstance(t, Tensor) else t for name, t in batch.items()})
    return found, watched


def unmasked(products: DotProducts | None) -> Tensor | None:
    if products is None or (products.mask is None and not products.causal):
        return None
    q, k = products.q, products.k.repeat_interleave(products.q.shape[1] // products.k.shape[1], dim=1)
    return torch.softmax(products.scale * q @ k.mT, dim=-1).cpu()


def by_stack(family: str, found: list[Found]) -> dict[str, list[Found]]:
    """Those seen, as the model sorts its own maps."""
    stacks: dict[str, list[Found]] = {name: [] for name in maps(family)}
    for one in found:
        if family not in TWO:
            stacks["attentions"].append(one)
        else:
            cross = "EncDec" in one.path or "encoder_attn" in one.path
            side = "encoder" if one.path.startswith("encoder") else "cross" if cross else "decoder"
            stacks[f"{side}_attentions"].append(one)
    return stacks


def differs(seen: Tensor, own: Tensor, among: Tensor | bool = True) -> float:
    return float((seen - own).abs().where(torch.as_tensor(among), 0.0).max())


def compared(family: str, model: nn.Module, near: float = NEAR) -> None:
    """What is seen in a model is in its own maps, and in no other's."""
    found, watched = seen_in(model, inputs(family))
    assert watched.coverage().complete, watched.coverage().sentence()
    assert len({(one.path, one.number) for one in found}) == sum(map(len, maps(family).values()))
    dropped, _ = seen_in(model, inputs(family, padded=False))
    for (name, own), without in zip(maps(family).items(), by_stack(family, dropped).values(), strict=True):
        stack = by_stack(family, found)[name]
        for one, whole in zip(stack, own, strict=True):
            some = one.rows.visible.expand(whole.shape).any(-1, keepdim=True)  # a row that is all masked says nothing
            assert differs(one.rows.p, whole, some) < near, (one.path, one.number)
            assert torch.equal(one.rows.visible & some, (whole > 0) & some), "who may be looked at"
            if one.unmasked is not None:
                assert differs(one.unmasked, whole, some) > FAR, "the control: without the mask"
        assert differs(stack[0].rows.p, own[1]) > FAR, "the control: layers swapped"
        if family != "vit" and name != "decoder_attentions":
            assert differs(without[0].rows.p, own[0]) > FAR, "the control: padding looked at"
