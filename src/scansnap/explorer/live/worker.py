"""A worker process: several runs in fair turns, or one computation at a time. No pickle on the way in or out.

Messages are those of ``protocol.encode``. In: what to do, with the run's id and, where an answer is expected, a request
number. Out: ``{"run", "kind": "text" | "binary", "to"}`` to be passed on to the run's socket as it is, or
``{"reply": number, …}``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.explorer import protocol
from scansnap.explorer.live.hosted import CREDIT, TURN, Hosted
from scansnap.explorer.live.visitors import Shares
from scansnap.explorer.messages.socket import ClosedText
from scansnap.explorer.protocol import LIMITS, decode, encode

_CYCLE = 1 / 30  # all runs should have had a turn by then
_FRAME_SHARE = 1 / 120  # seconds between frames for each run that plays in this process, once they are many
_IN_ORDER = 3  # each so many-th turn goes to the film asked for first
_FILM = 4.0  # seconds of computing a film may take of those turns: more than any preset's needs


class Worker:
    """The loop: messages first, then a turn for each run that has something to do."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.runs: dict[str, Hosted] = {}
        self.owner: dict[str, str] = {}  # the visitor of each run; in the order of the turns among the visitor's runs
        self.shares = Shares()
        self.n_turns = 0
        self.cancelled: set[int] = set()
        self.waiting: deque[bytes] = deque()  # messages read while a computation looked for its cancellation

    def serve(self) -> None:
        while True:
            wait = self._wait()
            try:
                made = False
                while not made and (self.waiting or self.pipe.poll(wait)):
                    made = self.handle(self.waiting.popleft() if self.waiting else self.pipe.recv_bytes())
                    wait = 0.0  # but many new runs must not keep the others from their turns
            except (EOFError, OSError):
                return  # the server is gone
            self.turns()

    def _wait(self) -> float | None:
        now = time.monotonic()
        waits = [w for run in self.runs.values() if (w := run.wait(now)) is not None]
        return min(waits) if waits else None

    def turns(self) -> None:
        """Turns for the runs that have something to do, mostly for the visitor who has had the least time."""
        now = time.monotonic()
        ready: dict[str, list[str]] = {}  # runs by visitor
        for name, visitor in self.owner.items():
            if self._is_ready(name, now):
                ready.setdefault(visitor, []).append(name)
        n_ready, end = sum(map(len, ready.values())), now + _CYCLE
        while ready:
            visitor, name = self._next(ready)
            ready[visitor].remove(name)
            self.owner[name] = self.owner.pop(name)  # behind the visitor's others
            self.runs[name].every = max(1 / LIMITS["frames_per_second"], n_ready * _FRAME_SHARE)
            began = time.monotonic()
            try:
                self.runs[name].turn(min(max(_CYCLE / n_ready, TURN[0]), TURN[1]))
            except OSError:
                raise  # the server is gone
            except Exception as error:
                self._failed(name, None, error)
            now = time.monotonic()
            self.shares.spend(visitor, now - began)
            if name in self.runs:
                self.runs[name].taken += now - began
            if now >= end or self.pipe.poll(0):
                return
            if self._is_ready(name, now):
                ready[visitor].append(name)
            if not ready[visitor]:
                del ready[visitor]

    def _next(self, ready: dict[str, list[str]]) -> tuple[str, str]:
        """Whose turn it is, and with which run.

        By shares alone everybody's first steps come at once, and everybody's last ones at the end of it all. So some of
        the turns go to the film that was asked for first: films are complete one after the other, and none waits for
        those that began later.
        """
        self.n_turns += 1
        if self.n_turns % _IN_ORDER == 0:
            films = [(self.runs[name].opened, visitor, name) for visitor, names in ready.items() for name in names
                     if self.runs[name].is_film and self.runs[name].taken < _FILM]  # fmt: skip
            if films:
                return min(films)[1:]
        visitor = self.shares.first(list(ready))
        return visitor, ready[visitor][0]

    def _is_ready(self, name: str, now: float) -> bool:
        wait = self.runs[name].wait(now) if name in self.runs else None
        return wait is not None and wait <= 0

    def handle(self, message: bytes) -> bool:
        """Do what a message says; whether that was to make a run, which takes as long as a turn."""
        began = time.monotonic()
        header, payload = decode(message)
        op, name, number = header["op"], header.get("run", ""), header.get("req")
        try:
            if op == "open":
                self.runs[name] = Hosted(name, header["setup"], self.pipe.send_bytes, header.get("marks", ()))
                self.owner[name] = header.get("visitor", name)
                self.reply(number, {"ok": True})
            elif op == "shut":
                self.runs.pop(name, None)
                self.owner.pop(name, None)
            elif op == "job":
                self.job(number, header, payload)
            elif op == "cancel":
                self.cancelled.add(header["of"])
            elif name in self.runs:
                self._to_run(op, self.runs[name], header, number)
            elif number is not None:
                self.reply(number, {"error": {"field": "run", "message": "The run is closed."}})
        except InputError as error:
            from scansnap.explorer.setups.read import field_of

            if number is not None:
                self.reply(number, {"error": {"field": field_of(error), "message": str(error)}})
            else:
                self.runs[name].refuse(error)
        except (EOFError, OSError):
            raise  # the server is gone
        except Exception as error:  # a mistake of ours must not take the other runs along
            self._failed(name, number, error)
        if op == "open":
            self.shares.spend(header.get("visitor", name), time.monotonic() - began)
        return bool(op == "open")

    def _failed(self, name: str, number: Any, error: Exception) -> None:
        traceback.print_exception(error)
        words = f"It failed: {type(error).__name__}. The server's terminal says more."
        if number is not None:
            self.reply(number, {"late": {"field": "run", "message": words}})
        elif name in self.runs:
            self.runs.pop(name).text(ClosedText(reason=words))
            del self.owner[name]

    def _to_run(self, op: str, run: Hosted, header: dict[str, Any], number: Any) -> None:
        if op == "attach":
            run.attach(header["since"], header["again"], header.get("to", 0))
        elif op == "detach":
            run.attached = False
        elif op == "ack":
            run.credit = min(run.credit + 1, CREDIT)
        elif op == "get":
            self._get(run, header["what"], number)
        else:
            run.do(op, header)

    def _get(self, run: Hosted, what: str, number: Any) -> None:
        if what == "about":
            return self.reply(number, {"about": run.describe().model_dump(warnings=False)})
        run.live.record()
        steps, rows = (run.live.film if what == "film" else run.live.tables).after(-1)
        about = {"marks": run.live.marks, "failed_step": run.live.failed_step}
        if what == "film":
            about = run.describe().model_dump(warnings=False)
        head = {"about": about, "n": len(steps), "floats": rows.shape[1], "step": run.live.step}
        payload = steps.astype("<u4").tobytes() + np.ascontiguousarray(rows, dtype="<f4").tobytes()
        return self.reply(number, head, payload)

    def job(self, number: Any, header: dict[str, Any], payload: bytes) -> None:
        """A computation that takes a while: looks for its cancellation, and for its own time limit."""
        from scansnap.explorer.pages import lens
        from scansnap.explorer.pages.judging import judge_frames
        from scansnap.explorer.pages.predict import Cancelled, flow_overlay
        from scansnap.explorer.pages.rates import rate_map
        from scansnap.explorer.setups.read import read_setup

        end = time.monotonic() + header["seconds"]

        def stop() -> bool:
            while self.pipe.poll(0):
                message = self.pipe.recv_bytes()
                head = decode(message)[0]
                if head["op"] == "cancel":
                    self.cancelled.add(head["of"])
                else:
                    self.waiting.append(message)
            return number in self.cancelled or time.monotonic() > end

        try:
            if stop():
                raise Cancelled
            if header["kind"] == "lens":
                result = lens.explain(Path(header["path"]), header["query"])
                return self.reply(number, {"ok": True}, protocol.dumps(result).encode())
            blueprint = read_setup(header["setup"])
            if header["kind"] == "flow":
                result = flow_overlay(blueprint, header["last"], header["points"], stop, header["by"])
            elif header["kind"] == "map":
                result = rate_map(blueprint, LIMITS["map_seconds"], stop)
            else:
                n, floats = header["n"], header["floats"]
                steps = np.frombuffer(payload, "<u4", n)
                rows = np.frombuffer(payload, "<f4", n * floats, 4 * n).reshape(n, floats)
                result = judge_frames(
                    blueprint, header["marks"], steps, rows, stop, header["failed_step"], header["until"]
                )
        except Cancelled:
            words = f"It took longer than {header['seconds']:g} seconds and was stopped: ask for fewer steps."
            return self.reply(number, {"late": {"field": header["kind"], "message": words}})
        finally:
            self.cancelled.discard(number)
        return self.reply(number, {"ok": True}, protocol.dumps(result).encode())

    def reply(self, number: Any, header: dict[str, Any], payload: bytes = b"") -> None:
        self.pipe.send_bytes(encode({"reply": number, **header}, payload))


def main(pipe: Connection, niceness: int = 0) -> None:
    """Entry point of the process; ``niceness``: how much it stands back for others, such as the server itself."""
    import torch

    import scansnap.explorer.live.run
    import scansnap.explorer.pages.judging
    import scansnap.explorer.pages.predict  # noqa: F401  # loaded now, so that the first run does not wait for it

    if niceness and hasattr(os, "nice"):
        os.nice(niceness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends the workers
    torch.set_num_threads(1)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        Worker(pipe).serve()
