"""Peers that are slow, silent, deaf or rude: what they hold is bounded in number, time and bytes."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from explorer_site import PATIENCE, Client, Site, wait_until
from starlette.websockets import WebSocketState
from uvicorn.server import ServerState
from websockets.exceptions import ConnectionClosed

from scansnap.explorer.api.connection import Socket
from scansnap.explorer.api.listening import PatientHTTP, PatientWebSocket, configuration
from scansnap.explorer.protocol import LIMITS


class Timer:
    def __init__(self, seconds: float, call: Callable[..., None], given: tuple[Any, ...]) -> None:
        self.seconds, self.call, self.given, self.cancelled = seconds, call, given, False

    def cancel(self) -> None:
        self.cancelled = True

    def ring(self) -> None:
        assert not self.cancelled
        self.call(*self.given)


class Task:
    def add_done_callback(self, call: Any) -> None:
        pass


class Loop:
    """An event loop whose time passes when a test says so."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, call: Callable[..., None], *given: Any) -> Timer:
        self.timers.append(Timer(seconds, call, given))
        return self.timers[-1]

    def create_task(self, work: Any) -> Any:
        work.close()
        return Task()

    def pending(self, seconds: float) -> list[Timer]:
        return [timer for timer in self.timers if timer.seconds == seconds and not timer.cancelled]


class Transport:
    """A connection that remembers its end."""

    def __init__(self) -> None:
        self.ended, self.unread, self.protocol = "", 0, None

    def get_extra_info(self, name: str) -> Any:
        return None

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return bool(self.ended)

    def write(self, data: bytes) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "cut"


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application that is never run here."""


class House:
    """A server's state, loop and the connections it was offered."""

    def __init__(self) -> None:
        self.config, self.state, self.loop = configuration(nothing, log_config=None), ServerState(), Loop()
        self.config.load()

    def connect(self, kind: Any = PatientHTTP) -> Any:
        made = kind(config=self.config, server_state=self.state, app_state={}, _loop=self.loop)
        transport = Transport()
        transport.protocol = made
        made.connection_made(transport)
        return made


@pytest.fixture
def house() -> House:
    return House()


def test_a_head_that_never_ends_is_cut(house: House) -> None:
    peer = house.connect()
    for line in (b"GET / HTTP/1.1\r\n", *[b"X-%d: 1\r\n" % n for n in range(50)]):
        peer.data_received(line)
    [timer] = house.loop.pending(LIMITS["head_seconds"])  # one for the whole head, not one per line
    timer.ring()
    assert peer.transport.ended == "cut"


def test_a_connection_that_says_nothing_is_cut(house: House) -> None:
    peer = house.connect()
    house.loop.pending(LIMITS["head_seconds"])[0].ring()
    assert peer.transport.ended == "cut"


def test_a_request_that_is_there_has_its_time(house: House) -> None:
    peer = house.connect()
    peer.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert house.loop.pending(LIMITS["head_seconds"]) == []
    peer.cycle.response_complete = True  # and the next one on the same connection
    peer.data_received(b"GET / HT")
    assert len(house.loop.pending(LIMITS["head_seconds"])) == 1
    peer.data_received(b"TP/1.1\r\nHost: x\r\n\r\n")
    assert house.loop.pending(LIMITS["head_seconds"]) == []


def test_a_websocket_is_not_a_slow_head(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientWebSocket, "data_received", lambda self, data: None)
    monkeypatch.setattr(asyncio, "get_event_loop", lambda: house.loop)
    peer = house.connect()
    peer.data_received(b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                       b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")  # fmt: skip
    assert isinstance(peer.transport.protocol, PatientWebSocket)
    assert house.loop.pending(LIMITS["head_seconds"]) == []


def test_of_too_many_silent_connections_the_oldest_goes(house: House) -> None:
    most = int(LIMITS["request_heads"])
    peers = [house.connect() for _ in range(most + 3)]
    assert [peer.transport.ended for peer in peers] == ["cut"] * 3 + [""] * most
    peers[3].data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    house.connect()
    assert peers[4].transport.ended == "", "who has asked no longer counts"


def test_connections_have_an_upper_bound(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "connections", 2)
    peers = [house.connect() for _ in range(3)]
    assert [peer.transport.ended for peer in peers] == ["", "", "cut"]
    peers[2].data_received(b"GET / HTTP/1.1\r\n")  # what was under way already
    for peer in (peers[2], peers[1]):
        peer.connection_lost(None)
    assert house.connect().transport.ended == ""


def test_an_answer_that_is_not_read_is_given_up(house: House) -> None:
    peer = house.connect()
    peer.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    peer.transport.unread = 1000
    peer.pause_writing()
    peer.transport.unread = 900
    house.loop.pending(LIMITS["stall_seconds"])[-1].ring()
    assert peer.transport.ended == "", "it reads, if slowly"
    house.loop.pending(LIMITS["stall_seconds"])[-1].ring()
    assert peer.transport.ended == "cut"
    other = house.connect()
    other.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    before = len(house.loop.pending(LIMITS["stall_seconds"]))
    other.pause_writing()
    other.resume_writing()
    assert len(house.loop.pending(LIMITS["stall_seconds"])) == before


def test_the_end_does_not_wait_for_those_who_do_not_read(house: House) -> None:
    peer = house.connect()
    peer.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    peer.pause_writing()
    peer.shutdown()
    assert peer.transport.ended == "cut"
    deaf, good = (house.connect(PatientWebSocket) for _ in range(2))
    deaf.transport.unread = 1000
    for each in (deaf, good):
        each.handshake_complete = each.close_sent = True
        each.shutdown()
    assert (deaf.transport.ended, good.transport.ended) == ("cut", "closed")


# --- a client's queue --------------------------------------------------------------------------------------------


class DeafWebSocket:
    """Accepts, and takes nothing."""

    client_state = application_state = WebSocketState.CONNECTED

    def __init__(self) -> None:
        self.closed: list[int] = []

    async def accept(self) -> None:
        pass

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    async def send_bytes(self, data: bytes) -> None:
        await asyncio.Event().wait()

    send_text = send_bytes  # type: ignore[assignment]

    async def close(self, code: int, reason: str = "") -> None:
        self.closed.append(code)


@pytest.mark.parametrize(("size", "n"), [(1 << 20, 100), (100, 100_000)])
def test_what_waits_for_a_client_is_bounded_and_then_it_is_closed(size: int, n: int) -> None:
    async def story() -> None:
        deaf, switchboard = DeafWebSocket(), SimpleNamespace(n_sockets=0, acknowledge=lambda entry: None)
        client = Socket(switchboard, deaf)  # type: ignore[arg-type]
        serving = asyncio.create_task(client.serve())
        message, most = b" " * size, 0
        for i in range(n):
            client.put("binary", message)
            waiting = sum(len(data) for _, data in client.outbox._queue)  # type: ignore[attr-defined]
            most = max(most, waiting)
            if i % 16 == 0:
                await asyncio.sleep(0)  # the writer takes one and stays with it
        assert 0 < most <= LIMITS["unsent_bytes"]
        assert client.outbox.empty(), "nothing is kept for a client that was given up"
        async with asyncio.timeout(PATIENCE):
            await serving
        assert deaf.closed == [1008]
        assert switchboard.n_sockets == 0

    asyncio.run(story())


def test_one_message_alone_may_be_as_large_as_it_is() -> None:
    client = Socket(SimpleNamespace(n_sockets=1), DeafWebSocket())  # type: ignore[arg-type]
    client.put("text", b" " * (2 * int(LIMITS["unsent_bytes"])))
    assert not client.stuck.is_set()
    client.put("text", b" ")
    assert client.stuck.is_set()


# --- over a real connection --------------------------------------------------------------------------------------


def read_to_the_end(peer: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    peer.settimeout(PATIENCE)
    found = b""
    while True:
        try:
            part = peer.recv(65536)
        except ConnectionResetError:
            part = b""
        if not part:
            return found
        found += part


def test_a_slow_head_and_a_slow_body(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "head_seconds", 0.1)
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nA: b\r\n")
        assert read_to_the_end(peer) == b""
    monkeypatch.undo()
    monkeypatch.setitem(LIMITS, "body_seconds", 0.1)
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        head = (
            f"POST /api/check HTTP/1.1\r\nHost: localhost:{site.port}\r\nConnection: close\r\nContent-Length: 9\r\n\r\n"
        )
        peer.sendall(head.encode() + b"{")
        answer = read_to_the_end(peer)
    assert answer.startswith(b"HTTP/1.1 408")
    assert set(json.loads(answer.split(b"\r\n\r\n", 1)[1])) == {"field", "message"}
    assert site.client.get("/api/health").status_code == 200


def test_files_that_nobody_reads_are_few(quiet: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A film is made for its reader and kept until it is read, so only so many at once."""
    monkeypatch.setattr(quiet.switchboard, "grace_seconds", PATIENCE)
    run = quiet.open(play=False)
    run.close()  # it waits for its page to come back
    assert run.run is not None
    where = f"/api/runs/{run.run['run']}/"
    monkeypatch.setitem(LIMITS, "exports", 0)
    for what in ("film", "film.html", "csv"):
        assert quiet.client.get(where + what).status_code == 429, what
    monkeypatch.setitem(LIMITS, "exports", 1)
    for what, status in {"film": 200, "film.html": 200, "csv": 200, "../none/film": 404}.items():
        assert quiet.client.get(where + what).status_code == status, what
        wait_until(lambda: quiet.switchboard.n_exports == 0, "the place is not given back")
    again = Client(quiet.connect())
    again.send(op="attach", run=run.run["run"])
    again.send(op="close")
    again.wait(lambda c: c.last("closed"))
    again.close()


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What the server's logs say meanwhile, tracebacks included."""
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    keep = Keep(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addHandler(keep)
    yield found
    for logger in loggers:
        logger.removeHandler(keep)


_MASK = b"\x00\x00\x00\x00"
NOT_TEXT = b"\xff\xfe\xfd"


@pytest.mark.parametrize(
    "frames",
    [b"\x81\x83" + _MASK + NOT_TEXT, b"\x01\x81" + _MASK + b"\xc3" + b"\x80\x81" + _MASK + b"(",
     b"\x81\x83" + _MASK + NOT_TEXT + b"\x81\x82" + _MASK + b"{}" + b"\x81\x83" + _MASK + NOT_TEXT],
    ids=["one frame", "in two parts", "with more behind"],
)  # fmt: skip
def test_a_text_that_is_not_utf8_is_closed_without_a_traceback(
    site: Site, complaints: list[str], frames: bytes
) -> None:
    with site.connect() as client:
        client.socket.sendall(frames)
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(PATIENCE)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1007
    assert site.client.get("/api/health").status_code == 200
    assert complaints == []
