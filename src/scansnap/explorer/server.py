"""The explorer's server: addresses, errors and files. What it says is written down in protocol.py."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

import scansnap
from scansnap.checks import InputError, known_keys, whole
from scansnap.explorer import export as files
from scansnap.explorer import lens, predict, protocol
from scansnap.explorer.connection import Socket
from scansnap.explorer.controls import CONTROLS, class_presets
from scansnap.explorer.guard import Guard
from scansnap.explorer.hub import Hub, Refused, read_plan
from scansnap.explorer.pool import default_workers
from scansnap.explorer.presets import DEFAULT, PRESETS
from scansnap.explorer.protocol import LIMITS
from scansnap.explorer.reading import read_json
from scansnap.explorer.setup import Plan, field_of, summary, to_toml
from scansnap.explorer.tour import SCENES


@dataclass(frozen=True)
class WebSettings:
    """Where the server listens and what it may use."""

    host: str = "127.0.0.1"
    port: int = 8765
    folder: Path | None = None  # the only place files are read from, besides the package
    workers: int = field(default_factory=default_workers)
    grace_seconds: float = float(LIMITS["grace_seconds"])
    static: Path = Path(__file__).parent / "static"


def create_app(settings: WebSettings | None = None) -> ASGIApp:
    """The application, guarded."""
    settings = settings or WebSettings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Hub(settings.workers, settings.grace_seconds) as hub:
            app.state.hub = hub
            yield

    app = FastAPI(title="scansnap explorer", version=scansnap.__version__, docs_url=None, redoc_url=None,
                  openapi_url="/api/openapi.json", lifespan=lifespan, redirect_slashes=False)  # fmt: skip
    _errors(app)
    _pages(app, settings)
    _about_setups(app)
    _about_runs(app, settings)
    _lens(app, settings)

    @app.websocket("/ws")
    async def socket(websocket: WebSocket) -> None:
        await Socket(app.state.hub, websocket).serve()

    return Guard(app, settings.host, settings.port)


# --- errors ------------------------------------------------------------------------------------------------------


def refusal(status: int, field: str, message: str) -> Response:
    body = protocol.dumps({"field": field, "message": message})
    return Response(body, status, media_type="application/json")


def _errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return refusal(error.status, error.field, error.message)

    @app.exception_handler(InputError)
    async def bad_input(_: Request, error: Exception) -> Response:
        assert isinstance(error, InputError)
        return refusal(422, field_of(error), str(error))

    @app.exception_handler(RequestValidationError)
    async def bad_parameter(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        return refusal(422, str(first["loc"][-1]), f"{first['loc'][-1]}: {first['msg']}.")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = refusal(error.status_code, "request", f"{error.detail}.")
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response


_ERROR = {"description": "Refused", "content": {"application/json": {"schema": {
    "type": "object", "required": ["field", "message"],
    "properties": {"field": {"type": "string"}, "message": {"type": "string"}}}}}}  # fmt: skip
REFUSALS: dict[int | str, dict[str, Any]] = dict.fromkeys((400, 403, 404, 408, 413, 422, 429, 503), _ERROR)


# --- pages -------------------------------------------------------------------------------------------------------


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
            raise Refused(404, "request", "plotly is not installed; install scansnap with its extra: scansnap[web].")
        return FileResponse(path, media_type="text/javascript", headers={"cache-control": "max-age=86400"})

    app.mount("/static", StaticFiles(directory=settings.static, check_dir=False), name="static")


# --- set-ups -----------------------------------------------------------------------------------------------------

_CLASSES = {"oneOf": [
    {"type": "object", "required": ["preset"], "properties": {
        "preset": {"enum": [row["name"] for row in class_presets()]},
        **{k["name"]: {"type": ["integer", "number"]} for row in class_presets() for k in row["knobs"]}}},
    {"type": "object", "required": ["toml"], "properties": {"toml": {"type": "string"}}},
    {"type": "object", "required": ["bars"], "properties": {"bars": {
        "type": "object", "required": ["vocab_size", "classes"], "properties": {
            "vocab_size": {"type": "integer"}, "classes": {"type": "array", "items": {
                "type": "object", "properties": {
                    "query": {"type": "integer"}, "next_token": {"type": "integer"}, "p_class": {"type": "number"},
                    "tokens": {"type": "array", "items": {"type": "integer"}},
                    "weights": {"type": "array", "items": {"type": "number"}}}}}}}}},
]}  # fmt: skip
SETUP_SCHEMA = {"type": "object", "required": ["classes"],
                "properties": {"classes": _CLASSES, **{c.name: c.schema() for c in CONTROLS}}}  # fmt: skip


def _body(**more: dict[str, Any]) -> dict[str, Any]:
    """The description of a request: a set-up, or an object that holds one and ``more``."""
    schema = SETUP_SCHEMA
    if more:
        schema = {"type": "object", "required": ["setup", "last"], "properties": {"setup": SETUP_SCHEMA, **more}}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


_LAST, _POINTS = {"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 2}


async def _plan(given: Any) -> Plan:
    return await asyncio.to_thread(read_plan, given)


def _json(value: Any) -> Response:
    return Response(protocol.dumps(value), media_type="application/json")


def _about_setups(app: FastAPI) -> None:
    @app.get("/api/catalogue")
    async def catalogue() -> Response:
        return _json({"version": scansnap.__version__, "limits": LIMITS, "controls": [c.to_dict() for c in CONTROLS],
                      "presets": PRESETS, "class_presets": class_presets(), "default": DEFAULT})  # fmt: skip

    @app.get("/api/tour")
    async def tour() -> Response:
        return _json({"scenes": SCENES})

    @app.get("/api/health")
    async def health() -> Response:
        hub: Hub = app.state.hub
        return _json({"ok": True, "version": scansnap.__version__, "runs": len(hub.runs),
                      "workers": len(hub.pool.handles), "memory": hub.memory})  # fmt: skip

    @app.post("/api/check", responses=REFUSALS, openapi_extra=_body())
    async def check(request: Request) -> Response:
        plan = await _plan(await read_json(request))

        def answer() -> str:
            return protocol.dumps({
                "setup": plan.setup, "classes": summary(plan.classes), "theory": predict.theory(plan),
                "memory": plan.memory, "frame_floats": plan.frame_floats, "engine": predict.engine_of(plan),
            })  # fmt: skip

        return Response(await asyncio.to_thread(answer), media_type="application/json")

    @app.post("/api/curves", responses=REFUSALS,
              openapi_extra=_body(last=_LAST, points=_POINTS, c0={"type": ["number", "null"]}))  # fmt: skip
    async def curves(request: Request) -> Response:
        given = await read_json(request)
        known_keys("the request", given, ("setup", "last", "points", "c0"))
        plan = await _plan(given.get("setup"))
        numbers = await asyncio.to_thread(
            predict.curves, plan, given.get("last"), given.get("points", 200), given.get("c0")
        )
        return _json(numbers)

    @app.post("/api/flow", responses=REFUSALS, openapi_extra=_body(last=_LAST, points=_POINTS))
    async def flow(request: Request) -> Response:
        given = await read_json(request)
        known_keys("the request", given, ("setup", "last", "points"))
        plan = await _plan(given.get("setup"))
        last, points = predict.check_flow(plan, given.get("last"), given.get("points", 100))
        result = await _unless_gone(request, app.state.hub.flow(plan, last, points))
        return Response(result, media_type="application/json")

    @app.post("/api/toml", responses=REFUSALS, openapi_extra=_body())
    async def toml(request: Request) -> Response:
        plan = await _plan(await read_json(request))
        return PlainTextResponse(to_toml(plan))


async def _unless_gone(request: Request, work: Awaitable[bytes]) -> bytes:
    """The result, or a cancellation of the work when the client has gone away meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=0.2))[0]:
            if await request.is_disconnected():
                raise Refused(400, "request", "The client went away.")
        return task.result()
    except asyncio.CancelledError:  # the server stops while it is being computed
        raise Refused(503, "request", "The server is stopping.") from None
    finally:
        task.cancel()


# --- runs --------------------------------------------------------------------------------------------------------


_PART = 1 << 16


class Export(StreamingResponse):
    """A file made for its reader, counted until it is read: sent in parts, each when the one before was taken."""

    def __init__(self, hub: Hub, content: str | Iterable[str], media_type: str, filename: str = "") -> None:
        parts = _parts(content) if isinstance(content, str) else content
        headers = {"content-disposition": f'attachment; filename="{filename}"'} if filename else None
        super().__init__(parts, media_type=media_type, headers=headers)
        self.hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.hub.n_exports -= 1


def _parts(text: str) -> Iterator[str]:
    for first in range(0, len(text), _PART):
        yield text[first : first + _PART]


async def export(
    hub: Hub, make: Callable[[], Awaitable[str | Iterable[str]]], media_type: str, filename: str = ""
) -> Response:
    """The file that ``make`` makes, unless too many are on their way."""
    if hub.n_exports >= LIMITS["exports"]:
        raise Refused(429, "run", "Too many files are on their way; try again in a moment.")
    hub.n_exports += 1
    try:
        return Export(hub, await make(), media_type, filename)
    except BaseException:
        hub.n_exports -= 1
        raise


def _about_runs(app: FastAPI, settings: WebSettings) -> None:
    def hub() -> Hub:
        return app.state.hub

    @app.get("/api/runs/{run}", responses=REFUSALS)
    async def about(run: str) -> Response:
        head, _ = await hub().get(hub().find(run), "about")
        return _json(head["about"])

    @app.get("/api/runs/{run}/claims", responses=REFUSALS)
    async def claims(run: str) -> Response:
        return Response(await hub().claims(hub().find(run)), media_type="application/json")

    @app.get("/api/runs/{run}/toml", responses=REFUSALS)
    async def toml(run: str) -> Response:
        entry = hub().find(run)
        head, _ = await hub().get(entry, "about")
        notes = [f"from step {m['step']} on: eta_y = {m['eta_y']!r}, eta_z = {m['eta_z']!r} (changed on the page, not "
                 "part of this file)" for m in head["about"]["marks"]]  # fmt: skip
        plan = await _plan({**entry.plan.setup, "steps": head["about"]["steps"]})
        return PlainTextResponse(to_toml(plan, notes))

    @app.get("/api/runs/{run}/csv", responses=REFUSALS)
    async def csv(run: str, frames: int = 100) -> Response:
        frames = whole("frames", frames, least=1, most=int(LIMITS["csv_frames"]))

        async def make() -> Iterable[str]:
            head, payload = await hub().get(hub().find(run), "film")
            return files.csv_lines(head, payload, frames)

        return await export(hub(), make, "text/csv; charset=utf-8", "scansnap.csv")

    @app.get("/api/runs/{run}/film", responses=REFUSALS)
    async def film(run: str) -> Response:
        async def make() -> str:
            head, payload = await hub().get(hub().find(run), "film")
            return await asyncio.to_thread(lambda: protocol.dumps(files.film(head, payload)))

        return await export(hub(), make, "application/json")

    @app.get("/api/runs/{run}/film.html", responses=REFUSALS)
    async def film_html(run: str) -> Response:
        entry = hub().find(run)
        template = settings.static / "film.html"
        if not template.is_file():
            raise Refused(404, "request", "There is no template for films (static/film.html).")

        async def make() -> str:
            head, payload = await hub().get(entry, "film")
            text = template.read_text(encoding="utf-8")
            return await asyncio.to_thread(lambda: files.film_html(text, files.film(head, payload)))

        return await export(hub(), make, "text/html; charset=utf-8", "scansnap-film.html")


def _lens(app: FastAPI, settings: WebSettings) -> None:
    @app.get("/api/lens")
    async def models() -> Response:
        return _json({"models": await asyncio.to_thread(lens.models, settings.folder)})

    @app.get("/api/lens/{name:path}", responses=REFUSALS)
    async def explain(name: str, query: str = "") -> Response:
        path = await asyncio.to_thread(lens.check, settings.folder, name, query)
        return Response(await app.state.hub.lens(path, query), media_type="application/json")
