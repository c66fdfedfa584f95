"""Questions about set-ups: what there is to set, what a set-up means, what theory says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import scansnap
from scansnap.explorer import protocol
from scansnap.explorer.api.bodies import read_json
from scansnap.explorer.api.describe import body
from scansnap.explorer.api.errors import REFUSALS
from scansnap.explorer.controls import CONTROLS, class_presets
from scansnap.explorer.live.maps import Maps
from scansnap.explorer.live.switchboard import Switchboard, read_blueprint
from scansnap.explorer.messages.fields import read
from scansnap.explorer.messages.http import (
    Catalogue,
    CheckSaid,
    CurvesAsked,
    CurvesSaid,
    FlowAsked,
    FlowSaid,
    Health,
    MapSaid,
    Tour,
    WordsAsked,
    WordsSaid,
)
from scansnap.explorer.messages.setups import Setup
from scansnap.explorer.pages import predict
from scansnap.explorer.pages.tour import SCENES
from scansnap.explorer.protocol import LIMITS, Refused
from scansnap.explorer.setups.blueprint import Blueprint
from scansnap.explorer.setups.presets import DEFAULT, PRESETS
from scansnap.explorer.setups.read import summary, to_toml


def as_json(value: Any) -> Response:
    return Response(protocol.dumps(value), media_type="application/json")


async def blueprint_of(given: Any) -> Blueprint:
    return await asyncio.to_thread(read_blueprint, given)


def answer_questions(app: FastAPI, probe: bool) -> None:
    @app.get("/api/catalogue", response_model=Catalogue)
    async def catalogue() -> Response:
        """Every control, preset and limit; the page is built from it."""
        return as_json({"version": scansnap.__version__, "limits": LIMITS, "controls": [c.to_dict() for c in CONTROLS],
                        "presets": PRESETS, "class_presets": class_presets(), "default": DEFAULT,
                        "probe": probe})  # fmt: skip

    @app.get("/api/tour", response_model=Tour)
    async def tour() -> Response:
        """The scenes of the guided tour."""
        return as_json({"scenes": SCENES})

    @app.get("/api/health", response_model=Health)
    async def health() -> Response:
        """Whether the server is well, and what it carries."""
        switchboard: Switchboard = app.state.switchboard
        return as_json({"ok": True, "version": scansnap.__version__, "runs": len(switchboard.runs),
                        "workers": len(switchboard.pool.handles), "memory": switchboard.memory})  # fmt: skip

    @app.post("/api/check", response_model=CheckSaid, responses=REFUSALS, openapi_extra=body(Setup))
    async def check(request: Request) -> Response:
        """What a set-up means: every default filled in, its classes, what theory says of it, what it needs."""
        blueprint = await blueprint_of(await read_json(request))

        def answer() -> str:
            return protocol.dumps({
                "setup": blueprint.setup, "classes": summary(blueprint.classes), "theory": predict.theory(blueprint),
                "memory": blueprint.memory, "frame_floats": blueprint.frame_floats,
                "engine": predict.engine_of(blueprint), "note": blueprint.note,
            })  # fmt: skip

        return Response(await asyncio.to_thread(answer), media_type="application/json")

    @app.post("/api/words", response_model=WordsSaid, responses=REFUSALS, openapi_extra=body(WordsAsked))
    async def words(request: Request) -> Response:
        """What a text gives to make classes of."""
        from scansnap.explorer.setups.words import offer

        asked = read(WordsAsked, await read_json(request), "the request")
        return as_json(await asyncio.to_thread(offer, asked.text, asked.pairs))

    @app.post("/api/curves", response_model=CurvesSaid, responses=REFUSALS, openapi_extra=body(CurvesAsked))
    async def curves(request: Request) -> Response:
        """The closed forms for a set-up."""
        asked = read(CurvesAsked, await read_json(request), "the request")
        blueprint = await blueprint_of(asked.setup)
        return as_json(await asyncio.to_thread(predict.curves, blueprint, asked.last, asked.points, asked.c0))

    @app.post("/api/flow", response_model=FlowSaid, responses=REFUSALS, openapi_extra=body(FlowAsked))
    async def flow(request: Request) -> Response:
        """The T → ∞ flow or the linear response for a set-up. It may take seconds; closing the request cancels it."""
        asked = read(FlowAsked, await read_json(request), "the request")
        blueprint = await blueprint_of(asked.setup)
        predict.check_flow(blueprint)
        result = await unless_gone(request, app.state.switchboard.flow(blueprint, asked.last, asked.points, asked.by))
        return Response(result, media_type="application/json")

    maps = Maps()

    @app.post("/api/map", response_model=MapSaid, responses=REFUSALS, openapi_extra=body(Setup))
    async def rate_map(request: Request) -> Response:
        """Where attention ends up over 9 × 9 rates of a set-up; its own rates do not count. It may take seconds;
        closing the request cancels it."""
        blueprint = await blueprint_of(await read_json(request))
        result = await unless_gone(request, maps.get(app.state.switchboard, blueprint))
        return Response(result, media_type="application/json")

    @app.post("/api/toml", response_class=PlainTextResponse, responses=REFUSALS, openapi_extra=body(Setup))
    async def toml(request: Request) -> Response:
        """A file for ``scansnap run FILE``."""
        return PlainTextResponse(to_toml(await blueprint_of(await read_json(request))))


async def unless_gone(request: Request, work: Awaitable[bytes]) -> bytes:
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
