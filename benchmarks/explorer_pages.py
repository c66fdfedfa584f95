"""Browsers at the explorer, without anything drawn: what a page says to the server, and what it waited for."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import connect

PING = 0.25  # seconds between two pings of a page
THINK = 5.0  # seconds between two changes of a page, on average
LIVE_EVERY = 5  # of so many pages one plays live
SPEED = 50  # its steps per second
SETUPS: tuple[dict[str, Any], ...] = (
    {"classes": {"preset": "syn-small"}, "momentum": 0.9, "steps": 1000},
    {"classes": {"preset": "syn-small"}, "optimizer": "adam", "eta_y": 0.1, "eta_z": 0.1, "steps": 500},
    {"classes": {"preset": "syn-medium", "n_queries": 3}, "eta_y": 2.0, "momentum": 0.9, "steps": 2000},
    {"classes": {"preset": "zipf", "vocab": 300, "classes": 5}, "eta_y": 2.0, "momentum": 0.9, "steps": 3000},
)


@dataclass
class Seen:
    """What one page saw."""

    pings: list[float] = field(default_factory=list)  # seconds
    films: list[float] = field(default_factory=list)  # seconds from the wish to the last frame
    frames: int = 0  # messages with frames, of a page that plays live
    live: float = 0.0  # seconds it played
    refusals: Counter[str] = field(default_factory=Counter)
    answers: list[float] = field(default_factory=list)  # seconds of what a set-up means and its closed forms
    long: list[float] = field(default_factory=list)  # of its flow and its map of the rates, which take turns


class Until:
    """How long pages stay: so many seconds, or until each has had so many films."""

    def __init__(self, pages: int, seconds: float, films: int) -> None:
        self.seconds, self.films, self.missing = seconds, films, pages

    async def reached(self, seen: Seen, live: bool) -> None:
        if not self.films:
            await asyncio.sleep(self.seconds)
            return
        while len(seen.films) < self.films and not (live and seen.frames and seen.pings):
            await asyncio.sleep(0.05)
        self.missing -= 1
        while self.missing:  # nobody leaves early: the others are to have all the company
            await asyncio.sleep(0.05)


class Place:
    """A server by its link."""

    def __init__(self, link: str, quick: bool) -> None:
        parts = urlsplit(link)
        self.setups = tuple({**setup, "steps": 60} for setup in SETUPS[:2]) if quick else SETUPS
        self.host, self.path, self.query = parts.netloc, parts.path, parts.query

    async def _ask(self, path: str, body: Any, cookie: str) -> tuple[int, str, bytes]:
        """Status, head and body of an answer; a connection of its own, closed with whoever no longer waits."""
        data = b"" if body is None else json.dumps(body).encode()
        host, _, port = self.host.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            head = [f"{'GET' if body is None else 'POST'} {self.path}{path} HTTP/1.1", f"Host: {self.host}",
                    f"Cookie: {cookie}", f"Content-Length: {len(data)}", "Connection: close", "", ""]  # fmt: skip
            writer.write("\r\n".join(head).encode() + data)
            answer, _, rest = (await reader.read(-1)).partition(b"\r\n\r\n")
            return int(answer.split()[1]), answer.decode("latin-1"), rest
        finally:
            writer.close()

    async def enter(self) -> str:
        """The cookie of a new visitor."""
        status, head, _ = await self._ask(f"?{self.query}", None, "")
        cookie = re.search(r"^set-cookie: ([^;]+)", head, re.M | re.I)
        if status != 303 or cookie is None:
            sys.exit(f"Error: the server answered {status} to its link, not with a cookie.")
        return cookie.group(1)

    async def ask(self, cookie: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, _, said = await self._ask(path, body, cookie)
        return status, json.loads(said)


class Page:
    """One browser."""

    def __init__(self, place: Place, number: int) -> None:
        self.place, self.number, self.seen = place, number, Seen()
        self.chance = random.Random(number)
        self.state: dict[str, Any] = {}
        self.last = -1  # step of the newest frame
        self.news = asyncio.Event()
        self.sent: dict[int, float] = {}

    async def use(self, until: Until, opened: asyncio.Barrier) -> Seen:
        cookie = await self.place.enter()
        await self.place.ask(cookie, "api/catalogue")
        address = f"ws://{self.place.host}{self.place.path}ws"
        async with connect(address, additional_headers={"Cookie": cookie}, max_size=None, max_queue=None,
                           ping_interval=None, open_timeout=600) as self.socket:  # fmt: skip
            await opened.wait()
            live = self.number % LIVE_EVERY == LIVE_EVERY - 1
            work = [self._hear(), self._ping(), self._live() if live else self._films(cookie)]
            tasks = [asyncio.create_task(one) for one in (*work, until.reached(self.seen, live))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            await self.socket.send('{"op": "close"}')
        for error in ended:
            if isinstance(error, Exception):
                raise error
        if tasks[0].done() and not tasks[0].cancelled():
            sys.exit("Error: the server closed a page's connection.")
        return self.seen

    async def _hear(self) -> None:
        async for message in self.socket:
            if isinstance(message, bytes):
                n = int.from_bytes(message[4:8], "little")
                self.last = int.from_bytes(message[12 + 4 * n : 16 + 4 * n], "little") if n else self.last
                self.seen.frames += 1
            else:
                said = json.loads(message)
                if said["type"] == "pong":
                    self.seen.pings.append(time.monotonic() - self.sent.pop(said["id"]))
                elif said["type"] == "error":
                    self.seen.refusals[said["message"]] += 1
                elif said["type"] == "run":
                    self.state, self.last = {}, -1
                elif said["type"] == "state":
                    self.state = said
            self.news.set()

    async def _ping(self) -> None:
        number = 0
        await asyncio.sleep(self.chance.random() * PING)
        while True:
            number += 1
            self.sent[number] = time.monotonic()
            await self.socket.send(json.dumps({"op": "ping", "id": number}))
            await asyncio.sleep(PING)

    async def _until_done(self) -> None:
        while not (self.state.get("state") == "done" and self.last == self.state["step"]):
            self.news.clear()
            await self.news.wait()

    def _setup(self) -> dict[str, Any]:
        setup = dict(self.chance.choice(self.place.setups))
        return {**setup, "eta_z": round(setup.get("eta_z", 1.0) * 2 ** self.chance.uniform(-1, 1), 3)}

    async def _films(self, cookie: str) -> None:
        while True:
            setup, began = self._setup(), time.monotonic()
            self.state, self.last = {}, -1
            await self.socket.send(json.dumps({"op": "start", "setup": setup, "speed": "max", "play": True}))
            over = {"setup": setup, "last": setup["steps"]}
            await self._ask(cookie, "api/check", setup, self.seen.answers)
            await self._ask(cookie, "api/curves", over, self.seen.answers)
            await self._until_done()
            self.seen.films.append(time.monotonic() - began)
            thinking = asyncio.create_task(asyncio.sleep(self.chance.uniform(0, 2 * THINK)))
            if "optimizer" not in setup:
                await self._ask(cookie, "api/flow", {**over, "points": 100}, self.seen.long)
            await self._ask(cookie, "api/map", setup, self.seen.long)
            await thinking

    async def _ask(self, cookie: str, path: str, body: Any, times: list[float]) -> None:
        asked = time.monotonic()
        status, said = await self.place.ask(cookie, path, body)
        times.append(time.monotonic() - asked)
        if status != 200:
            self.seen.refusals[said["message"]] += 1

    async def _live(self) -> None:
        began, self.seen.frames = time.monotonic(), 0
        try:
            await self.socket.send(json.dumps({"op": "start", "setup": {**SETUPS[0], "steps": 10**6}, "speed": SPEED}))
            while True:
                await asyncio.sleep(self.chance.uniform(0, 2 * THINK))
                await self.socket.send(json.dumps({"op": "rates", "eta_z": round(self.chance.uniform(0.5, 2), 3)}))
        finally:
            self.seen.live = time.monotonic() - began
