"""Formulas as MathML, made when the site is built: browsers draw it themselves, so no script and no font is shipped."""

from __future__ import annotations

import html
import logging
import re
from typing import Any

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
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


def on_page_content(text: str, **rest: Any) -> str:
    return mathml(text)
