"""A live run inside a worker process: its clock, and what its socket has not got yet."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from scansnap.checks import InputError, real, whole
from scansnap.web import protocol
from scansnap.web.protocol import LAST, LIMITS, REPLAY, RESTART, TABLE_Y
from scansnap.web.wire import encode

TURN = (0.006, 0.03)  # seconds a run may take before the next one has its turn
CREDIT = 3  # frame messages under way to a socket
_STATE_EVERY = 0.5
_PENDING_BYTES = 2 << 20
_REPLAY_BYTES = 256 << 10  # of one message of a film


class Hosted:
    """A live run, its clock and what its socket has not got yet."""

    def __init__(self, name: str, setup: dict[str, Any], out: Any) -> None:
        from scansnap.web.live import LiveRun
        from scansnap.web.predict import theory
        from scansnap.web.setup import read_setup, summary

        self.name, self.out = name, out
        self.live = LiveRun(read_setup(setup))
        self.about = {"setup": self.live.plan.setup, "classes": summary(self.live.classes),
                      "theory": theory(self.live.plan), "layout": self.live.layout()}  # fmt: skip
        self.playing, self.attached, self.credit = False, False, CREDIT
        self.speed: float | None = None  # steps per second; None: as fast as it goes
        self.seconds_per_step = 1e-3
        self.sent_step = -1  # frames up to here were sent
        self.sent_at = self.state_at = 0.0
        self.every = 1 / LIMITS["frames_per_second"]  # seconds between frames
        self.rate, self._counted = 0.0, (time.monotonic(), 0)
        self._clock = (time.monotonic(), 0)  # when the speed began to count, and from which step

    # --- what to say ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        live = self.live
        if live.failed_step is not None:
            return "failed"
        if live.step >= live.steps:
            return "done"
        return "running" if self.playing else "paused"

    def text(self, message: dict[str, Any]) -> None:
        if self.attached:
            self.out(encode({"run": self.name, "kind": "text"}, protocol.dumps(message).encode()))

    def binary(self, message: bytes) -> None:
        if self.attached:
            self.out(encode({"run": self.name, "kind": "binary"}, message))

    def describe(self) -> dict[str, Any]:
        """The ``run`` message."""
        return {"type": "run", "run": self.name, **self.about, "steps": self.live.steps, "step": self.live.step,
                "state": self.state, "speed": self.speed or "max", "marks": self.live.marks}  # fmt: skip

    def say_state(self) -> None:
        now, live = time.monotonic(), self.live
        since, step = self._counted
        if now - since > 0.2:
            self.rate, self._counted = max(0.0, (live.step - step) / (now - since)), (now, live.step)
        self.state_at = now
        eta_y, eta_z = live.eta
        self.text({"type": "state", "state": self.state, "step": live.step, "steps": live.steps,
                   "speed": self.speed or "max", "rate": round(self.rate, 1), "eta_y": eta_y, "eta_z": eta_z,
                   "failed_step": live.failed_step})  # fmt: skip

    def say_frames(self, now: float, force: bool = False) -> None:
        """What is new, at most 30 times a second, as long as the socket keeps up."""
        due = now - self.sent_at >= self.every
        if not self.attached or self.credit <= 0 or not (due or force):
            return
        self.live.record()
        steps, rows = self.live.film.after(self.sent_step)
        if len(steps) == 0:
            return
        most = max(1, _PENDING_BYTES // (4 * rows.shape[1]))
        steps, rows = steps[:most], rows[:most]  # the rest comes with the next message
        self.sent_step, self.sent_at = int(steps[-1]), now
        self.credit -= 1
        self.binary(protocol.pack_frames(steps, rows))

    def replay(self, since: int, flags: int) -> None:
        """Kept frames later than ``since`` again."""
        steps, rows = self.live.film.after(since)
        each = max(1, _REPLAY_BYTES // (4 * max(1, rows.shape[1])))
        for first in range(0, max(1, len(steps)), each):
            last = LAST if first + each >= len(steps) else 0
            part = slice(first, first + each)
            begin = flags if first == 0 else flags & ~RESTART
            self.binary(protocol.pack_frames(steps[part], rows[part], begin | last | REPLAY))
        if len(steps):
            self.sent_step = max(self.sent_step, int(steps[-1]))

    # --- what to do ----------------------------------------------------------------------------------------------

    def wait(self, now: float) -> float | None:
        """Seconds until there is something to do, None for never."""
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
        while self.playing and not self.live.over and now - began < budget:
            n = max(1, int((budget - (now - began)) / self.seconds_per_step))
            if self.speed is not None:
                since, step = self._clock
                owed = int((now - since) * self.speed) + step - self.live.step
                if owed > self.speed * 0.25 + 1:  # too slow for this speed: do not run up debts
                    self.pace()
                if owed < 1:
                    break
                n = min(n, owed)
            done = self.live.advance(n)
            after = time.monotonic()
            if done:
                self.seconds_per_step += 0.3 * ((after - now) / done - self.seconds_per_step)
            now = after
        if self.playing and self.live.over:
            self.playing = False
            self.say_frames(now, force=True)
            self.say_state()
        else:
            self.say_frames(now)
            if self.playing and now - self.state_at >= _STATE_EVERY:
                self.say_state()

    def pace(self) -> None:
        """Count the speed from here and now."""
        self._clock = (time.monotonic(), self.live.step)

    def play(self, on: bool) -> None:
        self.playing = on and not self.live.over
        self.pace()
        self._counted = (time.monotonic(), self.live.step)

    def do(self, op: str, message: dict[str, Any]) -> None:
        """One operation of the protocol."""
        now = time.monotonic()
        if op in ("play", "pause"):
            self.play(op == "play")
        elif op == "speed":
            self.speed = read_speed(message.get("speed"))
            self.pace()
        elif op == "step":
            n = whole("n", message.get("n", 1), least=1, most=int(LIMITS["single_steps"]))
            self.play(False)
            end = min(self.live.step + n, self.live.steps)
            while self.live.step < end and not self.live.over:
                self.live.advance(end - self.live.step)
        elif op == "rates":
            self._rates(message)
        elif op == "extend":
            self.live.extend(whole("steps", message.get("steps"), least=1, most=int(LIMITS["steps"])))
        elif op == "reset":
            self.play(False)
            self.live.reset()
            self.sent_step = -1
            self.text({"type": "reset"})
        elif op == "film":
            self.live.record()
            self.replay(-1, RESTART)
        elif op == "y":
            size = whole("size", message.get("size", 64), least=1, most=int(LIMITS["table_size"]))
            values = self.live.table_y(size)
            self.binary(protocol.pack_frames(np.array([self.live.step]), values[None], kind=TABLE_Y))
            return
        self.say_frames(now, force=True)
        self.say_state()

    def _rates(self, message: dict[str, Any]) -> None:
        from scansnap.web.controls import BY_NAME

        new = {name: None if message.get(name) is None else float(BY_NAME[name].check(message[name]))
               for name in ("eta_y", "eta_z")}  # fmt: skip
        if all(value is None for value in new.values()):
            raise InputError("eta_y", None, "given, or eta_z")
        before = list(self.live.marks)
        self.live.change(**new)
        if self.live.marks != before:
            self.text({"type": "mark", **self.live.marks[-1]})


def read_speed(value: Any) -> float | None:
    """Steps per second, None for as fast as it goes."""
    if value is None or value == "max":
        return None
    return real("speed", value, above=0, most=LIMITS["speed"])
