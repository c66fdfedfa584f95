"""The text model as one would write it with torch's own layers, and a loop around it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scansnap.text.transformer.model import Transformer

NAMES = {
    "self_attn.in_proj_weight": "w_qkv", "self_attn.in_proj_bias": "b_qkv", "self_attn.out_proj.weight": "w_o",
    "self_attn.out_proj.bias": "b_o", "linear1.weight": "w_1", "linear1.bias": "b_1", "linear2.weight": "w_2",
    "linear2.bias": "b_2", "norm1.weight": "norm1_gain", "norm1.bias": "norm1_shift",
    "norm2.weight": "norm2_gain", "norm2.bias": "norm2_shift",
}  # fmt: skip


class Reference(nn.Module):
    """With the weights of ours, in float64."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        s = ours.settings
        self.causal, self.scale = s.objective == "next", math.sqrt(s.width)
        self.embedding = nn.Embedding(*ours.weights["embedding"].shape)
        layer = nn.TransformerEncoderLayer(
            s.width, s.heads, s.feed_forward, 0.0, batch_first=True, norm_first=s.norm == "pre"
        )
        last = nn.LayerNorm(s.width) if s.norm == "pre" else None
        self.encoder = nn.TransformerEncoder(layer, s.layers, norm=last, enable_nested_tensor=False)
        self.decoder = nn.Linear(s.width, s.vocab_size)
        self.to(torch.float64)
        w = ours.tensors()
        state = {
            f"encoder.layers.{i}.{theirs}": w[f"layer{i}.{mine}"]
            for i in range(s.layers)
            for theirs, mine in NAMES.items()
        }
        state |= {"embedding.weight": w["embedding"], "decoder.bias": w["decoder_bias"]}
        state["decoder.weight"] = w["embedding"][: s.vocab_size] if s.tied else w["decoder"]
        if last is not None:
            state |= {"encoder.norm.weight": w["norm_gain"], "encoder.norm.bias": w["norm_shift"]}
        self.load_state_dict(state)
        if s.tied:
            self.decoder.weight = self.embedding.weight
        i = torch.arange(0, s.width, 2, dtype=torch.float64)
        angle = torch.arange(64, dtype=torch.float64)[:, None] / 10000 ** (i / s.width)
        self.positions = torch.zeros(64, s.width, dtype=torch.float64)
        if s.positions == "sinusoidal":
            self.positions[:, 0::2], self.positions[:, 1::2] = angle.sin(), angle.cos()

    def forward(self, inputs: Tensor) -> Tensor:
        length = inputs.shape[1]
        x = self.embedding(inputs) * self.scale + self.positions[:length]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1) if self.causal else None
        return self.decoder(self.encoder(x, mask))


def optimizer(model: nn.Module, ours: Transformer) -> torch.optim.Optimizer:
    s, decay = ours.settings, ours.settings.weight_decay
    if s.optimizer in ("adam", "adamw"):
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[s.optimizer]
        return kind(model.parameters(), lr=s.eta, betas=(s.beta1, s.beta2), eps=s.eps, weight_decay=decay)
    momentum, nesterov = s.momentum or 0.0, s.optimizer == "nesterov"
    return torch.optim.SGD(model.parameters(), lr=s.eta, momentum=momentum, nesterov=nesterov, weight_decay=decay)
