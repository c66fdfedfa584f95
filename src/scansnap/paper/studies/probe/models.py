"""The models that are watched: transformers' own GPT-2 and Llama, from their configurations, with random weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Kind:
    """One of the models of the study; its width is that of the effort."""

    family: str  # gpt2 or llama
    layers: int


MODELS = {"GPT-2, 2 layers": Kind("gpt2", 2), "GPT-2, 6 layers": Kind("gpt2", 6), "Llama, 4 layers": Kind("llama", 4)}
DEEP = "GPT-2, 6 layers"  # in which order in depth is asked for


def build(name: str, *, vocab_size: int, width: int, heads: int, length: int, seed: int) -> nn.Module:
    """A new model, its weights drawn by the seed.

    GPT-2 learns its positions and normalises by LayerNorm; Llama turns queries and keys by position (RoPE), normalises
    by RMSNorm, has a gated feed-forward layer, and two heads share their keys. Both have one table for the words that
    go in and come out, and no dropout: it would be noise in what is compared.
    """
    import torch
    import transformers

    kind = MODELS[name]
    torch.manual_seed(seed)
    marks: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "use_cache": False}
    if kind.family == "gpt2":
        config: Any = transformers.GPT2Config(
            vocab_size=vocab_size, n_positions=length, n_embd=width, n_layer=kind.layers, n_head=heads,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **marks,
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config)
    config = transformers.LlamaConfig(
        vocab_size=vocab_size, max_position_embeddings=length, hidden_size=width, intermediate_size=8 * width // 3,
        num_hidden_layers=kind.layers, num_attention_heads=heads, num_key_value_heads=heads // 2,
        tie_word_embeddings=True, pad_token_id=None, **marks,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)
