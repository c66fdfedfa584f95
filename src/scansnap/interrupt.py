"""Ctrl-C, and SIGTERM as a scheduler sends it: the step under way is finished and kept, then the process ends.

Only signals that raise ``KeyboardInterrupt`` are waited with: one that is ignored, or that somebody else handles, is
left alone. Signals reach the main thread, so elsewhere nothing is changed.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM)
_came = signal.SIGINT  # the last of them
_working = False


class Stopped(UserWarning):
    """The result is a part of what was asked for, or whoever called it has more to do and was asked to stop."""


class Interrupted(KeyboardInterrupt):
    """What :func:`warn_stopped` raises where :class:`Stopped` is an error: no ``except Exception`` catches it."""

    def __init__(self, message: str, partial: Any = None) -> None:
        super().__init__(message)
        self.partial = partial


def warn_stopped(message: str, partial: Any = None, *, stacklevel: int = 1) -> None:
    """Warn with :class:`Stopped`, or raise :class:`Interrupted` with the partial result where that is an error."""
    try:
        warnings.warn(message, Stopped, stacklevel=stacklevel + 1)
    except Stopped:
        raise Interrupted(message, partial) from None


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
