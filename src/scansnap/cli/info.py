"""``scansnap info``: show sequence classes, a file that scansnap wrote, or this installation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.cli.console import err, new_table, out, print_json
from scansnap.cli.options import Json, Preset, Set, find_classes, preset_settings
from scansnap.storage.checksums import CheckedFiles, Damaged

ROWS = 20  # classes shown unless all are asked for


def info(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A TOML file, a trajectory, a sweep, the file of a probe, a text model or an unfinished run. Without "
            "FILE and --preset, the installation is shown."
        ),
    ] = None,
    preset: Preset = None,
    preset_set: Set = None,
    every: Annotated[bool, typer.Option("--all", help="Show all classes.")] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Compare every byte of FILE with its checksums; the exit code is 1 if it is damaged."
        ),
    ] = False,
    declared: Annotated[
        bool, typer.Option("--settings", help="Print all settings of scansnap as Markdown tables.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show sequence classes, a saved file or this installation."""
    settings = preset_settings(preset_set)
    if declared:
        from scansnap.cli.reference import reference

        print(reference(), end="")
        return 0
    kind = _kind(file) if file is not None else "classes"
    if check:
        return _check(file, kind, as_json)
    if file is not None and kind != "classes":
        show = {"trajectory": _trajectory, "sweep": _sweep, "probe": _probe, "unfinished run": _unfinished,
                "text model": _model}  # fmt: skip
        return show[kind](file, as_json)
    if file is None and preset is None and not settings:
        return _installation(as_json)
    classes = find_classes(file, preset, settings)
    rows = [_row(classes, n) for n in range(classes.n_classes)]
    if as_json:
        print_json({**_totals(classes), "classes": rows})
        return 0
    totals = _totals(classes)
    sizes = f"vocabulary {totals['vocab_size']}, {totals['n_queries']} queries"
    out.print(f"[bold]{totals['n_classes']} classes[/], {sizes}, common tokens {_ids(classes.common)}")
    numbers = ("class", "query", "next", "p_class", "tokens", "common")
    table = new_table(*numbers, "distinct", "most likely", right=numbers)
    for row in rows if every else rows[:ROWS]:
        likely = "  ".join(f"{_named(classes, token)}: {p:.3g}" for token, p in row["most_likely"])
        cells = [row["class"], _named(classes, row["query"]), _named(classes, row["next_token"]),
                 f"{row['p_class']:.4g}", row["n_tokens"], row["n_common"], _ids(np.array(row["distinct"])),
                 likely]  # fmt: skip
        table.add_row(*[escape(str(cell)) for cell in cells])
    out.print(table)
    if len(rows) > ROWS and not every:
        out.print(f"… and {len(rows) - ROWS} more classes (show them with --all)")
    return 0


def _totals(classes: SequenceClasses) -> dict[str, Any]:
    return {
        "n_classes": classes.n_classes,
        "vocab_size": classes.vocab_size,
        "n_queries": len(classes.queries),
        "common": classes.common.tolist(),
    } | ({} if classes.words is None else {"words": list(classes.words)})


def _row(classes: SequenceClasses, n: int) -> dict[str, Any]:
    tokens, probs = classes.support(n)
    top = np.argsort(-probs, kind="stable")[:3]
    return {
        "class": n,
        "query": int(classes.query[n]),
        "next_token": int(classes.next_token[n]),
        "p_class": float(classes.p_class[n]),
        "n_tokens": len(tokens),
        "n_common": len(classes.common_of(n)),
        "distinct": classes.distinct(n).tolist(),
        "distinct_local": classes.distinct(n, local=True).tolist(),
        "most_likely": [(int(tokens[i]), float(probs[i])) for i in top],
    }


def _named(classes: SequenceClasses, token: int) -> str:
    """A token's id, and its word if there is one."""
    return str(token) if classes.words is None else f"{token} {classes.words[token]!r}"


def _ids(ids: np.ndarray) -> str:
    """Runs of consecutive ids as ranges."""
    if len(ids) == 0:
        return "none"
    parts = np.split(ids, np.flatnonzero(np.diff(ids) > 1) + 1)
    text = [f"{p[0]}–{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts]
    return ", ".join(text if len(text) <= 6 else [*text[:5], f"… ({len(ids)} in all)"])


def _kind(file: Path) -> str:
    """The kind of a file or folder, from its name and, for a sweep, from its contents."""
    if file.suffix == ".zarr":
        from scansnap.results.growing import is_growing_dataset
        from scansnap.storage.objects import place_of

        if is_growing_dataset(file):
            return "probe"
        return "sweep" if place_of(file / "classes-0.zarr").exists() else "trajectory"
    return {".nc": "trajectory", ".partial": "unfinished run", ".safetensors": "text model"}.get(file.suffix, "classes")


def _check(file: Path | None, kind: str, as_json: bool) -> int:
    """Exit code 0 if every byte matches its checksum, 1 if not, 2 (by the error) if scansnap did not write the file."""
    from scansnap.dynamics import checkpoint
    from scansnap.results import trajectory
    from scansnap.storage import checksums
    from scansnap.storage.objects import place_of
    from scansnap.sweep.store import read_attributes
    from scansnap.text import model_files

    def store(path: Path) -> CheckedFiles:
        storage = place_of(path)
        files = checksums.check("FILE", storage)
        read_attributes(storage, "FILE")
        return files

    checks = {"trajectory": trajectory.check, "probe": trajectory.check, "sweep": store,
              "unfinished run": lambda path: checkpoint.read(path).files, "text model": model_files.check}  # fmt: skip
    if file is None or kind not in checks:
        raise InputError(
            "--check", str(file) if file else None, "a FILE ending in .zarr, .nc, .partial or .safetensors"
        )
    shown = str(place_of(file))  # an address is not a Path
    try:
        result = checks[kind](file)
    except Damaged as damage:
        if as_json:
            print_json({"file": shown, "kind": kind, "whole": False, "part": damage.part, "problem": damage.problem})
        else:
            err.print(f"{shown} is damaged: {damage.part} {damage.problem}.", markup=False, soft_wrap=True)
        return 1
    if as_json:
        print_json({"file": shown, "kind": kind, "whole": True, "files": result.files, "bytes": result.bytes})
    else:
        files = "1 file" if result.files == 1 else f"{result.files:,} files"
        out.print(
            f"{shown} ({kind}) is intact: {files}, {result.bytes:,} bytes, all match their checksums", markup=False
        )
    return 0


def _print_facts(title: str, facts: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(facts)
        return 0
    out.print(title, style="bold", markup=False)
    for name, value in facts.items():
        text = value if isinstance(value, str | int) else json.dumps(value, ensure_ascii=False)
        out.print(f"{name:<11} {text}", markup=False)
    return 0


def _probe(path: Path, as_json: bool) -> int:
    from scansnap.probe.findings import summary
    from scansnap.results.trajectory import load

    with load(path) as data:
        about = {name: data.attrs[name] for name in ("model", "parameters", "coverage", "corpus") if name in data.attrs}
        facts = {**about, "steps": data.step.values.tolist(), "layers": data.sizes["layer"],
                 "heads": data.sizes["head"], "versions": json.loads(data.attrs["versions"]),
                 "findings": summary(data)}  # fmt: skip
    return _print_facts(f"{path}: measurements of a probe", facts, as_json)


def _sweep(path: Path, as_json: bool) -> int:
    """From the root's metadata and the groups' marks: so the size of the store does not matter."""
    from scansnap.storage.chunks import COMPLETE, marked_groups
    from scansnap.storage.objects import place_of
    from scansnap.sweep.plan import SweepPlan
    from scansnap.sweep.store import read_attributes

    storage = place_of(path)
    attrs = read_attributes(storage, "FILE")
    plan = SweepPlan.from_json(attrs["plan"])
    names = list(storage.sizes())
    done = sum(len(marked_groups(names, f"classes-{s}.zarr/")) for s in range(len(plan.sizes)))
    complete = COMPLETE in names
    facts = {
        "runs": plan.n_runs * len(plan.sizes), "class_sets": len(plan.sizes), "groups": len(plan), "groups_done": done,
        "complete": complete, "settings": json.loads(attrs["settings"]),
        "sweep": json.loads(attrs["sweep"]), "versions": json.loads(attrs["versions"]),
    }  # fmt: skip
    state = "complete" if complete else "not complete: the same command with --resume computes the rest"
    return _print_facts(f"{storage}: a sweep, {state}", facts, as_json)


def _unfinished(path: Path, as_json: bool) -> int:
    from scansnap.dynamics.checkpoint import read

    saved = read(path)
    recorded = [step for values, _ in saved.records for step in values["steps"]]
    facts = {"step": saved.values["step"], "recorded": recorded, "fingerprint": saved.fingerprint}
    return _print_facts(f"{path}: an unfinished run; the same command with --resume continues it", facts, as_json)


def _model(path: Path, as_json: bool) -> int:
    """From the header alone, so the size of the model does not matter."""
    from scansnap.text.model_files import read_header

    header = read_header(path)
    facts = {"steps": header.step, "model": header.model, "data": header.data, "vocabulary": header.vocabulary}
    return _print_facts(f"{path}: a text model", facts, as_json)


def _trajectory(path: Path, as_json: bool) -> int:
    from scansnap.results.trajectory import classes_of, load

    data = load(path)
    about = {k: v for k, v in data.attrs.items() if k not in ("classes", "versions", "settings", "format")}
    settings = json.loads(data.attrs["settings"]) if "settings" in data.attrs else about  # a flow has plain ones
    if as_json:
        print_json({"sizes": dict(data.sizes), "variables": list(map(str, data.data_vars)), "settings": settings,
                  "versions": json.loads(data.attrs["versions"])})  # fmt: skip
        return 0
    out.print(f"[bold]{path}[/]: " + ", ".join(f"{n} {dim}" for dim, n in data.sizes.items()))
    classes = classes_of(data)
    out.print(f"classes    {classes}", markup=False)
    if classes.words is not None:
        shown = ", ".join(map(repr, classes.words[:8])) + (" …" if len(classes.words) > 8 else "")
        out.print(f"words      {shown}", markup=False)
    out.print(f"variables  {', '.join(map(str, data.data_vars))}")
    for name in (name for name in ("eta_y", "eta_z", "seed") if name in data.coords):
        values = np.unique(data[name].values)
        shown = ", ".join(f"{v:g}" for v in values[:8]) + (" …" if len(values) > 8 else "")
        out.print(f"{name:<10} {shown}")
    out.print(f"settings   {json.dumps(settings, default=str)}")
    out.print(f"versions   {data.attrs['versions']}")
    return 0


def _installation(as_json: bool) -> int:
    import torch

    from scansnap.classes import PRESETS
    from scansnap.kernels.cpu import library
    from scansnap.results.trajectory import versions

    facts = {
        "versions": versions(),
        "presets": list(PRESETS),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "compiled_kernels": library.available(),
    }
    if as_json:
        print_json(facts)
        return 0
    for name, value in facts.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        out.print(f"{name:<17} {', '.join(text) if isinstance(text, list) else text}")
    return 0
