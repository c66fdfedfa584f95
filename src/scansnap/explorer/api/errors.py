"""Refusals over HTTP: every mistake is one sentence that names its field, whoever noticed it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from scansnap.checks import InputError
from scansnap.explorer import protocol
from scansnap.explorer.messages.http import Refusal
from scansnap.explorer.protocol import Refused
from scansnap.explorer.setups.read import field_of

_WORDS = {400: "This is not JSON.", 403: "Another site or page.", 404: "There is no such thing.",
          408: "The body came too slowly.", 413: "The body is too large.", 422: "A value cannot be used.",
          429: "Too many at once.", 503: "It took too long, or its process died."}  # fmt: skip
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": words} for status, words in _WORDS.items()
}


def refusal(status: int, field: str, message: str) -> Response:
    body = protocol.dumps(Refusal(field=field, message=message).model_dump())
    return Response(body, status, media_type="application/json")


def handle_errors(app: FastAPI) -> None:
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
        first = error.errors()[0]  # of a query parameter; bodies are read by ourselves
        name, given = str(first["loc"][-1]), first.get("input")
        return refusal(422, name, str(InputError(name, given, "a whole number")))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = refusal(error.status_code, "request", f"{error.detail}.")
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response
