"""Progress callbacks: ``progress(done, total)`` is called whenever a part of the work is done.

Work that was partly done before reports that first, so that pace and time left are of what is done now.
"""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
PARTS = 1000  # of work that is a continuous quantity, such as time


def share(progress: Progress | None, i: int, of: int, pieces: int = 1) -> Progress | None:
    """The progress of ``pieces`` of several equal pieces of work, from the i-th on, as part of the whole."""
    if progress is None:
        return None
    return lambda done, total: progress(i * total + pieces * done, of * total)


def report_share(progress: Progress | None, share: float) -> None:
    """Report the share done, from 0 to 1, in ``PARTS``."""
    if progress is not None:
        progress(round(PARTS * share), PARTS)
