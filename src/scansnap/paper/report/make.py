"""Make one target: compute, draw, and write its CSV, PNG and PDF and its entry in manifest.json."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import pandas

from scansnap.checks import InputError
from scansnap.paper.figure import Computed, Effort
from scansnap.paper.report.targets import find
from scansnap.paper.shared.kept_runs import forget
from scansnap.paper.style import add_note, render, settle
from scansnap.progress import Progress
from scansnap.results.trajectory import versions
from scansnap.storage import put, writable

MANIFEST, REPORT = "manifest.json", "report.html"
KEPT = ".unfinished"  # runs of targets that were stopped
ANNOUNCED = "files"  # in the manifest: all that was ever written here, or was about to be
FORMAT = "scansnap reproduction 1"
WRITTEN = ("png", "pdf")
PICTURES = (*WRITTEN, "svg")  # the last one is in the report


@dataclass(frozen=True)
class Made:
    """One target that was just made."""

    name: str
    title: str
    caption: str
    computed: Computed
    command: str
    seconds: float
    files: tuple[str, ...]
    svg: bytes


@dataclass(frozen=True)
class Drawn:
    """One target computed and drawn, nothing of it written yet; travels between processes."""

    name: str
    computed: Computed
    pictures: dict[str, bytes]  # by format
    seconds: float


def make(name: str, effort: Effort, out: Path, progress: Progress | None = None) -> Made:
    """Everything of one target, computed anew; its files are written when all of it succeeded."""
    return keep(drawn(name, effort, out, progress), effort, out)


def drawn(name: str, effort: Effort, out: Path, progress: Progress | None = None) -> Drawn:
    """Compute and draw; in the folder only runs are left for a command that is stopped and begun again."""
    began = time.perf_counter()
    figure = find(name)
    computed = figure.compute(replace(effort, kept=out / KEPT / name), progress)
    drawing = figure.draw(computed)
    if computed.note:
        add_note(drawing, computed.note)
    settle(drawing)
    pictures = {kind: render(drawing, kind) for kind in PICTURES}
    # what only the drawing needed stays here
    return Drawn(name, replace(computed, extra={}), pictures, time.perf_counter() - began)


def keep(found: Drawn, effort: Effort, out: Path) -> Made:
    """Write its files and its entry in the manifest."""
    name, computed, files = found.name, found.computed, files_of(found.name)
    _announce(files, out)
    put(out / files[0], computed.table.to_csv(index=False))
    for file, kind in zip(files[1:], WRITTEN, strict=True):
        put(out / file, found.pictures[kind])
    figure = find(name)
    made = Made(name, figure.TITLE, figure.CAPTION, computed, command(name, effort), found.seconds, files,
                found.pictures["svg"])  # fmt: skip
    _enter(made, effort, out)
    forget(out / KEPT / name)
    return made


def command(targets: str, effort: Effort) -> str:
    """What to type to make it again."""
    options = ["--quick"] * effort.quick
    if effort.device != "auto":
        options.append(f"--device {effort.device}")
    if effort.data is not None:
        options.append(f"--data {effort.data}")
    return " ".join(["scansnap reproduce", targets, *options])


def files_of(name: str) -> tuple[str, ...]:
    """What a target writes."""
    return tuple(f"{name}.{kind}" for kind in ("csv", *WRITTEN))


def prepare(out: Path, names: Sequence[str], overwrite: bool = False) -> None:
    """Refuse before any work what could not be written later, or would replace what is not ours."""
    writable("--out", out, inside=True)
    manifest = read_manifest(out)
    ours = {*manifest[ANNOUNCED], *(file for entry in manifest["targets"].values() for file in entry["files"])}
    wanted = [file for name in names for file in files_of(name)] + [REPORT] * (len(names) > 1)
    for file in wanted:
        if (out / file).is_dir():
            raise InputError("--out", str(out), f"a folder without a folder {file}")
        if not overwrite and file not in ours and (out / file).exists():
            raise InputError("--out", str(out), f"a folder whose {file} is from an earlier reproduction; move yours "
                             "away (or say --overwrite)")  # fmt: skip


def write_report(text: str, out: Path) -> Path:
    """The page about several targets."""
    _announce((REPORT,), out)
    put(out / REPORT, text)
    return out / REPORT


def _announce(files: tuple[str, ...], out: Path) -> None:
    """Say in the manifest that these files are ours before they are there: one may be killed in between."""
    manifest = read_manifest(out)
    if not set(files) <= set(manifest[ANNOUNCED]):
        _write_manifest(manifest | {ANNOUNCED: sorted({*manifest[ANNOUNCED], *files})}, out)


def read_manifest(out: Path) -> dict[str, Any]:
    """What earlier commands made in this folder."""
    path = out / MANIFEST
    if not path.exists():
        return {"format": FORMAT, ANNOUNCED: [], "targets": {}}
    try:
        found = {ANNOUNCED: []} | json.loads(path.read_text(encoding="utf-8"))
        entries = found["targets"].values()
        if found["format"] == FORMAT and all(isinstance(e["files"], list) for e in (*entries, found)):
            return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InputError("--out", str(out), f"a folder without a {MANIFEST} of some other program; move that file away")


def machine(device: str) -> dict[str, Any]:
    """Where the numbers were made."""
    import torch

    from scansnap.dynamics.device import pick_device

    place = pick_device(device)
    gpu = {"gpu": torch.cuda.get_device_name()} if place.type == "cuda" else {}
    return {"system": platform.platform(), "cores": os.cpu_count(), "device": place.type, **gpu}


def all_versions() -> dict[str, str]:
    """Of everything that took part."""
    return {**versions(), "pandas": pandas.__version__, "matplotlib": matplotlib.__version__}


def _enter(made: Made, effort: Effort, out: Path) -> None:
    manifest = read_manifest(out)
    manifest["targets"][made.name] = {
        "title": made.title,
        "command": made.command,
        "quick": effort.quick,
        "settings": made.computed.settings,
        "note": made.computed.note,
        "findings": [{**asdict(f), "verdict": f.verdict} for f in made.computed.findings],
        "files": list(made.files),
        "seconds": round(made.seconds, 3),
        "versions": all_versions(),
        "machine": machine(effort.device),
    }
    _write_manifest(manifest, out)


def _write_manifest(manifest: dict[str, Any], out: Path) -> None:
    put(out / MANIFEST, json.dumps(plain(manifest), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """As JSON has it: NumPy's numbers as Python's, and the infinities and NaN, which JSON lacks, as words."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
