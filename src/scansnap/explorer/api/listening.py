"""How connections are taken: uvicorn, with bounds on what a slow or rude peer may hold.

uvicorn itself bounds the time between two requests (``timeout_keep_alive``) and answers 503 once a request is complete
and too many are under way (``limit_concurrency``). It waits without end for the head of a request, for a peer that
does not read its answer, and at the end for both; and it prints a traceback for a text that is not UTF-8. These
protocols do the rest.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from scansnap.explorer.protocol import LIMITS

_INVALID_TEXT = 1007
_arrivals = itertools.count()


def configuration(app: ASGIApp, **more: Any) -> uvicorn.Config:
    """uvicorn's settings for the explorer."""
    settings: dict[str, Any] = {
        "log_level": "warning", "lifespan": "on", "server_header": False, "timeout_graceful_shutdown": 2,
        "http": PatientHTTP, "ws": PatientWebSocket, "ws_max_size": int(LIMITS["message_bytes"]),
    }  # fmt: skip
    return uvicorn.Config(app, **(settings | more))


class PatientHTTP(AutoHTTPProtocol):  # type: ignore[valid-type, misc]  # httptools or h11, whichever is installed
    """Requests whose head comes within LIMITS["head_seconds"], and answers that are read on the way."""

    head_timer: asyncio.TimerHandle | None = None  # runs while the head of a request is awaited
    stall_timer: asyncio.TimerHandle | None = None  # runs while the peer does not take what was written
    arrived = -1

    def connection_made(self, transport: asyncio.Transport) -> None:
        if len(self.connections) >= LIMITS["connections"]:
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        self._stop_stall_timer()
        if self.flow is not None:  # None: it was never let in
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.flow is None:
            return
        super().data_received(data)
        if self.transport.get_protocol() is not self:
            return  # a WebSocket now
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()  # does not begin again with every byte
        else:
            self._head_is_there()

    def handle_websocket_upgrade(self, *given: Any) -> None:
        self._head_is_there()
        super().handle_websocket_upgrade(*given)

    def _await_head(self) -> None:
        if self.head_timer is not None or self.transport.is_closing():
            return
        waiting = [c for c in self.connections if getattr(c, "head_timer", None) is not None]
        if len(waiting) >= LIMITS["request_heads"]:
            # the oldest goes: who speaks at once is served before others can push him out
            oldest = min(waiting, key=lambda connection: connection.arrived)
            oldest._head_is_there()
            oldest.transport.abort()
        self.arrived = next(_arrivals)
        self.head_timer = self.loop.call_later(LIMITS["head_seconds"], self.transport.abort)

    def _head_is_there(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    # --- answers that nobody reads -----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(None)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    def _watch(self, before: int | None) -> None:
        """Cut a connection whose peer took nothing since the last look."""
        now = self.transport.get_write_buffer_size()
        if before is not None and now >= before:
            self.transport.abort()
            return
        self.stall_timer = self.loop.call_later(LIMITS["stall_seconds"], self._watch, now)

    def _stop_stall_timer(self) -> None:
        if self.stall_timer is not None:
            self.stall_timer.cancel()
            self.stall_timer = None

    def shutdown(self) -> None:
        super().shutdown()
        if self.flow.write_paused:
            self.transport.abort()  # the server ends: it does not wait for those who do not read


class PatientWebSocket(WebSocketsSansIOProtocol):
    """Closes a text that is not UTF-8 without a traceback, and cuts peers that do not read when it is time to go."""

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(b"".join(self.frames)):
            self.frames = []
            self.conn.send_close(_INVALID_TEXT, "a text must be UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._cut_if_unread()

    def shutdown(self) -> None:
        super().shutdown()
        self._cut_if_unread()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self.loop.call_later(self.close_timeout, self._cut_if_unread)

    def _cut_if_unread(self) -> None:
        """Where data still waits for the peer, ``close`` waits with it: for ever, if the peer never reads."""
        if self.transport.get_write_buffer_size() > 0:
            self.transport.abort()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
