"""``scansnap sweep``: many runs from one TOML file into one store, on this machine or on a Ray cluster."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.checks import InputError, check_choice
from scansnap.cli.console import duration, err, out, progress_bar, say_json
from scansnap.cli.options import Device, Json, Overwrite
from scansnap.interrupt import working

_SHOWN = 5  # failures that are told; the rest are counted


def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file with [classes], [grid], [run] and [measure].")],
    target: Annotated[
        str, typer.Option("--out", help="The Zarr store that all runs go into: a folder, or s3://bucket/prefix.zarr.")
    ] = "out/sweep.zarr",
    endpoint: Annotated[
        str | None, typer.Option(help="With s3://: the server's address, if not Amazon's. [default: AWS_ENDPOINT_URL]")
    ] = None,
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Ray cluster: auto, host:port or ray://host:port.")] = None,
    cpus: Annotated[int, typer.Option("--cpus-per-group", help="With Ray: CPUs, and threads, of a group.")] = 1,
    gpus: Annotated[
        float, typer.Option("--gpus-per-group", help="With Ray: GPUs of a group; above 0 it runs on CUDA.")
    ] = 0.0,
    memory: Annotated[str | None, typer.Option(help="Most memory a group may take. [default: 4GB]")] = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Do what is missing in the store.")] = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, write nothing.")] = False,
    as_json: Json = False,
) -> int:
    """Run a grid of rates, seeds and class sets, in batched groups, into one store.

    It can be stopped or killed at any time: --resume does what is missing and ends with the same bytes. Exit code 1
    when groups failed or the disk is full.
    """
    from scansnap.cluster import Cluster
    from scansnap.sweep.config import read
    from scansnap.sweep.run import prepare, run
    from scansnap.sweep.store import StoreError

    check_choice("--engine", engine, ("local", "ray"))
    if engine == "local" and (address is not None or gpus or cpus != 1):
        raise InputError("--engine", engine, "ray when --address, --cpus-per-group or --gpus-per-group is given")
    if resume and overwrite:
        raise InputError("--resume", True, "left out when --overwrite is given")
    began = time.monotonic()
    cluster = Cluster(address, cpus, gpus) if engine == "ray" else None
    try:
        ready = prepare(read(file), target, endpoint=endpoint, memory=memory, device=device, cluster=cluster,
                        resume=resume, overwrite=overwrite or dry_run)  # fmt: skip
        if dry_run:
            _show_plan(ready, as_json)
            return 0
        _note(ready)
        with progress_bar("runs") as bar, working():
            outcome = run(ready, cluster=cluster, progress=bar,
                          note=lambda words: _say(f"Note: {words}."))  # fmt: skip
    except KeyboardInterrupt:
        kept = f"Finished groups are in {target}: the same command with --resume does the rest."
        _say(f"Stopped. {kept if _is_there(target, endpoint) else 'Nothing was written.'}")
        return 130
    except StoreError as error:
        rest = "Nothing that was finished is lost: when it is mended, the same command with --resume does the rest."
        _say(f"Error: {error}. {rest}")
        return 1
    for damage in ready.store.recomputed:
        _say(f"Note: damaged and computed again: {damage}.")
    for group, reason in outcome.failures[:_SHOWN]:
        _say(f"Failed: {group}: {reason}")
    if len(outcome.failures) > _SHOWN:
        _say(f"Failed: {len(outcome.failures) - _SHOWN} more groups.")
    summary = {
        "store": str(target), "runs": outcome.n_runs, "groups": outcome.n_groups, "skipped_runs": outcome.skipped,
        "finished_runs": outcome.finished, "complete": outcome.complete, "seconds": round(time.monotonic() - began, 3),
        "failed": [{"group": str(group), "reason": reason} for group, reason in outcome.failures],
    }  # fmt: skip
    if as_json:
        say_json(summary)
    else:
        _tell(summary)
    return 0 if outcome.complete else 1


def _is_there(target: str, endpoint: str | None) -> bool:
    from scansnap.storage.objects import place_of

    try:
        return place_of(target, endpoint=endpoint).exists()
    except (OSError, InputError):  # a server that is gone: what it has is told by --resume
        return True


def _say(words: str) -> None:
    err.print(words, markup=False, soft_wrap=True)


def _tell(summary: dict[str, Any]) -> None:
    n, seconds = summary["finished_runs"], summary["seconds"]
    before = f", {summary['skipped_runs']} were there already" if summary["skipped_runs"] else ""
    out.print(f"{n} of {summary['runs']} runs in {seconds:.1f} s ({n / max(seconds, 1e-9):.0f} runs/s){before}")
    if not summary["complete"]:
        out.print("[bold]incomplete:[/] the same command with --resume tries again what is missing")
    out.print(f"store {summary['store']}", markup=False)


def _note(ready: Any) -> None:
    """What need not stop a sweep but is better known beforehand."""
    from scansnap.storage.objects import Folder
    from scansnap.sweep.plan import in_words

    if isinstance(ready.store.place, Folder):
        folder = ready.store.place.path.absolute().parent
        while not folder.exists():
            folder = folder.parent
        free, needed = shutil.disk_usage(folder).free, ready.store.template.n_bytes
        if free < needed:
            _say(f"Note: the store may take {in_words(needed)} before compression; {in_words(free)} are free.")


def _show_plan(ready: Any, as_json: bool) -> None:
    """The plan, and an estimate of time measured here."""
    from scansnap.sweep.backends import estimate_seconds
    from scansnap.sweep.plan import in_words

    plan, seconds = ready.plan, estimate_seconds(ready.sweep, ready.plan, ready.layouts)
    sets = [
        {"classes": repr(one.classes), "knobs": one.knobs, "runs": plan.n_runs, "runs_per_group": size,
         "groups": -(-plan.n_runs // size), "group_bytes": n_bytes}
        for one, size, n_bytes in zip(ready.sweep.class_sets, plan.sizes, ready.group_bytes, strict=True)
    ]  # fmt: skip
    n_bytes = ready.store.template.n_bytes
    summary = {"runs": len(ready.sweep), "groups": len(plan), "device": plan.device, "memory_bytes": plan.memory,
               "store_bytes": n_bytes, "estimated_seconds": seconds, "class_sets": sets}  # fmt: skip
    if as_json:
        say_json(summary)
        return
    out.print(f"{len(ready.sweep)} runs in {len(plan)} groups on {plan.device}")
    for s, one in enumerate(sets):
        knobs = ", ".join(f"{name} = {value}" for name, value in one["knobs"].items()) or one["classes"]
        out.print(f"class set {s} ({knobs}): {one['groups']} groups of at most {one['runs_per_group']} runs, "
                  f"{in_words(one['group_bytes'])} each")  # fmt: skip
    out.print(f"store {in_words(n_bytes)} before compression: {ready.store.place}", markup=False)
    out.print(f"time about {duration(seconds)} on this machine alone (estimated from a short measured piece)")
