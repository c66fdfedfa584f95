"""The server under test and a client that remembers, for all tests of this folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from scansnap.explorer.protocol import FRAMES, unpack_frames

PATIENCE = 300.0  # seconds until a test that hears nothing gives up; no result depends on it
GRACE = 0.1  # seconds; tests that come back to a run set it to PATIENCE
SMALL = {"classes": {"preset": "syn-small"}, "steps": 200, "momentum": 0.9}


@dataclass
class Site:
    """The server under test."""

    port: int
    static: Path
    client: Any
    app: Any
    folder: Path
    probe: Path  # not there until a test writes it

    @property
    def switchboard(self) -> Any:
        return self.app.app.state.switchboard

    def connect(self, **options: Any) -> ClientConnection:
        # a queue without end: a full one stops reading, and with it the answer to a close (ten seconds of waiting)
        options = {"max_size": None, "max_queue": None, "ping_interval": None, "open_timeout": PATIENCE, **options}
        return connect(f"ws://127.0.0.1:{self.port}/ws", **options).__enter__()

    def open(self, setup: dict[str, Any] | None = None, **more: Any) -> Client:
        client = Client(self.connect())
        client.send(op="start", setup=setup or SMALL, **more)
        client.wait(lambda c: c.run is not None)
        return client


@dataclass
class Client:
    """A socket that remembers what it was told."""

    socket: ClientConnection
    run: dict[str, Any] | None = None
    texts: list[dict[str, Any]] = field(default_factory=list)
    frames: dict[int, Any] = field(default_factory=dict)
    flags: list[int] = field(default_factory=list)
    tables: list[Any] = field(default_factory=list)

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def read(self) -> None:
        message = self.socket.recv(PATIENCE)
        if isinstance(message, bytes):
            kind, flags, steps, values = unpack_frames(message)
            if kind == FRAMES:
                self.flags.append(flags)
                self.frames |= dict(zip(steps.tolist(), values, strict=True))
            else:
                self.tables.append(values[0])
            return
        said = json.loads(message)
        self.texts.append(said)
        if said["type"] == "run":
            self.run = said

    def wait(self, done: Callable[[Client], Any]) -> Client:
        end = time.monotonic() + PATIENCE
        while not done(self):
            assert time.monotonic() < end, f"nothing came; last texts {self.texts[-3:]}"
            self.read()
        return self

    def wait_state(self, state: str) -> Client:
        """Until the run is in this state and its frame has come too, which may be later where frames wait."""
        return self.wait(lambda c: c.last("state").get("state") == state and c.last("state")["step"] in c.frames)

    def last(self, kind: str) -> dict[str, Any]:
        return next((text for text in reversed(self.texts) if text["type"] == kind), {})

    def close(self) -> None:
        self.socket.close()


def wait_until(done: Callable[[], Any], what: str) -> None:
    """Where nothing is sent that could be waited for: look again and again."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def wait_for_runs(site: Site, n: int) -> None:
    wait_until(lambda: site.client.get("/api/health").json()["runs"] == n, f"not {n} runs")


def end_runs(site: Site) -> None:
    switchboard = site.switchboard

    def end() -> None:
        for entry in list(switchboard.runs.values()):
            switchboard.end(entry)

    switchboard.pool.handles[0].loop.call_soon_threadsafe(end)
    wait_for_runs(site, 0)
