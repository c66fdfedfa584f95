"""The explorer as one file: the page, its engine, and everything that is declared in Python, as JSON.

A setting is declared once, in Python; the page gets the declarations as data when the file is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scansnap.explorer import applies, verdicts
from scansnap.explorer.bundle import bundle
from scansnap.explorer.declared import declared
from scansnap.explorer.lecture import SHIPPED, find
from scansnap.explorer.limits import LIMITS
from scansnap.explorer.page import STATIC, document
from scansnap.explorer.tour import SCENES

FILM = "__FILM__"  # in the page of a film, where its data goes


def explorer_html(
    decks: Sequence[dict[str, Any]] = (), *, lecture: bool = False, lab: dict[str, bool] | None = None
) -> str:
    """The whole explorer as one HTML file that needs nothing else.

    ``decks`` are offered before the shipped ones; with ``lecture`` the file opens with the first of them. ``lab`` says
    which extras the server behind the page has; a file has none.
    """
    data = {
        "catalogue": catalogue(decks, lecture=lecture, lab=lab),
        "verdicts": verdicts.load(),
        "film": document("film.html", {"film": FILM}),
        "engine": bundle(STATIC / "js", "engine/worker"),
    }
    return document("index.html", data, connect=lab is not None)


def catalogue(
    decks: Sequence[dict[str, Any]] = (), *, lecture: bool = False, lab: dict[str, bool] | None = None
) -> dict[str, Any]:
    """Everything there is to set, to start from and to show."""
    return declared() | {
        "limits": LIMITS, "scenes": SCENES, "decks": [*decks, *(find(name) for name in SHIPPED)], "lecture": lecture,
        "lab": lab,
        "applies": {"textbook": applies.TEXTBOOK, "changes": applies.CHANGES, "commands": applies.COMMANDS},
    }  # fmt: skip
