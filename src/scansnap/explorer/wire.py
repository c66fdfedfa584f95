"""Messages between the server and its workers: a JSON header, a line break, and raw bytes. No pickle."""

from __future__ import annotations

import json
from typing import Any

from scansnap.explorer import protocol


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    return protocol.dumps(header).encode() + b"\n" + payload


def decode(message: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, payload = message.partition(b"\n")
    return json.loads(head), payload
