"""How fast the YZ language model trains and predicts (text predict: with uniform attention), against the same
model in plain torch (plain_yz.py), on a synthetic Zipf text.

python benchmarks/yz_text.py [--device cuda] [--vocab-size 33278] [--batch 20 80 320] [--window 35]
                             [--models layer stacked rank rules] [--compiled]

Without arguments: one layer of a small size on the CPU, in processor time. Tokens are drawn with probability ∝ 1/rank,
which repeats the frequent ones as text does. Every line is compared with the plain loop of its own model: as it comes,
and with --compiled after torch.compile; in float32 and, on CUDA, with tf32 products. The error is that of the
directions of Y and Z in one step, ‖d − d₆₄‖/‖d₆₄‖, from the same tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from plain_yz import Step, by_autograd, one_layer
from scansnap.text.cuda import GraphedSteps
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings
from timing import Batch, tokens_per_second, zipf_tokens


def batches_of(vocab_size: int, windows: int, length: int, n: int, device: torch.device) -> list[Batch]:
    tokens = zipf_tokens(vocab_size, (n, windows, length + 1), device)
    return [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]


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


ADAM = {"optimizer": "adam", "eta_y": 1e-2, "eta_z": 1e-2}
RANK = {"rank": 200, "init": "uniform", **ADAM}
DEEP = {"residual": "normed"}
MODELS: dict[str, dict[str, dict[str, Any]]] = {  # by what --models names
    "layer": {"1 layer": {}},
    "stacked": {"2 layers": {"layers": 2, **DEEP}},
    "rank": {"rank 200, Adam": RANK, "2 layers, rank 200, Adam": {"layers": 2, **DEEP, **RANK}},
    "rules": {"1 layer, residual": DEEP, "1 layer, momentum": {"optimizer": "momentum"}, "1 layer, Adam": ADAM},
}
# no plain form, or one as slow as that of the model before
ALONE = ("1 layer, residual", "1 layer, momentum")


def lines(
    name: str, options: dict[str, Any], batches: list[Batch], m: int, device: torch.device, given: argparse.Namespace
) -> Iterator[tuple[str, float]]:
    """Tokens per second of a model: plain ones, then ours, by precision."""
    cuda = device.type == "cuda"
    if name not in ALONE:
        for tf32, compiled in product(
            (False, True) if cuda else (False,), (False, True) if given.compiled else (False,)
        ):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            how = f"plain{', compiled' if compiled else ''}{', tf32' if tf32 else ''}"
            for kind, step in plain_steps(options, m, device, compiled):
                yield how + kind, tokens_per_second(step, batches, given.seconds)
                del step
                torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = False
    for precision in ("float32", "bf16x3", "tf32") if cuda else ("float32",):
        settings = YZSettings(**{"vocab_size": m, "eta_y": 100.0, "eta_z": 10.0, "precision": precision, **options})
        yield (
            f"ours, {precision}",
            tokens_per_second(YZTransformer(settings, device).train_step, batches, given.seconds),
        )
        if name == "1 layer":
            predicting = YZTransformer(settings, device, uniform_attention=True)
            yield f"ours, {precision}, predicting", tokens_per_second(predicting.train_step, batches, given.seconds)
            del predicting
        torch.cuda.empty_cache()


def plain_steps(options: dict[str, Any], m: int, device: torch.device, compiled: bool) -> Iterator[tuple[str, Step]]:
    """The plain loops of a model; one layer by SGD is written out, and replayed as a graph too where it is compiled."""
    if options:
        known = {key: options[key] for key in ("layers", "rank", "optimizer") if key in options}
        yield "", by_autograd(m, device, compiled, **known)
        return
    y, z = (torch.zeros(m, m, device=device) for _ in range(2))
    step = one_layer(y, z, 100.0, 10.0)
    step = torch.compile(step) if compiled else step
    yield "", step
    if compiled and device.type == "cuda":
        yield ", graphs", partial(GraphedSteps(device, graphs=True).run, step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="on a CPU")
    parser.add_argument("--vocab-size", type=int, default=1000)
    parser.add_argument("--batch", type=int, nargs="+", default=[20])
    parser.add_argument("--window", type=int, default=35)
    parser.add_argument("--seconds", type=float, default=1.0, help="to time each line for")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["layer"])
    parser.add_argument("--compiled", action="store_true", help="also torch.compile on the plain loops")
    given = parser.parse_args()
    device, m = torch.device(given.device), given.vocab_size
    torch.set_num_threads(given.threads)
    print(f"device {device}, {given.threads} threads, torch {torch.__version__}, M = {m}, windows of {given.window}")
    print(f"{'batch':>6s} {'model':26s} {'':30s} {'tokens/s':>12s} {'to plain':>9s} {'to best plain':>13s}")
    for windows in given.batch:
        batches = batches_of(m, windows, given.window, 40, device)
        for name, options in {name: one for group in given.models for name, one in MODELS[group].items()}.items():
            found: dict[str, float] = {}
            try:
                for how, tokens in lines(name, options, batches, m, device, given):
                    found[how] = tokens
                    low = [t for k, t in found.items() if k.startswith("plain") and ("tf32" in k) == ("tf32" in how)]
                    low = low or [float("nan")]
                    print(f"{windows:6d} {name:26s} {how:30s} {tokens:12,.0f} {tokens / low[0]:9.2f} "
                          f"{tokens / max(low):13.2f}", flush=True)  # fmt: skip
            except torch.OutOfMemoryError:
                print(f"{windows:6d} {name:26s} does not fit the memory", flush=True)
    for precision, (in_y, in_z) in errors(
        {"vocab_size": m, "eta_y": 100.0, "eta_z": 10.0},
        device,
        batches_of(m, given.batch[0], given.window, 11, device),
    ).items():
        print(f"error of the directions, {precision}: Y {in_y:.1e}, Z {in_z:.1e}")


if __name__ == "__main__":
    main()
