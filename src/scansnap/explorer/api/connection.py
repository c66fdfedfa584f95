"""One WebSocket: reads operations, passes messages on, and never lets a slow or rude client hurt the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from scansnap.checks import InputError
from scansnap.explorer import protocol
from scansnap.explorer.api.bodies import parse_json
from scansnap.explorer.live import visitors
from scansnap.explorer.live.switchboard import Entry, Switchboard, read_blueprint
from scansnap.explorer.messages.fields import Said, read
from scansnap.explorer.messages.socket import OPS, Attach, Close, ClosedText, ErrorText, Ping, PongText, Start
from scansnap.explorer.protocol import LIMITS, Refused

_POLICY_VIOLATION, _TOO_BIG, _TRY_LATER = 1008, 1009, 1013
_UNSENT = 2000  # messages waiting for a client that does not read
_ASKED = 8  # operations that wait for one before them; then reading waits too
_FAREWELL = 1.0  # seconds to tell such a client why it is closed
_START = 10  # messages that a start counts as: it makes a whole run
_SHORT = 4096  # characters of any message but a start


class Socket:
    """A client and the run it watches."""

    def __init__(self, switchboard: Switchboard, socket: WebSocket) -> None:
        self.switchboard, self.socket = switchboard, socket
        self.entry: Entry | None = None
        self.outbox: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.unsent_bytes = 0
        self.stuck = asyncio.Event()  # too much is unsent
        self.asked: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(_ASKED)
        self.visitor = visitors.current()

    # --- as the switchboard sees it ----------------------------------------------------------------------------------

    def put(self, kind: str, data: bytes) -> None:
        if self.stuck.is_set():
            return
        room = min(LIMITS["unsent_bytes"], LIMITS["all_unsent_bytes"] / max(1, self.switchboard.n_sockets))
        full = self.unsent_bytes + len(data) > room or self.outbox.qsize() >= _UNSENT
        if full and self.unsent_bytes > 0:  # one message alone may be as large as it is
            self.stuck.set()
            self.outbox, self.unsent_bytes = asyncio.Queue(), 0
            return
        self.unsent_bytes += len(data)
        self.outbox.put_nowait((kind, data))

    def lose(self) -> None:
        self.entry = None
        self.say(ClosedText(reason="The run was taken up by another page."))

    def say(self, message: Said) -> None:
        self.put("text", protocol.dumps(message.model_dump()).encode())

    # --- the two directions ------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        visitor = self.visitor
        if self.switchboard.n_sockets >= LIMITS["sockets"]:
            await self.socket.close(_TRY_LATER)
            return
        try:
            visitor.take("sockets")
        except Refused as refusal:
            await self.socket.close(_TRY_LATER, refusal.message)
            return
        self.switchboard.n_sockets += 1
        tasks: list[asyncio.Task[Any]] = []
        try:
            await self.socket.accept()
            work = (self._read(), self._work(), self._write(), self.stuck.wait())
            tasks = [asyncio.create_task(one) for one in work]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except (WebSocketDisconnect, RuntimeError):  # RuntimeError: it closed while we were about to send
            pass
        except asyncio.CancelledError:
            pass  # the server ends and waits no longer; there is nobody to tell
        finally:
            self.switchboard.n_sockets -= 1
            visitor.open["sockets"] -= 1
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            if self.entry is not None:
                self.switchboard.detach(self.entry, self)
        for error in ended:
            if isinstance(error, Exception) and not isinstance(error, WebSocketDisconnect | RuntimeError):
                raise error
        if self.stuck.is_set():
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
                async with asyncio.timeout(_FAREWELL):
                    await self.socket.close(_POLICY_VIOLATION, "too much is unread")

    async def _write(self) -> None:
        while True:
            kind, data = await self.outbox.get()
            entry = self.entry
            if kind == "text":
                await self.socket.send_text(data.decode())
            else:
                await self.socket.send_bytes(data)
                if entry is not None:
                    self.switchboard.acknowledge(entry)
            self.unsent_bytes -= len(data)

    async def _read(self) -> None:
        while True:
            message = await self.socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if not self.visitor.within_rate():
                await self.socket.close(_POLICY_VIOLATION, "too many messages")
                return
            text, raw = message.get("text"), message.get("bytes")
            if text is None or len(text) > LIMITS["message_bytes"]:
                if len(raw or text or b"") > LIMITS["message_bytes"]:
                    await self.socket.close(_TOO_BIG)
                    return
                self._error("request", "A message must be a JSON text.")
                continue
            await self._handle(text)

    async def _handle(self, text: str) -> None:
        try:
            message = parse_json(text)
            op = message.get("op") if isinstance(message, dict) else None
            if not isinstance(op, str) or op not in OPS:
                raise Refused(422, "request", f"A message is an object whose op is one of {', '.join(OPS)}.")
            if op != "start" and len(text) > _SHORT:  # it would wait in the worker's pipe at full length
                raise Refused(422, "request", f"A message other than start is at most {_SHORT} characters.")
            if op == "ping":
                self._pong(message)
            else:
                await self.asked.put((op, message))
        except Refused as error:
            self._error(error.field, error.message)
        except InputError as error:
            self._error(error.field, str(error))

    async def _work(self) -> None:
        """What was asked for, in its order: a run may wait to be made, and until then pings are answered still."""
        while True:
            op, message = await self.asked.get()
            try:
                await self._do(op, message)
            except Refused as error:
                self._error(error.field, error.message)
            except InputError as error:
                self._error(error.field, str(error))

    def _pong(self, message: dict[str, Any]) -> None:
        said = read(Ping, message)
        if len(json.dumps(said.id)) > 200:
            raise Refused(422, "id", "The id of a ping is at most 200 characters.")
        self.say(PongText(id=said.id))

    def _error(self, field: str, message: str) -> None:
        self.say(ErrorText(field=field, message=message))

    # --- operations --------------------------------------------------------------------------------------------------

    async def _do(self, op: str, message: dict[str, Any]) -> None:
        said = read(OPS[op], message) if op in ("start", "attach", "close") else None
        if isinstance(said, Start):
            await self._start(said)
        elif isinstance(said, Attach):
            entry = self.switchboard.find(said.run)
            self._leave(entry)
            self.entry = entry
            self.switchboard.attach(entry, self, said.since, again=True)
        elif self.entry is None or self.entry.name not in self.switchboard.runs:
            raise Refused(404, "run", "There is no run on this connection yet; send start or attach first.")
        elif isinstance(said, Close):
            self._leave(None)
            self.say(ClosedText(reason="Closed by the page."))
        else:
            self.switchboard.tell(self.entry, op, message)  # read by the run, when its turn has come

    async def _start(self, said: Start) -> None:
        await self.visitor.afford(_START - 1)
        blueprint = await asyncio.to_thread(read_blueprint, said.setup)
        self._leave(None)  # its memory is free for the new one
        entry = await self.switchboard.open(blueprint, said.marks)
        self.entry = entry
        self.switchboard.tell(entry, "speed", {"speed": said.speed})
        self.switchboard.attach(entry, self, -1, again=False)
        if said.play:
            self.switchboard.tell(entry, "play", {})

    def _leave(self, new: Entry | None) -> None:
        """End the run this socket had, unless it is ``new``."""
        old, self.entry = self.entry, None
        if old is not None and old is not new:
            self.switchboard.end(old)
