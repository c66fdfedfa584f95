"""A class at the explorer: many pages at once, as browsers speak to the server, and one page alone beside them.

    python benchmarks/explorer_class.py [--pages 60] [--seconds 60 | --films 3] [--workers 2] [--json FILE]

Each page has a cookie of its own, got for the token of the link. Four of five watch films: every few seconds somebody
moves a rate or takes another preset, the page asks what the set-up means, for its closed forms, its flow and its map of
the rates, and the server computes the whole run at full speed. One of five plays a run live at 50 steps a second and
changes its rates on the way. Every page sends a ping four times a second. Nothing is drawn: the time is the server's,
the wire's and, on the same machine, that of this program, whose own lateness is printed beside it.

Beside it stands one page alone on the same server, which is what the machine can do, and what the pages ask for in
processor seconds against what there is: with more asked for than there is, films take longer, and nothing else should.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
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


# --- the server's processes ------------------------------------------------------------------------------------------


def family(pid: int) -> list[int]:
    """A process and all it started."""
    found, parents = [pid], {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def mebibytes(pid: int) -> float:
    """Memory of a process and all it started, what they share counted once (PSS)."""
    total = 0
    for one in family(pid):
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])  # type: ignore[index]
    return total / 1024


def processor_seconds(pid: int) -> float:
    total = 0.0
    for one in family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


@dataclass
class Watched:
    """The server and this program while pages are open."""

    memory: float = 0.0  # most mebibytes
    planned: float = 0.0  # most that was set aside for runs
    runs: int = 0
    late: float = 0.0  # most seconds by which this program itself was late


async def watch(pid: int, place: Place, cookie: str, seen: Watched) -> None:
    async def own() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            seen.late = max(seen.late, time.monotonic() - began - 0.02)

    clock = asyncio.create_task(own())
    try:
        while True:
            _, health = await place.ask(cookie, "api/health")
            seen.planned, seen.runs = max(seen.planned, health["memory"] / 2**20), max(seen.runs, health["runs"])
            seen.memory = max(seen.memory, await asyncio.to_thread(mebibytes, pid))
            await asyncio.sleep(2)
    finally:
        clock.cancel()


async def use(pid: int, place: Place, pages: int, seconds: float, films: int = 0) -> dict[str, Any]:
    """Pages for so many seconds or films, and what they saw."""
    cookie = await place.enter()
    watched = Watched()
    looking = asyncio.create_task(watch(pid, place, cookie, watched))
    opened = asyncio.Barrier(pages + 1)
    until = Until(pages, seconds, films)
    using = [asyncio.create_task(Page(place, number).use(until, opened)) for number in range(pages)]
    await opened.wait()
    began, before = time.monotonic(), processor_seconds(pid)
    seen = await asyncio.gather(*using)
    spent = processor_seconds(pid) - before
    looking.cancel()
    pings = sorted(ping for one in seen for ping in one.pings)
    made = [one.films for one in seen if not one.live]
    every = sorted(film for one in made for film in one)
    answers = sorted(answer for one in seen for answer in one.answers)
    long = sorted(answer for one in seen for answer in one.long)
    live = [one.frames / one.live for one in seen if one.live]
    return {
        "pages": pages, "seconds": time.monotonic() - began, "pings": len(pings), "ping_median": _at(pings, 0.5),
        "ping_99": _at(pings, 0.99), "ping_worst": _at(pings, 1), "own_late": watched.late,
        "films": len(every), "films_least": min(map(len, made), default=0),
        "films_most": max(map(len, made), default=0), "film_median": _at(every, 0.5), "film_worst": _at(every, 1),
        "answer_median": _at(answers, 0.5), "answer_worst": _at(answers, 1),
        "long_median": _at(long, 0.5), "long_worst": _at(long, 1),
        "frames_least": min(live, default=None), "frames_median": statistics.median(live) if live else None,
        "processor_seconds": spent, "memory": watched.memory, "planned": watched.planned, "runs": watched.runs,
        "refusals": dict(sum((one.refusals for one in seen), Counter())),
    }  # fmt: skip


def _at(values: list[float], share: float) -> float | None:
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


# --- the whole -------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description="Many pages at the explorer at once.")
    parser.add_argument("--pages", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--films", type=int, default=0, help="of each page, instead of seconds")
    parser.add_argument("--alone", type=float, default=20, help="seconds of one page alone, before")
    parser.add_argument("--workers", type=int, default=None, help="as of scansnap serve")
    parser.add_argument("--memory", default="1536MiB", help="as of scansnap serve")
    parser.add_argument("--quick", action="store_true", help="short films, and no page alone before")
    parser.add_argument("--json", type=Path, help="write the numbers here (- is the screen)")
    given = parser.parse_args()
    command = [sys.executable, "-m", "scansnap", "serve", "--port", "0", "--no-open", "--token", "a-class-of-pages"]
    command += ["--memory", given.memory, *(["--workers", str(given.workers)] if given.workers else [])]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            link = re.search(r"http://\S+", server.stderr.readline())
            if link is None:
                sys.exit("Error: the server did not start.")
            place = Place(link.group(), given.quick)
            idle = asyncio.run(_warm(server.pid, place))
            alone = None if given.quick else asyncio.run(use(server.pid, place, 1, given.alone, min(given.films, 1)))
            found = {"cores": len(os.sched_getaffinity(0)), "idle": idle, "cap": idle + _mebibytes(given.memory),
                     "alone": alone,
                     "class": asyncio.run(use(server.pid, place, given.pages, given.seconds, given.films))}  # fmt: skip
        finally:
            server.send_signal(signal.SIGINT)
    if given.json is not None:
        text = json.dumps(found, indent=1)
        print(text) if str(given.json) == "-" else given.json.write_text(text + "\n", encoding="utf-8")
    if str(given.json) != "-":
        print(table(found))


async def _warm(pid: int, place: Place) -> float:
    """Every process has started and made a run; mebibytes then."""
    cookie = await place.enter()
    await use(pid, place, LIVE_EVERY - 1, 0, films=1)
    body = {"setup": SETUPS[0], "last": 10, "points": 5}
    if place.setups is SETUPS:
        await place.ask(cookie, "api/flow", body)
    while (await place.ask(cookie, "api/health"))[1]["runs"]:
        await asyncio.sleep(0.1)
    return mebibytes(pid)


def _mebibytes(text: str) -> float:
    from scansnap.sweep.plan import parse_memory

    return parse_memory(text) / 2**20


def table(found: dict[str, Any]) -> str:
    many = found["class"]
    alone = found["alone"] or many

    def ms(value: float | None) -> str:
        return "–" if value is None else f"{1e3 * value:.0f} ms"

    def row(name: str, key: str, show: Any = ms) -> str:
        return f"| {name} | {show(alone[key])} | {show(many[key])} |"

    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.3g}"

    per_film = alone["processor_seconds"] / max(1, alone["films"])
    used = many["processor_seconds"] / many["seconds"]
    lines = [
        f"| | one page alone | {many['pages']} pages |", "|---|---|---|",
        row("ping, median", "ping_median"), row("ping, 99%", "ping_99"), row("ping, worst", "ping_worst"),
        row("this program itself late, worst", "own_late"),
        row("meaning, closed forms, median", "answer_median"), row("meaning, closed forms, worst", "answer_worst"),
        row("flow or map, median", "long_median"), row("flow or map, worst", "long_worst"),
        row("films", "films", number), row("film, median", "film_median"), row("film, worst", "film_worst"),
        f"| films of a page, least and most | – | {many['films_least']} and {many['films_most']} |",
        row("live pages: messages with frames per second, least", "frames_least", number),
        row("runs at once, most", "runs", number), row("processor seconds of the server", "processor_seconds", number),
        row("memory set aside for runs, most (MiB)", "planned", number),
        row("memory of all its processes, most (MiB)", "memory", lambda value: f"{value:.0f}"), "",
        f"Idle it has {found['idle']:.0f} MiB; with --memory that makes a cap of {found['cap']:.0f} MiB. Alone a film "
        f"costs {per_film:.2f} processor seconds, pings and questions included; {found['cores']} cores could make "
        f"{found['cores'] / per_film:.1f} a second. The {many['pages']} pages had "
        f"{many['films'] / many['seconds']:.1f} a second, with {used:.2f} cores in use by the server.",
        f"Refused: {many['refusals'] or 'nothing'}.",
    ]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
