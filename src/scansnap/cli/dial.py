"""``scansnap dial``: the ablation study between the paper's model and a transformer, at equal effective rates."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from scansnap.checks import InputError, check_choice
from scansnap.cli.console import err, new_table, out, print_json, progress_bar
from scansnap.cli.options import Device, Json, Overwrite
from scansnap.interrupt import raise_during_imports

STYLE = {"holds": "green", "fails": "red", "undecided": "yellow", "measured": "dim", "no rates": "magenta",
         "diverged": "magenta", "rates not matched": "magenta", "not applicable": "dim"}  # fmt: skip


def dial(
    component: Annotated[
        list[str] | None, typer.Option(help="A component by name or number: norm, norm:none, 6. [default: all]")
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="single, cumulative, leave_one_out or control. [default: all]")
    ] = None,
    optimizer: Annotated[
        list[str] | None, typer.Option(help="An optimizer, such as sgd or adamw. [default: those of the component]")
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="Data: syn-medium, zipf (p_n ∝ 1/n), textbook (one query, one common token, 74 tokens) or text (200 "
            "words, classes by their counts)."
        ),
    ] = "syn-medium",
    corpus: Annotated[
        str | None,
        typer.Option(
            help="With --data text: a folder, a .txt file, stdlib, wikitext-2 or wikitext-103. [default: stdlib]"
        ),
    ] = None,
    bos: Annotated[
        bool,
        typer.Option(
            "--bos", help="Start every context with the same token and measure the attention sink; contexts are finite."
        ),
    ] = False,
    target: Annotated[
        Path, typer.Option("--out", help="Write dial.csv, .json, .md, .png, .pdf and the cells into this folder.")
    ] = Path("out/dial"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Use 3 seeds, shorter runs and contexts, and the first choice of each component."),
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="Number of paired seeds. [default: 10, quick 3]")] = None,
    ratio: Annotated[
        list[float] | None,
        typer.Option(help="An effective η_Y/η_Z; repeat for more. [default: 1, 3, 10, 30; quick 1, 10]"),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Number of processes. [default: one per core; 8 with a GPU]")] = None,
    engine: Annotated[str, typer.Option(help="Run on this machine (local) or on a cluster (ray).")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster: auto, host:port or ray://host:port.")
    ] = None,
    gpus: Annotated[float, typer.Option("--gpus-per-group", help="With Ray: GPUs for each cell, such as 0.25.")] = 0.0,
    device: Device = "auto",
    listed: Annotated[
        bool, typer.Option("--list", help="Print the components and what they change, and exit.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Run the ablation study between the YZ model and a transformer.

    It adds the components of a transformer one at a time and measures which effects of the paper survive. Learning
    rates are matched, so that every component has the same effective rates. The command can be stopped at any time:
    finished cells are in --out, and the same command continues. --list shows the components and their choices.
    """
    if listed:
        return _list(as_json)
    from scansnap.checks import check_float, check_integer
    from scansnap.cluster import Cluster
    from scansnap.dial.cells import CellsFailed
    from scansnap.dial.observables import OBSERVABLES
    from scansnap.dial.sources import DataSource, count_classes
    from scansnap.dial.study import CELLS, FILES, FULL, QUICK, run_dial, select_cells
    from scansnap.dynamics.device import pick_device
    from scansnap.storage import check_writable, write_lock
    from scansnap.storage.tracked import refuse_untracked, replacing_tracked

    if check_choice("--engine", engine, ("local", "ray")) == "local" and (address is not None or gpus):
        raise InputError("--engine", engine, "ray when --address or --gpus-per-group is given")
    cluster = Cluster(address, 1, gpus) if engine == "ray" else None
    began, place = time.monotonic(), pick_device(device if cluster is None else "cpu")  # a cluster has its own
    source = DataSource(data, corpus, bos)  # refuses bad input first
    data = source.name
    cells = select_cells(component, mode, optimizer, quick=quick, data=data)
    if source.kind == "text":
        count_classes(source.corpus, (QUICK if quick else FULL).context, False)
    for name, number, least, most in (("seeds", seeds, 2, 1000), ("jobs", jobs, 1, 256)):
        if number is not None:
            check_integer(name, number, least=least, most=most)
    ratios = [check_float("ratio", each, above=0, most=1e6) for each in ratio] if ratio else None
    check_writable("--out", target / CELLS, inside=True)
    if not overwrite:
        refuse_untracked("--out", target, FILES, "--overwrite replaces it")
    n_jobs = jobs if jobs is not None else (os.cpu_count() or 1) if place.type == "cpu" else 8
    try:
        with write_lock("--out", target), progress_bar("% of the work") as bar, raise_during_imports():
            study = run_dial(component, mode, optimizer, quick=quick, seeds=seeds, ratios=ratios, data=data, out=target,
                            overwrite=overwrite, device=device, jobs=min(n_jobs, len(cells)), cluster=cluster,
                            progress=bar)  # fmt: skip
            study.save(target, overwrite=overwrite)
            with replacing_tracked("--out", target) as scratch:
                _draw(study, scratch)
    except CellsFailed as error:
        err.print(f"Error: {error}. Finished cells are in {target}: the same command computes the rest.", markup=False)
        return 1
    except KeyboardInterrupt:
        err.print(f"Stopped. Finished cells are in {target}: the same command computes the rest.", markup=False)
        return 130
    counts = Counter(study.table.verdict)
    seconds = time.monotonic() - began
    if as_json:
        report = {"out": str(target), "cells": len(study.cells), "verdicts": dict(counts), "seconds": round(seconds, 3)}
        print_json(report | study.counts | {"control_holds": study.control_holds or 0})
        return 0
    labels = ("component", "mode", "optimizer")
    judged = [observable.name for observable in OBSERVABLES if observable.bounded]
    columns = [name.replace("_", " ") for name in judged]
    table = new_table(*labels, *columns, right=columns, no_wrap=labels)
    for cell in study.cells:
        shown = {row["observable"]: f"[{STYLE[row['verdict']]}]{_number(row['value'])}[/]"
                 for row in cell["observables"]}  # fmt: skip
        table.add_row(cell["component"], cell["mode"], cell["optimizer"], *(shown[name] for name in judged))
    out.print(table)
    out.print(study.summary, markup=False)
    out.print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
    for remark in study.remarks:
        out.print(remark, markup=False)
    runs = sum(len(cell["ratios"]) * cell["seeds"] for cell in study.cells)
    out.print(f"{len(study.cells)} cells, {runs} runs in {seconds:.0f} s, in {target}/", markup=False)
    return 0


def _number(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "–"


def _list(as_json: bool) -> int:
    """Number, name, change, choices and optimisers of the components, in their order."""
    from scansnap.dial.components import BUILT_IN, COMPONENTS

    components = [COMPONENTS[name] for name in BUILT_IN]
    if as_json:
        print_json([{"number": i, "component": c.name, "changes": c.title, "optimizers": c.optimizers,
                   "choices": [name for name in c.choices if name]} for i, c in enumerate(components)])  # fmt: skip
        return 0
    table = new_table("", "component", "changes", "choices", no_wrap=("component",))
    for i, c in enumerate(components):
        table.add_row(str(i), c.name, c.title, ", ".join(filter(None, c.choices)))
    out.print(table)
    out.print("Modes: single, cumulative, leave_one_out and control. The first choice is part of cumulative models.")
    return 0


def _draw(study: object, target: Path) -> None:
    from scansnap.paper.studies.dial import computed, draw
    from scansnap.plots.style import add_note, save_figure, settle

    result = computed(study)  # type: ignore[arg-type]
    figure = draw(result)
    add_note(figure, result.note)
    settle(figure)
    for kind in ("png", "pdf"):
        save_figure(figure, target / f"dial.{kind}")
