"""``scansnap run``: simulate, save the trajectory and draw what happened."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.cli.console import err, out, progress_bar, say_json
from scansnap.cli.options import Device, File, Json, Overwrite, Preset, Resume, Set, preset_settings
from scansnap.cli.places import place
from scansnap.cli.run_file import find_classes, find_run
from scansnap.interrupt import Interrupted


def run(
    file: File = None,
    preset: Preset = None,
    preset_set: Set = None,
    *,
    device: Device = "auto",
    target: Annotated[
        Path, typer.Option("--out", help="Where the trajectory goes: a name ending in .zarr or .nc.")
    ] = Path("out/run.zarr"),
    figure: Annotated[bool, typer.Option(help="Draw an overview beside the trajectory.")] = True,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    **given: Any,
) -> int:
    """Train the YZ transformer on sequence classes; write the trajectory and a figure.

    Options win over what FILE says. Lists of rates and seeds (0.5,1 or 0:10) make the outer product of runs, all at
    once.
    """
    knobs = preset_settings(preset_set)
    place("--out", target, ".zarr", ".nc", overwrite=overwrite or resume, hint="--overwrite or --resume")
    picture = target.with_suffix(".png")
    drawn = resume and not overwrite and target.exists() and picture.exists()
    if figure and not drawn:
        place("the figure beside --out", picture, overwrite=overwrite, hint="--overwrite or --no-figure")
    classes, rates, settings = find_run(file, given)
    if classes is None or preset is not None or knobs:
        classes = find_classes(None, preset, knobs)
    from scansnap.dynamics.settings import arguments
    from scansnap.dynamics.simulate import simulate
    from scansnap.runs import grid

    began = time.monotonic()
    momentum = rates.pop("momentum", 0.0)
    runs = grid(**rates, momentum=momentum)
    with progress_bar("steps") as progress:
        try:
            data = simulate(
                classes, runs, **arguments(settings), device=device, progress=progress,
                save_to=target, resume=resume, overwrite=overwrite,
            )  # fmt: skip
        except InputError as error:
            if error.field != "save_to":
                raise
            raise error.with_field("--out", {"overwrite": "--overwrite", "resume": "--resume"}) from None
        except Interrupted as interrupted:
            data = interrupted.partial
    if not data.attrs["complete"]:
        steps = int(data.step[-1])
        err.print(f"Stopped after {steps} steps. Nothing is lost: run the same command with --resume to go on.")
        return 130
    figure = figure and {"attention", "z", "entropy", "loss"} <= set(data.data_vars)
    if figure and not drawn:
        from scansnap.plots import overview
        from scansnap.plots.style import save_figure

        save_figure(overview.draw(overview.compute(data)), picture)
    summary = _summary(classes, data, target, picture if figure else None, time.monotonic() - began)
    if as_json:
        say_json(summary)
    else:
        _tell(summary)
    return 0


def _summary(classes: SequenceClasses, data: Any, target: Path, picture: Path | None, seconds: float) -> dict[str, Any]:
    last = data.isel(step=-1)
    failed = int((data.status != "ok").sum())
    return {
        "classes": repr(classes),
        "runs": data.sizes["run"],
        "steps": int(data.step[-1]),
        "seconds": round(seconds, 3),
        "loss": float(last.loss.mean()) if "loss" in data else None,
        "entropy_start": float(data.entropy.isel(step=0).mean()) if "entropy" in data else None,
        "entropy": float(last.entropy.mean()) if "entropy" in data else None,
        "non_finite_runs": failed,
        "trajectory": str(target),
        "figure": str(picture) if picture else None,
    }


def _tell(summary: dict[str, Any]) -> None:
    runs = "1 run" if summary["runs"] == 1 else f"{summary['runs']} runs"
    out.print(f"{summary['classes']}\n{runs} of {summary['steps']} steps in {summary['seconds']:.2f} s", markup=False)
    if summary["loss"] is not None:
        out.print(f"loss {summary['loss']:.4g}")
    if summary["entropy"] is not None:
        out.print(f"entropy over distinct tokens {summary['entropy_start']:.3f} → {summary['entropy']:.3f} nats")
    if summary["non_finite_runs"]:
        out.print(f"[bold]{summary['non_finite_runs']} of {runs} became non-finite and were frozen[/] (see status)")
    out.print(f"trajectory {summary['trajectory']}", markup=False)
    if summary["figure"]:
        out.print(f"figure     {summary['figure']}", markup=False)
