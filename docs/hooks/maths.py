"""Formulas as MathML, made when the site is built: browsers draw it themselves, so no script and no font is shipped.

What is written in Unicode, as in the code (η_Y, c_max, e^{ρu}), is lowered and raised.
"""

from __future__ import annotations

import html
import logging
import re
from typing import Any

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
CODE = re.compile(
    r"<(pre|code|math|script|style|svg|title)\b.*?</\1>|<[^>]*>", re.S
)  # and tags themselves: left as they are
LOWERED = re.compile(
    r"((?<![A-Za-z0-9_])[A-Za-z]|[\u0370-\u03ffẊẎŻẋẏż]|[A-Za-z][\u0300-\u036f])"
    r"_(?:\{([^{}]+)\}|([A-Za-z0-9]{1,4}['′*]*))(?![A-Za-z0-9_])"
)
RAISED = re.compile(r"\^(?:\{([^{}]+)\}|([A-Za-z0-9\u0370-\u03ff])(?![A-Za-z0-9]))")
log = logging.getLogger("mkdocs.hooks.maths")


def mathml(text: str) -> str:
    """The page with what ``pymdownx.arithmatex`` marked drawn as MathML."""
    return FORMULA.sub(lambda found: drawn(html.unescape(found[3]).strip(), block=found[2] == "["), text)


def drawn(formula: str, *, block: bool) -> str:
    """One formula; a command that is not known fails the build instead of standing there as it was typed."""
    from latex2mathml.converter import convert  # of the extra docs, which not all who test have

    made: str = convert(formula, display="block" if block else "inline")
    if unknown := re.findall(r">[^<]*(\\[^<]*)<", made):
        log.warning("%s is not known in the formula %s", ", ".join(unknown), formula)
    return made


def lowered(text: str) -> str:
    """A page whose indices and powers stand where they belong, outside of code."""
    pieces, end = [], 0
    for left in CODE.finditer(text):
        pieces += [_scripts(text[end : left.start()]), left.group()]
        end = left.end()
    return "".join([*pieces, _scripts(text[end:])])


def _scripts(text: str) -> str:
    text = LOWERED.sub(lambda found: f"{found[1]}<sub>{found[2] or found[3]}</sub>", text)
    return RAISED.sub(lambda found: f"<sup>{found[1] or found[2]}</sup>", text)


def on_page_content(text: str, *, page: Any, **rest: Any) -> str:
    return lowered(mathml(text)) if page.file.src_uri.endswith(".md") else text
