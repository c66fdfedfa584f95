"""Whom the server works for: each visitor has an equal share, and none takes more than the caps say.

A visitor is a browser: its cookie tells it from the others in the same room, who may all come from one address. On a
server for one person alone nobody is told apart and nothing is capped but the whole. Who is being served is known
wherever the answer is made (:func:`current`), so that no route has to pass it on.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from scansnap.explorer.protocol import LIMITS, Refused

_KNOWN = 4096  # visitors that are remembered while they have nothing open
_numbers = itertools.count(1)


class Visitor:
    """One browser, and what it has under way."""

    def __init__(self, name: str = "", capped: bool = False) -> None:
        self.name, self.capped = name or f"alone-{next(_numbers)}", capped
        self.open = {"sockets": 0, "requests": 0, "jobs": 0, "exports": 0}
        self.messages, self.filled = 2.0 * LIMITS["messages_per_second"], time.monotonic()

    @property
    def idle(self) -> bool:
        return not any(self.open.values())

    def within_rate(self, cost: float = 1.0) -> bool:
        """Whether it may say something: a bucket that holds two seconds' worth of messages."""
        now, rate = time.monotonic(), float(LIMITS["messages_per_second"])
        self.messages = min(2 * rate, self.messages + (now - self.filled) * rate)
        self.filled = now
        if self.messages < cost:
            return False
        self.messages -= cost
        return True

    async def afford(self, cost: float) -> None:
        """Waits until it may say as much, where it shares the server."""
        while self.capped and not self.within_rate(cost):
            await asyncio.sleep((cost - self.messages) / LIMITS["messages_per_second"])

    @asynccontextmanager
    async def having(self, what: str) -> AsyncIterator[None]:
        """One more of its ``sockets``, ``requests``, ``jobs`` or ``exports``, or a refusal."""
        self.take(what)
        try:
            yield
        finally:
            self.open[what] -= 1

    def take(self, what: str) -> None:
        most = LIMITS[f"visitor_{what}"]
        if self.capped and self.open[what] >= most:
            raise Refused(429, "request", f"You have {most} {what} under way already; try again in a moment.")
        self.open[what] += 1


_current: ContextVar[Visitor | None] = ContextVar("visitor", default=None)


def current() -> Visitor:
    """Who is being served here; somebody new where nobody was told apart."""
    visitor = _current.get()
    if visitor is None:
        visitor = Visitor()
        _current.set(visitor)
    return visitor


def serve(visitor: Visitor) -> None:
    """From here on, this request or socket is the visitor's."""
    _current.set(visitor)


class Visitors:
    """All that are known, by name."""

    def __init__(self) -> None:
        self.known: dict[str, Visitor] = {}

    def find(self, name: str) -> Visitor:
        visitor = self.known.pop(name, None) or Visitor(name, capped=True)
        self.known[name] = visitor  # the latest comes last
        if len(self.known) > _KNOWN:
            gone = [key for key, one in itertools.islice(self.known.items(), _KNOWN // 2) if one.idle]
            for key in gone:
                del self.known[key]
        return visitor


class Turns:
    """So many at a time; of those who wait, visitors take turns, however much one of them asks for.

    What takes long comes last: it begins when nobody waits for anything else.
    """

    def __init__(self, places: int = 1) -> None:
        self.free = places
        self.waiting: dict[tuple[bool, Visitor], deque[asyncio.Future[None]]] = {}  # whose turn is next comes first

    @asynccontextmanager
    async def place(self, visitor: Visitor, last: bool = False) -> AsyncIterator[None]:
        if self.free:
            self.free -= 1
        else:
            await self._wait((last, visitor))
        try:
            yield
        finally:
            self._next()

    async def _wait(self, who: tuple[bool, Visitor]) -> None:
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(who, deque()).append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.cancelled():
                self._leave(who, called)
            else:
                self._next()  # called and gone at the same moment
            raise

    def _leave(self, who: tuple[bool, Visitor], called: asyncio.Future[None]) -> None:
        queue = self.waiting.get(who, deque())
        if called in queue:
            queue.remove(called)
        if not queue:
            self.waiting.pop(who, None)

    def _next(self) -> None:
        while self.waiting:
            who = min(self.waiting, key=lambda one: one[0])  # of equals the first
            queue = self.waiting.pop(who)
            called = queue.popleft()
            if queue:
                self.waiting[who] = queue  # behind the others
            if not called.done():  # one that is cancelled may not have left yet
                called.set_result(None)
                return
        self.free += 1


class Shares:
    """Seconds of a process by visitor: whose turn it is, is who has had the least.

    Time not asked for is not saved up: whoever comes back stands where the one served last stood. One long step is
    paid for by waiting until the others have had as much.
    """

    def __init__(self) -> None:
        self.used: dict[str, float] = {}
        self.level = 0.0

    def first(self, ready: list[str]) -> str:
        """Of the names that are ready, the one whose turn it is."""
        for name in ready:
            self.used[name] = max(self.used.get(name, 0.0), self.level)
        chosen = min(ready, key=lambda name: self.used[name])
        self.level = self.used[chosen]
        return chosen

    def spend(self, name: str, seconds: float) -> None:
        self.used[name] = max(self.used.get(name, 0.0), self.level) + seconds
        if len(self.used) > _KNOWN:
            self.used = {one: used for one, used in self.used.items() if used > self.level}
