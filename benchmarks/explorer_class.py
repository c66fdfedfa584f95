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
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer_pages import LIVE_EVERY, SETUPS, Page, Place, Until
from explorer_server import mebibytes, processor_seconds, serving


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
    options = ["--token", "a-class-of-pages", "--memory", given.memory]
    with serving(*options, *(["--workers", str(given.workers)] if given.workers else [])) as (pid, link):
        place = Place(link, given.quick)
        idle = asyncio.run(_warm(pid, place))
        alone = None if given.quick else asyncio.run(use(pid, place, 1, given.alone, min(given.films, 1)))
        found = {"cores": len(os.sched_getaffinity(0)), "idle": idle, "cap": idle + _mebibytes(given.memory),
                 "alone": alone,
                 "class": asyncio.run(use(pid, place, given.pages, given.seconds, given.films))}  # fmt: skip
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
