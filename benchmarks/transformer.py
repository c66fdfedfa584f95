"""Our transformer against plain torch: ``python benchmarks/transformer.py [--device cuda] [--steps 20]``.

The plain loop is the classic word language model as one would write it: torch's encoder layer, sinusoidal positions,
a linear decoder, cross-entropy, gradient-norm clip, SGD. Both train on the same synthetic Zipf stream with the
vocabulary of WikiText-2, in the paper's setting (1 layer, d = 200, 20 windows of 35 tokens, lr 5, clip 0.5), in the
same process; the plain loop as it is and with torch.compile and a fused optimiser, in each precision that ours has
(bf16 by autocast). Ours is compared with the plain loop in float32 and with the best plain one of its own precision.

With ``--compare N`` the losses of N steps are compared first, from the same weights. (At this rate training is
chaotic: a rounding error grows tenfold every four steps or so. Steps are therefore compared in float64, means else.)
"""

from __future__ import annotations

import argparse
import math
from functools import partial
from itertools import cycle, islice

import numpy as np
import torch
from torch import Tensor, nn

from scansnap.text.cuda import matmul_precision
from scansnap.text.transformer.draws import Dropout
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings
from timing import Batch, Step, in_turn

M, BATCH, LENGTH, WIDTH, ETA, CLIP = 33278, 20, 35, 200, 5.0, 0.5


class PlainModel(nn.Module):
    """Embedding, positions, one encoder layer, decoder."""

    def __init__(self, dropout: float, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(M, WIDTH)
        rate = torch.exp(torch.arange(0, WIDTH, 2).double() * (-math.log(10000.0) / WIDTH))
        at = torch.arange(LENGTH).double()[:, None] * rate
        self.register_buffer("positions", torch.stack([at.sin(), at.cos()], -1).flatten(1))
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(WIDTH, 1, WIDTH, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.decoder = nn.Linear(WIDTH, M)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.embedding(inputs) * math.sqrt(WIDTH) + self.positions
        return self.decoder(self.encoder(self.dropout(x), self.mask, is_causal=True))


def plain_step(model: PlainModel, compiled: str | None = None, precision: str = "float32") -> Step:
    """As one would write it; ``compiled`` is a mode of torch.compile for forward pass, loss and their gradients.

    precision  of products; bf16 by autocast, weights in float32
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=ETA, fused=compiled is not None)

    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(inputs).view(-1, M), targets.reshape(-1))

    if compiled is not None:
        loss_of = torch.compile(loss_of, mode=compiled)

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        with matmul_precision(inputs.device, precision):
            with torch.autocast(inputs.device.type, torch.bfloat16, enabled=precision == "bf16"):
                loss = loss_of(inputs, targets)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.detach().clone()

    return step


def layers_alone(model: Transformer) -> Step:
    """Our layers forward and backward, from embeddings to the decoder's input, for a gradient of ones."""
    flat = model.weights["layers"].detach().requires_grad_()

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        e = model.weights["embedding"][inputs].requires_grad_()
        drop = Dropout(model.settings, inputs.shape, model.generator, model.device)
        x = model.forward(e, flat, drop)
        return torch.autograd.grad(x, (e, flat), torch.ones_like(x))[1][0]

    return step


def plain_layers_alone(model: PlainModel, compiled: str | None = None) -> Step:
    """The same of torch's encoder layer."""
    weights = list(model.encoder.parameters())

    def states(e: Tensor) -> Tensor:
        x = model.dropout(e * math.sqrt(WIDTH) + model.get_buffer("positions"))
        return model.encoder(x, model.mask, is_causal=True)

    if compiled is not None:
        states = torch.compile(states, mode=compiled)

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        e = model.embedding.weight[inputs].detach().requires_grad_()
        x = states(e)
        return torch.autograd.grad(x, (e, *weights), torch.ones_like(x))[1].flatten()[0].clone()

    return step


def same_weights(plain: PlainModel, ours: Transformer) -> None:
    """Give the plain model the weights of ours."""
    w = ours.tensors()
    state: dict[str, Tensor] = {}
    names = {"self_attn.in_proj_weight": "w_qkv", "self_attn.in_proj_bias": "b_qkv", "self_attn.out_proj.weight": "w_o",
             "self_attn.out_proj.bias": "b_o", "linear1.weight": "w_1", "linear1.bias": "b_1", "linear2.weight": "w_2",
             "linear2.bias": "b_2", "norm1.weight": "norm1_gain", "norm1.bias": "norm1_shift",
             "norm2.weight": "norm2_gain", "norm2.bias": "norm2_shift"}  # fmt: skip
    for i in range(ours.layers):
        state |= {f"encoder.layers.{i}.{theirs}": w[f"layer{i}.{mine}"] for theirs, mine in names.items()}
    state |= {"embedding.weight": w["embedding"], "decoder.weight": w["decoder"], "decoder.bias": w["decoder_bias"]}
    state |= {"positions": plain.get_buffer("positions"), "mask": plain.get_buffer("mask")}
    plain.load_state_dict(state)


def batches(steps: int, device: torch.device) -> list[Batch]:
    """Windows of a stream; half of the time a word follows its predecessor by a fixed rule, which can be learnt."""
    rng = np.random.default_rng(0)
    p = 1 / np.arange(1, M + 1)
    drawn = rng.choice(M, size=(BATCH, steps * LENGTH + 1), p=p / p.sum())
    follows = rng.random(drawn.shape) < 0.5
    for t in range(1, drawn.shape[1]):
        drawn[:, t] = np.where(follows[:, t], (drawn[:, t - 1] * 7 + 3) % 1000, drawn[:, t])
    stream = torch.from_numpy(drawn).to(device)
    return [(stream[:, i : i + LENGTH].contiguous(), stream[:, i + 1 : i + LENGTH + 1].contiguous())
            for i in range(0, steps * LENGTH, LENGTH)]  # fmt: skip


def losses(step: Step, data: list[Batch]) -> np.ndarray:
    return torch.stack([step(*batch) for batch in data]).double().cpu().numpy()


def seconds_per_step(steps: dict[str, Step], data: list[Batch]) -> dict[str, np.ndarray]:
    """By round: a batch each on a CPU, seven times all batches on CUDA (the clock waits for the device)."""
    device = data[0][0].device
    for step in steps.values():
        for batch in data[:5]:  # compiles, records
            step(*batch)
    batches = {name: cycle(data) for name in steps}
    many = len(data) if device.type == "cuda" else 1

    def work(name: str) -> None:
        for batch in islice(batches[name], many):
            steps[name](*batch)

    rounds = 7 if device.type == "cuda" else len(data)
    times = in_turn({name: partial(work, name) for name in steps}, rounds, device, warm_up=0)
    return {name: np.array(seconds) / many for name, seconds in times.items()}


def settings(dropout: float, precision: str = "float32", dtype: str = "float32") -> TransformerSettings:
    return TransformerSettings(
        M, dropout=dropout, eta=ETA, clip=CLIP, width=WIDTH, feed_forward=WIDTH, precision=precision, dtype=dtype
    )


def compare(steps: int, device: torch.device) -> None:
    """Losses of both from the same weights: step by step in float64 without dropout, else means of the second half."""
    data = batches(steps, device)
    for dropout, dtype in ((0.0, torch.float64), (0.0, torch.float32), (0.2, torch.float32)):
        ours = Transformer(settings(dropout, dtype=str(dtype).removeprefix("torch.")), device)
        plain = PlainModel(dropout).to(device, dtype)
        same_weights(plain, ours)
        torch.manual_seed(1)
        theirs, mine = losses(plain_step(plain), data), losses(ours.train_step, data)
        print(f"dropout {dropout}, {str(dtype)[6:]}: first loss {theirs[0]:.6f} plain, {mine[0]:.6f} ours; second half "
              f"{theirs[steps // 2 :].mean():.3f} and {mine[steps // 2 :].mean():.3f}", flush=True)  # fmt: skip
        if dtype == torch.float64:
            apart = [f"{np.abs(theirs - mine)[:k].max():.0e} in {k}" for k in (3, 10, 30, steps) if k <= steps]
            print(f"    largest difference of a step: {', '.join(apart)} steps", flush=True)
        else:
            low = losses(Transformer(settings(dropout, "bf16"), device).train_step, data)
            print(f"    bf16: first loss {low[0]:.6f}, second half {low[steps // 2 :].mean():.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Check and time the transformer against a plain loop.")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2, help="threads on a CPU")
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out")
    parser.add_argument("--compare", type=int, default=0, help="steps whose losses are compared first")
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.set_num_threads(given.threads)
    precisions = ("float32", "bf16") if device.type == "cpu" else ("float32", "tf32", "bf16")
    print(f"device {device}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    if given.compare:
        compare(given.compare, device)
    data = batches(given.steps, device)

    def plain() -> PlainModel:
        return PlainModel(0.2).to(device, torch.float32)

    modes = {"": None} | ({} if given.eager else {", compiled": "default"})
    if device.type == "cuda" and not given.eager:
        modes[", compiled, graphs"] = "reduce-overhead"
    report("a step", {
        f"plain{name}, {precision}": plain_step(plain(), mode, precision)
        for precision in precisions for name, mode in modes.items()
    } | {f"ours, {precision}": Transformer(settings(0.2, precision), device).train_step
         for precision in precisions}, data)  # fmt: skip
    report("the layers alone, forward and backward", {
        f"plain{name}, float32": plain_layers_alone(plain(), mode) for name, mode in modes.items()
    } | {"ours, float32": layers_alone(Transformer(settings(0.2), device))}, data)  # fmt: skip


def report(what: str, candidates: dict[str, Step], data: list[Batch]) -> None:
    """Median and quartiles by candidate, and how many times as fast it is, round by round: as the first, and as the
    fastest plain one of the same precision."""
    spent = seconds_per_step(candidates, data)
    first = next(iter(spent.values()))
    print(f"{what}: median (quartiles), tokens/s, times as fast as the first (quartiles), as the best plain one alike")
    for name, seconds in spent.items():
        low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75)) * 1e3
        least, times, most = np.quantile(first / seconds, (0.25, 0.5, 0.75))
        alike = [
            one for other, one in spent.items() if other.startswith("plain") and other.endswith(name.split(", ")[-1])
        ]
        best = min(alike, key=lambda one: float(np.median(one)))
        print(f"  {name:34s} {middle:9.3f} ms ({low:.3f} to {high:.3f}) {BATCH * LENGTH / middle * 1e3:12,.0f} "
              f"{times:6.2f} ({least:.2f} to {most:.2f}) {np.median(best / seconds):6.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
