"""The site opens from a folder without a network: whatever a page would fetch from elsewhere fails the build."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|object|embed)\b[^>]*?\s(?:src|data)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*?\shref=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|url\([\"']?((?:https?:)?//[^\"')]+)"
    r"|@import\s+[\"']((?:https?:)?//[^\"']+)",
    re.I,
)
log = logging.getLogger("mkdocs.hooks.offline")


def fetched(text: str) -> list[str]:
    """Addresses of other machines that a page or style would load from; links that a reader may follow are none."""
    return [next(filter(None, found)) for found in FETCHED.findall(text)]


def on_post_build(config: Any) -> None:
    for ending in ("html", "css"):
        for path in sorted(Path(config.site_dir).rglob(f"*.{ending}")):
            for address in fetched(path.read_text(encoding="utf-8")):
                log.warning("%s would fetch %s", path.relative_to(config.site_dir), address)
