"""Ctrl-C, and SIGTERM as a scheduler sends it: the step under way is finished and kept, then the process ends.

Only signals that raise ``KeyboardInterrupt`` are waited with: one that is ignored, or that somebody else handles, is
left alone. Signals reach the main thread, so elsewhere nothing is changed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM)
_came = signal.SIGINT  # the last of them
_working = False


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended a simulation, a flow or a training.

    It is a ``KeyboardInterrupt``, so a loop over simulations ends, too.

    Parameters
    ----------
    message : str
        How far the work is, and how to continue it.
    partial : object
        The result so far, of the type that the function returns.

    Examples
    --------
    >>> import scansnap as ss
    >>> classes = ss.SequenceClasses.syn_small()
    >>> def press_ctrl_c(done, total):
    ...     raise KeyboardInterrupt
    >>> try:
    ...     data = ss.simulate(classes, eta_y=1.0, eta_z=1.0, steps=10**6, progress=press_ctrl_c)
    ... except ss.Interrupted as interrupted:
    ...     data = interrupted.partial
    >>> data.attrs["stopped"]
    'interrupted'
    """

    def __init__(self, message: str, partial: Any = None) -> None:
        super().__init__(message)
        self.partial = partial


class Interrupt:
    """Inside the block the first Ctrl-C only sets ``asked``, as half an update cannot be continued; a second raises."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if signal.getsignal(number) in (signal.default_int_handler, _end):
                    self._before[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        _remember(number)
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextmanager
def ending_quietly() -> Iterator[None]:
    """For a program: SIGTERM raises KeyboardInterrupt too, and while modules are loaded both end it at once.

    In the middle of an import the exception would be lost in somebody's ``except``, or told at length.
    """
    _remember(signal.SIGINT)
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL, _end):
                before[number] = signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def working() -> Iterator[None]:
    """From here on there is something to keep: an end is told to whoever is at work, also amid an import."""
    global _working
    before, _working = _working, True
    try:
        yield
    finally:
        _working = before


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started in the block hear neither signal: it is for their parent to end them."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def exit_code() -> int:
    """Of a process that was ended: 130 by Ctrl-C, 143 by SIGTERM."""
    return 128 + _came


def _end(number: int, frame: FrameType | None) -> None:
    _remember(number)
    if not _working and _loading(frame):
        os._exit(exit_code())
    raise KeyboardInterrupt


def _remember(number: int) -> None:
    global _came
    _came = signal.Signals(number)


def _loading(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None
