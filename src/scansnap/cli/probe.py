"""``scansnap probe``: the attention of a folder of checkpoints, over training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.checks import InputError
from scansnap.cli.console import err, out, progress_bar, say_json
from scansnap.cli.options import Device, Json, Overwrite
from scansnap.cli.places import place


def probe(
    folder: Annotated[Path, typer.Argument(help="Checkpoints: folders of Hugging Face, or files with state dicts.")],
    batch: Annotated[Path, typer.Option(help="A text to look at, or token ids (sequence, position) in .pt or .npy.")],
    loader: Annotated[
        str, typer.Option(help="hf, or module:function with function(path) → model or (model, tokenizer).")
    ] = "hf",
    steps: Annotated[
        str | None,
        typer.Option(help="Regular expression whose group is the step in a name. [default: the last number]"),
    ] = None,
    target: Annotated[Path, typer.Option("--out", help="The Zarr folder that all measurements go to.")] = Path(
        "probe.zarr"
    ),
    queries: Annotated[int, typer.Option(help="Positions looked at in each sequence.")] = 64,
    corpus: Annotated[
        Path | None, typer.Option(help="A text that tells common from distinct tokens. [default: the batch]")
    ] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a sequence, odd. [default: 127]")] = None,
    sequences: Annotated[int | None, typer.Option(help="Sequences of the text. [default: 16]")] = None,
    report: Annotated[Path | None, typer.Option(help="A page about it: a name ending in .html.")] = None,
    device: Device = "auto",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Measure the attention of every checkpoint, in the order of steps: which heads scan, which snap, and when.

    Stopped at any time, the same command goes on. Checkpoints with the same weights are measured once.
    """
    place("--out", target, ".zarr", overwrite=True)
    if report is not None:
        place("--report", report, ".html", overwrite=overwrite or target.exists())
    from scansnap.probe.checkpoints import measure_folder

    try:
        with progress_bar("checkpoints") as bar:
            done = measure_folder(
                folder, batch, out=target, loader=loader, steps=steps, queries=queries, corpus=corpus, length=length,
                sequences=sequences, device=device, overwrite=overwrite, progress=bar,
            )  # fmt: skip
    except InputError as error:
        if error.field != "out":
            raise
        raise error.with_field("--out", {"overwrite=True": "--overwrite"}) from None
    except KeyboardInterrupt:
        kept = f"What was measured is in {target}: " if target.exists() else ""
        err.print(f"Stopped. {kept}the same command goes on.", markup=False)
        return 130
    for sentence in done.said:
        err.print(f"Note: {sentence}.", markup=False)
    if report is not None:
        done.probe.report(report)
    if as_json:
        say_json(_summary(done, target, report))
    else:
        _tell(done, target, report)
    return 0


def _summary(done: Any, target: Path, report: Path | None) -> dict[str, Any]:
    data = done.data
    return {
        "file": str(target),
        "model": data.attrs["model"],
        "parameters": data.attrs["parameters"],
        "coverage": data.attrs.get("coverage"),
        "checkpoints": [{"name": one.name, "step": one.step, "sha": one.sha} for one in done.checkpoints],
        "same": [{"name": one.name, "as": other.name} for one, other in done.same],
        "steps": data.step.values.tolist(),
        "there_before": done.before,
        "seconds": round(done.seconds, 3),
        "heads": [{"path": str(data.path.values[layer]), "call": int(data.call.values[layer]), "head": head,
                   "verdict": str(data.verdict.values[layer, head])}
                  for layer in range(data.sizes["layer"]) for head in range(data.sizes["head"])
                  if str(data.verdict.values[layer, head])],
        "report": None if report is None else str(report),
    }  # fmt: skip


def _tell(done: Any, target: Path, report: Path | None) -> None:
    from scansnap.probe.findings import summary

    data = done.data
    before = f", {done.before} were there already" if done.before else ""
    out.print(f"{data.attrs['model']} ({data.attrs['parameters']:,} parameters), {data.sizes['step']} checkpoints "
              f"in {done.seconds:.1f} s{before}; {data.attrs.get('coverage', '')}", markup=False)  # fmt: skip
    out.print(summary(data), markup=False)
    out.print(f"file {target}", markup=False)
    if report is not None:
        out.print(f"page {report}", markup=False)
