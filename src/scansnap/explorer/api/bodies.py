"""Reading requests: size, JSON without NaN, and nothing that makes a parser dizzy."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from scansnap.explorer.protocol import LIMITS, Refused


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str | bytes) -> Any:
    """JSON as the standard has it, or a refusal."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError, UnicodeDecodeError) as error:
        raise Refused(400, "request", f"This is not JSON: {str(error)[:100]}.") from None


async def read_json(request: Request) -> dict[str, Any]:
    """The body as an object, within its limits of size and time."""
    too_large = Refused(413, "request", f"The request is larger than {LIMITS['body_bytes']} bytes.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > LIMITS["body_bytes"]:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(LIMITS["body_seconds"]):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LIMITS["body_bytes"]:
                    raise too_large
    except TimeoutError:
        raise Refused(408, "request", f"The request took longer than {LIMITS['body_seconds']:g} seconds.") from None
    except ClientDisconnect:
        raise Refused(400, "request", "The connection ended before the request did.") from None
    value = parse_json(bytes(body))
    if not isinstance(value, dict):
        raise Refused(422, "request", "The request must be a JSON object.")
    return value
