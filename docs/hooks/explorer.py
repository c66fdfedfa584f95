"""The explorer in the site: a file of this folder, which the landing page embeds, and its icon as the logo."""

from __future__ import annotations

from typing import Any

LOGO = "assets/logo.svg"
FILE = "scan-and-snap.html"  # explorer.html is the guide to it
EMBEDDED = "<!-- explorer -->"  # on a page at the top level: where the explorer goes
FRAME = f"""<iframe class="explorer" src="{FILE}#level=explore" title="The explorer" loading="lazy"></iframe>

<p class="explorer"><a href="{FILE}">The explorer on a page of its own</a></p>"""


def on_files(files: Any, *, config: Any) -> Any:
    """Adds the icon."""
    from mkdocs.structure.files import File  # here: the tests of what is below need no mkdocs

    from scansnap.explorer.build import STATIC

    files.append(File.generated(config, LOGO, abs_src_path=str(STATIC / "icon.svg")))
    return files


def on_page_markdown(markdown: str, **rest: Any) -> str:
    return markdown.replace(EMBEDDED, FRAME)
