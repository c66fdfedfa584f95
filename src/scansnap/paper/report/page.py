"""The report: one HTML file that needs nothing else, from what was just made."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

import pandas as pd

from scansnap.claims.claim import Kind
from scansnap.measure.comparison import LEVEL
from scansnap.paper.figure import MOSTLY, VERDICTS, Effort, Finding, told, totals
from scansnap.paper.report.make import Made, all_versions, command, machine, plain
from scansnap.paper.report.targets import TARGETS, label

PAPER = (
    "Yuandong Tian, Yiping Wang, Beidi Chen, Simon Du, <i>Scan and Snap: Understanding Training Dynamics and Token "
    "Composition in 1-layer Transformer</i>, NeurIPS 2023 (arXiv 2305.16380)"
)
VERDICT_NOTE = (
    "<p>A statement is counted over cases (curves, panels, classes, settings). A case that rests on training is tested "
    f"over seeds by a paired t test at {LEVEL:.0%}, with Holm's correction over the cases; &ldquo;does not rise&rdquo; "
    "needs a test of equivalence. It agrees, disagrees, or is undecided: too few seeds to tell, and one seed never "
    "is enough. A case with a failed run disagrees.</p>"
    f"<p><b>Agrees</b>, <b>disagrees</b>: all cases do. <b>Mostly</b>: at least {MOSTLY:.0%} of the decided cases. "
    "<b>Mixed</b>: in between. <b>Undecided</b>: fewer than half of the cases are decided. <b>Not applicable</b>: "
    "there are no cases.</p>"
)


def page(made: Sequence[Made], effort: Effort) -> str:
    """The whole document."""
    style = files("scansnap.paper.report").joinpath("report.css").read_text(encoding="utf-8")
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Scan and Snap, reproduced</title><style>\n{style}</style></head><body>",
        _top(made, effort),
        _summary(made),
        *(_section(one) for one in made),
        _missing(made),
        _how(made, effort),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _top(made: Sequence[Made], effort: Effort) -> str:
    counts = totals(finding for one in made for finding in one.computed.findings)
    measured = counts.get("measured", {})
    number = sum(measured.values())
    boxes = "".join(
        f'<div><b class="{_css(verdict)}">{measured.get(verdict, 0)}</b>{verdict}</div>'
        for verdict in VERDICTS
        if verdict in measured or verdict == "undecided"
    )
    quick = (
        " This is the quick version: fewer seeds and settings, as noted below each figure, and so more is undecided."
        if effort.quick
        else ""
    )
    apart = told({kind: verdicts for kind, verdicts in counts.items() if kind != "measured"})
    return (
        "<h1>Scan and Snap, reproduced</h1>"
        f'<p class="lead">Made anew in {_seconds(sum(one.seconds for one in made))}; nothing is drawn from stored '
        f"numbers. {_kinds(made)} Each statement of the paper was counted by code, and the measured ones could have "
        f"come out otherwise.{quick}</p>"
        f"<p><b>{number} measured statement{'s' * (number != 1)}:</b></p>"
        f'<div class="counts">{boxes}</div>'
        + "".join(f'<p class="lead">{line[0].upper()}{escape(line[1:])}.</p>' for line in apart)
        + f"<details><summary>What the verdicts mean</summary>{VERDICT_NOTE}</details>"
        f'<p class="lead">The paper: {PAPER}.</p>'
    )


def _kinds(made: Sequence[Made]) -> str:
    """Which targets are no measurement, in a sentence."""
    words = {"by definition": "true by definition", "formula": "drawn from formulas, without runs",
             "identity": "identities"}  # fmt: skip
    found: dict[str, list[str]] = {}
    for one in made:
        kinds = {finding.kind for finding in one.computed.findings}
        if len(kinds) == 1 and "measured" not in kinds:
            found.setdefault(words[kinds.pop()], []).append(label(one.name))
    if not found:
        return "All of it comes from new runs."
    parts = [f"{' and '.join([', '.join(names[:-1])] * (len(names) > 1) + names[-1:])} "
             f"{'is' if len(names) == 1 else 'are'} {word}" for word, names in found.items()]  # fmt: skip
    rest = "; the rest comes from new runs" if sum(map(len, found.values())) < len(made) else ""
    return f"{'; '.join(parts)}{rest}."


def _summary(made: Sequence[Made]) -> str:
    rows = []
    for one in made:
        for i, finding in enumerate(one.computed.findings):
            first = f'<a href="#{one.name}">{label(one.name)}</a>' if i == 0 else ""
            rows.append(
                f'<tr><td class="n">{first}</td><td>{_prose(finding.says)} <small>{_prose(finding.reference)}</small>'
                f'</td><td class="n">{_kind(finding.kind)}</td><td>{_counted(finding)}</td>'
                f'<td class="n {_css(finding.verdict)}">{finding.verdict}</td></tr>'
            )
    head = "<tr><th></th><th>statement</th><th>kind</th><th>counted</th><th>verdict</th></tr>"
    return f'<h2>Summary</h2><div class="wide"><table class="summary">{head}{"".join(rows)}</table></div>'


def _section(one: Made) -> str:
    image = base64.b64encode(one.svg).decode()
    findings = "".join(
        f'<li>{_prose(f.says)}{_unless_measured(f.kind)}: <span class="{_css(f.verdict)}">{f.verdict}</span>, '
        f"{_counted(f)}. "
        f"<small>{_prose(f.detail)}</small></li>"
        for f in one.computed.findings
    )
    note = f" <i>{escape(one.computed.note)}</i>" if one.computed.note else ""
    links = " · ".join(f'<a href="{file}">{file}</a>' for file in one.files)
    settings = escape(json.dumps(plain(one.computed.settings), indent=1, ensure_ascii=False))
    verdicts = _claims(one.computed.table) if one.name == "claims" else ""
    return (
        f'<h2 id="{one.name}">{label(one.name)}: {_prose(one.title)}</h2>'
        f'<figure><img alt="{escape(label(one.name))}: {escape(one.caption)}" src="data:image/svg+xml;base64,{image}" '
        f'width="{_width(one.svg)}">'
        f"<figcaption>{_prose(one.caption)}{note}</figcaption></figure>"
        f'<ul class="findings">{findings}</ul>{verdicts}'
        f"<details><summary>Settings, data and how to make it again ({_seconds(one.seconds)})</summary>"
        f"<pre>{escape(one.command)}</pre><p>{links}</p><pre>{settings}</pre></details>"
    )


def _claims(table: pd.DataFrame) -> str:
    """Claims by settings: the verdict, with what was measured where an assumption is not met."""
    settings = list(dict.fromkeys(table.setting))
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", *settings))
    words = {"holds": "agrees", "fails": "disagrees", "undecided": "undecided", "not applicable": "not-applicable"}
    rows = []
    for _, group in table.groupby("claim", sort=False):
        cells = "".join(
            f'<td class="{words[row.status]}">{row.status}'
            + (f" <small>({row.observed} all the same)</small>" if row.status != row.observed else "")
            + "</td>"
            for row in group.itertuples()
        )
        name = f"{escape(group.reference.iloc[0])}{_unless_measured(group.kind.iloc[0])}"
        rows.append(f'<tr><td class="n">{name}</td>{cells}</tr>')
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _missing(made: Sequence[Made]) -> str:
    absent = [name for name in TARGETS if name not in {one.name for one in made}]
    if not absent:
        return ""
    rows = ", ".join(label(name) for name in absent)
    return f"<h2>Not in this report</h2><p>{rows}. To make them: <code>scansnap reproduce {' '.join(absent)}</code></p>"


def _how(made: Sequence[Made], effort: Effort) -> str:
    facts = {**machine(effort.device), **all_versions()}
    rows = "".join(f"<tr><td>{escape(str(k))}</td><td>{escape(str(v))}</td></tr>" for k, v in facts.items())
    times = "".join(
        f'<tr><td>{label(one.name)}</td><td class="n">{one.seconds:.2f} s</td></tr>'
        for one in sorted(made, key=lambda one: -one.seconds)
    )
    again = command(" ".join(one.name for one in made), effort)
    return (
        f"<h2>How this was made</h2><pre>{escape(again)}</pre>"
        f"<details open><summary>Machine and versions</summary><table>{rows}</table></details>"
        f"<details><summary>Where the time went</summary><table>{times}</table></details>"
    )


_BASE = r"(?<![A-Za-z_])([A-Za-zα-ωΓΣΩżξ]['′]?)"
_INDEX = r"(?:\{([^{}]+)\}|([A-Za-z]{1,2}['′]?|\d)(?![A-Za-z_]))"
_SUB, _SUP = (re.compile(_BASE + mark + _INDEX) for mark in ("_", r"\^"))  # subscripts first: an exponent may have some


def _prose(text: str) -> str:
    """Escaped, with η_Y and e^{2 B_n} as subscript and superscript."""
    text = escape(text, quote=False)
    for pattern, tag in ((_SUB, "sub"), (_SUP, "sup")):
        text = pattern.sub(rf"\1<{tag}>\2\3</{tag}>", text)
    return text


def _width(svg: bytes) -> int:
    """Pixels at which text is as large as on the page around it, from the size in points."""
    found = re.search(rb'<svg[^>]* width="([\d.]+)pt"', svg)
    return round(float(found[1]) * 1.7) if found else 900


def _kind(kind: Kind) -> str:
    return f'<span class="kind">{kind}</span>' if kind != "measured" else kind


def _unless_measured(kind: Kind) -> str:
    return f" {_kind(kind)}" if kind != "measured" else ""


def _counted(finding: Finding) -> str:
    return escape(finding.counted)


def _css(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {seconds % 60:.0f} s"
