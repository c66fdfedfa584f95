"""``scansnap reproduce``: the paper's figures, table and claims made anew, with verdicts and a report."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from scansnap.checks import InputError
from scansnap.cli.console import err, out, progress_bar, say_json
from scansnap.cli.options import Device, Json
from scansnap.interrupt import working
from scansnap.paper.report.targets import GROUPS, READS_A_CORPUS, chosen, label, require
from scansnap.processes import warm
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
            help="all, synthetic, theory, text, or fig1 to fig12, table1, claims, clocks, validity, deviations, "
            "layers, words, sparsity, and what all leaves out because it takes long: probe, dial. [default: all]",
        ),
    ] = None,
    target: Annotated[
        Path, typer.Option("--out", help="The folder for CSV, PNG, PDF, manifest.json, report.html and explorer.html.")
    ] = Path("out"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds and settings, said on each figure.")] = False,
    data: Annotated[
        str | None,
        typer.Option(help="Text to use: a folder, a file or wikitext-2. [default: SCANSNAP_DATA or stdlib]"),
    ] = None,
    device: Device = "auto",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are not from an earlier reproduction too.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            help="The manifest.json of an earlier reproduction: list which verdicts and numbers changed. Without "
            "TARGETS, what is in --out already is compared as it is."
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Make the paper's figures, table and theorems anew, and count where they agree with the paper.

    Exit code 0 when everything was made, whatever the verdicts: a disagreement is a finding. 130 when stopped.
    """
    if device in ("auto", "cpu") and (not names or not GROUPS.keys().isdisjoint(names)):
        warm(["scansnap.paper.report.crew", "scansnap.paper.figures.claims"])  # while this process loads them too
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
    prepare(target, todo, overwrite, against=against is not None)
    pick_device(device)  # refuse a device that is not there before any work
    if any(name in READS_A_CORPUS for name in todo):
        from scansnap.corpus.sources import find_corpus

        find_corpus(data)  # likewise text that is not there
    effort = Effort(quick=quick, device=device, data=data)
    began = time.monotonic()
    made: list[Made] = []
    stopped = False
    with claimed("--out", target), working():
        prepare(target, todo, overwrite, against=against is not None)  # again, now that nobody else writes there
        try:
            if (n := processes_for(todo, effort)) > 1:
                with progress_bar(f"% of the work, {n} targets at a time") as progress:
                    for found in at_once(todo, effort, target, n, progress):
                        made.append(keep(found, effort, target))
                        _timed(made[-1])
            rest = [name for name in todo if name not in {one.name for one in made}]
            for name in rest:
                with progress_bar(f"{name} ({len(made) + 1} of {len(todo)})") as progress:
                    made.append(make(name, effort, target, progress))
                _timed(made[-1])
        except KeyboardInterrupt:
            stopped = True
        made.sort(key=lambda one: todo.index(one.name))
        changes = _compare(old, against, [one.name for one in made], target) if old and against and made else None
        report = _write_report(made, effort, target, changes) if len(made) > 1 else None
    if as_json:
        say_json(_summary(made, report, stopped) | ({"changes": changes.to_dict()} if changes else {}))
    elif made:
        _tell(made)
        if changes:
            _tell_changes(changes)
        out.print(f"{len(made)} of {len(todo)} made in {time.monotonic() - began:.0f} s, in {target}/", markup=False)
        if report:
            out.print(f"report {report}", style="bold", markup=False)
    if stopped:
        rest = [name for name in todo if name not in {one.name for one in made}]
        again = f"{command(' '.join(rest), effort)} --out {shlex.quote(str(target))}"
        err.print(f"Stopped; what was finished is in {target}/. The rest: {again}", markup=False)
        return 130
    return 0


def _timed(one: Made) -> None:
    err.print(f"[dim]{label(one.name):<10} {one.seconds:6.1f} s[/]")


def _write_report(made: list[Made], effort: Effort, target: Path, changes: Changes | None) -> Path:
    from scansnap.explorer.build import explorer_html
    from scansnap.paper.report.make import EXPLORER, REPORT, write_page
    from scansnap.paper.report.page import page

    write_page(EXPLORER, explorer_html(), target)
    return write_page(REPORT, page(made, effort, changes), target)


def _compare(old: dict[str, Any], against: Path, names: list[str], target: Path) -> Changes:
    """What is in the folder now with what was found earlier; also as a file."""
    from scansnap.paper.report.changes import compare, write
    from scansnap.paper.report.manifest import read_manifest

    changes = compare(old, read_manifest(target), names, against)
    write(changes, target)
    return changes


def _only_compare(old: dict[str, Any], against: Path, names: list[str], target: Path, as_json: bool) -> int:
    """Nothing is made; a report that is there is told what changed."""
    from scansnap.paper.report.make import REPORT, prepare, write_page
    from scansnap.paper.report.manifest import MANIFEST
    from scansnap.paper.report.page import changed

    if (against / MANIFEST if against.is_dir() else against).samefile(target / MANIFEST):
        raise InputError(
            "--against", str(against), "the manifest of another folder than --out, unless TARGETS are named"
        )
    prepare(target, [], against=True)
    with claimed("--out", target):
        changes = _compare(old, against, names, target)
        report = target / REPORT
        if report.is_file():
            write_page(REPORT, changed(report.read_text(encoding="utf-8"), changes), target)
    if as_json:
        say_json(changes.to_dict())
    else:
        _tell_changes(changes)
    return 0


def _tell_changes(changes: Changes) -> None:
    from scansnap.paper.report.changes import RULE

    out.print(f"against {changes.against}", style="bold", markup=False)
    if changes.other_settings:
        differ = ", ".join(label(name) for name in changes.other_settings)
        out.print(f"Made with other settings then: {differ}.", markup=False)
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


def _tell(made: list[Made]) -> None:
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
