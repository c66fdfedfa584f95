"""The report: one HTML file that needs nothing else, from what was just made. What it says is in report.html."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from scansnap.measure.comparison import LEVEL
from scansnap.paper.figure import MOSTLY, VERDICTS, Effort, told, totals
from scansnap.paper.report.make import Made, all_versions, command, machine, plain
from scansnap.paper.report.targets import TARGETS, label

NO_MEASUREMENT = {"by definition": "true by definition", "formula": "drawn from formulas, without runs",
                  "identity": "identities"}  # fmt: skip
STATUS = {"holds": "agrees", "fails": "disagrees", "undecided": "undecided", "not applicable": "not-applicable"}


def page(made: Sequence[Made], effort: Effort) -> str:
    """The whole document."""
    environment = Environment(loader=PackageLoader("scansnap.paper", "report"), autoescape=True, trim_blocks=True,
                              lstrip_blocks=True, undefined=StrictUndefined)  # fmt: skip
    environment.filters |= {
        "base64": lambda data: base64.b64encode(data).decode(), "by_claim": by_claim, "duration": duration,
        "json": lambda settings: json.dumps(plain(settings), indent=1, ensure_ascii=False), "label": label,
        "prose": prose, "width": width,
    }  # fmt: skip
    counts = totals(finding for one in made for finding in one.computed.findings)
    return environment.get_template("report.html").render(
        made=made, effort=effort, origin=origin(made), verdicts=VERDICTS, measured=counts.get("measured", {}),
        apart=told({kind: verdicts for kind, verdicts in counts.items() if kind != "measured"}),
        level=LEVEL, mostly=MOSTLY, status=STATUS,
        absent=[name for name in TARGETS if name not in {one.name for one in made}],
        again=command(" ".join(one.name for one in made), effort),
        facts={**machine(effort.device), **all_versions()},
    )  # fmt: skip


def origin(made: Sequence[Made]) -> str:
    """Which targets are no measurement, in a sentence."""
    found: dict[str, list[str]] = {}
    for one in made:
        kinds = {finding.kind for finding in one.computed.findings}
        if len(kinds) == 1 and kinds <= NO_MEASUREMENT.keys():
            found.setdefault(NO_MEASUREMENT[kinds.pop()], []).append(label(one.name))
    if not found:
        return "All of it comes from new runs."
    parts = [f"{' and '.join([', '.join(names[:-1])] * (len(names) > 1) + names[-1:])} "
             f"{'is' if len(names) == 1 else 'are'} {word}" for word, names in found.items()]  # fmt: skip
    rest = "; the rest comes from new runs" if sum(map(len, found.values())) < len(made) else ""
    return f"{'; '.join(parts)}{rest}."


def by_claim(table: pd.DataFrame) -> list[list[Any]]:
    """The claims' rows, one list for each claim: its settings."""
    return [list(rows.itertuples()) for _, rows in table.groupby("claim", sort=False)]


_BASE = r"(?<![A-Za-z_])([A-Za-zα-ωΓΣΩżξ]['′]?)"
_INDEX = r"(?:\{([^{}]+)\}|([A-Za-z]{1,2}['′]?|\d)(?![A-Za-z_]))"
_SUB, _SUP = (re.compile(_BASE + mark + _INDEX) for mark in ("_", r"\^"))  # subscripts first: an exponent may have some


def prose(text: str) -> Markup:
    """Escaped, with η_Y and e^{2 B_n} as subscript and superscript."""
    text = escape(text, quote=False)
    for pattern, tag in ((_SUB, "sub"), (_SUP, "sup")):
        text = pattern.sub(rf"\1<{tag}>\2\3</{tag}>", text)
    return Markup(text)


def width(svg: bytes) -> int:
    """Pixels at which text is as large as on the page around it, from the size in points."""
    found = re.search(rb'<svg[^>]* width="([\d.]+)pt"', svg)
    return round(float(found[1]) * 1.7) if found else 900


def duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {seconds % 60:.0f} s"
