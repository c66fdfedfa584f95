"""``scansnap sweep``: train many runs from one TOML file into one store, on this machine or on a Ray cluster."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.checks import InputError, check_choice
from scansnap.cli.console import duration, err, out, print_json, progress_bar
from scansnap.cli.options import Device, Json, Overwrite
from scansnap.interrupt import raise_during_imports

_SHOWN = 5  # failures that are printed; the rest are counted


def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file with [classes], [grid], [run] and [measure].")],
    target: Annotated[
        str, typer.Option("--out", help="Write all runs into this Zarr store: a folder, or s3://bucket/prefix.zarr.")
    ] = "out/sweep.zarr",
    endpoint: Annotated[
        str | None,
        typer.Option(help="With s3://: the address of a server other than Amazon's. [default: AWS_ENDPOINT_URL]"),
    ] = None,
    engine: Annotated[str, typer.Option(help="Run on this machine (local) or on a cluster (ray).")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster: auto, host:port or ray://host:port.")
    ] = None,
    cpus: Annotated[int, typer.Option("--cpus-per-group", help="With Ray: CPUs (and threads) for each group.")] = 1,
    gpus: Annotated[
        float, typer.Option("--gpus-per-group", help="With Ray: GPUs for each group; more than 0 runs it on CUDA.")
    ] = 0.0,
    memory: Annotated[str | None, typer.Option(help="Memory limit of a group of runs. [default: 4GB]")] = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Compute what is missing in the store.")] = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and write nothing.")] = False,
    as_json: Json = False,
) -> int:
    """Train a grid of rates, seeds and class sets into one store.

    You can stop or kill it at any time: --resume computes the missing groups of runs, and the store has the same bytes
    as without a stop. The exit code is 1 when groups failed or the disk is full.
    """
    from scansnap.cluster import Cluster
    from scansnap.sweep.config import read
    from scansnap.sweep.run import prepare, run
    from scansnap.sweep.store import StoreError

    check_choice("--engine", engine, ("local", "ray"))
    if engine == "local" and (address is not None or gpus or cpus != 1):
        raise InputError("--engine", engine, "ray when --address, --cpus-per-group or --gpus-per-group is given")
    if resume and overwrite:
        raise InputError.conflict("--resume", "--overwrite is given, too; pass one of them", True)
    began = time.monotonic()
    cluster = Cluster(address, cpus, gpus) if engine == "ray" else None
    try:
        ready = prepare(read(file), target, endpoint=endpoint, memory=memory, device=device, cluster=cluster,
                        resume=resume, overwrite=overwrite or dry_run)  # fmt: skip
        if dry_run:
            _show_plan(ready, as_json)
            return 0
        _note(ready)
        with progress_bar("runs") as bar, raise_during_imports():
            outcome = run(ready, cluster=cluster, progress=bar,
                          note=lambda text: _print_note(f"Note: {text}."))  # fmt: skip
    except KeyboardInterrupt:
        rest = f"Finished groups are in {target}: the same command with --resume computes the rest."
        _print_note(f"Stopped. {rest if _is_there(target, endpoint) else 'Nothing was written.'}")
        return 130
    except StoreError as error:
        rest = "Finished groups are safe: after repair, the same command with --resume computes the rest."
        _print_note(f"Error: {error}. {rest}")
        return 1
    for damage in ready.store.recomputed:
        _print_note(f"Note: damaged, computed again: {damage}.")
    for group, reason in outcome.failures[:_SHOWN]:
        _print_note(f"Failed: {group}: {reason}")
    if len(outcome.failures) > _SHOWN:
        _print_note(f"Failed: {len(outcome.failures) - _SHOWN} more groups.")
    summary = {
        "store": str(target), "runs": outcome.n_runs, "groups": outcome.n_groups, "skipped_runs": outcome.skipped,
        "finished_runs": outcome.finished, "complete": outcome.complete, "seconds": round(time.monotonic() - began, 3),
        "failed": [{"group": str(group), "reason": reason} for group, reason in outcome.failures],
    }  # fmt: skip
    if as_json:
        print_json(summary)
    else:
        _print(summary)
    return 0 if outcome.complete else 1


def _is_there(target: str, endpoint: str | None) -> bool:
    from scansnap.storage.objects import place_of

    try:
        return place_of(target, endpoint=endpoint).exists()
    except (OSError, InputError):  # the server is gone: --resume tells what it has
        return True


def _print_note(text: str) -> None:
    err.print(text, markup=False, soft_wrap=True)


def _print(summary: dict[str, Any]) -> None:
    n, seconds = summary["finished_runs"], summary["seconds"]
    before = f", {summary['skipped_runs']} were finished before" if summary["skipped_runs"] else ""
    out.print(f"{n} of {summary['runs']} runs in {seconds:.1f} s ({n / max(seconds, 1e-9):.0f} runs/s){before}")
    if not summary["complete"]:
        out.print("[bold]incomplete:[/] the same command with --resume computes what is missing")
    out.print(f"store {summary['store']}", markup=False)


def _note(ready: Any) -> None:
    """Warn when the disk may be too small."""
    from scansnap.checks.memory import format_bytes
    from scansnap.storage.objects import Folder

    if isinstance(ready.store.place, Folder):
        folder = ready.store.place.path.absolute().parent
        while not folder.exists():
            folder = folder.parent
        free, needed = shutil.disk_usage(folder).free, ready.store.template.n_bytes
        if free < needed:
            _print_note(
                f"Note: the store may take {format_bytes(needed)} before compression; {format_bytes(free)} are free."
            )


def _show_plan(ready: Any, as_json: bool) -> None:
    """The plan, and the time estimated from a short measurement."""
    from scansnap.checks.memory import format_bytes
    from scansnap.sweep.backends import estimate_seconds

    plan, seconds = ready.plan, estimate_seconds(ready.sweep, ready.plan, ready.class_sets)
    sets = [
        {"classes": repr(class_set.classes), "settings": class_set.settings, "runs": plan.n_runs,
         "runs_per_group": size, "groups": -(-plan.n_runs // size), "group_bytes": n_bytes}
        for class_set, size, n_bytes in zip(ready.sweep.class_sets, plan.sizes, ready.group_bytes, strict=True)
    ]  # fmt: skip
    n_bytes = ready.store.template.n_bytes
    summary = {"runs": len(ready.sweep), "groups": len(plan), "device": plan.device, "memory_bytes": plan.memory,
               "store_bytes": n_bytes, "estimated_seconds": seconds, "class_sets": sets}  # fmt: skip
    if as_json:
        print_json(summary)
        return
    out.print(f"{len(ready.sweep)} runs in {len(plan)} groups on {plan.device}")
    for s, row in enumerate(sets):
        settings = ", ".join(f"{name} = {value}" for name, value in row["settings"].items()) or row["classes"]
        out.print(f"class set {s} ({settings}): {row['groups']} groups of at most {row['runs_per_group']} runs, "
                  f"{format_bytes(row['group_bytes'])} each")  # fmt: skip
    out.print(f"store {format_bytes(n_bytes)} before compression: {ready.store.place}", markup=False)
    out.print(f"time about {duration(seconds)} on this machine alone (estimated from a short measurement)")
