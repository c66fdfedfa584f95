"""What the tests of both text models share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scansnap.dynamics.optimizers import RULES, Rule, register_optimizer


@pytest.fixture
def halves() -> Iterator[str]:
    """A rule of a user, with a moment of its own: half of the last direction and half of this one."""

    def update(table, d, moments, context):
        table.add_(context.eta * (d + moments["last"]) / 2)
        moments["last"].copy_(d)

    register_optimizer("halves", Rule(update, ("last",)))
    yield "halves"
    del RULES["halves"]
