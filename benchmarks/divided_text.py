"""What it costs to divide the batches of a training on text, into parts and over processes, against plain updates in
the same process, and how many bytes a step exchanges.

python benchmarks/divided_text.py [--device cuda] [--vocab-size 33278] [--batch 20] [--parts 4]
torchrun --nproc-per-node 2 benchmarks/divided_text.py ...

Without arguments: a small size on the CPU, on a synthetic Zipf text. A plain update is train_step on the whole batch by
one process. The loop is scansnap.text.train.train with nothing to measure. The difference is the largest of the losses
of ten steps from those of plain updates.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scansnap.text.model import LanguageModel
from scansnap.text.parallel.group import Group, joined
from scansnap.text.parallel.step import divided_step
from scansnap.text.train import train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings

Step = Callable[[Tensor, Tensor], Tensor]
CHECKED = 10  # steps whose losses are compared


def text(vocab_size: int, tokens: int) -> Tensor:
    """Tokens drawn with probability ∝ 1/rank, which repeats the frequent ones as text does."""
    edges = (1 / torch.arange(1, vocab_size + 1, dtype=torch.float64)).cumsum(0)
    u = torch.rand(tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * edges[-1]
    return torch.searchsorted(edges, u).clamp_max(vocab_size - 1).int()


def tokens_per_second(step: Step, batches: list[tuple[Tensor, Tensor]], seconds: float, group: Group | None) -> float:
    """The best of five stretches; all processes make the same number of steps."""

    def stretch(n: int) -> float:
        start = _now(batches)
        for i in range(n):
            step(*batches[i % len(batches)])
        return _now(batches) - start

    stretch(3)  # compiles, records
    n = max(1, int(seconds / 5 / max(stretch(2) / 2, 1e-6)))
    n = n if group is None else group.told(n)
    return batches[0][0].numel() * n / min(stretch(n) for _ in range(5))


def _now(batches: list[tuple[Tensor, Tensor]]) -> float:
    if batches[0][0].is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--vocab-size", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--length", type=int, default=35)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="to time each line for")
    parser.add_argument("--loop", type=int, default=100, help="steps of the training loop")
    parser.add_argument("--float64", action="store_true", help="weights in float64")
    given = parser.parse_args()
    with joined() as group:
        device = torch.device(given.device) if group is None else group.device(given.device)
        for name, build in models(given, device).items():
            measure(name, build, given, device, group)


def models(given: argparse.Namespace, device: torch.device) -> dict[str, Callable[[], LanguageModel]]:
    """The defaults of the command line."""
    m, cuda = given.vocab_size, device.type == "cuda"
    low = cuda and not given.float64
    kind = {"dtype": "float64" if given.float64 else "float32"}
    eta = {"eta_y": 300.0, "eta_z": 30.0} if m > 10_000 else {"eta_y": 100.0, "eta_z": 10.0}
    wide: dict[str, Any] = {"precision": "bf16x3" if low else "float32", "residual": "normed", **eta, **kind}
    plain: dict[str, Any] = {"precision": "bf16" if low else "float32", **kind}
    return {"transformer": lambda: Transformer(TransformerSettings(m, **plain), device),
            "YZ": lambda: YZTransformer(YZSettings(m, **wide), device)}  # fmt: skip


def measure(
    name: str,
    build: Callable[[], LanguageModel],
    given: argparse.Namespace,
    device: torch.device,
    group: Group | None,
) -> None:
    speaks = group is None or group.first
    stream = text(given.vocab_size, given.batch * (given.length * 40 + 1)).to(device)
    columns = stream.view(given.batch, -1).long()
    batches = [(columns[:, i : i + given.length].contiguous(), columns[:, i + 1 : i + 1 + given.length].contiguous())
               for i in range(0, given.length * 40, given.length)]  # fmt: skip
    ways: dict[str, Callable[[LanguageModel], Step]] = {
        "plain updates": lambda model: model.train_step,
        f"in {given.parts} parts": lambda model: lambda x, n: divided_step(model, x, n, given.parts),
    }
    if group is not None:
        ways[f"{group.size} processes"] = lambda model: lambda x, n: divided_step(model, x, n, 1, group)
    first: Tensor | None = None
    plain = 0.0
    for way, make in ways.items():
        model = build()
        step = make(model)
        losses = torch.stack([step(*batch).double().cpu() for batch in batches[:CHECKED]])
        before, steps = (0, 0) if group is None else (group.received, int(model.tensors()["step"]))
        speed = tokens_per_second(step, batches, given.seconds, group)
        first, plain = (losses, speed) if first is None else (first, plain)
        line = f"{name:12s} {way:16s} {speed:12,.0f} tokens/s {speed / plain:6.2f} of plain"
        line += f", differs by {float((losses - first).abs().max()):.0e}"
        if group is not None and group.received > before:
            mine = (group.received - before) / (int(model.tensors()["step"]) - steps)
            weights = sum(t.nbytes for key, t in model.tensors().items() if key != "step")
            whole = 2 * weights * (group.size - 1) / group.size
            line += f"; {mine / 1e6:,.2f} MB received in a step, {whole / 1e6:,.2f} for whole gradients"
        if speaks:
            print(line, flush=True)
        del model, step
    done = train(build(), stream.cpu(), steps=given.loop, batch=given.batch, length=given.length, group=group)
    if speaks:
        found = done.tokens_per_second_of_updates
        print(f"{name:12s} {'the loop':16s} {found:12,.0f} tokens/s {found / plain:6.2f} of plain")


if __name__ == "__main__":
    main()
