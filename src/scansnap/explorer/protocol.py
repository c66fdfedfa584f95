"""What the page and the server say to each other: every address, every message, every number.

Everything is on one origin, http://127.0.0.1:8765 unless told otherwise. JSON has no infinity and no NaN: T = ∞ is
the string "inf", a number that does not exist is null. In binary frames a number that does not exist is NaN.


Errors
======
Every refusal, over HTTP and over the WebSocket, has the same two fields::

    {"field": "eta_y", "message": "eta_y is -1; it must be a finite number at least 0 and at most 10000."}

``field`` is the name of the control to show the message at: a key of the set-up, a setting of a class preset such as
"n_queries", "classes" for everything else about the classes, another key of the request or message ("last", "speed"),
"run" for runs, "request" for what is malformed. HTTP status: 400 not JSON, 403 wrong Host or Origin, 404 no such thing,
405 wrong method, 408 body too slow, 413 body too large, 422 a value that cannot be used, 429 too many at once, 503 a
computation that took too long or whose process died. Never 500.


The set-up
==========
One JSON object describes a run; all keys are optional except ``classes``. Unknown keys are refused. ::

    {"classes": {"preset": "syn-medium", "n_queries": 3},        a preset and its settings (see /api/catalogue), or
     "classes": {"toml": "preset = \"syn-small\""},              the text of a classes file or run file, or
     "classes": {"bars": {"vocab_size": 6, "classes": [          weights per token and class; they need not sum to 1
         {"query": 4, "next_token": 5, "p_class": 1, "tokens": [0, 1], "weights": [1, 0.5]}, …]}},
     "eta_y": 1, "eta_z": 1, "momentum": 0.9, "weight_decay": 0, "seed": 0,
     "steps": 1000, "context": 128 or "inf", "batch_size": 128 or null (needs context "inf"),
     "optimizer": "sgd", "norm": "l2", "residual": "none", "init": "zero" | "uniform" | "normal(0.1)",
     "query_in_keys": false, "outputs": "all", "heads": 1, "position_bias": null or a slope, "sampling": "counts",
     "dtype": "float32"}

``p_class`` and ``weights`` of bars are unnormalised, at least 0; ``p_class`` for all classes or none. The ``classes``
object of a summary (below) gives the bars of any set-up: tokens and p of each class. In a TOML run file the ``[run]``
table gives defaults for the other keys of the set-up (single values only); keys given beside it win.


HTTP
====
GET  /                          index.html
GET  /static/PATH               the page's own files
GET  /vendor/plotly.min.js      from the installed plotly package

GET  /api/catalogue             → {"version", "limits": {…LIMITS}, "controls": [Control], "presets": [Preset],
                                   "class_presets": [ClassPreset], "default": set-up}
     Control: {"name", "label", "symbol", "explain", "kind": "number" | "integer" | "choice" | "flag" | "text",
               "default", "least", "most" (refused outside; null: none), "low", "high" (ends of the slider; null: no
               slider), "log": bool, "options": [..] or null, "words": {"inf": "∞"} (values allowed besides numbers),
               "live": bool (may change in the middle of a run)}
     Preset: {"name", "title", "commentary", "setup"}
     ClassPreset: {"name", "title", "explain", "knobs": [Control]}
GET  /api/tour                  → {"scenes": [{"name", "title", "commentary", "setup", "speed", "watch": [view names],
                                   "overlay": set-up or null (a second run to pin for comparison), "until": steps,
                                   "question", "answer", "try": {changes of the set-up that answer the question}}]}
     views: "attention", "heatmap", "z", "loss", "entropy", "growth", "y", "claims"
GET  /api/health                → {"ok": true, "version", "runs": n, "workers": n, "memory": bytes planned}

POST /api/check    set-up       → {"setup": the set-up with every default filled in, "classes": Classes,
                                   "theory": Theory, "memory": bytes, "frame_floats": n, "engine": "fused" | "general"}
     Classes: {"vocab_size", "n_classes", "queries": [token], "common": [token], "classes": [
                 {"query", "next_token", "p_class", "tokens": [..], "p": [..], "kinds": ["distinct"|"common", ..],
                  "local": ["distinct"|"common", ..] (among the classes of the same query),
                  "dominant": the distinct token that leads at step 0, or null}],
               "words": {"12": "the"} or null (how tokens read)}
     Theory:  {"applies": bool, "why": "" or the reason it does not, "eta_y", "eta_z" (effective: η/(1−μ)), "ratio",
               "t_scan": t₀′, "t_snap": t₀ (both in steps), "c0": C₀, "clock": one sentence on steps and t,
               "assumptions": [{"name", "statement", "value", "threshold", "met", "note"}]}

POST /api/curves   {"setup", "last": steps, "points": 200, "c0": null or a number}
                                → {"t": [..], "growth": [[..] per class], "chi_lower": [[..] per class] (as ln χ),
                                   "chi_upper": [[..] per class] (as ln χ), "gamma": [..], "t_scan", "t_snap", "c0"}
     Closed forms on a grid from 0 to ``last``, dense at the start. **Time**: the theory's t counts batch-size-1 SGD
     steps. One step on the mean gradient of a mini-batch moves as far as one such step, so t = step, whatever the
     batch; momentum μ acts as both rates divided by 1 − μ, and these effective rates are used here. Growth is
     p_n · ¼ ln(1 + 4Γ/C₀). C₀ = ρ₀⁴/K is an estimate in the paper; unless given it is taken from the overlaps of the
     classes at Z = 0: 1/C₀ = mean over n of Σ_{n'≠n} (f_nᵀf_n')².

POST /api/flow     {"setup", "last": steps, "points": 100}
                                → {"t": [..], "loss": [..], "entropy": [[t] per class], "log_chi": [[t] per class],
                                   "growth": [[t] per class], "attention": [[[t] per token] per class],
                                   "z": [[[t] per token] per query], "seconds"}   (tokens in the order of Layout below)
     The T → ∞ flow at the effective rates (from Y = Z = 0, l2 norm, no residual, SGD; otherwise 422). Abort the
     request to cancel it. After LIMITS["flow_seconds"] it ends with 503 and field "flow".

POST /api/toml     set-up       → text/plain: a file for ``scansnap run FILE``
GET  /api/runs/ID               → the ``run`` message (below) of a live run
GET  /api/runs/ID/claims        → {"run", "step", "setting", "claims": [{"name", "reference", "statement", "status":
                                   "holds" | "fails" | "not applicable", "quantity", "measured", "predicted", "margin",
                                   "tolerance", "why", "assumptions": [{"name", "value", "threshold", "met"}],
                                   "curve": {"x_label", "y_label", "x", "measured", "predicted", "log_x", "log_y"}
                                   or null}]}
     Judged on the recorded steps, at most once per LIMITS["claims_seconds"] and run: asked again earlier, or at the
     same step, the last answer comes back. Where the theory does not speak of the run at all (Adam, a residual, …)
     every claim is "not applicable", with the reason in ``why``.
GET  /api/runs/ID/toml          → text/plain: the set-up as TOML; rates changed on the way are comments
GET  /api/runs/ID/csv?frames=100 → text/csv: step,quantity,class,query,token,kind,value
GET  /api/runs/ID/film          → {"run": the ``run`` message, "marks": [Mark], "n": frames, "floats": per frame,
                                   "steps": base64 of uint32[n], "data": base64 of float32[n·floats]}
GET  /api/runs/ID/film.html     → static/film.html with the placeholder ``/*__FILM_DATA__*/`` replaced by the JSON of
                                   /film (``</`` escaped as ``<\\/``); 404 if there is no template

GET  /api/lens                  → {"models": [{"name", "title"}]}: trained text models in the folder given at start
GET  /api/lens/NAME?query=WORD  → {"query", "entropy", "uniform_entropy", "exact", "attended": [{"word", "attention",
                                   "z", "count", "votes": [{"word", "vote"}]}], "votes": [{"word", "vote"}],
                                   "entropy_over_training": [{"step", "entropy"}]}
     ``votes`` at the top are next words with their probability; those of an attended word are entries of its row of
     Y. Without a context, ``count`` is per thousand words of text, and words are ranked by z. ``entropy_over_training``
     is empty where the training did not measure it.


The WebSocket /ws
=================
One socket carries one run. The client speaks JSON texts with a key ``op``; the server answers JSON texts with a key
``type`` and binary frames. At most LIMITS["message_bytes"] per message and LIMITS["messages_per_second"]: beyond, the
socket closes with code 1009 or 1008, and with 1007 for a text that is not UTF-8. Only a start is longer than 4096
characters. A refused message is answered by an ``error`` and changes nothing.

Client → server::

    {"op": "start", "setup": {…}, "speed": 100 or "max", "play": true}   makes a run; one that the socket had is closed
                                                        (not if the set-up is refused)
    {"op": "attach", "run": ID, "since": step or -1}    takes up a run after a dropped connection; the frames after
                                                        ``since`` follow (flag REPLAY, at the end LAST), then what is
                                                        new. A socket that had the run is told "closed"
    {"op": "play"}   {"op": "pause"}                    at the last step "play" changes nothing: extend first
    {"op": "step", "n": 1}                              pauses and advances by n ≤ LIMITS["single_steps"]; while that
                                                        takes time the state is "running", a pause or reset ends it,
                                                        and step, rates, extend and play wait their turn behind it
    {"op": "speed", "speed": 100 or "max"}              steps per second
    {"op": "rates", "eta_y": 2, "eta_z": 1}             either or both; from the current step on
    {"op": "extend", "steps": 5000}                     a new last step
    {"op": "reset"}                                     back to step 0 with the first rates, paused
    {"op": "film"}                                      all kept frames again (flags REPLAY, RESTART, LAST)
    {"op": "y", "size": 64}                             the table Y now, at most size×size (larger: means over blocks);
                                                        of several that a slow socket waits for, the last is answered
    {"op": "ping", "id": any}
    {"op": "close"}                                     ends the run at once

Server → client::

    {"type": "run", "run": ID, "setup", "classes": Classes, "theory": Theory, "layout": Layout, "steps", "step",
     "state", "speed", "marks": [Mark]}                 first answer to start and attach
    {"type": "state", "state": "running" | "paused" | "done" | "failed", "step", "steps", "speed",
     "rate": steps per second measured, "eta_y", "eta_z", "failed_step": step or null}
                                                        after every change, and about twice a second while running
    {"type": "mark", "step", "eta_y", "eta_z"}          rates changed at this step (Mark = {"step", "eta_y", "eta_z"})
    {"type": "reset"}                                   forget all frames; step 0 follows
    {"type": "pong", "id"}
    {"type": "error", "field", "message"}
    {"type": "closed", "reason"}                        the run is over (closed, or its process died)

    Layout: {"floats": values per frame, "fields": [{"name", "offset", "size"}], "tokens": [[token ids] per class]
             (the order within "attention"; like Classes.tokens, plus the query where the model looks at it),
             "query_tokens": [[token ids] per query] (the order within "z"), "queries": [token],
             "class_query": [index into queries, per class]}

Binary, all little-endian::

    0    uint32   kind: FRAMES = 1, TABLE_Y = 2
    4    uint32   n     number of frames (TABLE_Y: 1)
    8    uint32   floats per frame
    12   uint32   flags: REPLAY = 1 (from the film, not new), RESTART = 2 (forget what you have first), LAST = 4 (end of
                  a replay)
    16   uint32[n]          steps
    …    float32[n·floats]  values

A frame of FRAMES holds, at the offsets of Layout.fields:

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
    "batch_size": 4096,
    "context": 1_000_000,
    "steps": 10_000_000,
    "heads": 16,
    "frame_floats": 20_000,  # 80 kB a frame
    "run_bytes": 192 << 20,  # tables, optimiser buffers and data of one run
    "server_bytes": 1536 << 20,  # of all runs together
    "step_products": 400_000_000,  # samples × (tokens × outputs + heads × tokens): about a quarter of a second
    "film_bytes": 8 << 20,
    "runs": 32,
    "sockets": 64,
    "connections": 256,  # of all kinds
    "request_heads": 64,  # connections whose request has not come yet; beyond, the oldest is cut
    "head_seconds": 10.0,  # for the head of a request
    "body_seconds": 30.0,  # for its body
    "stall_seconds": 30.0,  # in which the reader of an answer takes nothing
    "unsent_bytes": 8 << 20,  # waiting for a socket that does not read
    "body_bytes": 1 << 20,
    "message_bytes": 1 << 20,
    "messages_per_second": 100,
    "frames_per_second": 30,
    "single_steps": 10_000,
    "speed": 1_000_000,  # steps per second, where it is a number
    "grace_seconds": 20.0,
    "flow_seconds": 20.0,
    "claims_seconds": 1.0,
    "claims_limit_seconds": 20.0,
    "lens_seconds": 60.0,
    "answer_seconds": 60.0,  # for a worker process to answer about a run
    "margin_seconds": 10.0,  # for a computation to notice that its time is over; then its process is ended
    "points": 1000,
    "table_size": 256,  # rows and columns of Y
    "csv_frames": 1000,
    "jobs": 8,  # flows and claims waiting at once
    "exports": 8,  # films and tables of numbers on their way to a reader
}

FRAMES, TABLE_Y = 1, 2
REPLAY, RESTART, LAST = 1, 2, 4
FILM_PLACEHOLDER = "/*__FILM_DATA__*/"
FIELDS = ("loss", "entropy", "growth", "log_chi", "attention", "z")
OPS = ("start", "attach", "play", "pause", "step", "speed", "rates", "extend", "reset", "film", "y", "ping", "close")

_HEADER = struct.Struct("<4I")


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
