"""What a measurement of the probe costs: ``python benchmarks/probe.py [--device cuda] [--steps 7] [--threads 1]``.

A training step, the forward pass alone and a measurement in turn, in one process: a GPT-2-like model of 14 million
parameters in float32 on a CPU, GPT-2 small with bf16 autocast on CUDA (that of transformers where it is installed), 16
sequences, Zipf tokens. Times are medians, quartiles in brackets: processor time on a CPU, so that a busy machine does
not matter much, the clock on CUDA. The naive probe beside it makes all maps and takes the same statistics one by one.

No probe that runs the model can cost less than the forward pass, and none less than reading the queries' q and all k
once: both stand beside it. ``--memory`` compares peaks at 8192 tokens, in fresh processes on a CPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.probe.capture import AttentionCall, watch_attention
from scansnap.probe.probe import Probe, schedule
from scansnap.text.model import top_mass_mask
from timing import in_turn

BATCH, LONG = 16, 8192


@dataclass(frozen=True)
class Size:
    """Of a model."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    tokens: int  # of a sequence in the timing


SIZES = {"cpu": Size(6, 384, 6, 8192, 512), "cuda": Size(12, 768, 12, 50257, 511)}


class Block(nn.Module):
    """Causal attention, then two layers of four times the width, each after a norm."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, width = size.heads, size.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """As GPT-2 is: learned positions, tied embedding."""

    def __init__(self, size: Size, length: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(size.vocabulary, size.width), nn.Embedding(length, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embedding.weight.T


def model_of(device: str, length: int) -> tuple[str, nn.Module]:
    """Its name and the model."""
    size = SIZES[device]
    torch.manual_seed(0)
    if device == "cuda" and importlib.util.find_spec("transformers"):
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(n_positions=max(length, 1024), use_cache=False)
        model: nn.Module = GPT2LMHeadModel(config)
        return "GPT-2 small of transformers", model.to(device)
    return "plain GPT", GPT(size, length).to(device)


def logits_of(model: nn.Module, tokens: Tensor) -> Tensor:
    found: Any = model(tokens)
    return found if isinstance(found, Tensor) else found.logits


def training_step(model: nn.Module, tokens: Tensor, autocast: Callable[[], Any], compiled: bool) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=compiled)

    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits_of(model, inputs).flatten(0, 1).float(), targets.flatten())

    loss_now = torch.compile(loss_of) if compiled else loss_of

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = loss_now(tokens, tokens.roll(-1, 1))
        loss.backward()
        optimizer.step()

    return step


class TokenFacts:
    """Deciles of tokens, as a corpus gives them; here a token's number says how rare it is."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def distinctness(self, tokens: Tensor) -> Tensor:
        return tokens / self.vocabulary

    def decile(self, tokens: Tensor) -> Tensor:
        return (10 * self.distinctness(tokens)).long()


def naive(model: nn.Module, tokens: Tensor, facts: TokenFacts) -> None:
    """All maps, and statistics of them one by one, each fetched when it is there."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    same = (tokens[:, :, None] == tokens[:, None, :])[:, None]
    decile = facts.decile(tokens)[:, None, None]

    def look(call: AttentionCall) -> None:
        p = call.rows(at).p
        found = [torch.special.entr(p).sum(-1), p.amax(-1), top_mass_mask(p, 0.95).sum(-1) / (at + 1), p[..., 0],
                 p.diagonal(dim1=-2, dim2=-1), p.diagonal(-1, -2, -1), (p * same).sum(-1),
                 *[(p * (decile == d)).sum(-1) for d in range(10)]]  # fmt: skip
        for one in found:
            one.mean((0, 2)).cpu()

    with torch.no_grad(), watch_attention(model, look):
        logits_of(model, tokens)


def tokens_of(device: str, batch: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    p = 1 / torch.arange(1, SIZES[device].vocabulary + 1)
    return torch.multinomial(p, batch * length, replacement=True, generator=generator).view(batch, length).to(device)


def measuring(
    model: nn.Module, tokens: Tensor, queries: int | None, autocast: Callable[[], Any], graph: bool = False
) -> Callable[[], None]:
    probe = Probe(model, tokens, queries=queries, graph=graph)
    count = iter(range(1 << 30))

    def measure() -> None:
        with warnings.catch_warnings(), autocast():
            warnings.simplefilter("error")  # a measurement that fails is no fast one
            probe.measure(next(count))

    return measure


def compare_times(device: str, rounds: int) -> None:
    size = SIZES[device]
    name, model = model_of(device, size.tokens)
    tokens = tokens_of(device, BATCH, size.tokens)

    def autocast() -> AbstractContextManager[Any]:
        return torch.autocast("cuda", dtype=torch.bfloat16) if device == "cuda" else nullcontext()

    def forward() -> None:
        with torch.no_grad(), autocast():
            logits_of(model, tokens)

    def all_maps() -> None:
        with autocast():
            naive(model, tokens, TokenFacts(size.vocabulary))

    what = {"training step": training_step(model, tokens, autocast, compiled=False)}
    if device == "cuda":
        what["training step, compiled"] = training_step(model, tokens, autocast, compiled=True)
    what |= {"forward pass alone": forward, "probe, 64 queries": measuring(model, tokens, 64, autocast),
             "probe, all queries": measuring(model, tokens, None, autocast), "naive probe": all_maps}  # fmt: skip
    replayed = measuring(model, tokens, 64, autocast, graph=True)
    if device == "cuda":
        replayed()  # once as it is written; the next, which does not count, records
        what["probe, 64 queries, replayed"] = replayed
    times = in_turn(what, rounds, device, processor=device == "cpu")
    if device == "cuda":
        times["a measurement among training steps"] = among_steps(
            what["training step, compiled"], what["probe, 64 queries"], rounds
        )
        times["… and replayed"] = among_steps(what["training step, compiled"], replayed, rounds)
    n = sum(p.numel() for p in model.parameters())
    print(f"{name}, {n / 1e6:.0f}M parameters, {BATCH} × {size.tokens} tokens, {torch.get_num_threads()} threads\n")
    step = statistics.median(times["training step, compiled" if device == "cuda" else "training step"])
    print("| | ms | of a training step |\n|---|---|---|")
    for name, seconds in times.items():
        low, middle, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
        print(f"| {name} | {1e3 * middle:.1f} ({1e3 * low:.1f} to {1e3 * high:.1f}) | {middle / step:.2f} |")
    least = reading(device, size)
    print(f"| reading q and k once | {1e3 * least:.2f} | {least / step:.4f} |")
    looks = ("a measurement among training steps", "… and replayed") if device == "cuda" else ("probe, 64 queries",)
    print(f"\n| steps at log:40 | measurements | of the training, {', '.join(looks)} |\n|---|---|---|")
    due = schedule("log:40")
    for steps in (10**3, 10**4, 10**5):
        measured = sum(due(i) for i in range(steps))
        costs = [100 * measured / steps * statistics.median(times[name]) / step for name in looks]
        print(f"| {steps:,} | {measured} | {', '.join(f'{cost:.2f} %' for cost in costs)} |")


def among_steps(step: Callable[[], None], measure: Callable[[], None], rounds: int) -> list[float]:
    """Seconds by which a measurement makes ten training steps longer, with and without it in turn.

    A training loop does not wait for the GPU before or after it, as a measurement that is timed alone must.
    """

    def ten(look: bool) -> None:
        for i in range(10):
            step()
            if look and i == 4:
                measure()

    times = in_turn({"without": lambda: ten(False), "with": lambda: ten(True)}, rounds, "cuda")
    return [after - before for before, after in zip(times["without"], times["with"], strict=True)]


def reading(device: str, size: Size) -> float:
    """Seconds to read the 64 queries and all keys of every layer at the speed of a copy of a large tensor."""
    wide = torch.empty(1 << 26, device=device)
    into = torch.empty_like(wide)

    def copy() -> None:
        into.copy_(wide)

    rate = 2 * wide.nbytes / statistics.median(in_turn({"copy": copy}, 5, device, processor=device == "cpu")["copy"])
    return size.layers * BATCH * size.width * (64 + size.tokens) * (2 if device == "cuda" else 4) / rate


def peak(device: str, what: str) -> float:
    """GiB at most, of a forward pass over 8192 tokens or of a measurement with all of them as queries or 64."""
    _, model = model_of(device, LONG)
    tokens = tokens_of(device, 1, LONG)
    autocast = (lambda: torch.autocast("cuda", dtype=torch.bfloat16)) if device == "cuda" else nullcontext
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    if what == "forward":
        with torch.no_grad(), autocast():
            logits_of(model, tokens)
    else:
        measuring(model, tokens, 64 if what == "64" else None, autocast)()
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # getrusage counts what the parent had, too
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 2**20  # type: ignore[index]


def compare_memory(device: str) -> None:
    print(f"\n| {LONG} tokens | peak, GiB | of the forward pass |\n|---|---|---|")
    found = {}
    for what, name in {"forward": "forward pass", "64": "probe, 64 queries", "all": "probe, all queries"}.items():
        if device == "cuda":
            found[name] = peak(device, what)
        else:  # a process never gives back its peak
            command = [sys.executable, __file__, "--peak", what, "--threads", str(torch.get_num_threads())]
            found[name] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"| {name} | {found[name]:.2f} | {found[name] / found['forward pass']:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=7, help="rounds that are timed")
    parser.add_argument("--threads", type=int, default=1, help="on a CPU")
    parser.add_argument("--memory", action="store_true", help="peaks of memory only")
    parser.add_argument("--peak", choices=["forward", "64", "all"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.peak:
        print(peak(given.device, given.peak))
        return
    if not given.memory:
        compare_times(given.device, given.steps)
    compare_memory(given.device)


if __name__ == "__main__":
    main()
