"""The command line: parses, dispatches to the other files of this folder, and turns bad input into one sentence."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.cli import text_options

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="A laboratory for attention training dynamics: simulate and verify how transformers scan and snap.",
    epilog="Example: scansnap run --preset syn-small --eta-y 1 --eta-z 1 --momentum 0.9 --out out/first.zarr",
)

app.add_typer(text_options.app, name="text")
_Misuse: Any = typer.BadParameter.__base__  # click's UsageError, of which typer may carry its own copy

File = Annotated[Path | None, typer.Argument(help="A TOML file with classes, or with [classes] and [run].")]
Preset = Annotated[str | None, typer.Option(help="syn-small, syn-medium, textbook, synthetic or zipf.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A setting of the preset, such as n_queries=3.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace earlier results.")]


@app.command(epilog="Example: scansnap run --preset syn-medium --set n_queries=3 --eta-z 0.5,1 --ratio 1,2 --seed 0:10")
def run(
    file: File = None,
    preset: Preset = None,
    preset_set: Set = None,
    eta_y: Annotated[str | None, typer.Option(help="Decoder rate η_Y; several with commas. [default: 1]")] = None,
    eta_z: Annotated[str | None, typer.Option(help="Attention rate η_Z; several with commas. [default: 1]")] = None,
    ratio: Annotated[str | None, typer.Option(help="η_Y / η_Z, instead of --eta-y.")] = None,
    seed: Annotated[str | None, typer.Option(help="Seeds: 0, or 0,1,2, or 0:10.")] = None,
    momentum: Annotated[str | None, typer.Option(help="Momentum, from 0 to below 1; several with commas.")] = None,
    weight_decay: Annotated[str | None, typer.Option(help="Weight decay; several with commas.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of updates. [default: 100]")] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(
            help="Sequences per update, or none (expectation over classes; needs --context inf). [default: 128]"
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Sequence length T, or inf. [default: 128]")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, nesterov, adam, adamw, sign or muon.")] = None,
    init: Annotated[str | None, typer.Option(help="zero, uniform or normal(std).")] = None,
    norm: Annotated[str | None, typer.Option(help="l2, none or layernorm.")] = None,
    residual: Annotated[str | None, typer.Option(help="none, normed or plain.")] = None,
    query_in_keys: Annotated[bool, typer.Option("--query-in-keys", help="The query attends to itself too.")] = False,
    outputs: Annotated[str | None, typer.Option(help="Softmax over all tokens, or over the next tokens only.")] = None,
    heads: Annotated[int | None, typer.Option(help="Heads whose attentions are averaged.")] = None,
    position_bias: Annotated[str | None, typer.Option(help="ALiBi slope, or values by distance with commas.")] = None,
    sampling: Annotated[str | None, typer.Option(help="counts, or tokens (explicit sequences).")] = None,
    record: Annotated[str | None, typer.Option(help="Steps to keep: 0,2,4,100, all, linear:N or log:N.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64.")] = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Where the trajectory goes: a name ending in .zarr or .nc.")] = Path(
        "out/run.zarr"
    ),
    figure: Annotated[bool, typer.Option(help="Draw an overview beside the trajectory.")] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train the YZ transformer on sequence classes; write the trajectory and a figure.

    Options win over what FILE says. Lists of rates and seeds make the outer product of runs, all at once.
    """
    from scansnap.cli.console import knobs, numbers
    from scansnap.cli.run import run as body

    texts = {"eta_y": eta_y, "eta_z": eta_z, "ratio": ratio, "seed": seed, "momentum": momentum,
             "weight_decay": weight_decay}  # fmt: skip
    given: dict[str, Any] = {name: numbers(name, text) for name, text in texts.items() if text is not None}
    plain = {"steps": steps, "optimizer": optimizer, "init": init, "norm": norm, "residual": residual,
             "outputs": outputs, "heads": heads, "sampling": sampling, "dtype": dtype}  # fmt: skip
    given |= {name: value for name, value in plain.items() if value is not None}
    if query_in_keys:
        given["query_in_keys"] = True
    if context is not None:
        given["context"] = context if context == "inf" else numbers("context", context)[0]
    if batch_size is not None:
        given["batch_size"] = None if batch_size == "none" else numbers("batch_size", batch_size)[0]
    if position_bias is not None:
        values = numbers("position_bias", position_bias)
        given["position_bias"] = values[0] if len(values) == 1 else values
    if record is not None:
        given["record"] = record if record[:1].isalpha() else numbers("record", record)
    raise typer.Exit(
        body(file, preset=preset, preset_settings=knobs(preset_set or []), given=given, target=out, device=device,
             figure=figure, resume=resume, overwrite=overwrite, as_json=as_json)
    )  # fmt: skip


@app.command(epilog="Examples: scansnap info --preset syn-small; scansnap info --check out/run.zarr")
def info(
    file: Annotated[
        Path | None, typer.Argument(help="A TOML file, a trajectory, a sweep, a text model or an unfinished run.")
    ] = None,
    preset: Preset = None,
    preset_set: Set = None,
    every: Annotated[bool, typer.Option("--all", help="Show all classes.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compare every byte of FILE with its checksums; exit code 1 if damaged.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show sequence classes, a saved file, or (with nothing given) this installation."""
    from scansnap.cli.console import knobs
    from scansnap.cli.info import info as body

    raise typer.Exit(body(file, preset, knobs(preset_set or []), every, check, as_json))


@app.command(
    epilog="Examples: scansnap verify --preset textbook --eta-y 0.9 --eta-z 0.02; "
    "scansnap verify --map theorem-1 --x ratio=1:1000:log --y overlap=0.01:0.9"
)
def verify(
    file: Annotated[Path | None, typer.Argument(help="A TOML file with classes, or a saved trajectory.")] = None,
    classes: Annotated[Path | None, typer.Option(help="A TOML file with classes (the same as FILE).")] = None,
    preset: Preset = None,
    preset_set: Set = None,
    eta_y: Annotated[float, typer.Option(help="Decoder rate η_Y.")] = 0.9,
    eta_z: Annotated[float, typer.Option(help="Attention rate η_Z.")] = 0.02,
    finite_t: Annotated[int | None, typer.Option("--finite-T", help="Judge an SGD run at this length T.")] = None,
    t_end: Annotated[float | None, typer.Option(help="How far to go. [default: 100 t₀, SGD 10 t₀]")] = None,
    run: Annotated[int, typer.Option(help="Which run of a saved trajectory.")] = 0,
    three_way: Annotated[bool, typer.Option("--three-way", help="When closed form, flow and SGD part.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report here (- is the screen).")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the claims' curves into this PNG, PDF or SVG.")] = None,
    map_of: Annotated[str | None, typer.Option("--map", help="Draw a regime map of this theorem instead.")] = None,
    x: Annotated[str, typer.Option(help="Horizontal axis of the map.")] = "ratio=1:1000:log",
    y: Annotated[str, typer.Option(help="Vertical axis of the map.")] = "overlap=0.01:0.9",
    points: Annotated[int, typer.Option(help="Points along each axis of the map.")] = 30,
    out: Annotated[Path, typer.Option(help="Where the map goes; its data goes beside it as CSV.")] = Path(
        "out/map.png"
    ),
    overwrite: Overwrite = False,
) -> None:
    """Hold every lemma and theorem against a setting: holds, fails, or not applicable, with numbers.

    Exit code 0 when nothing fails, 1 when something does. By default on the exact T → ∞ flow.
    """
    from scansnap.checks import InputError
    from scansnap.cli.console import knobs
    from scansnap.cli.verify import regime_map
    from scansnap.cli.verify import verify as body

    if map_of is not None:
        raise typer.Exit(regime_map(map_of, x, y, points, out, overwrite))
    if file is not None and classes is not None:
        raise InputError("--classes", str(classes), "left out when FILE is given")
    raise typer.Exit(
        body(file or classes, preset=preset, preset_settings=knobs(preset_set or []), eta_y=eta_y, eta_z=eta_z,
             finite_t=finite_t, t_end=t_end, run=run, json_file=json_file, figure=figure, three_way=three_way,
             overwrite=overwrite)
    )  # fmt: skip


@app.command(epilog="Examples: scansnap reproduce all --out out; scansnap reproduce fig6 fig11 --quick")
def reproduce(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="all, synthetic, text, or fig1 to fig12, table1, claims, layers, words, sparsity. [default: all]"
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for CSV, PNG, PDF, manifest.json and report.html.")] = Path(
        "out"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds and settings, said on each figure.")] = False,
    data: Annotated[
        str | None,
        typer.Option(help="Text to use: a folder, a file or wikitext-2. [default: SCANSNAP_DATA or stdlib]"),
    ] = None,
    device: Device = "auto",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are not from an earlier reproduction too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the paper's figures, table and theorems anew, and count where they agree with the paper.

    Exit code 0 when everything was made, whatever the verdicts: a disagreement is a finding.
    """
    from scansnap.cli.reproduce import reproduce as body

    raise typer.Exit(body(targets or [], out, quick, data, device, overwrite, as_json))


@app.command(epilog="Example: scansnap sweep examples/sweep.toml --out out/fig6.zarr --dry-run")
def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file with [classes], [grid], [run] and [measure].")],
    out: Annotated[Path, typer.Option(help="The Zarr store that all runs go into.")] = Path("out/sweep.zarr"),
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Ray cluster: auto, host:port or ray://host:port.")] = None,
    cpus_per_group: Annotated[int, typer.Option(help="With Ray: CPUs, and threads, of a group.")] = 1,
    gpus_per_group: Annotated[float, typer.Option(help="With Ray: GPUs of a group; above 0 it runs on CUDA.")] = 0.0,
    memory: Annotated[str | None, typer.Option(help="Most memory a group may take. [default: 4GB]")] = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Do what is missing in the store.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier store.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run a grid of rates, seeds and class sets, in batched groups, into one store.

    It can be stopped or killed at any time: --resume does what is missing and ends with the same bytes.
    """
    from scansnap.cli.sweep import sweep as body

    raise typer.Exit(
        body(file, target=out, engine=engine, address=address, cpus=cpus_per_group, gpus=gpus_per_group,
             memory=memory, device=device, resume=resume, overwrite=overwrite, dry_run=dry_run, as_json=as_json)
    )  # fmt: skip


@app.command(epilog="Example: scansnap bench --quick")
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the runs and of the plain loop's steps.")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Time the whole Figure 6 sweep against a plain one-hot autograd loop, in this process."""
    from scansnap.cli.bench import bench as body

    raise typer.Exit(body(quick, device, as_json))


@app.command(epilog="Example: scansnap serve --port 8765 --no-open")
def serve(
    port: Annotated[int, typer.Option(help="The port to listen on; 0 picks a free one.")] = 8765,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    folder: Annotated[Path | None, typer.Option(help="The folder whose trained text models may be shown.")] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Watch attention scan and snap in a browser.

    Everything stays on this machine: the page is served on the loopback address and asks for nothing else.
    """
    from scansnap.cli.serve import serve as body

    raise typer.Exit(body(host, port, folder, open_browser))


def main() -> None:
    """Entry point: exit code 2 and one sentence for bad input, 1 where the machine fails, 128 + signal when ended."""
    from scansnap.interrupt import ending_quietly

    with ending_quietly():
        code = _call()
        try:
            sys.stdout.flush()  # here, where it can still be told
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # not tried again when the process ends
            code = code or _ended_by(error)
    sys.exit(code)


def _call() -> int:
    """One command; whatever a user or a machine can do wrong is one sentence, never a traceback."""
    from scansnap.checks import InputError
    from scansnap.interrupt import Stopped, exit_code

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the name of a file need not be text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Stopped)  # no verdict on half a run
            code = app(standalone_mode=False) or 0
    except InputError as error:
        return _sorry(str(error), 2)
    except _Misuse as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return 2
        return _sorry(error.format_message().rstrip(".") + ".", 2)
    except KeyboardInterrupt:
        return exit_code()
    except (OSError, MemoryError) as error:
        return _ended_by(error)
    return exit_code() if code == 130 else code


def _ended_by(error: OSError | MemoryError) -> int:
    if isinstance(error, BrokenPipeError):  # the reader of our output went away
        return 141
    if isinstance(error, MemoryError):
        return _sorry(f"there is not enough memory ({str(error) or 'none is left'}).", 1)
    return _sorry(str(error), 1)


def _sorry(sentence: str, code: int) -> int:
    with suppress(OSError):
        print("Error:", " ".join(sentence.split()), file=sys.stderr)
    return code
