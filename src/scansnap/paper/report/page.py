"""The report on a reproduction: the values that report.html shows and report.js draws."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup

from scansnap.claims.claim import KINDS, Kind
from scansnap.html.page import environment, render
from scansnap.measure.comparison import LEVEL, compare
from scansnap.paper.figure import MOSTLY, PLURAL, VERDICTS, Effort, Finding, Points, totals
from scansnap.paper.report.address import address
from scansnap.paper.report.changes import RULE, Changes
from scansnap.paper.report.make import command
from scansnap.paper.report.manifest import TargetResult, all_versions, machine
from scansnap.paper.report.svg import Drawings, size_of
from scansnap.paper.report.targets import BEYOND, TARGETS, label
from scansnap.plots.sparkline import Line
from scansnap.storage.json_text import to_json

PACKAGE = "scansnap.paper.report"
HEADLINES = 5
NO_MEASUREMENT = {"by definition": "true by definition", "formula": "drawn from formulas, without runs",
                  "identity": "identities"}  # fmt: skip
_MEASURED: tuple[Kind, ...] = ("measured", "dependent", "proof step", "ours")
ORDER: tuple[Kind, ...] = (*_MEASURED, *(kind for kind in KINDS if kind not in _MEASURED))
KIND_WORDS: dict[Kind, str] = {
    "measured": "Measured: a run can contradict the statement",
    "dependent": "Dependent: follow from other statements, or measure the same quantity again",
    "proof step": "Steps of the paper's proofs: measured, but not among its statements",
    "ours": "Ours: our own theory, measured where the paper's statement fails",
    "formula": "Formulas: two forms of one expression; no run is involved",
    "identity": "Identities: hold in every run; a failure would be an error in our code",
    "by definition": "By definition: true because of how something is named or drawn",
}
STATUS = {"holds": "agrees", "fails": "disagrees", "undecided": "undecided", "not applicable": "not-applicable"}
SIGNS = {"holds": "✓", "fails": "✗", "undecided": "?", "not applicable": "–"}
CLAIMS = "claims"  # the target with its own table
TO_CHANGES = Markup('<li><a href="#changes">Since an earlier reproduction</a></li>')  # in the contents
MAX_VERDICTS = 6  # findings in the text alternative of a drawing
MOST_DOTS = 600  # of a finding without noise


def page(targets: Sequence[TargetResult], effort: Effort, changes: Changes | None = None) -> str:
    """The whole document. ``changes``: against an earlier reproduction."""
    drawings = Drawings()
    inline = {m.name: drawings.inline(m.svg, m.name, alt(m)) for m in targets if m.svg}
    counts = totals(finding for m in targets for finding in m.computed.findings)
    return render(
        PACKAGE, FILTERS, points_by_finding(targets),
        effort=effort, origin=origin(targets), scaled_down=scaled_down(targets), verdicts=VERDICTS, plural=PLURAL,
        measured=counts.get("measured", {}), totals=counts, level=LEVEL, mostly=MOSTLY, status=STATUS, signs=SIGNS,
        changes=changes, rule=RULE, made=targets, entry_of_changes=TO_CHANGES, drawings=inline,
        shared=drawings.shared(),
        headlines=headlines(targets), figures=in_order(targets), studies=[m for m in targets if m.name in BEYOND],
        claims=next((m for m in targets if m.name == CLAIMS), None),
        kinds=by_kind(m for m in targets if m.name != CLAIMS), kind_words=KIND_WORDS,
        absent=[name for name in TARGETS if name not in {m.name for m in targets}],
        again=command(" ".join(m.name for m in targets), effort), facts={**machine(effort.device), **all_versions()},
    )  # fmt: skip


def changed(text: str, changes: Changes) -> str:
    """A report with a section on the changes, in place of an earlier one."""
    section = environment(PACKAGE, FILTERS).get_template("changes.html").render(changes=changes, rule=RULE)
    entry = f"<!-- to changes -->{TO_CHANGES}<!-- /to changes -->"
    text = re.sub("<!-- to changes -->.*?<!-- /to changes -->", entry, text, count=1)
    return re.sub("<!-- changes -->.*?<!-- /changes -->", lambda _: section, text, count=1, flags=re.DOTALL)


def headlines(targets: Sequence[TargetResult]) -> list[tuple[TargetResult, Finding]]:
    """The findings at the top of the report: the first of those declared as headlines."""
    pairs = [(target, finding) for target in targets for finding in target.computed.findings if finding.headline]
    return sorted(pairs, key=lambda pair: pair[1].headline)[:HEADLINES]


def in_order(targets: Sequence[TargetResult]) -> list[TargetResult]:
    """The paper's figures by number, then its table."""
    figures = [target for target in targets if target.name not in (*BEYOND, CLAIMS)]
    return sorted(
        figures, key=lambda target: (target.name.strip("0123456789"), int(re.sub(r"\D", "", target.name) or 0))
    )


def by_kind(targets: Iterator[TargetResult]) -> dict[Kind, list[tuple[TargetResult, int, Finding]]]:
    """The findings of targets with their positions, measured ones first."""
    all_rows = [(target, i, finding) for target in targets for i, finding in enumerate(target.computed.findings)]
    return {kind: rows for kind in ORDER if (rows := [row for row in all_rows if row[2].kind == kind])}


def alt(target: TargetResult) -> str:
    """What a drawing shows, for those who do not see it: its caption and its verdicts, disagreements first."""
    shown = sorted(target.computed.findings, key=lambda f: f.verdict in ("agrees", "not applicable"))[:MAX_VERDICTS]
    verdicts = "; ".join(f"{f.says}: {f.verdict}, {f.counted}" for f in shown)
    return f"{label(target.name)}. {target.caption} Found: {verdicts or 'nothing to count'}."


def points_by_finding(targets: Sequence[TargetResult]) -> dict[str, Any]:
    """The points behind each count, by the name of its button."""
    return {
        f"{target.name}-{i}": points(finding.points)
        for target in targets for i, finding in enumerate(target.computed.findings)
        if finding.points and finding.points.values
    }  # fmt: skip


def points(tested: Points) -> dict[str, Any]:
    """What the page draws of them: rows of dots with mean and interval; without noise one row of all cases, if many."""
    table = np.array(tested.values)
    cases = list(tested.cases)
    if tested.exact:
        half = np.zeros(len(table))
        if len(table) > len(cases):
            table, cases, half = table[:: 1 + len(table) // MOST_DOTS].T, [], np.array([])
    else:
        half = compare(table).half_width
    return {"v": [[_short(x) for x in row] for row in table], "h": [_short(x) for x in half], "c": cases,
            "w": tested.wanted or "", "m": tested.margin}  # fmt: skip


def _short(value: float) -> float | None:
    """To four digits; what is no number has no dot."""
    return float(f"{value:.4g}") if np.isfinite(value) else None


def percent(part: float, of: float) -> str:
    return f"{100 * part / of:.1f}%" if of else "0%"


def polyline(line: Line) -> str:
    """A line of the unit box as the points of an SVG of 100 by 32."""
    return " ".join(f"{2 + 96 * x:.1f},{30 - 28 * y:.1f}" for x, y in line)


def origin(targets: Sequence[TargetResult]) -> str:
    """One sentence on the targets that measure nothing."""
    labels: dict[str, list[str]] = {}
    for target in targets:
        kinds = {finding.kind for finding in target.computed.findings}
        if len(kinds) == 1 and kinds <= NO_MEASUREMENT.keys():
            labels.setdefault(NO_MEASUREMENT[kinds.pop()], []).append(label(target.name))
    if not labels:
        return "All numbers come from new runs."
    parts = [f"{' and '.join([', '.join(names[:-1])] * (len(names) > 1) + names[-1:])} "
             f"{'is' if len(names) == 1 else 'are'} {word}" for word, names in labels.items()]  # fmt: skip
    rest = "; the rest comes from new runs" if sum(map(len, labels.values())) < len(targets) else ""
    return f"{'; '.join(parts)}{rest}."


def scaled_down(targets: Sequence[TargetResult]) -> list[str]:
    """The text, steps and words of experiments that are smaller than the paper's, as they are on a CPU."""
    settings = [target.computed.settings for target in targets if target.computed.settings.get("device") == "cpu"]
    return sorted({f"{of['corpus']}, {of['steps']} steps, {of['vocab_size']:,} words" for of in settings
                   if {"corpus", "steps", "vocab_size"} <= of.keys()})  # fmt: skip


def by_claim(target: TargetResult) -> dict[Kind, list[tuple[int, Finding, list[Any]]]]:
    """The claims' findings with their places and rows, a row for each setting; what is measured first."""
    rows = [list(part.itertuples()) for _, part in target.computed.table.groupby(["claim", "kind"], sort=False)]
    groups = [(i, finding, of) for i, (finding, of) in enumerate(zip(target.computed.findings, rows, strict=True))]
    return {kind: chosen for kind in ORDER if (chosen := [row for row in groups if row[1].kind == kind])}


_BASE = r"(?<![A-Za-z_])([A-Za-zα-ωΓΣΩżξ]['′]?)"
_INDEX = r"(?:\{([^{}]+)\}|([A-Za-z]{1,2}['′]?|\d)(?![A-Za-z_]))"
_SUB, _SUP = (re.compile(_BASE + mark + _INDEX) for mark in ("_", r"\^"))  # subscripts first: an exponent may have some


_POWER = re.compile(r"(?<=\d)e([+-])0*(\d+)(?![\w.]*\w)")  # of ten, as Python writes it


def prose(text: str) -> Markup:
    """Escaped, with η_Y and e^{2 B_n} as subscript and superscript, and 7.3e+03 as 7.3 · 10³."""
    text = escape(text, quote=False)
    text = _POWER.sub(lambda m: f"·10<sup>{'−' if m[1] == '-' else ''}{m[2]}</sup>", text)
    for pattern, tag in ((_SUB, "sub"), (_SUP, "sup")):
        text = pattern.sub(rf"\1<{tag}>\2\3</{tag}>", text)
    return Markup(text)


def duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {seconds % 60:.0f} s"


FILTERS = {
    "by_claim": by_claim, "duration": duration, "label": label, "percent": percent,
    "polyline": polyline, "prose": prose, "size": lambda target: size_of(target.svg),
    "explore": lambda target: address(target.computed.settings),
    "json": lambda settings: to_json(settings, indent=1),
}  # fmt: skip
