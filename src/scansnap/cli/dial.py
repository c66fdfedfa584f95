"""``scansnap dial``: rungs from the paper's model to a transformer, measured at equal effective rates."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from scansnap.cli.console import err, out, progress_bar, say_json
from scansnap.cli.options import Device, Json, Overwrite
from scansnap.interrupt import working

STYLE = {"holds": "green", "fails": "red", "undecided": "yellow", "measured": "dim", "no rates": "magenta",
         "diverged": "magenta", "clock not met": "magenta"}  # fmt: skip


def dial(
    rung: Annotated[
        list[str] | None, typer.Option(help="A rung by name or number: norm, norm:none, 6. [default: all]")
    ] = None,
    way: Annotated[list[str] | None, typer.Option(help="alone, cumulative, without or control. [default: all]")] = None,
    optimizer: Annotated[list[str] | None, typer.Option(help="sgd, adamw, … [default: those of the rung]")] = None,
    data: Annotated[str, typer.Option(help="syn-medium, zipf (p_n ∝ 1/n) or textbook.")] = "syn-medium",
    target: Annotated[
        Path, typer.Option("--out", help="The folder for dial.csv, .json, .md, .png and .pdf, and the cells.")
    ] = Path("out/dial"),
    quick: Annotated[
        bool, typer.Option("--quick", help="3 seeds, shorter runs and contexts, first choices only.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="Paired seeds. [default: 10, quick 3]")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes. [default: one a core; 4 with a GPU]")] = None,
    device: Device = "auto",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Give up the paper's assumptions one at a time and see what survives, from the YZ model to a transformer.

    Every rung runs at the same effective rates (kernel clock or loss clock). It can be stopped at any time: finished
    cells are in --out, and the same command does the rest.
    """
    from scansnap.dial.observables import OBSERVABLES
    from scansnap.dial.study import chosen
    from scansnap.dial.study import dial as measure
    from scansnap.dynamics.device import pick_device
    from scansnap.storage import claimed

    began, place = time.monotonic(), pick_device(device)
    cells = chosen(rung, way, optimizer, quick=quick, data=data)  # a misspelt name is refused before anything is made
    n_jobs = jobs if jobs is not None else (os.cpu_count() or 1) if place.type == "cpu" else 4
    taken = 0

    def tell(done: int, total: int) -> None:
        nonlocal taken
        taken = taken or done
        bar(done, total, taken)

    try:
        with claimed("--out", target), progress_bar("cells") as bar, working():
            found = measure(rung, way, optimizer, quick=quick, seeds=seeds, data=data, out=target, overwrite=overwrite,
                            device=device, jobs=min(n_jobs, len(cells)), progress=tell)  # fmt: skip
            found.save(target)
            _draw(found, target)
    except KeyboardInterrupt:
        err.print(f"Stopped. Finished cells are in {target}: the same command does the rest.", markup=False)
        return 130
    counts = Counter(found.table.verdict)
    seconds = time.monotonic() - began
    if as_json:
        told = {"out": str(target), "cells": len(found.cells), "verdicts": dict(counts), "seconds": round(seconds, 3)}
        control = found.table[found.table.way == "control"]
        say_json(told | {"control_holds": int((control.verdict == "holds").sum())})
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rung", "way", "optimizer"):
        table.add_column(name, no_wrap=True)
    judged = [one.name for one in OBSERVABLES if one.least is not None or one.most is not None]
    for name in judged:
        table.add_column(name.replace("_", " "), justify="right")
    for cell in found.cells:
        shown = {row["observable"]: f"[{STYLE[row['verdict']]}]{row['value']:.2f}[/]" for row in cell["observables"]}
        table.add_row(cell["rung"], cell["way"], cell["optimizer"], *(shown[name] for name in judged))
    out.print(table)
    out.print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    runs = sum(len(cell["ratios"]) * cell["seeds"] for cell in found.cells)
    out.print(f"{len(found.cells)} cells, {runs} runs in {seconds:.0f} s, in {target}/", markup=False)
    return 0


def _draw(found: object, target: Path) -> None:
    from scansnap.paper.studies.dial import computed, draw
    from scansnap.paper.style import add_note, save_figure, settle

    seen = computed(found)  # type: ignore[arg-type]
    figure = draw(seen)
    add_note(figure, seen.note)
    settle(figure)
    for kind in ("png", "pdf"):
        save_figure(figure, target / f"dial.{kind}")
