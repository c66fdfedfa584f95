"""The record of a folder of figures: what was made, how, by what, and what was found, in manifest.json."""

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
ANNOUNCED = "files"  # in the manifest: all that was ever written here, or was about to be
FORMAT = "scansnap reproduction 2"  # 2: findings have numbers
READABLE = ("scansnap reproduction 1", FORMAT)  # to which targets are added; an older one becomes the newest

Box = tuple[float, float, float, float]  # left, top, width, height, in points from the drawing's upper left


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
    svg: bytes  # empty where the report has a table instead
    focus: Box | None = None  # the part of the drawing that its headline shows


def announce(files: tuple[str, ...], out: Path) -> None:
    """Say in the manifest that these files are ours before they are there: one may be killed in between."""
    manifest = read_manifest(out)
    if not set(files) <= set(manifest[ANNOUNCED]):
        _write(manifest | {ANNOUNCED: sorted({*manifest[ANNOUNCED], *files})}, out)


def read_manifest(out: Path) -> dict[str, Any]:
    """What earlier commands made in this folder."""
    path = out / MANIFEST
    if not path.exists():
        return {"format": FORMAT, ANNOUNCED: [], "targets": {}}
    found = parsed(path)
    if found is not None and found["format"] in READABLE:
        return found | {"format": FORMAT}
    raise InputError("--out", str(out), f"a folder without a {MANIFEST} of some other program; move that file away")


def parsed(path: Path) -> dict[str, Any] | None:
    """A manifest of ours, of whatever version; None if the file is something else."""
    try:
        found = {ANNOUNCED: []} | json.loads(path.read_text(encoding="utf-8"))
        entries = found["targets"].values()
        if isinstance(found["format"], str) and all(isinstance(e["files"], list) for e in (*entries, found)):
            return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def told(finding: Finding) -> dict[str, Any]:
    """A finding with its verdict and the numbers it rests on; its points are in the CSV."""
    numbers = finding.points.numbers if finding.points else ()
    own = {name: value for name, value in vars(finding).items() if name != "points"}
    return {**own, "verdict": finding.verdict, "numbers": [asdict(number) for number in numbers]}


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


def enter(made: Made, effort: Effort, out: Path) -> None:
    manifest = read_manifest(out)
    manifest["targets"][made.name] = {
        "title": made.title,
        "command": made.command,
        "quick": effort.quick,
        "settings": made.computed.settings,
        "note": made.computed.note,
        "findings": [told(finding) for finding in made.computed.findings],
        "files": list(made.files),
        "seconds": round(made.seconds, 3),
        "versions": all_versions(),
        "machine": machine(effort.device),
    }
    _write(manifest, out)


def _write(manifest: dict[str, Any], out: Path) -> None:
    put(out / MANIFEST, to_json(manifest, indent=2) + "\n")
