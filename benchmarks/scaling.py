"""Cost against runs, steps, batch, support and T: prints a Markdown table, draws benchmarks/scaling.png.

python benchmarks/scaling.py [--device cuda] [--seeds 100]

With ``--seeds`` only T varies: four runs of Syn-Medium(5) for each seed, the lengths in turn, in processor time of one
core, beside that of T = 128.

One axis grows at a time, all else as in BASE. The exponent is the slope in the log-log plot over the upper half, where
fixed costs no longer show.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch

from scansnap.classes import SequenceClasses
from scansnap.dynamics.simulate import simulate
from scansnap.plots.style import SERIES, save_figure, styled
from scansnap.runs import grid
from timing import best_seconds, in_turn

BASE = {"runs": 64, "steps": 100, "batch": 128, "support": 20, "context": 128}
AXES: dict[str, tuple[int, ...]] = {
    "runs": (16, 32, 64, 128, 256, 512),
    "steps": (25, 50, 100, 200, 400, 800),
    "batch": (32, 64, 128, 256, 512, 1024),
    "support": (20, 40, 80, 160, 320),
    "context": (16, 128, 1_000, 10_000, 100_000, 1_000_000),
}
SEEDS = 8  # as many data streams at every number of runs


def train(*, runs: int, steps: int, batch: int, support: int, context: int, device: str) -> None:
    # few next tokens, and the outputs only these, so that the support alone varies
    classes = SequenceClasses.synthetic(n_queries=2, next_per_query=2, common=support // 2, distinct=support // 2)
    rates = grid(eta_z=np.linspace(0.5, 2, runs // SEEDS), eta_y=1.0, seed=range(SEEDS))
    simulate(classes, rates, steps=steps, batch_size=batch, context=context, momentum=0.9, init="uniform",
             outputs="next", record=[steps], variables=["entropy"], device=device)  # fmt: skip


def measure(axis: str, device: str) -> list[float]:
    """Seconds at each value of the axis."""
    return [
        best_seconds(partial(train, **BASE | {axis: value}, device=device), device, 3, processor=False)
        for value in AXES[axis]
    ]


def lengths(n_seeds: int, device: str, rounds: int = 3) -> None:
    """Print the cost of each T with many seeds, where drawing the counts costs most."""
    torch.set_num_threads(1)
    classes = SequenceClasses.syn_medium(5)
    runs = grid(eta_z=[0.5, 1.0, 2.0, 3.0], ratio=2.0, seed=range(n_seeds), momentum=0.9)
    works = {str(length): partial(simulate, classes, runs, steps=100, batch_size=128, context=length, init="uniform",
                                  record=[100], variables=["entropy"], device=device)
             for length in AXES["context"]}  # fmt: skip
    best = {name: min(times) for name, times in in_turn(works, rounds, device).items()}
    print("| T | processor s | to T = 128 |\n|---|---|---|")
    for name, seconds in best.items():
        print(f"| {int(name):,} | {seconds:.2f} | {seconds / best['128']:.2f} |")


def exponent(axis: str, seconds: list[float]) -> float:
    half = len(seconds) // 2
    return float(np.polyfit(np.log(AXES[axis][half:]), np.log(seconds[half:]), 1)[0])


def draw(lines: dict[str, list[float]], path: Path) -> None:
    """One panel for each axis; a grey line shows exact proportionality."""
    with styled(11, 2.6) as figure:
        panels = figure.subplots(1, len(lines), sharey=True)
        for ax, (axis, seconds), colour in zip(panels, lines.items(), SERIES, strict=False):
            values = np.array(AXES[axis])
            ax.loglog(values, seconds, "o-", color=colour, markersize=4)
            if axis != "context":
                ax.loglog(values, seconds[-1] * values / values[-1], color="0.75", zorder=0)
            ax.set(xlabel={"context": "length T", "support": "tokens per class"}.get(axis, axis))
            ax.set_title(f"exponent {exponent(axis, seconds):.2f}" if axis != "context" else "no growth with T")
            ax.set_xticks(values[[0, -1]], [f"{value:,}" for value in values[[0, -1]]])
            ax.set_yticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
            ax.minorticks_off()
        figure.axes[0].set_ylabel("seconds")
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, help="only T varies, with so many seeds")
    options = parser.parse_args()
    device = options.device
    if options.seeds:
        lengths(options.seeds, device)
        return
    train(**BASE, device=device)  # warm-up
    lines = {axis: measure(axis, device) for axis in AXES}
    print("| axis | " + " | ".join(f"{i + 1}" for i in range(6)) + " | exponent |\n|---|" + "---|" * 7)
    for axis, seconds in lines.items():
        cells = [f"{v:,}: {s:.3f} s" for v, s in zip(AXES[axis], seconds, strict=True)]
        cells += [""] * (6 - len(cells))
        print(f"| {axis} | " + " | ".join(cells) + f" | {exponent(axis, seconds):.2f} |")
    draw(lines, Path(__file__).with_name("scaling.png"))


if __name__ == "__main__":
    main()
