"""Tables of the settings and of the command line, from their declarations, whenever the site is built."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, *, page: Any, **rest: Any) -> str:
    return markdown
