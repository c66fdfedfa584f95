"""A run in its worker: single steps in turns, and never more on the way to a socket than it takes."""

import json
from multiprocessing import Pipe
from typing import Any

import pytest

from scansnap.explorer.live import hosted as module
from scansnap.explorer.live import worker as worker_module
from scansnap.explorer.live.hosted import CREDIT, TURN, Hosted
from scansnap.explorer.live.worker import Worker
from scansnap.explorer.protocol import FRAMES, LAST, LIMITS, REPLAY, RESTART, TABLE_Y, decode, encode, unpack_frames

SMALL: dict[str, Any] = {"classes": {"preset": "syn-small"}, "steps": 10**6}


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    process_time = monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(worker_module, "time", made)
    return made


class Heard:
    """What a run said, read as its socket would."""

    def __init__(self) -> None:
        self.texts: list[dict[str, Any]] = []
        self.binary: list[bytes] = []

    def __call__(self, message: bytes) -> None:
        header, payload = decode(message)
        if header["kind"] == "text":
            self.texts.append(json.loads(payload))
        else:
            self.binary.append(payload)

    def states(self) -> list[tuple[str, int]]:
        return [(text["state"], text["step"]) for text in self.texts if text["type"] == "state"]


def slow(run: Hosted, clock: Clock, seconds: float) -> None:
    """Each step of the run takes so long."""
    advance = run.live.advance

    def taking_its_time(n: int) -> int:
        done = advance(n)
        clock.now += seconds * done
        return done

    run.live.advance = taking_its_time  # type: ignore[method-assign]


def test_the_largest_step_leaves_time_for_other_messages(clock: Clock) -> None:
    here, there = Pipe()
    worker = Worker(there)
    for name in ("busy", "other"):
        worker.handle(encode({"op": "open", "run": name, "setup": SMALL, "req": 1}))
        here.recv_bytes()
    run = worker.runs["busy"]
    slow(run, clock, 1.0)
    heard = run.out = Heard()
    worker.handle(encode({"op": "attach", "run": "busy", "since": -1, "again": False}))
    worker.handle(encode({"op": "step", "run": "busy", "n": LIMITS["single_steps"]}))
    assert run.live.step == 0, "the steps are made in turns, after the messages"
    for turn in range(1, 4):
        worker.turns()
        assert run.live.step == turn, "a step is longer than a turn, so each turn has one"
        worker.handle(encode({"op": "get", "run": "other", "what": "about", "req": 7}))
        assert decode(here.recv_bytes())[0]["about"]["state"] == "paused"
    assert heard.states()[-1] == ("running", 3)
    worker.handle(encode({"op": "pause", "run": "busy"}))
    worker.turns()
    assert heard.states()[-1] == ("paused", 3)
    worker.handle(encode({"op": "step", "run": "busy", "n": LIMITS["single_steps"]}))
    worker.turns()
    worker.handle(encode({"op": "shut", "run": "busy"}))  # its page has gone
    worker.turns()
    assert (run.live.step, set(worker.runs)) == (4, {"other"})
    for end in (here, there):
        end.close()


def make(setup: dict[str, Any]) -> tuple[Hosted, Heard]:
    heard = Heard()
    run = Hosted("run", setup, heard)
    run.attach(-1, False)
    return run, heard


def settle(run: Hosted, taken: bool = True) -> None:
    """Turns until there is nothing to do; ``taken``: the socket takes every message."""
    while True:
        if taken:
            run.credit = CREDIT
        if run.wait(module.time.monotonic()) is None:
            return
        run.turn(TURN[1])


def test_what_follows_a_step_waits_for_it(clock: Clock) -> None:
    run, heard = make(SMALL)
    slow(run, clock, 1.0)
    run.do("step", {"n": 5})
    run.do("rates", {"eta_y": 2.0})
    run.do("step", {"n": 3})
    run.do("extend", {"steps": 20})
    run.do("rates", {"eta_y": -1})
    assert (run.live.step, run.live.marks) == (0, [])
    settle(run)
    assert (run.live.step, run.live.steps) == (8, 20)
    assert run.live.marks == [{"step": 5, "eta_y": 2.0, "eta_z": 1.0}]
    assert heard.texts[-1]["field"] == "eta_y", "a refusal comes when its turn has come"
    assert heard.states()[-1] == ("paused", 8)
    run.do("step", {"n": 4})
    run.do("play", {})
    settle(run)
    assert heard.states()[-1] == ("done", 20)


@pytest.mark.parametrize("op", ["pause", "reset"])
def test_a_pause_or_reset_ends_a_step_and_keeps_the_changes_behind_it(clock: Clock, op: str) -> None:
    run, heard = make(SMALL)
    slow(run, clock, 1.0)
    run.do("step", {"n": 1000})
    run.do("extend", {"steps": 70})
    run.do("rates", {"eta_y": 2.0})
    run.do("step", {"n": 1000})
    run.turn(TURN[1])
    run.do(op, {})
    settle(run)
    assert heard.states()[-1] == ("paused", 1 if op == "pause" else 0)
    assert (run.live.steps, run.live.eta) == (70, (2.0, 1.0) if op == "pause" else (1.0, 1.0))


def test_operations_do_not_pile_up_behind_a_step(clock: Clock) -> None:
    run, _ = make(SMALL)
    slow(run, clock, 1.0)
    run.do("step", {"n": 1000})
    for _ in range(100):
        run.do("rates", {"eta_y": 2.0})
    with pytest.raises(module.InputError, match="pause"):
        run.do("rates", {"eta_y": 2.0})


def test_a_socket_that_takes_nothing_has_three_messages_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Films and tables as well as frames, however often they are asked for."""
    monkeypatch.setattr(module, "_MESSAGE_BYTES", 4096)
    run, heard = make({**SMALL, "steps": 200})
    run.do("play", {})
    settle(run)
    film, whole = run.live.film.steps, len(heard.binary)
    assert whole > 1
    heard.binary.clear()
    run.credit = CREDIT
    for _ in range(50):
        run.do("film", {})
        run.do("y", {"size": 64})
        run.do("y", {"size": 8})
        settle(run, taken=False)
    assert len(heard.binary) == CREDIT
    assert sum(map(len, heard.binary)) < CREDIT * (4096 + 1024 + 4 * 64 * 64)
    # and when it reads again it gets the last film and the last table that it asked for
    heard.binary.clear()
    settle(run)
    messages = [unpack_frames(message) for message in heard.binary]
    assert [values[0, 0] for kind, _, _, values in messages if kind == TABLE_Y] == [8]
    parts = [(flags, steps.tolist()) for kind, flags, steps, _ in messages if kind == FRAMES]
    assert len(parts) > CREDIT
    assert [flags & RESTART for flags, _ in parts] == [RESTART] + [0] * (len(parts) - 1)
    assert [flags & LAST for flags, _ in parts] == [0] * (len(parts) - 1) + [LAST]
    assert all(flags & REPLAY for flags, _ in parts)
    assert [step for _, steps in parts for step in steps] == film


def test_a_replay_ends_though_the_run_goes_on(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MESSAGE_BYTES", 1024)
    run, heard = make(SMALL)
    slow(run, clock, 1.0)
    run.do("step", {"n": 40})
    settle(run)
    heard.binary.clear()
    run.do("play", {})
    run.do("film", {})
    for _ in range(100):
        run.credit = min(run.credit + 1, CREDIT)
        run.turn(TURN[1])
    parts = [unpack_frames(message) for message in heard.binary]
    flags = [flags for _, flags, _, _ in parts]
    last = next(i for i, flag in enumerate(flags) if flag & LAST)
    assert parts[last][2][-1] == 40
    assert not any(flag & REPLAY for flag in flags[last + 1 :])
    steps = [step for _, _, steps, _ in parts for step in steps.tolist()]
    assert steps == sorted(steps)
    assert steps[:51] == list(range(51)), "nothing is missing where the replay meets the run"


def test_a_run_started_with_changes_of_its_rates_tells_of_them_as_it_passes_them() -> None:
    """So a page whose server was started anew comes back to where it was."""
    marks = [{"step": 5, "eta_y": 2.0, "eta_z": 1.0}, {"step": 12, "eta_y": 2.0, "eta_z": 0.0}]
    heard = Heard()
    run = Hosted("run", {**SMALL, "steps": 20}, heard, marks)
    run.attach(-1, False)
    assert heard.texts[0]["marks"] == []
    run.do("play", {})
    settle(run)
    said = [{k: text[k] for k in ("step", "eta_y", "eta_z")} for text in heard.texts if text["type"] == "mark"]
    assert said == marks == run.describe().model_dump(warnings=False)["marks"]
    assert heard.texts[-1]["eta_z"] == 0.0
