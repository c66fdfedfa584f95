"""Who may speak to the server, and what every answer carries.

A page of another site must not reach a server on the loopback address through its visitor's browser: a name that is
made to point here is refused by its Host header, a request from another page by its Origin header; a server that is
open to others asks for the token of its link besides (:mod:`scansnap.explorer.api.door`). And the end of the server is
no error: what it cuts off is answered 503.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Iterable
from html import escape

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scansnap.explorer.api.door import Door
from scansnap.explorer.live import visitors
from scansnap.explorer.protocol import Refused

# plotly.js styles its elements in line; scripts stay confined to our own files, and nothing is evaluated
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
_PAGES = ("/", "/probe", "/docs")
_DOOR = (  # no style sheet is given out before the token
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<title>scansnap explorer</title><link rel="icon" href="data:,"><style>'
    ":root { color-scheme: light dark; } "
    "body { margin: 0; min-height: 100vh; display: grid; place-items: center; font: 1.2rem/1.5 sans-serif; } "
    "main { max-width: 34rem; padding: 2rem; } h1 { font: 600 2rem Georgia, serif; margin: 0; } i { font-weight: 400; }"
    "</style>"
)
_Headers = list[tuple[bytes, bytes]]


class Names:
    """The Host and Origin headers that are ours: those of the address we listen on, and those we were told of."""

    def __init__(self, host: str, port: int, allowed: Iterable[str] = ()) -> None:
        self.port = port
        self.everywhere = host in ("0.0.0.0", "::", "")
        names = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host}
        names |= {socket.gethostname()} if self.everywhere else set()
        self.own = {f"{name}:{port}".lower() for name in names}
        if port == 80:
            self.own |= {name.lower() for name in names}
        self.told = {form for name in allowed for form in self._forms(name)}

    def _forms(self, name: str) -> set[str]:
        """A name without a port stands for the usual ones and our own."""
        if name.rpartition("]")[2].count(":"):
            return {name}
        return {name, f"{name}:80", f"{name}:443", f"{name}:{self.port}"}

    def is_host(self, host: str) -> bool:
        return host.lower() in self.own | self.told or (self.everywhere and self._is_address(host))

    def is_origin(self, origin: str) -> bool:
        """Ours is http; in front of us may be a proxy that speaks https under one of the names told."""
        scheme, _, host = origin.lower().partition("://")
        return (scheme == "http" and self.is_host(host)) or (scheme in ("http", "https") and host in self.told)

    def _is_address(self, host: str) -> bool:
        """A bare address of ours: nobody can make another site's name look like it."""
        name, _, port = host.rpartition(":")
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return port == str(self.port)


class Guard:
    """ASGI middleware: Host, Origin and token in, safety headers out."""

    def __init__(self, app: ASGIApp, names: Names, door: Door, root_path: str = "") -> None:
        self.app, self.names, self.door, self.root_path = app, names, door, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, _to_the_end(receive), send)
        elif refusal := self._refusal(scope):
            await _refuse(scope, send, 403, "request", refusal)
        elif self.root_path and scope["path"] == self.root_path and scope["type"] == "http":
            query = scope["query_string"].decode("latin-1")
            onward = self.root_path.rpartition("/")[2] + "/" + (f"?{query}" if query else "")
            await _answer(send, 307, [(b"location", onward.encode())])
        else:
            await self._inside(_without(self.root_path, scope), receive, send)

    async def _inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        token, visitor = self.door.offered(scope), self.door.visitor(scope)
        if token is not None and self.door.is_right(token):
            onward = self.door.onward(scope)
            await _answer(send, 303, [(b"location", onward.encode()), *self.door.welcome(scope)])
        elif token is not None:
            words = "The token in this address is not the one of this server; ask for the link again."
            await _refuse(scope, send, 401, "token", words)
        elif visitor is None:
            words = "This explorer is open to those who have its link; open the address that ends with ?token=…"
            await _refuse(scope, send, 401, "token", words)
        else:
            visitors.serve(visitor)
            await self._pass(scope, receive, send, visitor)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, visitor: visitors.Visitor) -> None:
        started = False
        more = self.door.welcome(scope) if scope["type"] == "http" and scope["path"] in _PAGES else []

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                present = {name.lower() for name, _ in message["headers"]}
                new = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in present]
                message["headers"] = [*message["headers"], *new, *more]
            await send(message)

        try:
            if scope["type"] == "http" and scope["path"].startswith("/api/"):
                if visitor.capped and not visitor.within_rate():
                    raise Refused(429, "request", "You ask too often; try again in a moment.")
                async with visitor.having("requests"):
                    await self.app(scope, receive, with_headers)
            else:
                await self.app(scope, receive, with_headers)
        except Refused as error:
            await _refuse(scope, send, error.status, error.field, error.message)
        except asyncio.CancelledError:  # the server ends and waits no longer
            if scope["type"] == "http" and not started:
                await _refuse(scope, send, 503, "request", "The server is stopping.")

    def _refusal(self, scope: Scope) -> str:
        found: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name.lower(), []).append(value)
        hosts, origins = found.get(b"host", []), found.get(b"origin", [])
        if len(hosts) != 1 or not self.names.is_host(hosts[0].decode("latin-1")):
            return "This server answers only under its own address."
        if not all(self.names.is_origin(origin.decode("latin-1")) for origin in origins):
            return "This server answers only to its own pages."
        return ""


def _without(root_path: str, scope: Scope) -> Scope:
    """The path as the application knows it, whether or not the proxy has taken its own part off."""
    if not root_path or not scope["path"].startswith(root_path + "/"):
        return scope
    raw = scope.get("raw_path") or scope["path"].encode()
    return {**scope, "path": scope["path"][len(root_path) :], "raw_path": raw[len(root_path) :]}


def _to_the_end(receive: Receive) -> Receive:
    """Of the lifespan: a second Ctrl-C cancels it, but the worker processes must end all the same."""

    async def until_cancelled() -> Message:
        try:
            return await receive()
        except asyncio.CancelledError:
            return {"type": "lifespan.shutdown"}

    return until_cancelled


async def _refuse(scope: Scope, send: Send, status: int, field: str, message: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": message})  # before accept: HTTP 403
        return
    challenge: _Headers = [(b"www-authenticate", b"Bearer")] if status == 401 else []
    if field == "token" and scope["path"] in _PAGES:  # read by a person
        page = (
            f'<!doctype html><html lang="en">{_DOOR}<main><h1>Scan <i>and</i> Snap</h1><p>{escape(message)}</p></main>'
        )
        await _answer(send, status, [(b"content-type", b"text/html; charset=utf-8"), *challenge], page.encode())
        return
    body = json.dumps({"field": field, "message": message}).encode()
    await _answer(send, status, [(b"content-type", b"application/json"), *challenge], body)


async def _answer(send: Send, status: int, headers: _Headers, body: bytes = b"") -> None:
    headers = [*headers, (b"content-length", str(len(body)).encode()),
               *((k.encode(), v.encode()) for k, v in HEADERS.items())]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
