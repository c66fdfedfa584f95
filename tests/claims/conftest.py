"""Puts this folder on the path, so that the tests below find ``flows``, and what the tests of Theorem 4 share."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.claims.theorems import theorem4
from scansnap.classes import SequenceClasses


@pytest.fixture(scope="session")
def _known() -> dict[tuple[object, ...], np.ndarray]:
    return {}


@pytest.fixture
def each_run_once(_known: dict[tuple[object, ...], np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """B_n(t₀) of the same classes and theorem4 is asked for again and again."""
    made = theorem4.growth_at_snap

    def remembered(classes: SequenceClasses, **settings: object) -> np.ndarray:
        key = (repr(classes.p_context.tobytes()), *settings.items())
        if key not in _known:
            _known[key] = made(classes, **settings)
        return _known[key]

    monkeypatch.setattr(theorem4, "growth_at_snap", remembered)
