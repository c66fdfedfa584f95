"""A run to take away: what it is, its verdicts, and its files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from scansnap.checks import whole
from scansnap.explorer import protocol
from scansnap.explorer.api.errors import REFUSALS
from scansnap.explorer.api.questions import as_json, blueprint_of
from scansnap.explorer.live.switchboard import Switchboard
from scansnap.explorer.live.visitors import current
from scansnap.explorer.messages.socket import RunText
from scansnap.explorer.messages.told import ClaimsSaid, FilmSaid
from scansnap.explorer.pages import export as files
from scansnap.explorer.protocol import LIMITS, Refused
from scansnap.explorer.setups.read import to_toml

_PART = 1 << 16


class Export(StreamingResponse):
    """A file made for its reader, counted until it is read: sent in parts, each when the one before was taken."""

    def __init__(
        self, switchboard: Switchboard, content: str | Iterable[str], media_type: str, filename: str = ""
    ) -> None:
        parts = _parts(content) if isinstance(content, str) else content
        headers = {"content-disposition": f'attachment; filename="{filename}"'} if filename else None
        super().__init__(parts, media_type=media_type, headers=headers)
        self.switchboard, self.visitor = switchboard, current()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.switchboard.n_exports -= 1
            self.visitor.open["exports"] -= 1


def _parts(text: str) -> Iterator[str]:
    for first in range(0, len(text), _PART):
        yield text[first : first + _PART]


async def export(
    switchboard: Switchboard, make: Callable[[], Awaitable[str | Iterable[str]]], media_type: str, filename: str = ""
) -> Response:
    """The file that ``make`` makes, unless too many are on their way."""
    if switchboard.n_exports >= LIMITS["exports"]:
        raise Refused(429, "run", "Too many files are on their way; try again in a moment.")
    current().take("exports")
    switchboard.n_exports += 1
    try:
        return Export(switchboard, await make(), media_type, filename)
    except BaseException:
        switchboard.n_exports -= 1
        current().open["exports"] -= 1
        raise


_RANGE = {"minimum": 1, "maximum": int(LIMITS["csv_frames"])}
Frames = Annotated[int, Query(description="Of more steps, so many evenly in log step.", json_schema_extra=_RANGE)]

_STEPS = {"minimum": 0, "maximum": int(LIMITS["steps"])}
Moment = Annotated[int | None, Query(description="Judged up to here, or to the newest.", json_schema_extra=_STEPS)]


def hand_out(app: FastAPI, static: Path) -> None:
    def switchboard() -> Switchboard:
        return app.state.switchboard

    @app.get("/api/runs/{run}", response_model=RunText, responses=REFUSALS)
    async def about(run: str) -> Response:
        """The ``run`` message of a live run."""
        head, _ = await switchboard().get(switchboard().find(run), "about")
        return as_json(head["about"])

    @app.get("/api/runs/{run}/claims", response_model=ClaimsSaid, responses=REFUSALS)
    async def claims(run: str, step: Moment = None) -> Response:
        """Every verdict on the run so far, or as it was at a step. Asked the same again at once, the last answer comes
        back."""
        if step is not None:
            step = whole("step", step, least=0, most=int(LIMITS["steps"]))
        return Response(await switchboard().claims(switchboard().find(run), step), media_type="application/json")

    @app.get("/api/runs/{run}/toml", response_class=PlainTextResponse, responses=REFUSALS)
    async def toml(run: str) -> Response:
        """The set-up as TOML; rates changed on the way are comments."""
        entry = switchboard().find(run)
        head, _ = await switchboard().get(entry, "about")
        notes = [f"from step {m['step']} on: eta_y = {m['eta_y']!r}, eta_z = {m['eta_z']!r} (changed on the page, not "
                 "part of this file)" for m in head["about"]["marks"]]  # fmt: skip
        blueprint = await blueprint_of({**entry.blueprint.setup, "steps": head["about"]["steps"]})
        return PlainTextResponse(to_toml(blueprint, notes))

    @app.get("/api/runs/{run}/csv", response_class=PlainTextResponse, responses=REFUSALS)
    async def csv(run: str, frames: Frames = 100) -> Response:
        """Tidy data: step,quantity,class,query,token,kind,value."""
        frames = whole("frames", frames, least=1, most=int(LIMITS["csv_frames"]))

        async def make() -> Iterable[str]:
            head, payload = await switchboard().get(switchboard().find(run), "film")
            return files.csv_lines(head, payload, frames)

        return await export(switchboard(), make, "text/csv; charset=utf-8", "scansnap.csv")

    @app.get("/api/runs/{run}/film", response_model=FilmSaid, responses=REFUSALS)
    async def film(run: str) -> Response:
        """All kept frames."""

        async def make() -> str:
            head, payload = await switchboard().get(switchboard().find(run), "film")
            return await asyncio.to_thread(lambda: protocol.dumps(files.film(head, payload)))

        return await export(switchboard(), make, "application/json")

    @app.get("/api/runs/{run}/film.html", response_class=HTMLResponse, responses=REFUSALS)
    async def film_html(run: str) -> Response:
        """One file that plays the film without a server."""
        entry = switchboard().find(run)
        if not (static / "film.html").is_file():
            raise Refused(404, "request", "There is no template for films (static/film.html).")

        async def make() -> str:
            head, payload = await switchboard().get(entry, "film")
            return await asyncio.to_thread(files.film_html, static, files.film(head, payload))

        return await export(switchboard(), make, "text/html; charset=utf-8", "scansnap-film.html")
