"""Formulas as MathML, made when the site is built: browsers draw it themselves, so no script and no font is shipped."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)


def mathml(text: str) -> str:
    """The page with what ``pymdownx.arithmatex`` marked drawn as MathML."""
    return FORMULA.sub(
        lambda found: convert(html.unescape(found[3]).strip(), display="block" if found[2] == "[" else "inline"), text
    )


def on_page_content(text: str, **rest: Any) -> str:
    return mathml(text)
