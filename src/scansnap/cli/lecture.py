"""``scansnap lecture``: the explorer as one HTML file that opens with a deck of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scansnap.cli.console import out
from scansnap.cli.options import Overwrite
from scansnap.cli.places import place
from scansnap.storage import put


def lecture(
    deck: Annotated[str, typer.Argument(help="A deck's TOML file, or a shipped one: paper, holds or adam.")],
    target: Annotated[Path, typer.Option("--out", help="The file to write: a name ending in .html.")] = Path(
        "lecture.html"
    ),
    overwrite: Overwrite = False,
) -> int:
    """Write a lecture as one file for any browser; it computes its runs itself.

    The deck's file is read and checked first; a refusal leaves no file behind.
    """
    place("--out", target, ".html", overwrite=overwrite)
    from scansnap.explorer.build import explorer_html
    from scansnap.explorer.lecture import load_deck

    content = load_deck(deck)
    put(target, explorer_html([content], lecture=True))
    out.print(f"{content['title']}: {len(content['beat'])} beats", markup=False)
    out.print(f"file {target} ({target.stat().st_size / 2**20:.1f} MiB)", markup=False)
    return 0
