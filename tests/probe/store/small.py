"""A model that takes no time, and its training with a probe and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scansnap.probe.probe import Probe

M, T, B = 7, 9, 2
STEPS, SAVED = 10, 3  # updates in all, and from checkpoint to checkpoint


class Attention(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Small(nn.Module):
    """Two attentions, the second looks only where ``deep`` says so."""

    def __init__(self, heads: tuple[int, ...] = (2, 2)) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(M, 8), nn.Linear(8, M)
        self.layers = nn.ModuleList(Attention(h) for h in heads)
        self.deep = True

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers if self.deep else self.layers[:1]:
            x = x + layer(x)
        return self.out(x)


def batch() -> Tensor:
    return torch.arange(B * T).reshape(B, T) ** 2 % M


def train(
    out: Path | None,
    checkpoint: Path | None = None,
    steps: int = STEPS,
    back: dict[str, Any] | None = None,
    **options: Any,
) -> Probe:
    """Measures after every update; goes on from the checkpoint if there is one, or from the state to go ``back`` to."""
    torch.manual_seed(0)
    model, begin = Small(), 0
    state = back or (torch.load(checkpoint) if checkpoint is not None and checkpoint.exists() else None)
    if state is not None:
        begin = state["step"]
        model.load_state_dict(state["model"])
    probe = Probe(model, batch(), every=1, out=out, max_bytes=10**9, **options)
    for step in range(begin, steps):
        update(model, step)
        probe.step(step + 1)
        if checkpoint is not None and (step + 1) % SAVED == 0:
            torch.save({"model": model.state_dict(), "step": step + 1}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
    return probe


def update(model: Small, step: int) -> None:
    x = torch.randint(M, (4, T), generator=torch.Generator().manual_seed(step))
    model.zero_grad()
    F.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten()).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.5 * p.grad


def state_after(steps: int) -> dict[str, Any]:
    """What a checkpoint has."""
    torch.manual_seed(0)
    model = Small()
    for step in range(steps):
        update(model, step)
    return {"model": model.state_dict(), "step": steps}
