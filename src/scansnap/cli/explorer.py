"""``scansnap explorer``: the page as one file, or opened in the browser."""

from __future__ import annotations

import os
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scansnap.checks import InputError, check_integer
from scansnap.cli.console import err, out
from scansnap.cli.options import Overwrite
from scansnap.cli.places import place
from scansnap.storage import put

if TYPE_CHECKING:
    from scansnap.explorer.lab.server import Extras


def explorer(
    target: Annotated[Path | None, typer.Option("--out", help="Write the page here: a name ending in .html.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Text lens: the folder of trained text models.")] = None,
    probe: Annotated[
        Path | None, typer.Option(help="Probe: the file of a probe (probe.zarr), or a folder of them.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Judge the claims on any set-up, in Python.")] = False,
    deck: Annotated[Path | None, typer.Option(help="A lecture's TOML file, offered first in lecture mode.")] = None,
    port: Annotated[
        int, typer.Option(help="Port of the server of --folder, --probe and --verify; 0 is a free one.")
    ] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    overwrite: Overwrite = False,
) -> int:
    """Open the explorer in the browser, or write it as one HTML file (--out) that works offline anywhere.

    The page computes everything itself. Only --folder, --probe and --verify need Python beside it: then a server
    listens on the loopback address, for one user, until Ctrl-C.
    """
    served = folder is not None or probe is not None or verify
    if target is not None:
        place("--out", target, ".html", overwrite=overwrite)
        if served:
            raise InputError("--out", str(target), "given without --folder, --probe and --verify: a file has no server")
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
