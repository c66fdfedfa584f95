"""Turns a template of ``static/`` into one HTML file with styles, icon, script and data inline."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scansnap.explorer.bundle import bundle
from scansnap.storage.json_text import to_json

STATIC = Path(__file__).parent / "static"
_STYLE = re.compile(r'^<link rel="stylesheet" href="static/([^"]+)">\n', re.M)
_ICON = re.compile(r'(<link rel="icon" href=")static/([^"]+)')
_SCRIPT = re.compile(r'^<script type="module" src="static/js/([^"]+)\.js"></script>\n', re.M)
_HEAD, _END = '<meta charset="utf-8">\n', "</body>"


def document(template: str, data: Mapping[str, Any], *, connect: bool = False) -> str:
    """The template as one file.

    ``data`` becomes JSON in elements ``data-NAME``; ``connect`` allows requests to the own origin, for the lab extras.
    """
    page = (STATIC / template).read_text(encoding="utf-8")
    entry = _SCRIPT.search(page)
    assert entry is not None, f"static/{template} has no module script"
    script = bundle(STATIC / "js", entry[1]).replace("</", "<\\/").replace("<!--", "<\\!--")
    page = _SCRIPT.sub("", page)
    page = _STYLE.sub(lambda m: f"<style>\n{(STATIC / m[1]).read_text(encoding='utf-8')}</style>\n", page)
    page = _ICON.sub(lambda m: m[1] + _data_url(STATIC / m[2]), page)
    page = page.replace(_HEAD, f"{_HEAD}{_policy(script, connect)}\n", 1)
    blocks = "".join(
        f'<script type="application/json" id="data-{name}">{as_json(value)}</script>\n' for name, value in data.items()
    )
    before, end, after = page.rpartition(_END)
    return f"{before}{blocks}<script>{script}</script>\n{end}{after}"


def as_json(value: Any) -> str:
    """Strict JSON in which nothing looks like the beginning or end of an element."""
    text = to_json(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _policy(script: str, connect: bool) -> str:
    """The content-security policy: the page's own script, workers made from its own text, no request."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = ["default-src 'none'", f"script-src 'sha256-{digest}'", "worker-src blob:", "style-src 'unsafe-inline'",
             "img-src data: blob:", "media-src blob:", "base-uri 'none'", "form-action 'none'",
             *(["connect-src 'self'", "frame-src 'self'"] if connect else [])]  # fmt: skip
    return f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(rules)}">'


def _data_url(path: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
