"""Does "dead" mean what it says? Ablate heads that the probe calls dead, and as many others, in models trained here.

    python benchmarks/dead_heads.py [--seeds 4] [--steps 400]

A GPT of 3 layers with 4 heads each learns sequences whose second half repeats the first, which needs attention. A
penalty on the size of each head's output projection lets the model give up heads that it does not need; which ones is
its own choice. Then heads are zero-ablated: those flagged as dead, and 50 random sets of as many other heads (all
others where fewer remain). Controls: a head whose output projection is set to 0 must be flagged; a live head whose
values are divided by 1,000 and whose projection is multiplied by 1,000 must not be, since it does the same as before.
"""

from __future__ import annotations

import argparse
import json
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.probe.findings.health import DEAD
from scansnap.probe.probe import Probe

LAYERS, HEADS, WIDTH, LENGTH, VOCABULARY, BATCH = 3, 4, 64, 16, 16, 32
PENALTY = 0.003  # times the sum over heads of the norm of their projection


class Attention(nn.Module):
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("scale", torch.ones(HEADS))  # 0 ablates a head

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True) * self.scale[:, None, None]
        return self.proj(y.transpose(1, 2).reshape(b, t, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(2 * LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def draw(n: int, generator: torch.Generator) -> Tensor:
    """Sequences whose second half repeats the first, from a token at random."""
    first = torch.randint(VOCABULARY, (n, LENGTH), generator=generator)
    return torch.cat([first, first], 1)[:, :-1]  # an odd length


def loss(model: GPT, ids: Tensor) -> Tensor:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def projections(model: GPT) -> Tensor:
    """The norm of each head's output projection, (layer, head)."""
    weights = [part.proj.weight for part in model.modules() if isinstance(part, Attention)]
    return torch.stack([torch.linalg.vector_norm(w.unflatten(1, (HEADS, -1)), dim=(0, 2)) for w in weights])


def train(seed: int, steps: int) -> GPT:
    torch.manual_seed(seed)
    model, generator = GPT(), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, 2 * (steps - step) / steps)
        (loss(model, draw(BATCH, generator)) + PENALTY * projections(model).sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def measure(model: GPT, ids: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Which heads are dead, and their share of the residual stream, (layer, head)."""
    probe = Probe(model, ids)
    probe.measure(0)
    data = probe.dataset()
    return data["is_dead"].values == 1, data["output_share"].values[-1]


@torch.no_grad()
def increase(model: GPT, ids: Tensor, heads: np.ndarray) -> float:
    """By how much the loss rises if these heads (n, 2) are zero-ablated."""
    before = float(loss(model, ids))
    for layer, head in heads:
        model.blocks[layer].attention.scale[head] = 0
    after = float(loss(model, ids))
    for layer, head in heads:
        model.blocks[layer].attention.scale[head] = 1
    return after - before


@torch.no_grad()
def controls(model: GPT, ids: Tensor, dead: np.ndarray) -> tuple[bool, bool]:
    """Whether a planted dead head is flagged, and a live one with tiny values is not."""
    live = np.argwhere(~dead)
    layer, head = live[0]
    attention, part = model.blocks[layer].attention, slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
    values = slice(2 * WIDTH + part.start, 2 * WIDTH + part.stop)
    attention.qkv.weight[values] /= 1000
    attention.proj.weight[:, part] *= 1000
    is_live_flagged = bool(measure(model, ids)[0][layer, head])
    attention.proj.weight[:, part] = 0
    return bool(measure(model, ids)[0][layer, head]), is_live_flagged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"dead: less than {DEAD:g} of the residual stream; {LAYERS * HEADS} heads; loss in nats")
    for seed in range(options.seeds):
        model, rng = train(seed, options.steps), np.random.default_rng(seed)
        ids = draw(64, torch.Generator().manual_seed(1000 + seed))  # not seen in training
        dead, share = measure(model, ids)
        flagged, others = np.argwhere(dead), np.argwhere(~dead)
        random = (
            [increase(model, ids, rng.permutation(others)[: len(flagged)]) for _ in range(50)] if len(flagged) else []
        )
        row = {"seed": seed, "loss": float(loss(model, ids).detach()), "flagged": len(flagged),
               "increase_flagged": increase(model, ids, flagged),
               "increase_random_median": float(np.median(random)) if random else None,
               "increase_random_least": min(random, default=None),
               "shares": np.sort(share.ravel()).round(5).tolist()}  # fmt: skip
        if len(others):
            row["planted_dead_flagged"], row["planted_live_flagged"] = controls(model, ids, dead)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
