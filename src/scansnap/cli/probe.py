"""``scansnap probe``: measure the attention of a folder of checkpoints, or compare two measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.checks import InputError
from scansnap.cli.console import err, out, print_json, progress_bar
from scansnap.cli.options import Device, Json, Overwrite, check_output, refuse_existing


def measure(
    folder: Annotated[
        str,
        typer.Argument(
            help="A folder of checkpoints (Hugging Face folders, or files with state dicts), or "
            "hf:ORGANISATION/NAME, a repository of the hub with a branch for each step."
        ),
    ],
    batch: Annotated[
        Path, typer.Option(help="The text to measure on, or token ids (sequence, position) in .pt or .npy.")
    ],
    loader: Annotated[
        str, typer.Option(help="hf, or module:function, where function(path) returns a model or (model, tokenizer).")
    ] = "hf",
    steps: Annotated[
        str | None,
        typer.Option(help="Regular expression whose group is the step in a name. [default: the last number]"),
    ] = None,
    revisions: Annotated[
        str, typer.Option(help="Of a repository: all, log:N (N per decade of steps), or names separated by commas.")
    ] = "log:10",
    cache: Annotated[
        Path | None, typer.Option(help="Keep downloaded revisions in this folder. [default: remove each when measured]")
    ] = None,
    target: Annotated[Path, typer.Option("--out", help="Write all measurements into this Zarr folder.")] = Path(
        "probe.zarr"
    ),
    queries: Annotated[int, typer.Option(help="Query positions measured in each sequence.")] = 64,
    corpus: Annotated[
        Path | None, typer.Option(help="A text from which common and distinct tokens are counted. [default: the batch]")
    ] = None,
    length: Annotated[int | None, typer.Option(help="Tokens per sequence, an odd number. [default: 127]")] = None,
    sequences: Annotated[int | None, typer.Option(help="Number of sequences of the text. [default: 16]")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a report to this file: a name ending in .html.")] = None,
    device: Device = "auto",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Measure the attention of a folder of checkpoints.

    The report shows which heads scan, which snap, and when. After a stop, the same command continues. Checkpoints with
    the same weights are measured once, at the first step. What cannot be read is skipped and listed, and the exit code
    is 1.
    """
    check_output("--out", target, ".zarr")
    if report is not None:
        check_output("--report", report, ".html")
    may_replace = overwrite or target.exists()
    from scansnap.probe.checkpoints import measure_folder

    try:
        with progress_bar("checkpoints") as bar:

            def report_progress(done: int, total: int) -> None:
                """Also refuses to replace a report: the first call comes when everything that was typed is read."""
                if report is not None:
                    refuse_existing("--report", report, may_replace)
                bar(done, total)

            done = measure_folder(
                folder, batch, out=target, loader=loader, steps=steps, revisions=revisions, cache=cache,
                queries=queries, corpus=corpus, length=length, sequences=sequences, device=device,
                overwrite=overwrite, progress=report_progress,
            )  # fmt: skip
    except InputError as error:
        if error.field != "out":
            raise
        raise error.with_field("--out", {"overwrite=True": "--overwrite"}) from None
    except KeyboardInterrupt:
        place = f"Measurements are in {target}. " if target.exists() else ""
        err.print(f"Stopped. {place}Continue with the same command.", markup=False)
        return 130
    for sentence in done.messages:
        err.print(f"Note: {sentence}.", markup=False)
    if report is not None:
        done.probe.report(report)
    if as_json:
        print_json(_summary(done, target, report))
    else:
        _print(done, target, report)
    return 1 if done.skipped else 0


def _summary(done: Any, target: Path, report: Path | None) -> dict[str, Any]:
    data = done.data
    return {
        "file": str(target),
        "model": data.attrs["model"],
        "parameters": data.attrs["parameters"],
        "coverage": data.attrs.get("coverage"),
        "headline": data.attrs.get("headline"),
        "checkpoints": [{"name": c.name, "step": c.step, "sha": c.sha} for c in done.checkpoints],
        "same": [{"name": copy.name, "as": first.name} for copy, first in done.duplicates],
        "skipped": [{"name": name, "reason": reason} for name, reason in done.skipped],
        "steps": data.step.values.tolist(),
        "there_before": done.n_earlier,
        "seconds": round(done.seconds, 3),
        "heads": [{"path": str(data.path.values[layer]), "call": int(data.call.values[layer]), "head": head,
                   "verdict": str(data.verdict.values[layer, head])}
                  for layer in range(data.sizes["layer"]) for head in range(data.sizes["head"])
                  if str(data.verdict.values[layer, head])],
        "report": None if report is None else str(report),
    }  # fmt: skip


def _print(done: Any, target: Path, report: Path | None) -> None:
    from scansnap.probe.findings import summary

    data = done.data
    before = f", {done.n_earlier} were there already" if done.n_earlier else ""
    out.print(f"{data.attrs['model']} ({data.attrs['parameters']:,} parameters), {data.sizes['step']} checkpoints "
              f"in {done.seconds:.1f} s{before}; {data.attrs.get('coverage', '')}", markup=False)  # fmt: skip
    out.print(summary(data), markup=False)
    out.print(f"file {target}", markup=False)
    if report is not None:
        out.print(f"page {report}", markup=False)


def diff(
    a: Annotated[Path, typer.Argument(help="The measurements of one run, in a probe's .zarr folder.")],
    b: Annotated[Path, typer.Argument(help="The measurements of another run on the same batch.")],
    match: Annotated[
        str, typer.Option(help="Compare heads of the same number (index), or pair similar heads (similarity).")
    ] = "index",
    seed_of_a: Annotated[
        Path | None, typer.Option(help="Another seed of the settings of A, to see how much seeds differ.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write both runs side by side to this file: a name ending in .html.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Compare two runs at their last measurement, head by head, with 95% intervals over sequences.

    Also the order of events in each run: the first step at which a head attends to the previous token, to the token
    after an earlier occurrence (induction), or to the first token (sink), or at which its entropy has collapsed.
    """
    if report is not None:
        check_output("--report", report, ".html")
    import scansnap as ss
    from scansnap.probe.comparison import describe, write_page

    fields = {"a": "A", "b": "B", "seed_of_a": "--seed-of-a", "match": "--match"}
    runs: dict[str, Any] = {}
    try:
        for name, path in (("a", a), ("b", b), ("seed_of_a", seed_of_a)):
            field = name
            if path is not None:
                runs[name] = ss.load(path)
        field = ""
        result = ss.probe.diff(match=match, **runs)
    except InputError as error:
        raise error.with_field(fields[field or error.field]) from None
    if report is not None:
        refuse_existing("--report", report, overwrite)
    names = (a.stem, b.stem)
    if report is not None:
        write_page(runs["a"], runs["b"], result, report, names)
    if as_json:
        print_json(result.to_dict())
    else:
        out.print(describe(result, names), markup=False)
    return 0
