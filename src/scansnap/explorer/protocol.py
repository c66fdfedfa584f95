"""What holds for everything the page and the server say to each other: limits, refusals, JSON, binary frames.

The messages themselves are the models of ``scansnap.explorer.messages``; the server shows them all at /docs.
Everything is on one origin, http://127.0.0.1:8765 unless told otherwise. JSON has no infinity and no NaN: T = ∞ is
the string "inf", a number that does not exist is null. In binary frames a number that does not exist is NaN.

Refusals, over HTTP and over the WebSocket, have the same two fields::

    {"field": "eta_y", "message": "eta_y is -1; it must be a finite number at least 0 and at most 10000."}

``field`` is the name of the control to show the message at: a key of the set-up, a setting of a class preset such as
"n_queries", "classes" for everything else about the classes, another key of the request or message ("last", "speed"),
"run" for runs, "request" for what is malformed. HTTP status: 400 not JSON, 401 without the token of the link, 403 wrong
Host or Origin, 404 no such thing, 405 wrong method, 408 body too slow, 413 body too large, 422 a value that cannot be
used, 429 too many at once, 503 a computation that took too long or whose process died. Never 500.

The WebSocket /ws carries one run. The client speaks JSON texts with a key ``op``; the server answers JSON texts with a
key ``type`` and binary frames. At most LIMITS["message_bytes"] per message and LIMITS["messages_per_second"]
of a visitor: beyond, the socket closes with code 1009 or 1008, and with 1007 for a text that is not UTF-8. A start
counts as ten and waits for them where several visitors share the server. Only a start is longer than 4096 characters.
A refused message is answered by an ``error`` and changes nothing.

Binary messages, all little-endian::

    0    uint32   kind: FRAMES = 1, TABLE_Y = 2
    4    uint32   n     number of frames (TABLE_Y: 1)
    8    uint32   floats per frame
    12   uint32   flags: REPLAY = 1 (from the film, not new), RESTART = 2 (forget what you have first), LAST = 4 (end of
                  a replay)
    16   uint32[n]          steps
    …    float32[n·floats]  values

A frame of FRAMES holds, at the offsets of the layout's fields::

    loss       1          −log α_n of the classes themselves, weighted by p_n
    entropy    K          of attention over the class's distinct tokens, renormalised, nats
    growth     K          B_n measured: ∫ d(Σ_l z_l)/Σ_l f_l² over the class's distinct tokens l (Theorem 3); NaN where
                          the model is not the theory's (norm, residual, heads) or the class has no distinct token
    log_chi    K          ln χ = 2(z(t) − z(0)) of the class's dominant distinct token; NaN if there is none
    attention  ΣS_n       c_n on the tokens of each class, class after class
    z          Σ          z of each query on its tokens, query after query (mean over heads)

The frame of TABLE_Y: rows, columns, then the row tokens, then the column tokens (output token; −1 for "every token
that is never next", which share a column from Y = 0), then rows × columns values of Y, row by row. Where blocks were
averaged, the token is the first of the block.

Frames come at fixed steps (every step to 50, then every 2%) and besides up to LIMITS["frames_per_second"] times a
second (fewer where many runs share a process); a message holds all that is new. A socket that reads slowly gets fewer
messages: at most three binary ones, replays included, are under way to it, and the next leaves when one of them has
been taken. One for which LIMITS["unsent_bytes"] wait all the same is closed with 1008. A run keeps what it sent as its
film, thinned evenly in log step when it outgrows LIMITS["film_bytes"]; frame 0 and the last one always stay. A run
without a socket goes on for LIMITS["grace_seconds"], then it is closed.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np

LIMITS: dict[str, int | float] = {
    "classes": 64,
    "tokens": 20_000,  # vocabulary
    "text_characters": 20_000,  # of a text to count classes in
    "address_characters": 8000,  # of a link to share; mail and chat programs cut longer ones
    "batch_size": 4096,
    "context": 1_000_000,
    "steps": 10_000_000,
    "heads": 16,
    "frame_floats": 20_000,  # 80 kB a frame
    "run_bytes": 192 << 20,  # tables, optimiser buffers and data of one run
    "server_bytes": 1536 << 20,  # of all runs together
    "step_products": 400_000_000,  # samples × (tokens × outputs + heads × tokens): about a quarter of a second
    "film_bytes": 8 << 20,
    "runs": 256,
    "sockets": 256,
    "connections": 700,  # of all kinds
    "request_heads": 400,  # connections whose request has not come yet; beyond, the oldest is cut
    "head_seconds": 10.0,  # for the head of a request
    "body_seconds": 30.0,  # for its body
    "stall_seconds": 30.0,  # in which the reader of an answer takes nothing
    "unsent_bytes": 8 << 20,  # waiting for a socket that does not read
    "all_unsent_bytes": 256 << 20,  # for all sockets: with many each has less
    "body_bytes": 1 << 20,
    "message_bytes": 1 << 20,
    "messages_per_second": 100,
    "frames_per_second": 30,
    "single_steps": 10_000,
    "marks": 100,  # changes of the rates that a run is started with
    "speed": 1_000_000,  # steps per second, where it is a number
    "grace_seconds": 20.0,
    "flow_seconds": 20.0,
    "map_seconds": 8.0,  # then a map of the rates is told as far as it is
    "map_bytes": 256 << 20,  # of its 81 runs
    "claims_seconds": 1.0,
    "claims_limit_seconds": 20.0,
    "lens_seconds": 60.0,
    "answer_seconds": 60.0,  # for a worker process to answer about a run
    "margin_seconds": 10.0,  # for a computation to notice that its time is over; then its process is ended
    "points": 1000,
    "table_size": 256,  # rows and columns of Y
    "csv_frames": 1000,
    "jobs": 128,  # flows and claims waiting at once
    "exports": 8,  # films and tables of numbers on their way to a reader
    # of one visitor, where the server has several
    "visitor_runs": 6,
    "visitor_bytes": 256 << 20,  # of its runs together
    "visitor_sockets": 12,
    "visitor_requests": 24,
    "visitor_jobs": 3,
    "visitor_exports": 2,
}

FRAMES, TABLE_Y = 1, 2
REPLAY, RESTART, LAST = 1, 2, 4
FIELDS = ("loss", "entropy", "growth", "log_chi", "attention", "z")

_HEADER = struct.Struct("<4I")


class Refused(Exception):
    """A request that cannot be served: HTTP status and the two fields of every error."""

    def __init__(self, status: int, field: str, message: str) -> None:
        super().__init__(message)
        self.status, self.field, self.message = status, field, message


def pack_frames(steps: np.ndarray, values: np.ndarray, flags: int = 0, kind: int = FRAMES) -> bytes:
    """A binary message from steps (n,) and values (n, floats)."""
    n, floats = values.shape
    head = _HEADER.pack(kind, n, floats, flags)
    return head + steps.astype("<u4").tobytes() + np.ascontiguousarray(values, dtype="<f4").tobytes()


def unpack_frames(message: bytes) -> tuple[int, int, np.ndarray, np.ndarray]:
    """Kind, flags, steps (n,), values (n, floats) of a binary message."""
    kind, n, floats, flags = _HEADER.unpack_from(message)
    steps = np.frombuffer(message, "<u4", n, _HEADER.size)
    values = np.frombuffer(message, "<f4", n * floats, _HEADER.size + 4 * n).reshape(n, floats)
    return kind, flags, steps, values


def plain(value: Any) -> Any:
    """Ready for JSON: NumPy numbers as Python's, ∞ as the word, NaN as null."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def dumps(value: Any) -> str:
    """Strict JSON."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))  # ASCII: half a surrogate pair passes


def in_page(value: Any) -> str:
    """Strict JSON inside of an HTML page: nothing in it may look like an element, or like the end of its own."""
    return dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """A message between the server and its workers: a JSON header, a line break, and raw bytes. No pickle."""
    return dumps(header).encode() + b"\n" + payload


def decode(message: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, payload = message.partition(b"\n")
    return json.loads(head), payload
