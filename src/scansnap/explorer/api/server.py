"""The explorer's server: its application, its page and the files of the page."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

import scansnap
from scansnap.checks.extras import how
from scansnap.explorer.api.connection import Socket
from scansnap.explorer.api.describe import describe
from scansnap.explorer.api.door import Door, is_loopback
from scansnap.explorer.api.errors import REFUSALS, handle_errors
from scansnap.explorer.api.guard import Guard, Names
from scansnap.explorer.api.lectures import give_lectures
from scansnap.explorer.api.questions import answer_questions, as_json
from scansnap.explorer.api.takeaway import export, hand_out
from scansnap.explorer.live.pool import default_workers
from scansnap.explorer.live.switchboard import Switchboard
from scansnap.explorer.messages.told import LensSaid, ProbeFiles, TextModels
from scansnap.explorer.pages import lens, probe
from scansnap.explorer.protocol import LIMITS, Refused


@dataclass(frozen=True)
class WebSettings:
    """Where the server listens and what it may use."""

    host: str = "127.0.0.1"
    port: int = 8765
    folder: Path | None = None  # the only place files are read from, besides the package …
    probe: Path | None = None  # … and this file of a probe, or folder of them
    deck: Path | None = None  # … and this deck of a lecture
    workers: int = field(default_factory=default_workers)
    grace_seconds: float = float(LIMITS["grace_seconds"])
    memory: int | None = None  # bytes of all runs together, if not LIMITS["server_bytes"]
    token: str | None = None  # of the link; None: everybody who reaches the server may use it
    allowed_hosts: tuple[str, ...] = ()  # names that browsers see besides the address, as of a proxy
    root_path: str = ""  # the path a proxy serves it under
    static: Path = Path(__file__).parents[1] / "static"

    @property
    def shared(self) -> bool:
        """Whether others than the person at this machine may come: then the caps of a visitor hold."""
        return not is_loopback(self.host) or bool(self.allowed_hosts or self.root_path or self.token)


def create_app(settings: WebSettings | None = None) -> ASGIApp:
    """The application, guarded."""
    settings = settings or WebSettings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # with many visitors the workers are never idle: answers and pings come before computations
        niceness = 5 if settings.shared else 0
        async with Switchboard(settings.workers, settings.grace_seconds, settings.memory, niceness) as switchboard:
            app.state.switchboard = switchboard
            yield

    app = FastAPI(title="scansnap explorer", version=scansnap.__version__, docs_url=None, redoc_url=None,
                  openapi_url="/api/openapi.json", lifespan=lifespan, redirect_slashes=False)  # fmt: skip
    handle_errors(app)
    describe(app)
    _pages(app, settings)
    answer_questions(app, settings.probe is not None)
    hand_out(app, settings.static)
    give_lectures(app, settings.static, settings.deck)
    _lens(app, settings)
    _probe(app, settings)

    @app.websocket("/ws")
    async def socket(websocket: WebSocket) -> None:
        await Socket(app.state.switchboard, websocket).serve()

    names = Names(settings.host, settings.port, settings.allowed_hosts)
    door = Door(settings.token, settings.shared, settings.port, settings.root_path)
    return Guard(app, names, door, settings.root_path)


def plotly_js() -> Path | None:
    """plotly.min.js of the installed package, without importing it."""
    found = importlib.util.find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(next(iter(found.submodule_search_locations))) / "package_data" / "plotly.min.js"
    return path if path.is_file() else None


def _pages(app: FastAPI, settings: WebSettings) -> None:
    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        page = settings.static / "index.html"
        if not page.is_file():
            raise Refused(404, "request", "The page itself is not installed (static/index.html).")
        return FileResponse(page)

    @app.get("/vendor/plotly.min.js", include_in_schema=False)
    async def plotly() -> Response:
        path = plotly_js()
        if path is None:
            raise Refused(404, "request", f"plotly is not installed ({how('plotly')}).")
        return FileResponse(path, media_type="text/javascript", headers={"cache-control": "max-age=86400"})

    app.mount("/static", StaticFiles(directory=settings.static, check_dir=False), name="static")


def _lens(app: FastAPI, settings: WebSettings) -> None:
    @app.get("/api/lens", response_model=TextModels)
    async def models() -> Response:
        """Trained text models in the folder given at start."""
        return as_json({"models": await asyncio.to_thread(lens.models, settings.folder)})

    @app.get("/api/lens/{name:path}", response_model=LensSaid, responses=REFUSALS)
    async def explain(name: str, query: str = "") -> Response:
        """What a model attends to, and votes for, at a query word."""
        path = await asyncio.to_thread(lens.check, settings.folder, name, query)
        return Response(await app.state.switchboard.lens(path, query), media_type="application/json")


def _probe(app: FastAPI, settings: WebSettings) -> None:
    @app.get("/api/probes", response_model=ProbeFiles)
    async def files() -> Response:
        """Probes' files given at start."""
        return as_json({"files": list(await asyncio.to_thread(probe.files, settings.probe))})

    @app.get("/probe", include_in_schema=False)
    async def report(file: str = "") -> Response:
        make = partial(asyncio.to_thread, probe.html, settings.probe, file)
        made = await export(app.state.switchboard, make, "text/html")
        made.headers["content-security-policy"] = probe.policy()
        return made
