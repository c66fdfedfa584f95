"""manifest.json, the record of a folder of figures: files, commands, versions and findings."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import pandas

from scansnap.checks import InputError
from scansnap.paper.figure import Computed, Effort, Finding
from scansnap.results.trajectory import versions
from scansnap.storage import put
from scansnap.storage.json_text import to_json

MANIFEST = "manifest.json"
ANNOUNCED = "files"  # the key of all files that were or will be written into the folder
FORMAT = "scansnap reproduction 2"  # 2: findings have numbers
READABLE = ("scansnap reproduction 1", FORMAT)  # versions to which targets can be added; they become the newest

Box = tuple[float, float, float, float]  # left, top, width, height, in points from the drawing's upper left


@dataclass(frozen=True)
class TargetResult:
    """One target that this command computed and wrote."""

    name: str
    title: str
    caption: str
    computed: Computed
    command: str
    seconds: float
    files: tuple[str, ...]
    svg: bytes  # empty where the report has a table instead
    focus: Box | None = None  # the part of the drawing that its headline shows


def announce(files: tuple[str, ...], out: Path) -> None:
    """List files in the manifest before they are written, since the process may be killed in between."""
    manifest = read_manifest(out)
    if not set(files) <= set(manifest[ANNOUNCED]):
        _write(manifest | {ANNOUNCED: sorted({*manifest[ANNOUNCED], *files})}, out)


def read_manifest(out: Path) -> dict[str, Any]:
    """The manifest of a folder; an empty one where there is none."""
    path = out / MANIFEST
    if not path.exists():
        return {"format": FORMAT, ANNOUNCED: [], "targets": {}}
    manifest = parse_manifest(path)
    if manifest is not None and manifest["format"] in READABLE:
        return manifest | {"format": FORMAT}
    raise InputError("--out", str(out), f"a folder without a {MANIFEST} of some other program; move that file away")


def parse_manifest(path: Path) -> dict[str, Any] | None:
    """A manifest of any version; None for any other file."""
    try:
        manifest: dict[str, Any] = {ANNOUNCED: []} | json.loads(path.read_text(encoding="utf-8"))
        entries = manifest["targets"].values()
        if isinstance(manifest["format"], str) and all(isinstance(e["files"], list) for e in (*entries, manifest)):
            return manifest
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def finding_entry(finding: Finding) -> dict[str, Any]:
    """A finding with its verdict and its numbers; the points are in the CSV."""
    numbers = finding.points.numbers if finding.points else ()
    fields = {name: value for name, value in vars(finding).items() if name != "points"}
    return {**fields, "verdict": finding.verdict, "numbers": [asdict(number) for number in numbers]}


def machine(device: str) -> dict[str, Any]:
    """The machine that computed the numbers."""
    import torch

    from scansnap.dynamics.device import pick_device

    chosen = pick_device(device)
    gpu = {"gpu": torch.cuda.get_device_name()} if chosen.type == "cuda" else {}
    return {"system": platform.platform(), "cores": os.cpu_count(), "device": chosen.type, **gpu}


def all_versions() -> dict[str, str]:
    """Versions of scansnap and of the packages it uses."""
    return {**versions(), "pandas": pandas.__version__, "matplotlib": matplotlib.__version__}


def add_entry(target: TargetResult, effort: Effort, out: Path) -> None:
    """Add a target to the manifest."""
    manifest = read_manifest(out)
    manifest["targets"][target.name] = {
        "title": target.title,
        "command": target.command,
        "quick": effort.quick,
        "settings": target.computed.settings,
        "note": target.computed.note,
        "findings": [finding_entry(finding) for finding in target.computed.findings],
        "files": list(target.files),
        "seconds": round(target.seconds, 3),
        "versions": all_versions(),
        "machine": machine(effort.device),
    }
    _write(manifest, out)


def _write(manifest: dict[str, Any], out: Path) -> None:
    put(out / MANIFEST, to_json(manifest, indent=2) + "\n")
