"""Runs are counted from the moment they are asked for, whatever becomes of them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from scansnap.explorer.live.pool import WorkerDied
from scansnap.explorer.live.switchboard import Entry, Switchboard
from scansnap.explorer.protocol import LIMITS, Refused

LARGE: Any = SimpleNamespace(memory=180 << 20, setup={})


class Worker:
    """Answers ``open`` when it is allowed to."""

    def __init__(self) -> None:
        self.n_runs, self.alive, self.sent = 0, True, []
        self.go = asyncio.Event()
        self.answer: Any = {"ok": True}

    async def ask(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        await self.go.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer, b""

    def send(self, header: dict[str, Any]) -> None:
        self.sent.append(header["op"])


def switchboard_with(worker: Worker) -> Switchboard:
    switchboard = Switchboard(1, 1.0)
    switchboard.pool = SimpleNamespace(least_busy=lambda: worker)  # type: ignore[assignment]
    return switchboard


def test_runs_asked_for_at_the_same_moment_share_the_memory() -> None:
    async def story() -> None:
        worker = Worker()
        switchboard = switchboard_with(worker)
        asked = [asyncio.create_task(switchboard.open(LARGE)) for _ in range(24)]
        await asyncio.sleep(0)  # each came as far as its worker, or was refused
        assert LARGE.memory < switchboard.memory <= LIMITS["server_bytes"]
        worker.go.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        runs = [each for each in found if isinstance(each, Entry)]
        refused = [each for each in found if isinstance(each, Refused)]
        assert len(runs) == LIMITS["server_bytes"] // LARGE.memory == 8
        assert len(refused) == 16
        assert all(error.status == 429 and "MiB" in error.message for error in refused)
        assert switchboard.memory == 8 * LARGE.memory
        with pytest.raises(Refused):
            await switchboard.open(LARGE)
        switchboard.end(runs[0])
        await switchboard.open(LARGE)
        assert switchboard.memory == 8 * LARGE.memory

    asyncio.run(story())


@pytest.mark.parametrize("answer", [{"error": {"field": "eta_y", "message": "no"}}, WorkerDied(), TimeoutError(),
                                    {"late": {"message": "It failed."}}])  # fmt: skip
def test_a_run_that_does_not_open_gives_its_memory_back(answer: Any) -> None:
    async def story() -> None:
        worker = Worker()
        switchboard = switchboard_with(worker)
        worker.answer = answer
        worker.go.set()
        with pytest.raises(Refused):
            await switchboard.open(LARGE)
        assert (switchboard.memory, switchboard.runs, worker.n_runs, worker.sent) == (0, {}, 0, ["shut"])

    asyncio.run(story())


def test_a_run_given_up_while_it_opens_gives_its_memory_back() -> None:
    async def story() -> None:
        worker = Worker()
        switchboard = switchboard_with(worker)
        asked = asyncio.create_task(switchboard.open(LARGE))
        await asyncio.sleep(0)
        assert switchboard.memory == LARGE.memory
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (switchboard.memory, worker.n_runs, worker.sent) == (0, 0, ["shut"])

    asyncio.run(story())


def test_a_worker_that_dies_right_after_its_answer_has_no_runs() -> None:
    async def story() -> None:
        worker = Worker()
        worker.go.set()
        worker.alive = False
        switchboard = switchboard_with(worker)
        with pytest.raises(Refused) as refusal:
            await switchboard.open(LARGE)
        assert refusal.value.status == 503
        assert switchboard.runs == {}

    asyncio.run(story())


def test_a_socket_gets_nothing_that_was_under_way_to_the_one_before() -> None:
    """Newer frames ahead of the missed ones would make the page drop the missed ones."""

    class Watcher:
        def __init__(self) -> None:
            self.got: list[bytes] = []

        def put(self, kind: str, data: bytes) -> None:
            self.got.append(data)

        def lose(self) -> None:
            self.lost = True

    async def story() -> None:
        worker, first, second = Worker(), Watcher(), Watcher()
        worker.go.set()
        board = switchboard_with(worker)
        entry = await board.open(LARGE)
        board.attach(entry, first, -1, again=False)
        said: dict[str, Any] = {"run": entry.name, "kind": "binary", "to": entry.n_watchers}
        board._message(worker, said, b"1")  # type: ignore[arg-type]
        board.attach(entry, second, 5, again=True)
        board._message(worker, said, b"2")  # type: ignore[arg-type]
        board._message(worker, {**said, "to": entry.n_watchers}, b"3")  # type: ignore[arg-type]
        assert (first.got, second.got) == ([b"1"], [b"3"])

    asyncio.run(story())
