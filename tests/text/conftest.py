"""What the tests of both text models share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scansnap.dynamics.optimizers import RULES, Rule, register_optimizer


@pytest.fixture
def halves() -> Iterator[str]:
    """A rule of a user, with a moment of its own: half of the last direction and half of this one."""

    def move(table, d, moments, at):
        return table + at.eta * (d + moments["last"]) / 2, {"last": d}

    register_optimizer("halves", Rule(move, ("last",)))
    yield "halves"
    del RULES["halves"]
