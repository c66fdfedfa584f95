"""``scansnap explorer`` and ``lecture``: the explorer in the browser, or as one file, with slides or without."""

from __future__ import annotations

import os
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scansnap.checks import InputError, check_integer
from scansnap.cli.console import err, out
from scansnap.cli.options import Overwrite, check_output, default_output, numbered_output, refuse_existing
from scansnap.storage import put

if TYPE_CHECKING:
    from scansnap.explorer.lab.server import Extras


def explorer(
    target: Annotated[
        Path | None, typer.Option("--out", help="Write the page to this file: a name ending in .html.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Show the trained text models in this folder (text lens).")
    ] = None,
    probe: Annotated[
        Path | None, typer.Option(help="Show this file of a probe (probe.zarr), or a folder of them.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check the claims on any setting, in Python.")] = False,
    deck: Annotated[
        Path | None, typer.Option(help="A TOML file of a lecture, which lecture mode offers first.")
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port of the server that --folder, --probe and --verify need; 0 picks a free one.")
    ] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    overwrite: Overwrite = False,
) -> int:
    """Open the explorer in the browser, or write it as a file.

    The page is one HTML file that works offline and computes everything itself. Only --folder, --probe and --verify
    need Python: they start a server on the loopback address, for one user, until Ctrl-C.
    """
    served = folder is not None or probe is not None or verify
    if target is not None:
        check_output("--out", target, ".html")
        if served:
            hint = "a file has no server; leave out --folder, --probe and --verify"
            raise InputError.conflict("--out", hint, str(target))
    if folder is not None and not folder.is_dir():
        raise InputError("--folder", str(folder), "a folder that exists")
    port = check_integer("--port", port, most=65535)
    from scansnap.explorer.lecture import read_deck

    decks = () if deck is None else (read_deck(deck),)
    if served:
        from scansnap.explorer.lab.probe import check
        from scansnap.explorer.lab.server import Extras

        if probe is not None:
            check(probe)
        return _serve(Extras(folder, probe, decks), port, open_browser)
    from scansnap.explorer.build import explorer_html

    if target is not None:
        refuse_existing("--out", target, overwrite)
    page = explorer_html(decks)
    if target is None:
        target = _cache() / "explorer.html"
        target.parent.mkdir(parents=True, exist_ok=True)
        put(target, page)
        err.print(f"The explorer is {target}", markup=False)
        if open_browser:
            webbrowser.open(target.as_uri())
        return 0
    put(target, page)
    out.print(f"file {target} ({target.stat().st_size / 2**20:.1f} MiB)", markup=False)
    return 0


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "scansnap"


def _serve(extras: Extras, port: int, open_browser: bool) -> int:
    from scansnap.explorer.lab.server import HOST, LabServer

    try:
        server = LabServer(extras, port)
    except OSError as error:
        raise InputError("--port", port, f"a free port of {HOST} ({error.strerror})") from None
    with server:
        err.print(f"The explorer is at {server.address} (Ctrl-C ends it)", markup=False)
        if open_browser:
            threading.Timer(0.3, webbrowser.open, (server.address,)).start()
        server.serve_forever()
    return 0


def lecture(
    deck: Annotated[str, typer.Argument(help="A TOML file with a deck, or one of the decks paper, holds and adam.")],
    target: Annotated[Path | None, numbered_output("Write this file: a name ending in .html.", "lecture.html")] = None,
    overwrite: Overwrite = False,
) -> int:
    """Write a lecture as one HTML file.

    It runs in any browser and computes its runs itself.
    """
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
