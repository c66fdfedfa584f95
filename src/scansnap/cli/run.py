"""``scansnap run``: simulate, save the trajectory and draw a figure of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.checks import InputError, check_keys
from scansnap.classes import SequenceClasses
from scansnap.classes.toml import load_table
from scansnap.cli.console import err, out, print_json, progress_bar
from scansnap.cli.options import (
    RESUME_OR_REPLACE,
    Device,
    File,
    Json,
    Overwrite,
    Preset,
    Resume,
    Set,
    check_output,
    default_output,
    find_classes,
    numbered_output,
    preset_settings,
    refuse_existing,
)
from scansnap.dynamics.settings import run_settings
from scansnap.interrupt import Interrupted
from scansnap.runs import run_fields

OUTPUT = "out/run.zarr"


def run(
    file: File = None,
    preset: Preset = None,
    preset_set: Set = None,
    *,
    device: Device = "auto",
    target: Annotated[
        Path | None, numbered_output("Write the trajectory here: a name ending in .zarr or .nc.", OUTPUT)
    ] = None,
    figure: Annotated[bool, typer.Option(help="Draw an overview beside the trajectory.")] = True,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    **overrides: Any,
) -> int:
    """Train the YZ model on sequence classes and draw the result.

    Options override the settings in FILE. Lists of rates and seeds (0.5,1 or 0:10) are combined: each combination is a
    run, and all runs are trained at once.
    """
    if target is None:
        target = default_output(Path(OUTPUT), ".png", resume=resume, overwrite=overwrite)
    check_output("--out", target, ".zarr", ".nc")
    preset_options = preset_settings(preset_set)
    classes, rates, options = find_run(file, overrides)
    if classes is None or preset is not None or preset_options:
        classes = find_classes(None, preset, preset_options)
    from scansnap.dynamics.device import pick_device
    from scansnap.dynamics.settings import arguments, settings
    from scansnap.dynamics.simulate import simulate
    from scansnap.runs import grid

    began = time.monotonic()
    runs = grid(**{"momentum": 0.0} | rates)
    settings(options)  # like the next line: report what was typed before clashes of files
    pick_device(device)
    refuse_existing("--out", target, overwrite or resume, RESUME_OR_REPLACE)
    picture = target.with_suffix(".png")
    is_drawn = resume and not overwrite and target.exists() and picture.exists()
    if figure and not is_drawn:
        check_output("the figure beside --out", picture)
        refuse_existing("the figure beside --out", picture, overwrite, "--overwrite to replace it or --no-figure")
    with progress_bar("steps") as progress:
        try:
            data = simulate(
                classes, runs, **arguments(options), device=device, progress=progress,
                save_to=target, resume=resume, overwrite=overwrite,
            )  # fmt: skip
        except InputError as error:
            if error.field != "save_to":
                raise
            raise error.with_field("--out", {"overwrite=True": "--overwrite", "resume=True": "--resume"}) from None
        except Interrupted as interrupted:
            data = interrupted.partial
    if not data.attrs["complete"]:
        err.print(f"Stopped after {int(data.step[-1])} steps. Continue with the same command and --resume.")
        return 130
    figure = figure and {"attention", "z", "entropy", "loss"} <= set(data.data_vars)
    if figure and not is_drawn:
        from scansnap.plots import overview
        from scansnap.plots.style import save_figure

        save_figure(overview.draw(overview.compute(data)), picture)
    summary = _summary(classes, data, target, picture if figure else None, time.monotonic() - began)
    if as_json:
        print_json(summary)
    else:
        _print(summary)
    return 0


def find_run(
    path: Path | None, overrides: dict[str, Any]
) -> tuple[SequenceClasses | None, dict[str, Any], dict[str, Any]]:
    """Classes (if the file has them), rates and settings; options of the command line override those of the file.

    A run file has two tables: ``[classes]`` (see classes/toml.py) and ``[run]`` with rates and settings.
    """
    rates, settings = run_fields(), run_settings()
    classes, run = None, {}
    if path is not None:
        table = load_table(path)
        if "classes" in table or "run" in table:
            check_keys(str(path), table, ("classes", "run"))
            run = table.get("run", {})
            if not isinstance(run, dict):
                raise InputError("run", run, "a table: [run]")
            check_keys("[run]", run, (*rates, *settings))
            classes = SequenceClasses.from_table(table["classes"], "[classes]") if "classes" in table else None
        else:
            classes = SequenceClasses.from_table(table, str(path))
    if "eta_y" in overrides or "ratio" in overrides:  # one of them replaces the other
        run = {k: v for k, v in run.items() if k not in ("eta_y", "ratio")}
    run = {"eta_z": rates["eta_z"].default} | run | overrides
    if "ratio" not in run:
        run.setdefault("eta_y", rates["eta_y"].default)
    return classes, {k: v for k, v in run.items() if k in rates}, {k: v for k, v in run.items() if k in settings}


def _summary(classes: SequenceClasses, data: Any, target: Path, picture: Path | None, seconds: float) -> dict[str, Any]:
    last = data.isel(step=-1)
    return {
        "classes": repr(classes),
        "runs": data.sizes["run"],
        "steps": int(data.step[-1]),
        "seconds": round(seconds, 3),
        "loss": float(last.loss.mean()) if "loss" in data else None,
        "entropy_start": float(data.entropy.isel(step=0).mean()) if "entropy" in data else None,
        "entropy": float(last.entropy.mean()) if "entropy" in data else None,
        "non_finite_runs": int((data.status != "ok").sum()),
        "trajectory": str(target),
        "figure": str(picture) if picture else None,
    }


def _print(summary: dict[str, Any]) -> None:
    runs = "1 run" if summary["runs"] == 1 else f"{summary['runs']} runs"
    out.print(f"{summary['classes']}\n{runs} of {summary['steps']} steps in {summary['seconds']:.2f} s", markup=False)
    if summary["loss"] is not None:
        out.print(f"loss {summary['loss']:.4g}")
    if summary["entropy"] is not None:
        out.print(f"entropy over distinct tokens {summary['entropy_start']:.3f} → {summary['entropy']:.3f} nats")
    if summary["non_finite_runs"]:
        out.print(f"[bold]{summary['non_finite_runs']} of {runs} became non-finite and stopped[/] (see status)")
    out.print(f"trajectory {summary['trajectory']}", markup=False)
    if summary["figure"]:
        out.print(f"figure     {summary['figure']}", markup=False)
