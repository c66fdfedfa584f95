"""Who may speak to the server, and what every answer carries.

A page of another site must not reach a server on the loopback address through its visitor's browser: a name that is
made to point here is refused by its Host header, a request from another page by its Origin header. And the end of the
server is no error: what it cuts off is answered 503.
"""

from __future__ import annotations

import asyncio
import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class Guard:
    """ASGI middleware: Host and Origin in, safety headers out."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self.app = app
        names = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host}
        self.hosts = {f"{name}:{port}".lower() for name in names}
        if port == 80:
            self.hosts |= {name.lower() for name in names}
        self.origins = {f"http://{name}" for name in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, _to_the_end(receive), send)
        refusal = self._refusal(scope)
        if refusal:
            return await _refuse(scope, send, 403, refusal)
        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                present = {name.lower() for name, _ in message["headers"]}
                new = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in present]
                message["headers"] = [*message["headers"], *new]
            await send(message)

        try:
            await self.app(scope, receive, with_headers)
        except asyncio.CancelledError:  # the server ends and waits no longer
            if scope["type"] == "http" and not started:
                await _refuse(scope, send, 503, "The server is stopping.")

    def _refusal(self, scope: Scope) -> str:
        found: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name.lower(), []).append(value)
        hosts, origins = found.get(b"host", []), found.get(b"origin", [])
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self.hosts:
            return "This server answers only under its own address."
        if any(origin.decode("latin-1").lower() not in self.origins for origin in origins):
            return "This server answers only to its own pages."
        return ""


def _to_the_end(receive: Receive) -> Receive:
    """Of the lifespan: a second Ctrl-C cancels it, but the worker processes must end all the same."""

    async def until_cancelled() -> Message:
        try:
            return await receive()
        except asyncio.CancelledError:
            return {"type": "lifespan.shutdown"}

    return until_cancelled


async def _refuse(scope: Scope, send: Send, status: int, message: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": message})  # before accept: HTTP 403
        return
    body = json.dumps({"field": "request", "message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
               *((k.encode(), v.encode()) for k, v in HEADERS.items())]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
