"""What it costs to divide the batches of a transformer, into parts and over processes, against plain updates.

python benchmarks/divided_text.py [--device cuda] [--vocab-size 33278] [--batch 20] [--parts 4]
torchrun --nproc-per-node 2 benchmarks/divided_text.py ...

Without arguments: a small size on the CPU, on a synthetic Zipf text. A plain update is train_step on the whole batch by
one process. The difference is the largest of the losses of ten steps from those of plain updates, without dropout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from scansnap.text.distributed import DividedUpdate, World, joined
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from timing import Step, tokens_per_second, zipf_tokens

COMPARED = 10  # steps whose losses are compared


def agreed(n: int) -> int:
    """All processes make the same number of steps."""
    steps = torch.tensor(n)
    if dist.is_initialized():
        dist.broadcast(steps, 0)
    return int(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--vocab-size", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--length", type=int, default=35)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="to time each line for")
    options = parser.parse_args()
    with joined() as world:
        device = torch.device(options.device) if world is None else world.device(options.device)
        measure(options, device, world)


def measure(options: argparse.Namespace, device: torch.device, world: World | None) -> None:
    length = options.length
    stream = zipf_tokens(options.vocab_size, (options.batch * (length * 40 + 1),)).int().to(device)
    columns = stream.view(options.batch, -1).long()
    batches = [(columns[:, i : i + length].contiguous(), columns[:, i + 1 : i + 1 + length].contiguous())
               for i in range(0, length * 40, length)]  # fmt: skip
    precision = "bf16" if device.type == "cuda" else "float32"
    steps: dict[str, Callable[[Transformer], Step]] = {
        "plain updates": lambda model: model.train_step,
        f"in {options.parts} parts": lambda model: DividedUpdate(model, options.parts, None),
    }
    if world is not None:
        steps[f"{world.size} processes"] = lambda model: DividedUpdate(model, 1, world)
    plain: tuple[Tensor, float] | None = None
    for name, make in steps.items():
        step = make(Transformer(TransformerSettings(options.vocab_size, dropout=0.0, precision=precision), device))
        losses = torch.stack([step(*batch).double().cpu() for batch in batches[:COMPARED]])
        speed = tokens_per_second(step, batches, options.seconds, agreed)
        plain = plain or (losses, speed)
        if world is None or world.is_main:
            difference = float((losses - plain[0]).abs().max())
            print(f"{name:16s} {speed:12,.0f} tokens/s {speed / plain[1]:6.2f} of plain, differs by {difference:.0e}",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
