"""How work tells how far it is: a function that is called with what is done and what there is to do."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]


def share(progress: Progress | None, i: int, of: int) -> Progress | None:
    """The progress of the i-th of several equal pieces of work as part of the whole."""
    if progress is None:
        return None
    return lambda done, total: progress(i * total + done, of * total)
