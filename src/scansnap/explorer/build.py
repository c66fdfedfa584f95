"""Builds the explorer: one HTML file with the page, its engine, and Python's declarations as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scansnap.explorer.bundle import bundle
from scansnap.explorer.declared import declared
from scansnap.explorer.lecture import SHIPPED_DECKS, load_deck
from scansnap.explorer.limits import LIMITS
from scansnap.explorer.page import STATIC, document
from scansnap.explorer.shipped import CHANGES, COMMANDS, TEXTBOOK, load
from scansnap.explorer.tour import SCENES

FILM = "__FILM__"  # the place of the data in the page of a film


def explorer_html(
    decks: Sequence[dict[str, Any]] = (), *, lecture: bool = False, lab: dict[str, bool] | None = None
) -> str:
    """The explorer as one HTML file.

    ``decks`` come before the shipped ones; with ``lecture`` the file opens with the first deck. ``lab`` names the
    extras of the server behind the page; a file has none.
    """
    data = {
        "catalogue": catalogue(decks, lecture=lecture, lab=lab),
        "verdicts": load(),
        "film": document("film.html", {"film": FILM}),
        "engine": bundle(STATIC / "js", "engine/worker"),
    }
    return document("index.html", data, connect=lab is not None)


def catalogue(
    decks: Sequence[dict[str, Any]] = (), *, lecture: bool = False, lab: dict[str, bool] | None = None
) -> dict[str, Any]:
    """Settings, presets, scenes, decks and limits: the data of the page."""
    return declared() | {
        "limits": LIMITS, "scenes": SCENES, "lecture": lecture, "lab": lab,
        "decks": [*decks, *(load_deck(name) for name in SHIPPED_DECKS)],
        "applies": {"textbook": TEXTBOOK, "changes": CHANGES, "commands": COMMANDS},
    }  # fmt: skip
