"""Ctrl-C and SIGTERM: the current step is finished and saved, then the process ends.

Only signals that raise ``KeyboardInterrupt`` are delayed; one that is ignored or handled elsewhere is left alone.
Signals reach the main thread, so nothing changes in other threads.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_last_signal = signal.SIGINT
_raises_during_imports = False


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


class DelayedInterrupt:
    """In the block the first Ctrl-C only sets ``requested``, so that an update is completed; a second one raises."""

    def __init__(self) -> None:
        self.requested = False
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> DelayedInterrupt:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) in (signal.default_int_handler, _raise_interrupt):
                    self._handlers[number] = signal.signal(number, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        _record_signal(number)
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)


@contextmanager
def handle_sigterm() -> Iterator[None]:
    """For a program: SIGTERM raises KeyboardInterrupt, too, and during imports both signals end the process at once.

    An exception during an import could be caught by the imported module, or be printed as a traceback.
    """
    _record_signal(signal.SIGINT)
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL, _raise_interrupt):
                handlers[number] = signal.signal(number, _raise_interrupt)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def raise_during_imports() -> Iterator[None]:
    """In the block there is work to save: signals raise KeyboardInterrupt during imports, too."""
    global _raises_during_imports
    before, _raises_during_imports = _raises_during_imports, True
    try:
        yield
    finally:
        _raises_during_imports = before


@contextmanager
def block_signals_in_children() -> Iterator[None]:
    """Processes started in the block receive neither signal; their parent ends them."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def signal_exit_code() -> int:
    """Exit code of a process that a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + _last_signal


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    _record_signal(number)
    if not _raises_during_imports and _is_importing(frame):
        os._exit(signal_exit_code())
    raise KeyboardInterrupt


def _record_signal(number: int) -> None:
    global _last_signal
    _last_signal = signal.Signals(number)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None
