"""``scansnap dial``: rungs from the paper's model to a transformer, measured at equal effective rates."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from scansnap.checks import InputError, check_choice
from scansnap.cli.console import err, out, progress_bar, say_json
from scansnap.cli.options import Device, Json, Overwrite
from scansnap.interrupt import working

STYLE = {"holds": "green", "fails": "red", "undecided": "yellow", "measured": "dim", "no rates": "magenta",
         "diverged": "magenta", "clock not met": "magenta", "not applicable": "dim"}  # fmt: skip


def dial(
    rung: Annotated[
        list[str] | None, typer.Option(help="A rung by name or number: norm, norm:none, 6. [default: all]")
    ] = None,
    way: Annotated[list[str] | None, typer.Option(help="alone, cumulative, without or control. [default: all]")] = None,
    optimizer: Annotated[list[str] | None, typer.Option(help="sgd, adamw, … [default: those of the rung]")] = None,
    data: Annotated[
        str,
        typer.Option(
            help="syn-medium, zipf (p_n ∝ 1/n), textbook (one query and one common token, of 74 tokens and not 2014: "
            "with unit vectors for tokens every run holds M × M numbers), or text (200 words, classes by their counts)."
        ),
    ] = "syn-medium",
    corpus: Annotated[
        str | None,
        typer.Option(
            help="For --data text: a folder, a .txt file, stdlib, wikitext-2 or wikitext-103. [default: stdlib]"
        ),
    ] = None,
    bos: Annotated[
        bool,
        typer.Option("--bos", help="A first token that is always the same; contexts are finite, sink is measured."),
    ] = False,
    target: Annotated[
        Path, typer.Option("--out", help="The folder for dial.csv, .json, .md, .png and .pdf, and the cells.")
    ] = Path("out/dial"),
    quick: Annotated[
        bool, typer.Option("--quick", help="3 seeds, shorter runs and contexts, first choices only.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="Paired seeds. [default: 10, quick 3]")] = None,
    ratio: Annotated[
        list[float] | None, typer.Option(help="An effective η_Y/η_Z. [default: 1, 3, 10, 30; quick 1, 10]")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes. [default: one a core; 8 with a GPU]")] = None,
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Ray cluster: auto, host:port or ray://host:port.")] = None,
    gpus: Annotated[float, typer.Option("--gpus-per-group", help="With Ray: GPUs of a cell, such as 0.25.")] = 0.0,
    device: Device = "auto",
    listed: Annotated[bool, typer.Option("--list", help="Print the rungs and what they change, and stop.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Give up the paper's assumptions one at a time and see what survives, from the YZ model to a transformer.

    Every rung runs at the same effective rates (kernel clock or loss clock). It can be stopped at any time: finished
    cells are in --out, and the same command does the rest. --list has the rungs and their choices, such as norm:rms.
    """
    if listed:
        return _list(as_json)
    from scansnap.checks import check_float, check_integer
    from scansnap.cluster import Cluster
    from scansnap.dial.observables import OBSERVABLES
    from scansnap.dial.places import CellsFailed
    from scansnap.dial.sources import Source
    from scansnap.dial.study import CELLS, FILES, FULL, QUICK, chosen
    from scansnap.dial.study import dial as measure
    from scansnap.dial.text import counted
    from scansnap.dynamics.device import pick_device
    from scansnap.storage import claimed, writable
    from scansnap.storage.owned import refuse_foreign, renewing

    if check_choice("--engine", engine, ("local", "ray")) == "local" and (address is not None or gpus):
        raise InputError("--engine", engine, "ray when --address or --gpus-per-group is given")
    cluster = Cluster(address, 1, gpus) if engine == "ray" else None
    began, place = time.monotonic(), pick_device(device if cluster is None else "cpu")  # a cluster has its own
    given = Source(data, corpus, bos)  # what cannot be is refused before anything is made
    data = given.name
    cells = chosen(rung, way, optimizer, quick=quick, data=data)
    if given.kind == "text":
        counted(given.corpus, (QUICK if quick else FULL).context, False)
    for name, number, least, most in (("seeds", seeds, 2, 1000), ("jobs", jobs, 1, 256)):
        if number is not None:
            check_integer(name, number, least=least, most=most)
    ratios = [check_float("ratio", each, above=0, most=1e6) for each in ratio] if ratio else None
    writable("--out", target / CELLS, inside=True)
    if not overwrite:
        refuse_foreign("--out", target, FILES, "--overwrite replaces it")
    n_jobs = jobs if jobs is not None else (os.cpu_count() or 1) if place.type == "cpu" else 8
    try:
        with claimed("--out", target), progress_bar("% of the work") as bar, working():
            found = measure(rung, way, optimizer, quick=quick, seeds=seeds, ratios=ratios, data=data, out=target,
                            overwrite=overwrite, device=device, jobs=min(n_jobs, len(cells)), cluster=cluster,
                            progress=bar)  # fmt: skip
            found.save(target, overwrite=overwrite)
            with renewing("--out", target) as scratch:
                _draw(found, scratch)
    except CellsFailed as error:
        err.print(f"Error: {error}. Finished cells are in {target}: the same command tries the rest.", markup=False)
        return 1
    except KeyboardInterrupt:
        err.print(f"Stopped. Finished cells are in {target}: the same command does the rest.", markup=False)
        return 130
    counts = Counter(found.table.verdict)
    seconds = time.monotonic() - began
    if as_json:
        told = {"out": str(target), "cells": len(found.cells), "verdicts": dict(counts), "seconds": round(seconds, 3)}
        say_json(told | found.counts | {"control_holds": found.control_holds or 0})
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rung", "way", "optimizer"):
        table.add_column(name, no_wrap=True)
    judged = [one.name for one in OBSERVABLES if one.bounded]
    for name in judged:
        table.add_column(name.replace("_", " "), justify="right")
    for cell in found.cells:
        shown = {row["observable"]: f"[{STYLE[row['verdict']]}]{_number(row['value'])}[/]"
                 for row in cell["observables"]}  # fmt: skip
        table.add_row(cell["rung"], cell["way"], cell["optimizer"], *(shown[name] for name in judged))
    out.print(table)
    out.print(found.summary, markup=False)
    out.print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    for remark in found.remarks:
        out.print(remark, markup=False)
    runs = sum(len(cell["ratios"]) * cell["seeds"] for cell in found.cells)
    out.print(f"{len(found.cells)} cells, {runs} runs in {seconds:.0f} s, in {target}/", markup=False)
    return 0


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "–"


def _list(as_json: bool) -> int:
    """The rungs in their order: number, name, what it changes, its choices and optimisers."""
    from scansnap.dial.rungs import LADDER, RUNGS

    rungs = [RUNGS[name] for name in LADDER]
    if as_json:
        say_json([{"number": i, "rung": one.name, "changes": one.title, "choices": [c for c in one.choices if c],
                   "optimizers": one.optimizers} for i, one in enumerate(rungs)])  # fmt: skip
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "rung", "changes", "choices"):
        table.add_column(name, no_wrap=name == "rung", ratio=3 if name == "changes" else None)
    for i, one in enumerate(rungs):
        table.add_row(str(i), one.name, one.title, ", ".join(filter(None, one.choices)))
    out.print(table)
    out.print("Each alone, cumulative, without and as a control (--way); the first choice stands in cumulative models.")
    return 0


def _draw(found: object, target: Path) -> None:
    from scansnap.paper.studies.dial import computed, draw
    from scansnap.plots.style import add_note, save_figure, settle

    seen = computed(found)  # type: ignore[arg-type]
    figure = draw(seen)
    add_note(figure, seen.note)
    settle(figure)
    for kind in ("png", "pdf"):
        save_figure(figure, target / f"dial.{kind}")
