"""``scansnap survey``: statements of other papers, each checked on a setting of this model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from scansnap.cli.console import finite, json_text, new_table, out, progress_bar
from scansnap.cli.options import Json, Overwrite, check_output, refuse_existing
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
            help="Names of statements, or how names begin: joma, polarisation, scan-order. [default: all]",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer training seeds and shorter runs.")] = False,
    target: Annotated[
        Path | None, typer.Option("--out", help="Write survey.csv, survey.json and survey.md into this folder.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Check statements of other papers on the YZ model.

    Each statement holds, fails or is undecided, with numbers. The exit code is 0 whatever the verdicts: a statement
    that fails is a finding.
    """
    files = [] if target is None else [target / f"survey.{ending}" for ending in ("csv", "json", "md")]
    for file in files:
        check_output("--out", file)
    from scansnap.claims.survey.run import select_names
    from scansnap.claims.survey.run import survey as check_statements

    select_names(tuple(names or ()))  # refuse an unknown name before clashes of files
    for file in files:
        refuse_existing("--out", file, overwrite)
    with progress_bar("statements") as progress:
        report = check_statements(*(names or ()), quick=quick, progress=progress)
    rows = [row(finding) for finding in report]  # type: ignore[arg-type]
    statements = [r | {"interval": None if r["low"] is None else [r["low"], r["high"]]} for r in rows]
    text = json_text({"setting": report.setting, "totals": totals(report), "statements": statements})
    if as_json:
        print(text)
    else:
        _print(report, rows)
    for file, content in zip(files, (_csv(rows), text + "\n", _markdown(rows)), strict=False):
        put(file, content)
    if files and not as_json:
        out.print(f"survey.csv, survey.json and survey.md in {target}/", markup=False)
    return 0


def row(finding: SurveyClaim) -> dict[str, Any]:
    """A finding as plain numbers and strings."""
    low, high = finding.range or (None, None)
    fields = {
        "name": finding.name, "statement": finding.statement, "source": str(finding.source),
        "short": finding.source.short, "arxiv": finding.source.arxiv, "read": finding.source.read,
        "setting": finding.setting, "kind": finding.kind, "quantity": finding.quantity,
        "measured": finding.measured, "low": low, "high": high, "predicted": finding.predicted, "bound": finding.bound,
        "margin": finding.margin, "verdict": finding.status, "why": finding.reason,
    }  # fmt: skip
    return {name: finite(value) for name, value in fields.items()}


def totals(report: Report) -> dict[str, int]:
    """How many statements have each verdict."""
    return {status: sum(claim.status == status for claim in report) for status in STYLE}


def _print(report: Report, rows: list[dict[str, Any]]) -> None:
    out.print(report.setting)
    numbers = ("measured", "interval", "predicted", "bound")
    table = new_table("statement", "source", "verdict", *numbers, right=numbers,
                      no_wrap=("statement", "verdict", *numbers))  # fmt: skip
    for r in rows:
        interval = "" if r["low"] is None else f"{r['low']:.3g} to {r['high']:.3g}"
        cells = ["" if r[key] is None else f"{r[key]:.4g}" for key in ("measured", "predicted", "bound")]
        verdict = f"[{STYLE[r['verdict']]}]{r['verdict']}[/]"
        table.add_row(r["name"], escape(r["short"]), verdict, cells[0], interval, *cells[1:])
    out.print(table)
    for r in rows:
        if r["why"]:
            reason = f"{r['statement']}: {r['verdict']}, {r['why']} ({r['quantity']}; {r['setting']})"
            out.print(f"[{STYLE[r['verdict']]}]{r['name']}[/] {escape(reason)}")
    out.print(", ".join(f"{n} {status}" for status, n in totals(report).items() if n))


def _markdown(rows: list[dict[str, Any]]) -> str:
    """The table of docs/survey.md."""

    def number(r: dict[str, Any], key: str) -> str:
        return "" if r[key] is None else f"{round(r[key], 6) + 0.0:.3g}".replace("-", "−")

    lines = ["| name | statement | source | setting | measured | predicted (up to) | verdict |", "|" + "---|" * 7]
    for r in rows:
        interval = "" if r["low"] is None else f" ({number(r, 'low')} to {number(r, 'high')})"
        source = f"{r['short']}, arXiv {r['arxiv']}" if r["arxiv"] else r["short"]
        cells = (f"`{r['name']}`", r["statement"], source, r["setting"], number(r, "measured") + interval,
                 f"{number(r, 'predicted')} ({number(r, 'bound')})", r["verdict"])  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _csv(rows: list[dict[str, Any]]) -> str:
    import pandas as pd

    return str(pd.DataFrame(rows).to_csv(index=False))
