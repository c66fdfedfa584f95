"""A probe's file: two attentions of a small model, at five steps that move them."""

import torch
from torch import nn

from scansnap.probe.probe import Probe

HOSTILE = "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 2'>"


class Model(nn.Module):
    """Attention on attention."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.attn = nn.ModuleList([nn.MultiheadAttention(8, heads, batch_first=True) for heads in (4, 2)])

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for attention in self.attn:
            x = x + attention(x, x, x, need_weights=False)[0]
        return x


def write(path):
    torch.manual_seed(0)
    model = type(HOSTILE, (Model,), {})()
    probe = Probe(model, {"input_ids": torch.randint(7, (3, 9))}, every=[0, 1, 3, 10, 30], out=path, overwrite=True)
    for step in range(31):
        probe.step(step, loss=3 - step / 30)
        with torch.no_grad():
            for weights in model.parameters():
                weights += 0.05 * torch.randn_like(weights)
