"""The runs of this server: who watches them, which worker has them, and when they end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from scansnap.checks import InputError
from scansnap.explorer.live.pool import Answer, Handle, Pool, WorkerDied
from scansnap.explorer.live.visitors import Turns, Visitor, current
from scansnap.explorer.messages.socket import ClosedText
from scansnap.explorer.protocol import LIMITS, Refused, dumps
from scansnap.explorer.setups.blueprint import Blueprint

_LAST = ("map",)  # computations of many seconds, which others do not wait for


class Watcher(Protocol):
    """A socket, as the switchboard sees it."""

    def put(self, kind: str, data: bytes) -> None:
        """Pass a message on."""

    def lose(self) -> None:
        """The run went to another socket."""


@dataclass
class Entry:
    """One run."""

    name: str
    handle: Handle
    blueprint: Blueprint
    visitor: Visitor = field(default_factory=Visitor)  # whose it is
    memory: int = 0  # bytes set aside for it
    watcher: Watcher | None = None
    n_watchers: int = 0  # so far
    expiry: asyncio.TimerHandle | None = None
    claims: tuple[list[Any], bytes] | None = None  # the state that was judged, and the answer
    claims_of: int | None = None  # the step that was asked about
    claims_at: float = 0.0
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)


class Switchboard:
    """Opens, finds and ends runs; asks workers."""

    def __init__(self, n_workers: int, grace_seconds: float, memory: int | None = None, niceness: int = 0) -> None:
        self.grace_seconds, self.most_memory = grace_seconds, memory
        self.runs: dict[str, Entry] = {}
        self.opening: dict[str, tuple[Visitor, int]] = {}  # runs on their way, and the memory set aside for them
        self.pool = Pool(n_workers, self._message, self._death, niceness)
        self.turns = Turns(self.pool.n_jobs)  # of computations
        self.n_jobs = self.n_exports = 0
        self.n_sockets = 0

    # --- runs --------------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> int:
        """Bytes planned, runs that are being opened included: many may ask at the same moment."""
        return self._memory()

    def _memory(self, of: Visitor | None = None) -> int:
        """Of all runs, or of one visitor's."""
        opened = sum(entry.memory for entry in self.runs.values() if of in (None, entry.visitor))
        return opened + sum(memory for visitor, memory in self.opening.values() if of in (None, visitor))

    def _make_room(self, visitor: Visitor, runs: int, memory: int) -> None:
        """Room for so many more runs and bytes, or a refusal; of its own runs those go first whose page has gone."""
        while not_now := self._no_room(visitor, runs, memory):
            gone = [e for e in self.runs.values() if e.visitor is visitor and visitor.capped and e.watcher is None]
            if not gone:
                raise Refused(429, "run", not_now)
            self.end(gone[0])

    def _no_room(self, visitor: Visitor, runs: int, memory: int) -> str:
        own = sum(entry.visitor is visitor for entry in self.runs.values())
        own += sum(one is visitor for one, _ in self.opening.values())
        most = LIMITS["server_bytes"] if self.most_memory is None else self.most_memory
        if visitor.capped and own + runs > LIMITS["visitor_runs"]:
            return f"You have {LIMITS['visitor_runs']} runs at once already; close one first."
        if visitor.capped and self._memory(visitor) + memory > LIMITS["visitor_bytes"]:
            return (
                f"Your runs together would need more than {LIMITS['visitor_bytes'] / 2**20:.0f} MiB; close one first."
            )
        if len(self.runs) + len(self.opening) + runs > LIMITS["runs"]:
            return f"There are {LIMITS['runs']} runs at once already; close one first."
        if self.memory + memory > most:
            return f"All runs together would need more than {most / 2**20:.0f} MiB; close one first."
        return ""

    async def open(self, blueprint: Blueprint, marks: Sequence[dict[str, Any]] = ()) -> Entry:
        """A new run, with changes of its rates on the way; beside those its visitor has or in the least busy worker."""
        visitor, memory = current(), blueprint.memory
        self._make_room(visitor, 1, memory)
        name = secrets.token_urlsafe(9)
        own = [e.handle for e in self.runs.values() if e.visitor is visitor and e.handle.alive]
        handle = own[0] if own else self.pool.least_busy()  # together, so that they share one share
        self.opening[name] = (visitor, memory)
        handle.n_runs += 1
        try:
            ask = {"op": "open", "run": name, "setup": blueprint.setup, "marks": list(marks), "visitor": visitor.name}
            answer, _ = await handle.ask(ask)
            if "error" in answer:
                raise Refused(422, answer["error"]["field"], answer["error"]["message"])
            if "late" in answer:
                raise Refused(503, "run", answer["late"]["message"])
        except BaseException as error:
            handle.n_runs -= 1
            handle.send({"op": "shut", "run": name})
            if isinstance(error, WorkerDied | TimeoutError):
                raise Refused(503, "run", "The worker process ended or did not answer; start again.") from None
            raise
        finally:
            del self.opening[name]
        if not handle.alive:  # it died right after its answer, before anybody could be told
            raise Refused(503, "run", "The worker process ended or did not answer; start again.")
        entry = self.runs[name] = Entry(name, handle, blueprint, visitor, memory)
        return entry

    def find(self, name: Any) -> Entry:
        entry = self.runs.get(name) if isinstance(name, str) else None
        if entry is None:
            raise Refused(404, "run", "There is no such run here (any more); start a new one.")
        return entry

    def attach(self, entry: Entry, watcher: Watcher, since: int, again: bool) -> None:
        """``watcher`` gets the run from now on; ``again``: first the kept frames after ``since``."""
        if entry.expiry is not None:
            entry.expiry.cancel()
            entry.expiry = None
        if entry.watcher is not None and entry.watcher is not watcher:
            entry.watcher.lose()
        entry.watcher = watcher
        entry.n_watchers += 1
        to = entry.n_watchers
        entry.handle.send({"op": "attach", "run": entry.name, "since": since, "again": again, "to": to})

    def detach(self, entry: Entry, watcher: Watcher) -> None:
        """The socket is gone; the run goes on for a while in case it comes back."""
        if entry.watcher is not watcher or entry.name not in self.runs:
            return
        entry.watcher = None
        entry.handle.send({"op": "detach", "run": entry.name})
        entry.expiry = asyncio.get_running_loop().call_later(self.grace_seconds, self.end, entry)

    def end(self, entry: Entry) -> None:
        """Stop a run and free its memory."""
        if self.runs.pop(entry.name, None) is None:
            return
        if entry.expiry is not None:
            entry.expiry.cancel()
        entry.handle.n_runs -= 1
        entry.handle.send({"op": "shut", "run": entry.name})

    def tell(self, entry: Entry, op: str, message: dict[str, Any]) -> None:
        """Pass an operation on to the run; more steps need room for more frames."""
        steps = message.get("steps")
        if op == "extend" and isinstance(steps, int) and 0 < steps <= LIMITS["steps"]:
            memory = max(entry.memory, entry.blueprint.memory_for(steps))
            self._make_room(entry.visitor, 0, memory - entry.memory)
            entry.memory = memory
        known = {k: v for k, v in message.items() if k in ("n", "speed", "eta_y", "eta_z", "steps", "size", "step")}
        entry.handle.send({**known, "op": op, "run": entry.name})

    async def get(self, entry: Entry, what: str) -> Answer:
        """``about``, ``film`` or ``tables`` of a run."""
        try:
            answer = await entry.handle.ask({"op": "get", "run": entry.name, "what": what})
        except (WorkerDied, TimeoutError):
            raise Refused(503, "run", "The worker process ended or did not answer.") from None
        if "error" in answer[0]:
            raise Refused(404, "run", answer[0]["error"]["message"])
        if "late" in answer[0]:
            raise Refused(503, "run", answer[0]["late"]["message"])
        return answer

    # --- computations ------------------------------------------------------------------------------------------------

    async def job(self, header: dict[str, Any], payload: bytes = b"") -> bytes:
        """A computation in a process of its own, few at a time, visitors in turn; the answer is JSON."""
        visitor = current()
        if self.n_jobs >= LIMITS["jobs"]:
            raise Refused(429, header["kind"], "Too many computations are waiting; try again in a moment.")
        self.n_jobs += 1
        try:
            async with visitor.having("jobs"), self.turns.place(visitor, header["kind"] in _LAST):
                handle = self.pool.take()
                seconds = header["seconds"] + LIMITS["margin_seconds"]
                try:
                    answer, result = await handle.ask({"op": "job", **header}, payload, seconds)
                except TimeoutError:
                    handle.kill()  # it does not even look at its clock: start afresh
                    raise Refused(503, header["kind"], "The computation did not end in time.") from None
                except WorkerDied:
                    raise Refused(503, header["kind"], "The computation's process ended.") from None
                finally:
                    self.pool.give_back(handle)
        finally:
            self.n_jobs -= 1
        if "late" in answer:
            raise Refused(503, answer["late"]["field"], answer["late"]["message"])
        if "error" in answer:
            raise Refused(422, answer["error"]["field"], answer["error"]["message"])
        return result

    async def flow(self, blueprint: Blueprint, last: int, points: int, by: str = "flow") -> bytes:
        return await self.job({"kind": "flow", "by": by, "setup": blueprint.setup, "last": last, "points": points,
                               "seconds": LIMITS["flow_seconds"]})  # fmt: skip

    async def lens(self, path: Path, query: str) -> bytes:
        return await self.job({"kind": "lens", "path": str(path), "query": query, "seconds": LIMITS["lens_seconds"]})

    async def claims(self, entry: Entry, step: int | None = None) -> bytes:
        """The verdicts for a run up to a step, or so far; of the same step at most once in a while."""
        async with entry.judging:
            recent = entry.claims is not None and time.monotonic() - entry.claims_at < LIMITS["claims_seconds"]
            if entry.claims is not None and recent and entry.claims_of == step:
                return entry.claims[1]
            head, payload = await self.get(entry, "tables")
            until = head["step"] if step is None else min(step, head["step"])
            state = [until, head["about"]]
            if entry.claims is None or entry.claims[0] != state:
                job = {"kind": "claims", "setup": entry.blueprint.setup, "n": head["n"], "floats": head["floats"],
                       **head["about"], "until": until, "seconds": LIMITS["claims_limit_seconds"]}  # fmt: skip
                result = await self.job(job, payload)
                prefix = f'{{"run":"{entry.name}","step":{until},'.encode()
                entry.claims = (state, prefix + result[1:])
            entry.claims_of, entry.claims_at = step, time.monotonic()
            return entry.claims[1]

    # --- from the workers --------------------------------------------------------------------------------------------

    def _message(self, handle: Handle, header: dict[str, Any], payload: bytes) -> None:
        entry = self.runs.get(header["run"])
        if entry is None or entry.watcher is None or header["to"] != entry.n_watchers:
            return  # what was under way to a socket before this one would come ahead of what it missed
        entry.watcher.put(header["kind"], payload)

    def acknowledge(self, entry: Entry) -> None:
        """A binary message has left for the socket: the worker may send another."""
        entry.handle.send({"op": "ack", "run": entry.name})

    def _death(self, handle: Handle) -> None:
        for entry in [e for e in self.runs.values() if e.handle is handle]:
            if entry.watcher is not None:
                reason = ClosedText(reason="The process of this run ended.")
                entry.watcher.put("text", dumps(reason.model_dump()).encode())
            self.end(entry)

    async def __aenter__(self) -> Switchboard:
        self.pool.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for entry in list(self.runs.values()):
            self.end(entry)
        with contextlib.suppress(Exception):
            await asyncio.to_thread(self.pool.close)


def read_blueprint(given: Any) -> Blueprint:
    """A blueprint, with every mistake as a :class:`Refused`."""
    from scansnap.explorer.setups.read import field_of, read_setup

    try:
        return read_setup(given)
    except InputError as error:
        raise Refused(422, field_of(error), str(error)) from None
