"""``scansnap bench``: the Figure 6 sweep, or very many runs, against the plain loop."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from scansnap.cli.console import duration, err, out, progress_bar, say_json
from scansnap.cli.options import Device, Json

if TYPE_CHECKING:
    from scansnap.bench.fig6 import Result
    from scansnap.bench.many import Result as Many


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the runs and of the plain loop's steps.")] = False,
    runs: Annotated[int | None, typer.Option(help="Not the sweep but so many runs of one size: say 1000000.")] = None,
    queries: Annotated[int, typer.Option(help="With --runs: the size of Syn-Medium.", min=1)] = 10,
    device: Device = "auto",
    as_json: Json = False,
) -> int:
    """Time the whole Figure 6 sweep, or very many runs, against a plain one-hot autograd loop, in this process."""
    if runs is not None:
        return _many(runs, queries, device, as_json)
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
        f"{result.device}, {result.threads} threads, {_peak(result.peak_bytes)}. "
        "The plain loop ran on a sample and is scaled up; entropies are of those runs (their data differ)."
    )


def _many(runs: int, queries: int, device: str, as_json: bool) -> int:
    from scansnap.bench.many import measure

    with progress_bar("runs") as progress:
        result = measure(runs, device, queries, progress=progress)
    if as_json:
        say_json(asdict(result) | {name: getattr(result, name) for name in ("runs_per_second", "speedup")})
    else:
        _tell_many(result)
    return 0


def _tell_many(result: Many) -> None:
    rate = result.flop * result.runs_per_second
    out.print(
        f"{result.runs:,} runs of Syn-Medium({result.n_queries}), M = {result.vocab_size}, in {result.seconds:.2f} s: "
        f"{result.runs_per_second:,.0f} runs/s, {rate / 1e12:.3g} TFLOP/s ({result.flop / 1e6:.0f} MFLOP a run), "
        f"{_peak(result.peak_bytes)}. {result.device}."
    )
    if result.flop_limit is not None and result.memory_limit is not None:
        out.print(
            f"Limits of this device: {result.flop_limit:.2f} s for the arithmetic in float32, "
            f"{result.memory_limit:.2f} s for the tables through shared memory."
        )
    out.print(
        f"The plain loop would take {duration(result.plain_seconds)} ({result.speedup:,.0f} times as long), scaled up "
        f"from {result.plain_runs} of its runs. Mean entropy of all runs {result.entropy:.3f}; "
        f"at η_Z = 1, ratio 2 ours {result.same_entropy:.3f}, plain {result.plain_entropy:.3f} (their data differ)."
    )


def _peak(n: int | None) -> str:
    return "peak memory not known on this system" if n is None else f"peak memory {n / 1e9:.2f} GB"
