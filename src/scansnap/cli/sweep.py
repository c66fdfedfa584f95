"""``scansnap sweep``: many runs from one TOML file into one store, on this machine or on a Ray cluster."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scansnap.checks import InputError, choice
from scansnap.cli.console import err, out, say_json
from scansnap.interrupt import working

_SHOWN = 5  # failures that are told; the rest are counted


def sweep(
    file: Path,
    *,
    target: Path,
    engine: str,
    address: str | None,
    cpus: int,
    gpus: float,
    memory: str | None,
    device: str,
    resume: bool,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Exit code 0; 1 when groups failed or the disk is full; 130 after Ctrl-C."""
    from scansnap.sweep.config import read
    from scansnap.sweep.places.ray import Cluster
    from scansnap.sweep.run import prepare, run
    from scansnap.sweep.store import StoreError

    choice("--engine", engine, ("local", "ray"))
    if engine == "local" and (address is not None or gpus or cpus != 1):
        raise InputError("--engine", engine, "ray when --address, --cpus-per-group or --gpus-per-group is given")
    if resume and overwrite:
        raise InputError("--resume", True, "left out when --overwrite is given")
    began = time.monotonic()
    cluster = Cluster(address, cpus, gpus) if engine == "ray" else None
    try:
        ready = prepare(read(file), target, memory=memory, device=device, cluster=cluster, resume=resume,
                        overwrite=overwrite or dry_run)  # fmt: skip
        if dry_run:
            _show_plan(ready, as_json)
            return 0
        _note(ready)
        with runs_bar() as report, working():
            outcome = run(ready, cluster=cluster, report=report)
    except KeyboardInterrupt:
        kept = f"Finished groups are in {target}: the same command with --resume does the rest."
        _say(f"Stopped. {kept if target.exists() else 'Nothing was written.'}")
        return 130
    except StoreError as error:
        rest = "Nothing that was finished is lost: make room, then the same command with --resume."
        _say(f"Error: {error}. {rest}")
        return 1
    for damage in ready.store.mended:
        _say(f"Note: damaged and made again: {damage}.")
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
    from scansnap.results.trajectory import versions
    from scansnap.sweep.plan import in_words

    place = ready.store.path.absolute().parent
    while not place.exists():
        place = place.parent
    free, needed = shutil.disk_usage(place).free, ready.store.n_bytes
    if free < needed:
        _say(f"Note: the store may take {in_words(needed)} before compression; {in_words(free)} are free.")
    here = versions()
    for name, then in ready.versions.items():
        if name in ("scansnap", "torch", "numpy") and here[name] != then:
            _say(f"Note: the store was begun with {name} {then}, here is {here[name]}: last digits may differ.")


def _show_plan(ready: Any, as_json: bool) -> None:
    """The plan, and an estimate of time measured here."""
    from scansnap.sweep.places.local import probe
    from scansnap.sweep.plan import in_words

    plan, seconds = ready.plan, probe(ready.sweep, ready.plan, ready.layouts)
    sets = [
        {"classes": repr(one.classes), "knobs": one.knobs, "runs": plan.n_runs, "runs_per_group": size,
         "groups": -(-plan.n_runs // size), "group_bytes": n_bytes}
        for one, size, n_bytes in zip(ready.sweep.class_sets, plan.sizes, ready.group_bytes, strict=True)
    ]  # fmt: skip
    summary = {"runs": len(ready.sweep), "groups": len(plan), "device": plan.device, "memory_bytes": plan.memory,
               "store_bytes": ready.store.n_bytes, "estimated_seconds": seconds, "class_sets": sets}  # fmt: skip
    if as_json:
        say_json(summary)
        return
    out.print(f"{len(ready.sweep)} runs in {len(plan)} groups on {plan.device}")
    for s, one in enumerate(sets):
        knobs = ", ".join(f"{name} = {value}" for name, value in one["knobs"].items()) or one["classes"]
        out.print(f"class set {s} ({knobs}): {one['groups']} groups of at most {one['runs_per_group']} runs, "
                  f"{in_words(one['group_bytes'])} each")  # fmt: skip
    out.print(f"store {in_words(ready.store.n_bytes)} before compression: {ready.store.path}", markup=False)
    out.print(f"time about {duration(seconds)} on this machine alone (estimated from a short measured piece)")


def duration(seconds: float) -> str:
    """12 s, 3 min, 2.5 h or 4.1 days."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


@contextmanager
def runs_bar() -> Iterator[Any]:
    """A callback (runs done now, there already, in all): a bar on a terminal, else lines; with rate and time left."""
    began = time.monotonic()

    def pace(done: float, left: float) -> str:
        rate = done / max(time.monotonic() - began, 1e-9)
        return f"{rate:.3g} runs/s, about {duration(left / rate)} left" if done > 0 else ""

    if err.is_terminal:
        from rich.progress import BarColumn, Progress, TextColumn

        with Progress(TextColumn("runs"), BarColumn(), TextColumn("{task.fields[words]}"), console=err,
                      transient=True) as bar:  # fmt: skip
            task = bar.add_task("", total=None, words="")

            def draw(done: float, skipped: int, total: int) -> None:
                words = f"{done + skipped:.0f}/{total} {pace(done, total - skipped - done)}"
                bar.update(task, completed=done + skipped, total=total, words=words)

            yield draw
        return
    said = began

    def line(done: float, skipped: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= 2:
            words = pace(done, total - skipped - done)
            print(f"runs: {done + skipped:.0f}/{total}, {words}", file=sys.stderr, flush=True)
            said = time.monotonic()

    yield line
