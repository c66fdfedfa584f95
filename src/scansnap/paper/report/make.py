"""Make one target: compute, draw, and write its CSV, PNG and PDF and its entry in manifest.json."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from scansnap.checks import InputError
from scansnap.paper.figure import Computed, Effort
from scansnap.paper.report.changes import CHANGES
from scansnap.paper.report.manifest import ANNOUNCED, Box, TargetResult, add_entry, announce, read_manifest
from scansnap.paper.report.targets import IN_WORDS, find
from scansnap.paper.shared.run_cache import discard_runs
from scansnap.plots.style import FILES_ONLY, HEADLINE, add_note, fix_labels, render, settle
from scansnap.progress import Progress
from scansnap.storage import check_writable, put

REPORT = "report.html"
EXPLORER = "explorer.html"  # where the links of the report lead
UNFINISHED = ".unfinished"  # runs of targets that were stopped
WRITTEN = ("png", "pdf")


@dataclass(frozen=True)
class DrawnTarget:
    """One target, computed and drawn but not written; processes exchange it."""

    name: str
    computed: Computed
    pictures: dict[str, bytes]  # by format; without an SVG where the report has a table
    seconds: float
    focus: Box | None = None


def make(name: str, effort: Effort, out: Path, progress: Progress | None = None) -> TargetResult:
    """Compute one target; write its files only after all of it succeeded."""
    return save_target(draw_target(name, effort, out, progress), effort, out)


def draw_target(name: str, effort: Effort, out: Path, progress: Progress | None = None) -> DrawnTarget:
    """Compute and draw; write only runs, from which a stopped command continues."""
    began = time.perf_counter()
    figure = find(name)
    computed = figure.compute(replace(effort, cache_folder=out / UNFINISHED / name), progress)
    drawing = figure.draw(computed)
    if computed.note:
        add_note(drawing, computed.note)
    label_headline(drawing)
    settle(drawing)
    pictures = {}
    for kind in WRITTEN:
        pictures[kind] = render(drawing, kind)
        fix_labels(drawing)
    if name not in IN_WORDS:
        pictures["svg"] = on_page(drawing)
    return DrawnTarget(name, replace(computed, extra={}), pictures, time.perf_counter() - began, focus(drawing))


def on_page(drawing: Figure) -> bytes:
    """The SVG of what the report shows."""
    left_out = drawing.findobj(lambda artist: artist.get_gid() == FILES_ONLY)
    if not left_out:
        return render(drawing, "svg")
    for artist in left_out:
        artist.set_visible(False)
    width, height = drawing.get_size_inches()
    edge = max(artist.get_window_extent().y1 for artist in left_out) / drawing.dpi
    return render(drawing, "svg", Bbox.from_extents(0, edge, width, height))


def label_headline(drawing: Figure) -> None:
    """Give the headline's axes the tick labels and the axis label that they share with axes beside them."""
    specs: dict[Any, Any] = {axes: axes.get_subplotspec() for axes in drawing.axes}
    for axes, spec in specs.items():
        if axes.get_gid() != HEADLINE or spec is None:
            continue
        axes.tick_params(labelbottom=True, labelleft=True)
        row = [
            neighbour for neighbour, its_spec in specs.items()
            if its_spec is not None and its_spec.get_gridspec() is spec.get_gridspec()
            and its_spec.rowspan == spec.rowspan
        ]  # fmt: skip
        if not axes.get_ylabel():
            axes.set_ylabel(next((label for neighbour in row if (label := neighbour.get_ylabel())), ""))


def focus(drawing: Figure) -> Box | None:
    """The box of the axes marked as the headline; None (the whole drawing) if none are."""
    for axes in drawing.findobj(lambda artist: artist.get_gid() == HEADLINE):
        pixels: Any = axes.get_tightbbox()
        inches = pixels.transformed(drawing.dpi_scale_trans.inverted())
        box = inches.x0, drawing.get_figheight() - inches.y1, inches.width, inches.height
        left, top, width, height = (round(72 * float(x), 1) for x in box)
        return left, top, width, height
    return None


def save_target(target: DrawnTarget, effort: Effort, out: Path) -> TargetResult:
    """Write the files of a target and its entry in the manifest."""
    name, computed, files = target.name, target.computed, files_of(target.name)
    announce(files, out)
    put(out / files[0], computed.table.to_csv(index=False))
    for file, kind in zip(files[1:], WRITTEN, strict=True):
        put(out / file, target.pictures[kind])
    figure = find(name)
    result = TargetResult(name, figure.TITLE, figure.CAPTION, computed, command(name, effort), target.seconds, files,
                target.pictures.get("svg", b""), target.focus)  # fmt: skip
    add_entry(result, effort, out)
    discard_runs(out / UNFINISHED / name)
    return result


def command(targets: str, effort: Effort) -> str:
    """The command that reproduces the targets."""
    options = ["--quick"] * effort.quick
    if effort.device != "auto":
        options.append(f"--device {effort.device}")
    data = effort.data if isinstance(effort.data, tuple) else [] if effort.data is None else [effort.data]
    options += [f"--data {name}" for name in data]
    return " ".join(["scansnap reproduce", targets, *options])


def files_of(name: str) -> tuple[str, ...]:
    """The file names of a target."""
    return tuple(f"{name}.{kind}" for kind in ("csv", *WRITTEN))


def prepare(out: Path, names: Sequence[str], overwrite: bool = False, against: bool = False) -> None:
    """Refuse, before any work, files that cannot be written or that another program wrote."""
    check_writable("--out", out, inside=True)
    manifest = read_manifest(out)
    own_files = {*manifest[ANNOUNCED], *(file for entry in manifest["targets"].values() for file in entry["files"])}
    planned = [file for name in names for file in files_of(name)]
    planned += [REPORT, EXPLORER] * (len(names) > 1) + [CHANGES] * against
    for file in planned:
        if (out / file).is_dir():
            raise InputError("--out", str(out), f"a folder without a folder {file}")
        if not overwrite and file not in own_files and (out / file).exists():
            raise InputError("--out", str(out), f"a folder whose {file} is from an earlier reproduction; move yours "
                             "away (or pass --overwrite)")  # fmt: skip


def write_page(name: str, text: str, out: Path) -> Path:
    """Write the report or the explorer."""
    announce((name,), out)
    put(out / name, text)
    return out / name
