"""``scansnap lecture``: a deck as one HTML file that gives the lecture without a server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from scansnap.checks.extras import WEB, require
from scansnap.cli.console import duration, err, out, progress_bar
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
    """Compute all runs of a lecture and write them, with what shows them, into one file for any browser.

    The deck's file is read and checked before anything is computed; a refusal or Ctrl-C leaves no file behind.
    """
    require(WEB)
    place("--out", target, ".html", overwrite=overwrite)
    from scansnap.explorer.pages import lecture as pages

    given = pages.find(deck)
    began = time.monotonic()
    try:
        with progress_bar("steps") as bar:
            data = pages.lecture(given, bar)
    except KeyboardInterrupt:
        err.print("Stopped. Nothing was written.", markup=False)
        return 130
    put(target, pages.html(pages.STATIC, data))
    size = target.stat().st_size / 2**20
    out.print(f"{given.title}: {len(given.beats)} beats, {len(data['films'])} runs in "
              f"{duration(time.monotonic() - began)}", markup=False)  # fmt: skip
    out.print(f"file {target} ({size:.1f} MiB)", markup=False)
    return 0
