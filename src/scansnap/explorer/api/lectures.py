"""Lectures over HTTP: the decks there are, and the page of a lecture without its data."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response

from scansnap.explorer.api.errors import REFUSALS
from scansnap.explorer.api.questions import as_json
from scansnap.explorer.messages.decks import Decks
from scansnap.explorer.pages import lecture
from scansnap.explorer.protocol import Refused


def give_lectures(app: FastAPI, static: Path, own: Path | None) -> None:
    @app.get("/api/decks", response_model=Decks, responses=REFUSALS)
    async def decks() -> Response:
        """Lectures with their set-ups filled in; the deck given at start is read anew, so that it can be edited."""
        found = await asyncio.to_thread(lecture.decks, own)
        return as_json({"decks": [lecture.told(deck) for deck in found]})

    @app.get("/api/lecture.html", response_class=HTMLResponse, responses=REFUSALS)
    async def page() -> Response:
        """What gives a lecture without a server; a deck with its films takes the place of its placeholder."""
        try:
            return HTMLResponse(await asyncio.to_thread(lecture.template, static))
        except FileNotFoundError:
            raise Refused(404, "request", "There is no template for lectures (static/lecture.html).") from None
