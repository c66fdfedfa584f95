"""How fast the YZ language model trains and predicts (text predict: attention uniform, Z listening), against the same
update in plain torch, on a synthetic Zipf text.

python benchmarks/yz_text.py [--device cuda] [--vocab-size 33278] [--batch 20 80 320] [--window 35]

Without arguments: a small size on the CPU. Tokens are drawn with probability ∝ 1/rank, which repeats the frequent ones
as text does. The error is that of the directions of Y and Z in one step, ‖d − d₆₄‖/‖d₆₄‖, from the same tables.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

Batch = tuple[Tensor, Tensor]


def plain_step(y: Tensor, z: Tensor, eta_y: float, eta_z: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Lemma 1 written straight down: rows gathered, batched products, index_add."""

    def step(x: Tensor, target: Tensor) -> Tensor:
        n, m = x.numel(), len(y)
        length = x.shape[1]
        keys = torch.ones(length, length, dtype=torch.bool, device=x.device).tril(-1)
        keys[0, 0] = True
        b = torch.softmax(z[x[:, :, None], x[:, None, :]].masked_fill(~keys, -torch.inf), -1)
        same = (x[:, :, None] == x[:, None, :]).to(y.dtype)
        size = (b * (b @ same)).sum(-1, keepdim=True).sqrt()
        f = b / size
        rows = y[x]
        log_alpha = torch.log_softmax(f @ rows, -1)
        loss = -log_alpha.gather(-1, target[..., None]).mean()
        e = -log_alpha.exp()
        e.scatter_add_(-1, target[..., None], torch.ones_like(size))
        e /= n
        g = e @ rows.mT
        dc = (g - (f @ same) * (f * g).sum(-1, keepdim=True)) / size
        dz = b * (dc - (b * dc).sum(-1, keepdim=True))
        y.index_add_(0, x.flatten(), (f.mT @ e).flatten(0, 1), alpha=eta_y)
        z.view(-1).index_add_(0, (x[:, :, None] * m + x[:, None, :]).flatten(), dz.flatten(), alpha=eta_z)
        return loss

    return step


def text(vocab_size: int, windows: int, length: int, n: int, device: torch.device) -> list[Batch]:
    """n batches of Zipf tokens."""
    generator = torch.Generator(device).manual_seed(0)
    edges = (1 / torch.arange(1, vocab_size + 1, dtype=torch.float64, device=device)).cumsum(0)
    u = torch.rand(n, windows, length + 1, dtype=torch.float64, device=device, generator=generator) * edges[-1]
    tokens = torch.searchsorted(edges, u).clamp_max(vocab_size - 1)
    return [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]


def speed(step: Callable[[Tensor, Tensor], Tensor], batches: list[Batch], seconds: float) -> float:
    """Tokens per second, best of five stretches."""
    device = batches[0][0].device

    def wait() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    for one in batches[:3]:
        step(*one)
    start = wait()
    step(*batches[0])
    rounds = max(1, int(seconds / 5 / max(wait() - start, 1e-6)))
    best = float("inf")
    for _ in range(5):
        start = wait()
        for i in range(rounds):
            step(*batches[i % len(batches)])
        best = min(best, (wait() - start) / rounds)
    return batches[0][0].numel() / best


def directions(settings: dict[str, Any], device: torch.device, start: dict[str, Tensor], batch: Batch) -> list[Tensor]:
    """dY and dZ of one step: the velocities after the first step of momentum."""
    model = YZTransformer(YZSettings(**{**settings, "optimizer": "momentum"}), device)
    for name, tensor in start.items():
        model.tensors()[name].copy_(tensor)
    model.train_step(*batch)
    return [model.tensors()[f"layer0.{name}.velocity"].clone() for name in "yz"]


def errors(settings: dict[str, Any], device: torch.device, batches: list[Batch]) -> dict[str, list[float]]:
    """Of each precision, after ten steps of training."""
    model = YZTransformer(YZSettings(**settings), device)
    for one in batches[:10]:
        model.train_step(*one)
    start = {name: tensor for name, tensor in model.tensors().items() if name != "step"}
    wanted = directions({**settings, "dtype": "float64"}, device, start, batches[-1])
    found = {}
    for precision in ("float32", "bf16x3", "tf32") if device.type == "cuda" else ("float32",):
        d = directions({**settings, "precision": precision}, device, start, batches[-1])
        found[precision] = [float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b))
                            for a, b in zip(d, wanted, strict=True)]  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--vocab-size", type=int, default=1000)
    parser.add_argument("--batch", type=int, nargs="+", default=[20])
    parser.add_argument("--window", type=int, default=35)
    parser.add_argument("--seconds", type=float, default=1.0, help="to time each line for")
    parser.add_argument("--variants", action="store_true", help="also layers, low rank and the other optimisers")
    given = parser.parse_args()
    device = torch.device(given.device)
    cuda = device.type == "cuda"
    m = given.vocab_size
    base: dict[str, Any] = {"vocab_size": m, "eta_y": 100.0, "eta_z": 10.0}
    adam = {"optimizer": "adam", "eta_y": 1e-2, "eta_z": 1e-2}
    names: dict[str, dict[str, Any]] = {"YZ": {}}
    if cuda:
        names |= {"YZ, bf16x3": {"precision": "bf16x3"}, "YZ, tf32": {"precision": "tf32"}}
    if given.variants:
        names |= {
            "YZ, momentum": {"optimizer": "momentum"},
            "YZ, Adam": adam,
            "YZ, residual": {"residual": "normed"},
            "YZ, rank 200, Adam": {"rank": 200, "init": "uniform", **adam},
            "YZ, 2 layers": {"layers": 2, "residual": "normed"},
            "YZ, 2 layers, rank 200, Adam": {"layers": 2, "residual": "normed", "rank": 200, "init": "uniform", **adam},
        }
        if cuda:
            names |= {"YZ, 2 layers, tf32": {"layers": 2, "residual": "normed", "precision": "tf32"}}
    print(f"device {device}, {torch.get_num_threads()} threads, M = {m}, windows of {given.window}")
    print(f"{'batch':>6s} {'model':30s} {'tokens/s':>12s} {'to plain':>9s}")
    for windows in given.batch:
        batches = text(m, windows, given.window, 40, device)
        y, z = (torch.zeros(m, m, device=device) for _ in range(2))
        step = plain_step(y, z, 100.0, 10.0)
        plain = speed(step, batches, given.seconds)
        print(f"{windows:6d} {'plain torch':30s} {plain:12,.0f} {1:9.2f}", flush=True)
        if cuda:
            torch.backends.cuda.matmul.allow_tf32 = True
            fast = speed(step, batches, given.seconds)
            torch.backends.cuda.matmul.allow_tf32 = False
            print(f"{windows:6d} {'plain torch, tf32':30s} {fast:12,.0f} {fast / plain:9.2f}", flush=True)
        del y, z, step
        for name, options in names.items():
            model = YZTransformer(YZSettings(**{**base, **options}), device)
            found = speed(model.train_step, batches, given.seconds)
            print(f"{windows:6d} {name:30s} {found:12,.0f} {found / plain:9.2f}", flush=True)
            del model
            if set(options) <= {"precision", "residual"}:  # what can listen
                model = YZTransformer(YZSettings(**{**base, **options}), device, listening=True)
                heard = speed(model.train_step, batches, given.seconds)
                line = f"{windows:6d} {name + ', predicting':30s} {heard:12,.0f} {heard / plain:9.2f}"
                print(f"{line}  ({heard / found:.2f} of training)", flush=True)
                del model
            if cuda:
                torch.cuda.empty_cache()
    for precision, (in_y, in_z) in errors(base, device, text(m, given.batch[0], given.window, 11, device)).items():
        print(f"error of the directions, {precision}: Y {in_y:.1e}, Z {in_z:.1e}")


if __name__ == "__main__":
    main()
