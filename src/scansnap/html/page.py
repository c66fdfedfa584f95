"""Render a report from the base and the report's own template, style and script.

A report is a package with ``report.html``, which extends ``base.html`` and fills its blocks, ``report.css`` and
``report.js``. Scripts are modules that import from ``base.js``; the page has both in one element.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from scansnap.storage.json_text import to_json

_MODULE = re.compile(r"^import [^;]*;\n|^export \{\};.*\n|^export (?=function|const)", flags=re.MULTILINE)


def environment(package: str, filters: Mapping[str, Any]) -> Environment:
    """The templates of a report; everything in ``{{ }}`` is escaped."""
    loader = ChoiceLoader([PackageLoader(package, "."), PackageLoader("scansnap.html", ".")])
    templates = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    templates.filters.update(filters)
    return templates


def render(package: str, filters: Mapping[str, Any], data: Any, **values: Any) -> str:
    """The document; ``data`` is what its script reads."""
    return environment(package, filters).get_template("report.html").render(
        data=embedded(data), script=Markup(script(package)), script_hash=script_hash(package), **values
    )  # fmt: skip


@cache
def script(package: str) -> str:
    """The page's only script."""
    parts = (files(place).joinpath(name) for place, name in (("scansnap.html", "base.js"), (package, "report.js")))
    return "\n".join(_MODULE.sub("", part.read_text(encoding="utf-8")) for part in parts)


def script_hash(package: str) -> str:
    """The name of the script in a content security policy."""
    digest = hashlib.sha256(f"\n{script(package)}\n".encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()


def embedded(value: Any) -> Markup:
    """JSON in a page; nothing in it can end its element."""
    text = to_json(value, separators=(",", ":"))
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))
