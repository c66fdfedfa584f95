"""``scansnap bench``: the Figure 6 sweep against the plain loop."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from scansnap.cli.console import err, out, say_json
from scansnap.cli.options import Device, Json

if TYPE_CHECKING:
    from scansnap.bench.fig6 import Result


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the runs and of the plain loop's steps.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> int:
    """Time the whole Figure 6 sweep against a plain one-hot autograd loop, in this process."""
    from scansnap.bench.fig6 import measure

    seeds, repeats, plain_runs = (1, 1, 1) if quick else (10, 3, 2)
    result = measure(device, seeds=seeds, repeats=repeats, plain_runs=plain_runs, report=lambda line: err.print(line))
    if as_json:
        totals = {name: getattr(result, name) for name in ("seconds", "plain_seconds", "speedup")}
        say_json(asdict(result) | totals)
    else:
        _tell(result)
    return 0


def _tell(result: Result) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("Syn-Medium", "M", "runs", "scansnap (s)", "plain loop (s)", "faster", "entropy", "plain"):
        table.add_column(name, justify="right")
    for size in result.sizes:
        times = f"{size.seconds:.3f}", f"{size.plain_seconds:.0f}", f"{size.speedup:.0f}×"
        entropies = f"{size.entropy:.3f}", f"{size.plain_entropy:.3f}"
        table.add_row(str(size.n_queries), str(size.vocab_size), str(size.runs), *times, *entropies)
    table.add_row("all", "", str(sum(size.runs for size in result.sizes)), f"{result.seconds:.3f}",
                  f"{result.plain_seconds:.0f}", f"{result.speedup:.0f}×")  # fmt: skip
    out.print(table)
    out.print(
        f"{result.device}, {result.threads} threads, peak memory {result.peak_bytes / 1e9:.2f} GB. "
        "The plain loop ran on a sample and is scaled up; entropies are of those runs (their data differ)."
    )
