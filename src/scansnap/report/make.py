"""Make one target: compute, draw, and write its CSV, PNG and PDF and its entry in manifest.json."""

from __future__ import annotations

import io
import json
import math
import os
import platform
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import pandas

from scansnap.checks import InputError
from scansnap.figures.figure import Computed, Effort, Progress
from scansnap.figures.kept_runs import forget
from scansnap.figures.style import add_note, render, save_figure, settle
from scansnap.report.targets import find
from scansnap.storage import replacing
from scansnap.trajectory import versions

MANIFEST = "manifest.json"
KEPT = ".unfinished"  # runs of targets that were stopped
FORMAT = "scansnap reproduction 1"


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


def make(name: str, effort: Effort, out: Path, progress: Progress | None = None) -> Made:
    """Everything of one target, computed anew; its files are written when all of it succeeded."""
    began = time.perf_counter()
    figure = find(name)
    effort = replace(effort, kept=out / KEPT / name)
    computed = figure.compute(effort, progress)
    drawing = figure.draw(computed)
    if computed.note:
        add_note(drawing, computed.note)
    settle(drawing)
    svg = io.BytesIO()
    render(drawing, svg, "svg")
    files = tuple(f"{name}.{kind}" for kind in ("csv", "png", "pdf"))
    with replacing(out / files[0]) as scratch:
        computed.table.to_csv(scratch, index=False)
    for file in files[1:]:
        save_figure(drawing, out / file)
    seconds = time.perf_counter() - began
    made = Made(name, figure.TITLE, figure.CAPTION, computed, command(name, effort), seconds, files, svg.getvalue())
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


def prepare(out: Path) -> None:
    """Refuse before any work what could not be written to later."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with replacing(out / ".writable") as scratch:
            scratch.touch()
        (out / ".writable").unlink()
    except OSError as error:
        raise InputError("--out", str(out), f"a folder that can be written to ({error.strerror})") from None
    read_manifest(out)


def read_manifest(out: Path) -> dict[str, Any]:
    """What earlier commands made in this folder."""
    path = out / MANIFEST
    if not path.exists():
        return {"format": FORMAT, "targets": {}}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] == FORMAT and isinstance(found["targets"], dict):
            return dict(found)
    except (ValueError, KeyError, TypeError):
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
    with replacing(out / MANIFEST) as scratch:
        text = json.dumps(plain(manifest), indent=2, ensure_ascii=False, allow_nan=False)
        scratch.write_text(text + "\n", encoding="utf-8")


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
