"""``scansnap serve``: the explorer in a browser, on this machine only unless told otherwise."""

from __future__ import annotations

import importlib.util
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from scansnap.checks import InputError, whole
from scansnap.cli.console import err

_NEEDED = ("fastapi", "uvicorn", "websockets", "plotly")


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 picks a free one.")] = 8765,
    folder: Annotated[Path | None, typer.Option(help="The folder whose trained text models may be shown.")] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    probe: Annotated[
        Path | None, typer.Option(help="A probe's file (probe.zarr), or a folder of them, to show at /probe.")
    ] = None,
) -> int:
    """Watch attention scan and snap in a browser, until Ctrl-C.

    Everything stays on this machine: the page is served on the loopback address and asks for nothing else.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError("the installation", f"without {', '.join(missing)}", "made with its extra: scansnap[web]")
    port = whole("--port", port, most=65535)
    if folder is not None and not folder.is_dir():
        raise InputError("--folder", str(folder), "a folder that exists")
    if probe is not None:
        from scansnap.explorer.pages.probe import check

        check(probe)  # what cannot be shown is refused before anything starts
    with _bind(host, port) as listening:
        return _serve(listening, host, folder, open_browser, probe)


def _serve(listening: socket.socket, host: str, folder: Path | None, open_browser: bool, probe: Path | None) -> int:
    port = listening.getsockname()[1]
    shown = "localhost" if host in ("127.0.0.1", "::1") else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/"
    import uvicorn

    from scansnap.explorer.api.listening import configuration
    from scansnap.explorer.api.server import WebSettings, create_app

    app = create_app(WebSettings(host=host, port=port, folder=folder, probe=probe))
    server = uvicorn.Server(configuration(app))
    err.print(f"The explorer is at {address} (Ctrl-C ends it)")
    if probe is not None:
        address += "probe"
        err.print(f"The probe's report is at {address}")
    if host not in ("127.0.0.1", "localhost", "::1"):
        err.print("It listens beyond this machine: everybody who reaches this address can use it.")
    if open_browser:
        threading.Timer(0.3, webbrowser.open, (address,)).start()
    server.run(sockets=[listening])
    return 0


def _bind(host: str, port: int) -> socket.socket:
    """Listen first, so that a taken port is said in one sentence and port 0 has its number."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family)
    except (OSError, UnicodeError) as error:  # a name that no host can have
        reason = getattr(error, "strerror", None) or str(error)
        allowed = f"an address and port of this machine that are free ({reason})"
        raise InputError("--host and --port", f"{host}:{port}", allowed) from None
