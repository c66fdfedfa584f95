"""A server on the loopback address for one user: the page, and the requests of its lab extras.

Another site must not reach it through the user's browser: the Host header must be ours (a name that is made to point
here is refused), a request from another page is refused by its Origin or Sec-Fetch-Site header, and a POST must be
JSON, which no form can send. Every other request is answered with 404.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from scansnap.checks import InputError
from scansnap.explorer.build import explorer_html
from scansnap.explorer.lab import lens, probe
from scansnap.explorer.lab.refusal import Refused
from scansnap.explorer.page import as_json
from scansnap.explorer.setup import field_of

HOST = "127.0.0.1"
MOST_BYTES = 1 << 20  # of a request's body
_DRAINED = 8 << 20  # of a body that is too large
_SECONDS = 30.0  # in which a request must have come
_HEADERS = {
    "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
}  # fmt: skip
_FRAMES = "frame-ancestors 'none'"


@dataclass(frozen=True)
class Extras:
    """What is offered: text models in a folder, a probe's file or a folder of them, and a deck of one's own."""

    folder: Path | None = None
    probe: Path | None = None
    decks: tuple[dict[str, Any], ...] = ()

    def as_catalogue(self) -> dict[str, bool]:
        """The extras as the page's catalogue lists them."""
        return {"lens": self.folder is not None, "probe": self.probe is not None, "verify": True}


class LabServer(ThreadingHTTPServer):
    """Listens at once, on a port of one's choice or a free one (0)."""

    daemon_threads = True

    def __init__(self, extras: Extras, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.extras = extras
        self.page = explorer_html(extras.decks, lab=extras.as_catalogue())
        self.computing = threading.Lock()  # one computation at a time

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/"

    @property
    def hosts(self) -> frozenset[str]:
        """The Host headers that are ours."""
        return frozenset(f"{name}:{self.port}" for name in (HOST, "localhost"))


class _Handler(BaseHTTPRequestHandler):
    server: LabServer
    protocol_version = "HTTP/1.1"
    timeout = _SECONDS

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, make: Any) -> None:
        try:
            self._check_sender()
            content, kind, policy = make()
            self._send(200, content, kind, policy)
        except Refused as refused:
            self._refuse(refused.status, refused.field, refused.message)
        except InputError as error:
            self._refuse(422, field_of(error), str(error))
        except (BrokenPipeError, ConnectionResetError):  # the page was closed
            self.close_connection = True

    def _check_sender(self) -> None:
        if self.headers.get("host", "").lower() not in self.server.hosts:
            raise Refused(403, "request", f"The Host header is not one of this server: open {self.server.address}")
        origin, site = self.headers.get("origin"), self.headers.get("sec-fetch-site")
        own = {f"http://{host}" for host in self.server.hosts}
        if (origin is not None and origin.lower() not in own) or site in ("cross-site", "same-site"):
            raise Refused(403, "request", "The request comes from another page.")

    def _get(self) -> tuple[str, str, str]:
        url, extras = urlsplit(self.path), self.server.extras
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        path = unquote(url.path)
        if path == "/":
            return self.server.page, "text/html", _FRAMES
        if path == "/probe":
            return probe.html(extras.probe, query.get("file", "")), "text/html", probe.policy()
        if path == "/api/probes":
            return as_json({"files": list(probe.files(extras.probe))}), "application/json", _FRAMES
        if path == "/api/lens":
            return as_json({"models": lens.models(extras.folder)}), "application/json", _FRAMES
        if path.startswith("/api/lens/"):
            word = query.get("query", "")
            file = lens.check(extras.folder, path.removeprefix("/api/lens/"), word)
            with self.server.computing:
                return as_json(lens.explain(file, word)), "application/json", _FRAMES
        raise Refused(404, "request", "There is nothing at this address.")

    def _post(self) -> tuple[str, str, str]:
        body = self._body()
        if urlsplit(self.path).path != "/api/verify":
            raise Refused(404, "request", "There is nothing at this address.")
        from scansnap.explorer.verdicts import entry

        with self.server.computing:
            return as_json(entry(body)), "application/json", _FRAMES

    def _body(self) -> Any:
        length = self.headers.get("content-length", "")
        self.close_connection = True  # unless the body is read
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "request", "The request must be JSON (content-type: application/json).")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.rfile.read(min(int(length), _DRAINED) if length.isdecimal() else 0)  # so that the refusal is read
            raise Refused(413, "request", f"The request must be at most {MOST_BYTES} bytes and say its length.")
        try:
            value = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refused(400, "request", "The request is not JSON.") from None
        except TimeoutError:
            raise Refused(408, "request", f"The request took longer than {_SECONDS:g} seconds.") from None
        self.close_connection = False
        return value

    def _refuse(self, status: int, field: str, message: str) -> None:
        self._send(status, as_json({"field": field, "message": message}), "application/json", _FRAMES)

    def _send(self, status: int, content: str, kind: str, policy: str) -> None:
        body = content.encode("utf-8", "replace")
        self.send_response(status)
        headers = {**_HEADERS, "content-type": f"{kind}; charset=utf-8", "content-security-policy": policy,
                   "content-length": str(len(body))}  # fmt: skip
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the terminal."""
