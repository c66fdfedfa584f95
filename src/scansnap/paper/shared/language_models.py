"""Small GPT-2 and Llama models on text: what the studies that train ordinary language models share.

The models are transformers' own, built from their configurations with random weights, and have no dropout, which would
add noise to a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.corpus.windows import Windows
from scansnap.paper.shared.text_runs import TextSetting

CLIP = 1.0  # the largest norm of a gradient
MOMENTUM = 0.9
WARM_UP = 20  # a fraction 1/20 of the steps


@dataclass(frozen=True)
class Scale:
    """Sizes of models, windows and measurements."""

    width: int
    heads: int
    length: int  # odd, so that no other softmax of a model is as wide as its attention
    batch: int
    watched: int  # sequences of validation text that the probe measures


@dataclass(frozen=True)
class TextSplits:
    """The text, as token ids."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, setting: TextSetting) -> TextSplits:
        corpus = setting.corpus
        return cls(corpus.train, setting.valid, corpus.test[: setting.size.valid_tokens])


@dataclass(frozen=True)
class Architecture:
    """A model of a study; its width is that of the scale."""

    family: str  # gpt2, llama, or qwen3: Llama with QK-norm
    layers: int


def build(kind: Architecture, scale: Scale, vocab_size: int, seed: int) -> nn.Module:
    """A new model, its weights drawn by the seed.

    GPT-2 learns its positions and normalises by LayerNorm; Llama turns queries and keys by position (RoPE), normalises
    by RMSNorm, has a gated feed-forward layer, and two heads share their keys. Both have one table for the words that
    go in and come out.
    """
    import transformers

    torch.manual_seed(seed)
    width, heads = scale.width, scale.heads
    options: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "use_cache": False}
    if kind.family == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=vocab_size, n_positions=scale.length, n_embd=width, n_layer=kind.layers, n_head=heads,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **options,
        ))  # fmt: skip
    options |= {
        "vocab_size": vocab_size, "max_position_embeddings": scale.length, "hidden_size": width,
        "intermediate_size": 8 * width // 3, "num_hidden_layers": kind.layers, "num_attention_heads": heads,
        "num_key_value_heads": heads // 2, "head_dim": width // heads, "tie_word_embeddings": True,
        "pad_token_id": None,
    }  # fmt: skip
    if kind.family == "qwen3":
        return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**options))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**options))


def batches(windows: Windows, seed: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets of each step; windows are shuffled by the seed in each epoch."""
    per_epoch = max(1, len(windows) - 1)  # without the last, which may be short
    for step in range(steps):
        if step % per_epoch == 0:
            order = [i for i in windows.order(seed, step // per_epoch) if i < per_epoch]
        yield windows[order[step % per_epoch]]


def cross_entropy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over all positions, nats."""
    logits = model(input_ids=inputs).logits
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def loss_on(model: nn.Module, rows: Tensor, targets: Tensor | None = None) -> float:
    """Mean loss on rows (n, T + 1), their own next tokens being the targets; infinite where it is not finite."""
    pairs = zip(rows[:, :-1].split(16), (rows[:, 1:] if targets is None else targets).split(16), strict=True)
    loss = float(torch.stack([len(x) * cross_entropy(model, x, y) for x, y in pairs]).double().sum()) / len(rows)
    return loss if math.isfinite(loss) else math.inf


def rows_of(stream: np.ndarray, length: int, device: str = "cpu") -> Tensor:
    """The stream cut into rows (n, T + 1), each of which begins where the one before it ends."""
    n = max(1, (len(stream) - 1) // length)
    at = np.arange(n)[:, None] * length + np.arange(min(length, len(stream) - 1) + 1)
    return torch.from_numpy(np.asarray(stream)[at]).long().to(device)
