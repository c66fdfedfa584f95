"""Ctrl-C that waits for the step under way: half an update cannot be continued."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupt:
    """Inside the block the first Ctrl-C only sets ``asked``; a second one raises as usual.

    Signals reach the main thread alone, so elsewhere nothing is changed.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: signal.Handlers | object = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]
