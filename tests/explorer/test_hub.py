"""Runs are counted from the moment they are asked for, whatever becomes of them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from scansnap.explorer.hub import Entry, Hub, Refused
from scansnap.explorer.pool import WorkerDied
from scansnap.explorer.protocol import LIMITS

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


def hub_with(worker: Worker) -> Hub:
    hub = Hub(1, 1.0)
    hub.pool = SimpleNamespace(least_busy=lambda: worker)  # type: ignore[assignment]
    return hub


def test_runs_asked_for_at_the_same_moment_share_the_memory() -> None:
    async def story() -> None:
        worker = Worker()
        hub = hub_with(worker)
        asked = [asyncio.create_task(hub.open(LARGE)) for _ in range(24)]
        await asyncio.sleep(0)  # each came as far as its worker, or was refused
        assert LARGE.memory < hub.memory <= LIMITS["server_bytes"]
        worker.go.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        runs = [each for each in found if isinstance(each, Entry)]
        refused = [each for each in found if isinstance(each, Refused)]
        assert len(runs) == LIMITS["server_bytes"] // LARGE.memory == 8
        assert len(refused) == 16
        assert all(error.status == 429 and "MiB" in error.message for error in refused)
        assert hub.memory == 8 * LARGE.memory
        with pytest.raises(Refused):
            await hub.open(LARGE)
        hub.end(runs[0])
        await hub.open(LARGE)
        assert hub.memory == 8 * LARGE.memory

    asyncio.run(story())


@pytest.mark.parametrize("answer", [{"error": {"field": "eta_y", "message": "no"}}, WorkerDied(), TimeoutError(),
                                    {"late": {"message": "It failed."}}])  # fmt: skip
def test_a_run_that_does_not_open_gives_its_memory_back(answer: Any) -> None:
    async def story() -> None:
        worker = Worker()
        hub = hub_with(worker)
        worker.answer = answer
        worker.go.set()
        with pytest.raises(Refused):
            await hub.open(LARGE)
        assert (hub.memory, hub.runs, worker.n_runs, worker.sent) == (0, {}, 0, ["shut"])

    asyncio.run(story())


def test_a_run_given_up_while_it_opens_gives_its_memory_back() -> None:
    async def story() -> None:
        worker = Worker()
        hub = hub_with(worker)
        asked = asyncio.create_task(hub.open(LARGE))
        await asyncio.sleep(0)
        assert hub.memory == LARGE.memory
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (hub.memory, worker.n_runs, worker.sent) == (0, 0, ["shut"])

    asyncio.run(story())


def test_a_worker_that_dies_right_after_its_answer_has_no_runs() -> None:
    async def story() -> None:
        worker = Worker()
        worker.go.set()
        worker.alive = False
        hub = hub_with(worker)
        with pytest.raises(Refused) as refusal:
            await hub.open(LARGE)
        assert refusal.value.status == 503
        assert hub.runs == {}

    asyncio.run(story())
