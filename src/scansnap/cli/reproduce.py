"""``scansnap reproduce``: the paper's figures, table and claims from new runs, with verdicts and a report."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from scansnap.checks import InputError
from scansnap.cli.console import err, new_table, out, print_json, progress_bar
from scansnap.cli.options import Device, Json
from scansnap.interrupt import raise_during_imports
from scansnap.paper.report.targets import GROUPS, READS_A_CORPUS, chosen, label, require
from scansnap.processes import start_forkserver
from scansnap.storage import write_lock

if TYPE_CHECKING:
    from scansnap.claims.claim import Kind
    from scansnap.paper.figure import Effort, Verdict
    from scansnap.paper.report.changes import Changes
    from scansnap.paper.report.manifest import TargetResult

STYLE = {
    "agrees": "green", "mostly agrees": "green", "mixed": "yellow", "mostly disagrees": "red", "disagrees": "bold red",
    "undecided": "magenta", "not applicable": "dim",
}  # fmt: skip
FINDING = ("says", "reference", "kind", "agree", "of", "undecided", "verdict")  # in the JSON report


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGETS]...",
            help="all, synthetic, theory, text, or single targets: fig1 to fig12, table1, claims, timescales, "
            "numbered, validity, deviations, crossover, layers, words, sparsity, probe, dial. all leaves out the last "
            "two. [default: all]",
        ),
    ] = None,
    target: Annotated[
        Path, typer.Option("--out", help="Write figures, CSV, manifest.json, report.html and explorer.html here.")
    ] = Path("out"),
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer seeds and settings; each figure says so.")] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="The text: a folder, a file or wikitext-2; basic_english:NAME lower-cases it. Figure 10 compares "
            "several: pass --data again, or a folder of folders. [default: SCANSNAP_DATA or stdlib]"
        ),
    ] = None,
    device: Device = "auto",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also replace files that no earlier reproduction wrote.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            help="List which verdicts and numbers changed since this manifest.json of an earlier reproduction. Without "
            "TARGETS, compare what --out already holds."
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Reproduce the paper's figures and claims and write a report.

    The exit code is 0 when everything was reproduced, whatever the verdicts, and 130 when stopped.
    """
    if device in ("auto", "cpu") and (not names or not GROUPS.keys().isdisjoint(names)):
        # loads these modules in parallel with this process
        start_forkserver(["scansnap.paper.report.parallel", "scansnap.paper.figures.claims"])
    from scansnap.dynamics.device import pick_device
    from scansnap.paper.figure import Effort
    from scansnap.paper.report.changes import earlier
    from scansnap.paper.report.make import command, make, prepare, save_target
    from scansnap.paper.report.manifest import read_manifest
    from scansnap.paper.report.parallel import count_processes, draw_in_parallel

    if against is not None and not names and (names_in_out := list(read_manifest(target)["targets"])):
        return _only_compare(earlier(against, names_in_out), against, names_in_out, target, as_json)
    todo = chosen(names or [])
    for name in todo:
        require(name)
    old = None if against is None else earlier(against, todo)
    pick_device(device)  # refuse a missing device or text before clashes of files and before any work
    if any(name in READS_A_CORPUS for name in todo):
        from scansnap.corpus.sources import find_corpora

        find_corpora(data)
    prepare(target, todo, overwrite, against=against is not None)
    effort = Effort(
        quick=quick, device=device, data=tuple(data) if data and len(data) > 1 else data[0] if data else None
    )
    began = time.monotonic()
    results: list[TargetResult] = []
    stopped = False
    with write_lock("--out", target), raise_during_imports():
        prepare(target, todo, overwrite, against=against is not None)  # again, under the lock
        try:
            if (n := count_processes(todo, effort)) > 1:
                with progress_bar(f"% of the work, {n} targets at a time") as progress:
                    for drawn in draw_in_parallel(todo, effort, target, n, progress):
                        results.append(save_target(drawn, effort, target))
                        _print_time(results[-1])
            rest = [name for name in todo if name not in {result.name for result in results}]
            for name in rest:
                with progress_bar(f"{name} ({len(results) + 1} of {len(todo)})") as progress:
                    results.append(make(name, effort, target, progress))
                _print_time(results[-1])
        except KeyboardInterrupt:
            stopped = True
        results.sort(key=lambda result: todo.index(result.name))
        names_done = [result.name for result in results]
        changes = _compare(old, against, names_done, target) if old and against and results else None
        report = _write_report(results, effort, target, changes) if len(results) > 1 else None
    if as_json:
        print_json(_summary(results, report, stopped) | ({"changes": changes.to_dict()} if changes else {}))
    elif results:
        _print(results)
        if changes:
            _print_changes(changes)
        out.print(
            f"{len(results)} of {len(todo)} reproduced in {time.monotonic() - began:.0f} s, in {target}/", markup=False
        )
        if report:
            out.print(f"report {report}", style="bold", markup=False)
    if stopped:
        rest = [name for name in todo if name not in {result.name for result in results}]
        continuation = f"{command(' '.join(rest), effort)} --out {shlex.quote(str(target))}"
        err.print(f"Stopped. Finished figures are in {target}/. Continue with: {continuation}", markup=False)
        return 130
    return 0


def _print_time(result: TargetResult) -> None:
    err.print(f"[dim]{label(result.name):<10} {result.seconds:6.1f} s[/]")


def _write_report(results: list[TargetResult], effort: Effort, target: Path, changes: Changes | None) -> Path:
    from scansnap.explorer.build import explorer_html
    from scansnap.paper.report.make import EXPLORER, REPORT, write_page
    from scansnap.paper.report.page import page

    write_page(EXPLORER, explorer_html(), target)
    return write_page(REPORT, page(results, effort, changes), target)


def _compare(old: dict[str, Any], against: Path, names: list[str], target: Path) -> Changes:
    """Compare the folder with earlier findings and write the comparison as a file."""
    from scansnap.paper.report.changes import compare, write
    from scansnap.paper.report.manifest import read_manifest

    changes = compare(old, read_manifest(target), names, against)
    write(changes, target)
    return changes


def _only_compare(old: dict[str, Any], against: Path, names: list[str], target: Path, as_json: bool) -> int:
    """Compare without reproducing anything; add the changes to an existing report."""
    from scansnap.paper.report.make import REPORT, prepare, write_page
    from scansnap.paper.report.manifest import MANIFEST
    from scansnap.paper.report.page import changed

    if (against / MANIFEST if against.is_dir() else against).samefile(target / MANIFEST):
        raise InputError("--against", str(against), "the manifest of another folder than --out", "or name TARGETS")
    prepare(target, [], against=True)
    with write_lock("--out", target):
        changes = _compare(old, against, names, target)
        report = target / REPORT
        if report.is_file():
            write_page(REPORT, changed(report.read_text(encoding="utf-8"), changes), target)
    if as_json:
        print_json(changes.to_dict())
    else:
        _print_changes(changes)
    return 0


def _print_changes(changes: Changes) -> None:
    from scansnap.paper.report.changes import RULE

    out.print(f"against {changes.against}", style="bold", markup=False)
    if changes.other_settings:
        differ = ", ".join(label(name) for name in changes.other_settings)
        out.print(f"Reproduced with other settings before: {differ}.", markup=False)
    if changes.changed:
        table = new_table("", "statement", "verdict", "holds in", "numbers", "beyond error", no_wrap=("",))
        for change in changes.changed:
            before, after = change.verdict
            verdict = f"{change.what}: {before or after}" if change.what in ("new", "gone") else after
            verdict = f"{before} → [{STYLE[after]}]{after}[/]" if change.what == "verdict" else verdict
            counted = " → ".join(dict.fromkeys(filter(None, change.counted)))
            beyond = {True: "[bold red]yes[/]", False: "no", None: "undecided"}[change.beyond] if change.shifts else ""
            says = f"{escape(change.says)} [dim]({escape(change.reference)})[/]"
            numbers = escape("; ".join(map(str, change.shifts)))
            table.add_row(label(change.target), says, verdict, counted, numbers, beyond)
        out.print(table)
        out.print(RULE, style="dim", markup=False)
    out.print(changes.summary, markup=False)


def _print(results: list[TargetResult]) -> None:
    from scansnap.paper.figure import describe_totals

    table = new_table("", "statement", "kind", "counted", "verdict", no_wrap=("", "kind", "verdict"))
    for result in results:
        for i, finding in enumerate(result.computed.findings):
            verdict = f"[{STYLE[finding.verdict]}]{finding.verdict}[/]"
            says = f"{escape(finding.says)} [dim]({escape(finding.reference)})[/]"
            kind = finding.kind if finding.kind == "measured" else f"[dim]{finding.kind}[/]"
            table.add_row(label(result.name) if i == 0 else "", says, kind, finding.counted, verdict)
    out.print(table)
    for line in describe_totals(_totals(results)):
        out.print(line)


def _totals(results: list[TargetResult]) -> dict[Kind, dict[Verdict, int]]:
    from scansnap.paper.figure import totals

    return totals(finding for result in results for finding in result.computed.findings)


def _summary(results: list[TargetResult], report: Path | None, stopped: bool) -> dict[str, object]:
    return {
        "targets": {
            result.name: {
                "seconds": round(result.seconds, 3),
                "files": list(result.files),
                "findings": [
                    {name: getattr(finding, name) for name in FINDING} for finding in result.computed.findings
                ],
            }
            for result in results
        },
        "totals": _totals(results),
        "report": str(report) if report else None,
        "complete": not stopped,
    }
