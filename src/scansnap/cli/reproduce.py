"""``scansnap reproduce``: the paper's figures, table and claims from new runs, with verdicts and a report."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from scansnap.checks import InputError
from scansnap.cli.console import err, out, print_json, progress_bar
from scansnap.cli.options import Device, Json
from scansnap.interrupt import raise_during_imports
from scansnap.paper.report.targets import GROUPS, READS_A_CORPUS, chosen, label, require
from scansnap.processes import start_forkserver
from scansnap.storage import claimed

if TYPE_CHECKING:
    from scansnap.claims.claim import Kind
    from scansnap.paper.figure import Effort, Verdict
    from scansnap.paper.report.changes import Changes
    from scansnap.paper.report.manifest import Made

STYLE = {
    "agrees": "green", "mostly agrees": "green", "mixed": "yellow", "mostly disagrees": "red", "disagrees": "bold red",
    "undecided": "magenta", "not applicable": "dim",
}  # fmt: skip


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGETS]...",
            help="all, synthetic, theory, text, or single ones: fig1 to fig12, table1, claims, clocks, validity, "
            "deviations, layers, words, sparsity; probe and dial take long and are not in all. [default: all]",
        ),
    ] = None,
    target: Annotated[
        Path,
        typer.Option(
            "--out", help="Write CSV, PNG, PDF, manifest.json, report.html and explorer.html into this folder."
        ),
    ] = Path("out"),
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer seeds and settings; each figure says so.")] = False,
    data: Annotated[
        str | None,
        typer.Option(help="The text: a folder, a file or wikitext-2. [default: SCANSNAP_DATA or stdlib]"),
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

    The exit code is 0 when everything was reproduced, whatever the verdicts: a disagreement is a finding. It is 130
    when stopped.
    """
    if device in ("auto", "cpu") and (not names or not GROUPS.keys().isdisjoint(names)):
        start_forkserver(
            ["scansnap.paper.report.crew", "scansnap.paper.figures.claims"]
        )  # while this process loads them too
    from scansnap.dynamics.device import pick_device
    from scansnap.paper.figure import Effort
    from scansnap.paper.report.changes import earlier
    from scansnap.paper.report.crew import at_once, processes_for
    from scansnap.paper.report.make import command, keep, make, prepare
    from scansnap.paper.report.manifest import read_manifest

    if against is not None and not names and (there := list(read_manifest(target)["targets"])):
        return _only_compare(earlier(against, there), against, there, target, as_json)
    todo = chosen(names or [])
    for name in todo:
        require(name)
    old = None if against is None else earlier(against, todo)
    pick_device(device)  # refuse a missing device or text before clashes of files and before any work
    if any(name in READS_A_CORPUS for name in todo):
        from scansnap.corpus.sources import find_corpus

        find_corpus(data)
    prepare(target, todo, overwrite, against=against is not None)
    effort = Effort(quick=quick, device=device, data=data)
    began = time.monotonic()
    made: list[Made] = []
    stopped = False
    with claimed("--out", target), raise_during_imports():
        prepare(target, todo, overwrite, against=against is not None)  # again, now that no other process writes there
        try:
            if (n := processes_for(todo, effort)) > 1:
                with progress_bar(f"% of the work, {n} targets at a time") as progress:
                    for found in at_once(todo, effort, target, n, progress):
                        made.append(keep(found, effort, target))
                        _print_time(made[-1])
            rest = [name for name in todo if name not in {one.name for one in made}]
            for name in rest:
                with progress_bar(f"{name} ({len(made) + 1} of {len(todo)})") as progress:
                    made.append(make(name, effort, target, progress))
                _print_time(made[-1])
        except KeyboardInterrupt:
            stopped = True
        made.sort(key=lambda one: todo.index(one.name))
        changes = _compare(old, against, [one.name for one in made], target) if old and against and made else None
        report = _write_report(made, effort, target, changes) if len(made) > 1 else None
    if as_json:
        print_json(_summary(made, report, stopped) | ({"changes": changes.to_dict()} if changes else {}))
    elif made:
        _print(made)
        if changes:
            _print_changes(changes)
        out.print(
            f"{len(made)} of {len(todo)} reproduced in {time.monotonic() - began:.0f} s, in {target}/", markup=False
        )
        if report:
            out.print(f"report {report}", style="bold", markup=False)
    if stopped:
        rest = [name for name in todo if name not in {one.name for one in made}]
        again = f"{command(' '.join(rest), effort)} --out {shlex.quote(str(target))}"
        err.print(f"Stopped. Finished figures are in {target}/. The rest: {again}", markup=False)
        return 130
    return 0


def _print_time(one: Made) -> None:
    err.print(f"[dim]{label(one.name):<10} {one.seconds:6.1f} s[/]")


def _write_report(made: list[Made], effort: Effort, target: Path, changes: Changes | None) -> Path:
    from scansnap.explorer.build import explorer_html
    from scansnap.paper.report.make import EXPLORER, REPORT, write_page
    from scansnap.paper.report.page import page

    write_page(EXPLORER, explorer_html(), target)
    return write_page(REPORT, page(made, effort, changes), target)


def _compare(old: dict[str, Any], against: Path, names: list[str], target: Path) -> Changes:
    """Compare the folder with earlier findings; write the comparison as a file, too."""
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
    with claimed("--out", target):
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
    if changes.found:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("", "statement", "verdict", "holds in", "numbers", "beyond error"):
            table.add_column(name, no_wrap=not name)
        for one in changes.found:
            before, after = one.verdict
            verdict = f"{one.what}: {before or after}" if one.what in ("new", "gone") else after
            verdict = f"{before} → [{STYLE[after]}]{after}[/]" if one.what == "verdict" else verdict
            counted = " → ".join(dict.fromkeys(filter(None, one.counted)))
            beyond = (
                "" if not one.shifts else {True: "[bold red]yes[/]", False: "no", None: "cannot be told"}[one.beyond]
            )
            says = f"{escape(one.says)} [dim]({escape(one.reference)})[/]"
            table.add_row(label(one.target), says, verdict, counted, escape("; ".join(map(str, one.shifts))), beyond)
        out.print(table)
        out.print(RULE, style="dim", markup=False)
    out.print(changes.summary, markup=False)


def _print(made: list[Made]) -> None:
    from scansnap.paper.figure import told

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("statement")
    table.add_column("kind", no_wrap=True)
    table.add_column("counted")
    table.add_column("verdict", no_wrap=True)
    for one in made:
        for i, finding in enumerate(one.computed.findings):
            verdict = f"[{STYLE[finding.verdict]}]{finding.verdict}[/]"
            says = f"{escape(finding.says)} [dim]({escape(finding.reference)})[/]"
            kind = finding.kind if finding.kind == "measured" else f"[dim]{finding.kind}[/]"
            table.add_row(label(one.name) if i == 0 else "", says, kind, finding.counted, verdict)
    out.print(table)
    for line in told(_totals(made)):
        out.print(line)


def _totals(made: list[Made]) -> dict[Kind, dict[Verdict, int]]:
    from scansnap.paper.figure import totals

    return totals(finding for one in made for finding in one.computed.findings)


def _summary(made: list[Made], report: Path | None, stopped: bool) -> dict[str, object]:
    return {
        "targets": {
            one.name: {
                "seconds": round(one.seconds, 3),
                "files": list(one.files),
                "findings": [
                    {
                        "says": f.says,
                        "reference": f.reference,
                        "kind": f.kind,
                        "agree": f.agree,
                        "of": f.of,
                        "undecided": f.undecided,
                        "verdict": f.verdict,
                    }
                    for f in one.computed.findings
                ],
            }
            for one in made
        },
        "totals": _totals(made),
        "report": str(report) if report else None,
        "complete": not stopped,
    }
