"""``scansnap bench``: the Figure 6 sweep, or very many runs of one size, against a plain loop."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from scansnap.cli.console import duration, new_table, out, print_json, progress_bar
from scansnap.cli.options import Device, Json

if TYPE_CHECKING:
    from scansnap.cli.benchmark import BenchResult


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Time a tenth of the runs, once.")] = False,
    runs: Annotated[int | None, typer.Option(help="Time this many runs of one size instead of the sweep.")] = None,
    queries: Annotated[int, typer.Option(help="With --runs: the number of queries of Syn-Medium.", min=1)] = 10,
    device: Device = "auto",
    as_json: Json = False,
) -> int:
    """Time the 640 runs of Figure 6 against a plain loop.

    Both run in this process. The plain loop uses autograd and trains a sample of the runs; its time is scaled up.
    """
    from scansnap.cli.benchmark import PAIRS, measure

    with progress_bar("runs") as progress:
        if runs is not None:
            result = measure(runs, (queries,), device, progress=progress)
        else:
            seeds, repeats, plain_runs = (1, 1, 1) if quick else (10, 3, 2)
            result = measure(seeds * PAIRS, device=device, repeats=repeats, plain_runs=plain_runs, progress=progress)
    if as_json:
        totals = ("runs", "seconds", "plain_seconds", "speedup", "runs_per_second")
        print_json(asdict(result) | {name: getattr(result, name) for name in totals})
    else:
        _print(result)
    return 0


def _print(result: BenchResult) -> None:
    columns = ("Syn-Medium", "M", "runs", "scansnap (s)", "plain loop", "faster", "entropy", "plain")
    table = new_table(*columns, right=columns)
    for size in result.sizes:
        times = f"{size.seconds:.3f}", duration(size.plain_seconds), f"{size.speedup:,.0f}×"
        entropies = f"{size.entropy:.3f}", f"{size.plain_entropy:.3f}"
        table.add_row(str(size.n_queries), str(size.vocab_size), f"{size.runs:,}", *times, *entropies)
    if len(result.sizes) > 1:
        table.add_row("all", "", f"{result.runs:,}", f"{result.seconds:.3f}", duration(result.plain_seconds),
                      f"{result.speedup:,.0f}×")  # fmt: skip
    out.print(table)
    flop = sum(size.flop * size.runs for size in result.sizes) / result.seconds
    peak = "unknown" if result.peak_bytes is None else f"{result.peak_bytes / 1e9:.2f} GB"
    out.print(f"{result.device}, {result.threads} threads, {result.runs_per_second:,.0f} runs/s, "
              f"{flop / 1e12:.3g} TFLOP/s, peak memory {peak}.")  # fmt: skip
    if result.flop_limit is not None and result.memory_limit is not None:
        out.print(
            f"Limits of this device: {result.flop_limit:.2f} s for the arithmetic in float32, "
            f"{result.memory_limit:.2f} s for the tables through shared memory."
        )
    out.print("Entropies: at η_Z = 1, η_Y/η_Z = 2, of as many runs as the plain loop trained (the data differ).")
