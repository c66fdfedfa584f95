"""``scansnap serve``: the explorer in a browser, on this machine only unless told otherwise."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scansnap.checks import InputError, whole
from scansnap.checks.extras import WEB, require
from scansnap.cli.console import err

if TYPE_CHECKING:
    from scansnap.explorer.api.server import WebSettings

_LEAST_MEMORY = 64 << 20


def serve(
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 is every address of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 picks a free one.")] = 8765,
    folder: Annotated[Path | None, typer.Option(help="The folder whose trained text models may be shown.")] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    probe: Annotated[
        Path | None, typer.Option(help="A probe's file (probe.zarr), or a folder of them, to show at /probe.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name that browsers see instead of the address, as of a proxy; may be given several times."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="SCANSNAP_TOKEN", help="The token of the link. [default: a new one, if others can come]"),
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let in everybody who reaches the address.")] = False,
    root_path: Annotated[str, typer.Option(help="The path under which a proxy serves it, such as /scansnap.")] = "",
    workers: Annotated[
        int | None, typer.Option(help="Processes that compute runs. [default: one per core, at most 4]")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Most memory of all runs together, such as 4GB. [default: 1.5GiB]")
    ] = None,
    deck: Annotated[Path | None, typer.Option(help="A lecture's TOML file, offered first in lecture mode.")] = None,
) -> int:
    """Watch attention scan and snap in a browser, until Ctrl-C.

    Everything stays on this machine: the page is served on the loopback address and asks for nothing else. With --host
    or --allowed-host others can come too, by the link that is printed; docs/hosting.md tells how to serve a class.
    """
    require(WEB)
    from scansnap.explorer.api.door import check_host_name, check_root_path, check_token
    from scansnap.explorer.api.server import WebSettings
    from scansnap.explorer.live.pool import default_workers
    from scansnap.sweep.plan import in_words, parse_memory

    port = whole("--port", port, most=65535)
    if folder is not None and not folder.is_dir():
        raise InputError("--folder", str(folder), "a folder that exists")
    if token is not None and no_token:
        raise InputError("--token", token, "left out with --no-token")
    n_bytes = None if memory is None else parse_memory(memory)
    if n_bytes is not None and n_bytes < _LEAST_MEMORY:
        raise InputError("--memory", memory, f"at least {in_words(_LEAST_MEMORY)}, which a few runs take")
    settings = WebSettings(
        host=host, port=port, folder=folder, probe=probe, deck=deck, memory=n_bytes,
        workers=default_workers() if workers is None else whole("--workers", workers, least=1, most=256),
        token=None if token is None else check_token(token),
        allowed_hosts=tuple(check_host_name(name) for name in allowed_host or ()),
        root_path=check_root_path(root_path),
    )  # fmt: skip
    if settings.shared and not settings.token and not no_token:
        settings = replace(settings, token=secrets.token_urlsafe(24))
    if probe is not None:
        from scansnap.explorer.pages.probe import check

        check(probe)  # what cannot be shown is refused before anything starts
    if deck is not None:
        from scansnap.explorer.pages.lecture import read_deck

        read_deck(deck)
    with _bind(host, port) as listening:
        return _serve(listening, replace(settings, port=listening.getsockname()[1]), open_browser)


def _serve(listening: socket.socket, settings: WebSettings, open_browser: bool) -> int:
    import uvicorn

    from scansnap.explorer.api.listening import configuration
    from scansnap.explorer.api.server import create_app

    server = uvicorn.Server(configuration(create_app(settings)))
    link = f"?token={settings.token}" if settings.token else ""
    address = f"http://{_shown(settings.host)}:{settings.port}{settings.root_path}/"
    err.print(f"The explorer is at {address}{link} (Ctrl-C ends it)")
    for name in settings.allowed_hosts:
        err.print(f"Through {name}: https://{name}{settings.root_path}/{link} (or http, as your proxy has it)")
    if settings.probe is not None:
        address += "probe"
        err.print(f"The probe's report is at {address}{link}")
    if settings.shared and not settings.token:
        err.print("It has no token: everybody who reaches this address can use it.")
    elif settings.shared:
        err.print("Others can come: everybody with this link can use it. It is not encrypted without a proxy that is.")
    if open_browser:
        threading.Timer(0.3, webbrowser.open, (address + link,)).start()
    server.run(sockets=[listening])
    return 0


def _shown(host: str) -> str:
    """The address as a browser takes it; of a server that listens everywhere, the one that others reach."""
    from scansnap.explorer.api.door import is_loopback

    if is_loopback(host):
        return "localhost"
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host
    if not everywhere:
        return f"[{host}]" if ":" in host else host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 9))  # sends nothing: only asks which of our addresses would be used
            return str(way.getsockname()[0])
        except OSError:  # no network
            return socket.gethostname()


def _bind(host: str, port: int) -> socket.socket:
    """Listen first, so that a taken port is said in one sentence and port 0 has its number."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family)
    except (OSError, UnicodeError) as error:  # a name that no host can have
        reason = getattr(error, "strerror", None) or str(error)
        allowed = f"an address and port of this machine that are free ({reason})"
        raise InputError("--host and --port", f"{host}:{port}", allowed) from None
