"""How work tells how far it is: a function that is called with what is done and what there is to do."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
