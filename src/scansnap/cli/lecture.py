"""``scansnap lecture``: the explorer as one HTML file that opens with your slides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scansnap.cli.console import out
from scansnap.cli.options import Overwrite
from scansnap.cli.outputs import check_output, default_output, refuse_existing
from scansnap.storage import put


def lecture(
    deck: Annotated[str, typer.Argument(help="A TOML file with a deck, or one of the decks paper, holds and adam.")],
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write this file: a name ending in .html. "
            "[default: lecture.html; where that exists lecture-2.html, and so on]",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> int:
    """Write a lecture as one HTML file. It runs in any browser and computes its runs itself."""
    if target is None:
        target = default_output(Path("lecture.html"), overwrite=overwrite)
    check_output("--out", target, ".html")
    from scansnap.explorer.build import explorer_html
    from scansnap.explorer.lecture import load_deck

    content = load_deck(deck)
    refuse_existing("--out", target, overwrite)
    put(target, explorer_html([content], lecture=True))
    out.print(f"{content['title']}: {len(content['beat'])} beats", markup=False)
    out.print(f"file {target} ({target.stat().st_size / 2**20:.1f} MiB)", markup=False)
    return 0
