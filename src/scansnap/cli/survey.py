"""``scansnap survey``: statements of other papers, each held against a setting of ours."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from scansnap.cli.console import out, progress_bar
from scansnap.cli.options import Json, Overwrite
from scansnap.cli.places import place
from scansnap.cli.verify import STYLE
from scansnap.storage import put

if TYPE_CHECKING:
    from scansnap.claims.report import Report
    from scansnap.claims.survey.statement import SurveyClaim


def survey(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Statements, each by its name or a beginning of it up to a hyphen: joma, polarisation, scan-order. "
            "[default: all]",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer training seeds and shorter runs.")] = False,
    target: Annotated[
        Path | None, typer.Option("--out", help="A folder for survey.csv, survey.json and a table, survey.md.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Hold statements of other papers against settings of ours: holds, fails or undecided, with numbers.

    Exit code 0 when everything was judged, whatever the verdicts: a statement that fails is a finding.
    """
    if target is not None:
        for name in ("survey.csv", "survey.json", "survey.md"):
            place("--out", target / name, overwrite=overwrite)
    from scansnap.claims.survey.run import survey as judge_all

    with progress_bar("statements") as progress:
        report = judge_all(*(names or ()), quick=quick, progress=progress)
    rows = [row(finding) for finding in report]  # type: ignore[arg-type]
    told = [one | {"interval": None if one["low"] is None else [one["low"], one["high"]]} for one in rows]
    text = json.dumps({"setting": report.setting, "totals": totals(report), "statements": told}, indent=2)
    if as_json:
        print(text)
    else:
        _tell(report, rows)
    if target is not None:
        put(target / "survey.csv", _csv(rows))
        put(target / "survey.json", text + "\n")
        put(target / "survey.md", _markdown(rows))
        if not as_json:
            out.print(f"survey.csv, survey.json and survey.md in {target}/", markup=False)
    return 0


def row(finding: SurveyClaim) -> dict[str, Any]:
    """A finding in plain numbers and strings; JSON has no infinity."""

    def number(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else float(value)

    low, high = finding.range or (None, None)
    return {
        "name": finding.name, "statement": finding.statement, "source": str(finding.source),
        "short": finding.source.short, "arxiv": finding.source.arxiv, "read": finding.source.read,
        "setting": finding.setting, "kind": finding.kind, "quantity": finding.quantity,
        "measured": number(finding.measured), "low": number(low), "high": number(high),
        "predicted": number(finding.predicted), "bound": number(finding.bound), "margin": number(finding.margin),
        "verdict": finding.status, "why": finding.reason,
    }  # fmt: skip


def totals(report: Report) -> dict[str, int]:
    """How many statements have each verdict."""
    return {status: sum(claim.status == status for claim in report) for status in STYLE}


def _tell(report: Report, rows: list[dict[str, Any]]) -> None:
    out.print(report.setting)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("statement", "source", "verdict"):
        table.add_column(name, no_wrap=name != "source")
    for name in ("measured", "interval", "predicted", "bound"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in rows:
        between = "" if one["low"] is None else f"{one['low']:.3g} to {one['high']:.3g}"
        numbers = ["" if one[key] is None else f"{one[key]:.4g}" for key in ("measured", "predicted", "bound")]
        verdict = f"[{STYLE[one['verdict']]}]{one['verdict']}[/]"
        table.add_row(one["name"], escape(one["short"]), verdict, numbers[0], between, *numbers[1:])
    out.print(table)
    for one in rows:
        if one["why"]:
            says = f"{one['statement']}: {one['verdict']}, {one['why']} ({one['quantity']}; {one['setting']})"
            out.print(f"[{STYLE[one['verdict']]}]{one['name']}[/] {escape(says)}")
    out.print(", ".join(f"{n} {status}" for status, n in totals(report).items() if n))


def _markdown(rows: list[dict[str, Any]]) -> str:
    """The table of docs/survey.md."""

    def said(one: dict[str, Any], key: str) -> str:
        return "" if one[key] is None else f"{round(one[key], 6) + 0.0:.3g}".replace("-", "−")

    lines = ["| name | statement | source | setting | measured | predicted (up to) | verdict |", "|" + "---|" * 7]
    for one in rows:
        between = "" if one["low"] is None else f" ({said(one, 'low')} to {said(one, 'high')})"
        who = f"{one['short']}, arXiv {one['arxiv']}" if one["arxiv"] else one["short"]
        cells = (f"`{one['name']}`", one["statement"], who, one["setting"], said(one, "measured") + between,
                 f"{said(one, 'predicted')} ({said(one, 'bound')})", one["verdict"])  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
