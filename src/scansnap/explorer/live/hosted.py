"""A live run inside a worker process: its clock, and what its socket has not got yet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scansnap.checks import InputError
from scansnap.explorer import protocol
from scansnap.explorer.messages.fields import Said, read
from scansnap.explorer.messages.socket import (
    OPS,
    AskTable,
    ErrorText,
    Extend,
    MarkText,
    Rates,
    ResetText,
    RunText,
    Speed,
    State,
    StateText,
    Step,
)
from scansnap.explorer.protocol import LAST, LIMITS, REPLAY, RESTART, TABLE_Y, encode

TURN = (0.006, 0.03)  # seconds a run may take before the next one has its turn
CREDIT = 3  # binary messages under way to a socket: a client that does not read costs no more
_STATE_EVERY = 0.5
_QUIET = 0.25  # seconds without a frame, at full speed, until there is one between those of the schedule
_MESSAGE_BYTES = 256 << 10  # of frames in one message
_IN_ORDER = ("step", "rates", "extend", "play")  # wait for steps asked for before them
_WAITING = 100  # such operations at once


@dataclass
class Replay:
    """Kept frames that are to be sent again: those later than ``since``, up to the step ``until``."""

    since: int
    until: int
    flags: int


class Hosted:
    """A live run, its clock and what its socket has not got yet."""

    def __init__(self, name: str, setup: dict[str, Any], out: Any, marks: Sequence[dict[str, Any]] = ()) -> None:
        from scansnap.explorer.live.run import LiveRun
        from scansnap.explorer.pages.predict import theory
        from scansnap.explorer.setups.read import read_setup, summary

        self.name, self.out = name, out
        self.opened, self.taken = time.monotonic(), 0.0  # when, and the seconds of its turns so far
        self.to = 0  # which of the sockets it has had
        self.live = LiveRun(read_setup(setup), marks)
        self.about = {"setup": self.live.blueprint.setup, "classes": summary(self.live.classes),
                      "theory": theory(self.live.blueprint), "layout": self.live.layout()}  # fmt: skip
        self.playing, self.attached, self.credit = False, False, CREDIT
        self.goal: int | None = None  # the step that single steps lead to; done in turns, like playing
        self.later: deque[tuple[str, dict[str, Any]]] = deque()  # operations for when it is reached
        self.replay: Replay | None = None
        self.table: AskTable | None = None  # the table Y that is owed to the socket
        self.speed: float | None = None  # steps per second; None: as fast as it goes
        self.seconds_per_step = 1e-3
        self.sent_step = -1  # frames up to here were sent
        self.sent_at = self.state_at = 0.0
        self.every = 1 / LIMITS["frames_per_second"]  # seconds between frames
        self.rate, self._counted = 0.0, (time.monotonic(), 0)
        self._clock = (time.monotonic(), 0)  # when the speed began to count, and from which step

    # --- what to say -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        live = self.live
        if live.failed_step is not None:
            return "failed"
        if live.step >= live.steps:
            return "done"
        return "running" if self.playing or self.goal is not None else "paused"

    def text(self, message: Said) -> None:
        if self.attached:
            text = protocol.dumps(message.model_dump(warnings=False))  # a set-up is told as it was read
            self.out(encode({"run": self.name, "kind": "text", "to": self.to}, text.encode()))

    def binary(self, message: bytes) -> None:
        if self.attached:
            self.out(encode({"run": self.name, "kind": "binary", "to": self.to}, message))

    def describe(self) -> RunText:
        return RunText.model_validate(
            {"run": self.name, **self.about, "steps": self.live.steps, "step": self.live.step, "state": self.state,
             "speed": self.speed or "max", "marks": self.live.marks})  # fmt: skip

    def say_state(self) -> None:
        now, live = time.monotonic(), self.live
        since, step = self._counted
        if now - since > 0.2:
            self.rate, self._counted = max(0.0, (live.step - step) / (now - since)), (now, live.step)
        self.state_at = now
        eta_y, eta_z = live.eta
        self.text(StateText(state=self.state, step=live.step, steps=live.steps, speed=self.speed or "max",
                            rate=round(self.rate, 1), eta_y=eta_y, eta_z=eta_z,
                            failed_step=live.failed_step))  # fmt: skip

    def refuse(self, error: InputError) -> None:
        from scansnap.explorer.setups.read import field_of

        self.text(ErrorText(field=field_of(error), message=str(error)))

    def attach(self, since: int, again: bool, to: int = 0) -> None:
        """A socket takes the run up, from the frames after ``since``; ``again``: kept ones come as a replay."""
        self.to = to
        self.attached, self.credit, self.replay, self.table = True, CREDIT, None, None
        self.sent_step = min(since, self.live.step) if since >= 0 else -1
        self.text(self.describe())
        if again:
            self._begin_replay(self.sent_step, 0)
        self.say_frames(time.monotonic(), force=True)
        self.say_state()

    def _begin_replay(self, since: int, flags: int) -> None:
        self.live.record()
        self.replay = Replay(since, self.live.step, flags | REPLAY)

    @property
    def owes(self) -> bool:
        """Whether something is ready that the socket asked for."""
        return self.attached and self.credit > 0 and (self.replay is not None or self.table is not None)

    def say_frames(self, now: float, force: bool = False) -> None:
        """What the socket asked for, then what is new, at most 30 times a second; all as long as it keeps up."""
        while self.owes:
            self._say_table() if self.table is not None else self._say_replay()
        due = now - self.sent_at >= self.every
        if not self.attached or self.credit <= 0 or not (due or force):
            return
        if self.speed is not None or force or now - self.sent_at >= _QUIET:
            self.live.record()  # else the frames of the schedule do: one more costs as much as many steps
        steps, rows = self.live.film.after(self.sent_step)
        if len(steps) == 0:
            return
        most = max(1, _MESSAGE_BYTES // (4 * rows.shape[1]))
        steps, rows = steps[:most], rows[:most]  # the rest comes with the next message
        self.sent_step, self.sent_at = int(steps[-1]), now
        self._spend(protocol.pack_frames(steps, rows))

    def _say_table(self) -> None:
        assert self.table is not None
        step, values = self.live.table_y(self.table.size, self.table.step)
        self.table = None
        self._spend(protocol.pack_frames(np.array([step]), values[None], kind=TABLE_Y))

    def _say_replay(self) -> None:
        """The next message of a replay; the film may have been thinned since the one before."""
        replay = self.replay
        assert replay is not None
        steps, rows = self.live.film.after(replay.since)
        wanted = int(np.searchsorted(steps, replay.until, side="right"))
        most = max(1, _MESSAGE_BYTES // (4 * max(1, rows.shape[1])))
        steps, rows = steps[: min(wanted, most)], rows[: min(wanted, most)]
        if wanted <= most:
            self.replay = None
            self.sent_step = max(self.sent_step, replay.until)
        self._spend(protocol.pack_frames(steps, rows, replay.flags | (LAST if self.replay is None else 0)))
        replay.flags &= ~RESTART
        replay.since = int(steps[-1]) if len(steps) else replay.since

    def _spend(self, message: bytes) -> None:
        self.credit -= 1
        self.binary(message)

    # --- what to do --------------------------------------------------------------------------------------------------

    def wait(self, now: float) -> float | None:
        """Seconds until there is something to do, None for never."""
        if self.goal is not None or self.owes:
            return 0.0
        if not self.playing or self.live.over:
            behind = self.attached and self.credit > 0 and self.live.film.steps[-1] > self.sent_step
            return max(0.0, self.sent_at + self.every - now) if behind else None
        if self.speed is None:
            return 0.0
        began, step = self._clock
        return max(0.0, began + (self.live.step + 1 - step) / self.speed - now)

    def turn(self, budget: float) -> None:
        """Advance for about ``budget`` seconds, as far as the speed allows, and say what is new."""
        began = now = time.monotonic()
        budget = min(budget, max(TURN[0], self.sent_at + self.every - now))  # back in time for the next frame
        while self.moving and now - began < budget:
            # at least as much as the shortest turn: a stretch has a price of its own, however short
            n = max(1, int(max(TURN[0], budget - (now - began)) / self.seconds_per_step))
            if self.goal is not None:
                n = min(n, self.goal - self.live.step)
            elif self.speed is not None:
                since, step = self._clock
                owed = int((now - since) * self.speed) + step - self.live.step
                if owed > self.speed * 0.25 + 1:  # too slow for this speed: do not run up debts
                    self.pace()
                if owed < 1:
                    break
                n = min(n, owed)
            marks, spent = list(self.live.marks), time.process_time()
            done = self.live.advance(n)
            self._say_mark(marks)
            if done:  # by processor time: on a busy machine shorter stretches would make it only busier
                spent = time.process_time() - spent
                self.seconds_per_step += 0.3 * (spent / done - self.seconds_per_step)
            now = time.monotonic()
        if (self.playing or self.goal is not None) and not self.moving:
            self.playing, self.goal = False, None
            self.say_frames(now, force=True)
            self.say_state()
            self._do_later()
        else:
            self.say_frames(now)
            if self.moving and now - self.state_at >= _STATE_EVERY:
                self.say_state()

    @property
    def is_film(self) -> bool:
        """Whether it is computed as fast as it goes, in steps that are shorter than a turn, to be seen as a film."""
        return self.playing and self.speed is None and self.seconds_per_step < TURN[1]

    @property
    def moving(self) -> bool:
        if self.goal is not None and self.live.step >= self.goal:
            return False
        return (self.playing or self.goal is not None) and not self.live.over

    def pace(self) -> None:
        """Count the speed from here and now."""
        self._clock = (time.monotonic(), self.live.step)

    def play(self, on: bool) -> None:
        self.playing = on and not self.live.over
        self.pace()
        self._counted = (time.monotonic(), self.live.step)

    def do(self, op: str, message: dict[str, Any]) -> None:
        """One operation of the protocol."""
        if self.goal is not None and op in _IN_ORDER:
            if len(self.later) >= _WAITING:
                raise InputError("op", op, "sent again after the steps that are under way, or after a pause")
            self.later.append((op, message))
            return
        said, now = read(OPS[op], {**message, "op": op}), time.monotonic()
        if op in ("pause", "reset"):
            self._end_steps()
        if op in ("play", "pause", "reset"):
            self.play(op == "play")
        if isinstance(said, Speed):
            self.speed = said.speed
            self.pace()
        elif isinstance(said, Step):
            self.play(False)
            self.goal, self.state_at = min(self.live.step + said.n, self.live.steps), now
            return  # the rest in turns, so that other messages and runs do not wait for it
        elif isinstance(said, Rates):
            self._rates(said)
        elif isinstance(said, Extend):
            self.live.extend(said.steps)
        elif op == "reset":
            self.live.reset()
            self.sent_step, self.replay = -1, None
            self.text(ResetText())
        elif op == "film":
            self._begin_replay(-1, RESTART)
        elif isinstance(said, AskTable):
            self.table = said
            self.say_frames(now)
            return
        self.say_frames(now, force=True)
        self.say_state()

    def _end_steps(self) -> None:
        """Single steps end here; changes that waited behind them hold from here on."""
        waited, self.later, self.goal = self.later, deque(), None
        for op, message in waited:
            if op in ("rates", "extend"):
                self._do_now(op, message)

    def _do_later(self) -> None:
        """What waited for the single steps, until the next ones."""
        while self.later and self.goal is None:
            self._do_now(*self.later.popleft())

    def _do_now(self, op: str, message: dict[str, Any]) -> None:
        try:
            self.do(op, message)
        except InputError as error:
            self.refuse(error)

    def _rates(self, said: Rates) -> None:
        before = list(self.live.marks)
        self.live.change(said.eta_y, said.eta_z)
        self._say_mark(before)

    def _say_mark(self, before: list[dict[str, Any]]) -> None:
        if self.live.marks != before:
            self.text(MarkText(**self.live.marks[-1]))
