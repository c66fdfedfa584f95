"""The server's side of the worker processes: started, spoken to over pipes, replaced when they die."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from scansnap.explorer.live.worker import main
from scansnap.explorer.protocol import LIMITS, decode, encode

_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)  # read by the libraries when they are loaded, so set before the process starts
_LATER = 5.0  # seconds until the process for computations starts unasked: the page comes first
_starting = threading.Lock()

Answer = tuple[dict[str, Any], bytes]


class WorkerDied(Exception):
    """The process ended before it answered."""


class Handle:
    """One worker process. All methods belong to the event loop; two threads move bytes so that it never waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_message: Callable[[Handle, dict[str, Any], bytes], None],
                 on_death: Callable[[Handle], None], niceness: int = 0) -> None:  # fmt: skip
        self.loop, self.on_message, self.on_death = loop, on_message, on_death
        self.alive = True
        self.n_runs = 0
        self.numbers = itertools.count(1)
        self.answers: dict[int, asyncio.Future[Answer]] = {}
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        with _starting, _environment(_ONE_THREAD):
            self.process = context.Process(target=main, args=(theirs, niceness), daemon=True, name="scansnap-worker")
            self.process.start()
        theirs.close()
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=_write, args=(self.pipe, self.outbox), daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        self.outbox.put(encode(header, payload))

    async def ask(self, header: dict[str, Any], payload: bytes = b"", seconds: float | None = None) -> Answer:
        """Send and wait for the answer; on cancellation the worker is told."""
        if not self.alive:
            raise WorkerDied
        number = next(self.numbers)
        future: asyncio.Future[Answer] = self.loop.create_future()
        self.answers[number] = future
        self.send({**header, "req": number}, payload)
        try:
            async with asyncio.timeout(LIMITS["answer_seconds"] if seconds is None else seconds):
                return await future
        except (asyncio.CancelledError, TimeoutError):
            self.send({"op": "cancel", "of": number})
            raise
        finally:
            self.answers.pop(number, None)

    def kill(self) -> None:
        """End the process; its runs are lost."""
        self.outbox.put(None)
        with contextlib.suppress(ValueError):
            self.process.kill()

    def close(self) -> None:
        """End the process and wait for it."""
        self.alive = False
        self.kill()
        self.process.join(5)

    def _read(self) -> None:
        try:
            while True:
                header, payload = decode(self.pipe.recv_bytes())
                self.loop.call_soon_threadsafe(self._arrived, header, payload)
        except (EOFError, OSError):
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                self.loop.call_soon_threadsafe(self._died)

    def _arrived(self, header: dict[str, Any], payload: bytes) -> None:
        if "reply" not in header:
            self.on_message(self, header, payload)
            return
        future = self.answers.get(header["reply"])
        if future is not None and not future.done():
            future.set_result((header, payload))

    def _died(self) -> None:
        was, self.alive = self.alive, False
        self.outbox.put(None)
        for future in self.answers.values():
            if not future.done():
                future.set_exception(WorkerDied())
        if was:
            self.on_death(self)


class Pool:
    """Workers for runs, about one per core, and a few more for computations, started a little later."""

    def __init__(self, n_workers: int, on_message: Callable[[Handle, dict[str, Any], bytes], None],
                 on_death: Callable[[Handle], None], niceness: int = 0) -> None:  # fmt: skip
        self.n_workers, self.on_message, self.on_death, self.niceness = n_workers, on_message, on_death, niceness
        self.handles: list[Handle] = []
        self.n_jobs = max(1, n_workers // 4)  # processes for computations
        self.job_handles: list[Handle] = []
        self.idle: list[Handle] = []  # of them
        self.closed = False

    def start(self) -> None:
        self.handles = [self._new() for _ in range(self.n_workers)]
        asyncio.get_running_loop().call_later(_LATER, self._expect)

    def _expect(self) -> None:
        """Have one process for computations ready before the first is asked for."""
        if not self.closed and not self.job_handles:
            self.give_back(self.take())

    def _new(self) -> Handle:
        return Handle(asyncio.get_running_loop(), self.on_message, self.on_death, self.niceness)

    def least_busy(self) -> Handle:
        """A living worker with the fewest runs; dead ones are replaced here."""
        self.handles = [handle if handle.alive else self._new() for handle in self.handles]
        return min(self.handles, key=lambda handle: handle.n_runs)

    def take(self) -> Handle:
        """A process for a computation; whoever takes one has waited until one of :attr:`n_jobs` is free."""
        self.idle = [handle for handle in self.idle if handle.alive]
        if not self.idle:
            self.job_handles = [*(handle for handle in self.job_handles if handle.alive), self._new()]
            self.idle = self.job_handles[-1:]
        return self.idle.pop()

    def give_back(self, handle: Handle) -> None:
        self.idle.append(handle)

    def close(self) -> None:
        self.closed = True
        for handle in [*self.handles, *self.job_handles]:
            handle.close()


def default_workers() -> int:
    """About one per core, at most four."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, cores))


def _write(pipe: Connection, outbox: queue.SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(OSError):
        while (message := outbox.get()) is not None:
            pipe.send_bytes(message)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
