"""The API describes itself: OpenAPI from the models, and a page of it that needs no script and nothing from outside."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import HTMLResponse, Response

from scansnap.explorer import protocol
from scansnap.explorer.messages import socket
from scansnap.explorer.messages.http import CurvesAsked, FlowAsked, WordsAsked
from scansnap.explorer.messages.setups import Setup

_REF = "#/components/schemas/"


def body(model: type[BaseModel]) -> dict[str, Any]:
    """The description of a request's body, which the route reads itself: within its limits of size and time."""
    schema = {"$ref": _REF + model.__name__}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def describe(app: FastAPI) -> None:
    """Adds what FastAPI cannot see, bodies and WebSocket messages, and serves the page at /docs."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            words = re.sub(r'LIMITS\["(\w+)"\]', lambda m: f"{protocol.LIMITS[m[1]]:.12g}", protocol.__doc__ or "")
            made = get_openapi(title=app.title, version=app.version, description=words, routes=app.routes)
            more: tuple[type[BaseModel], ...] = (Setup, CurvesAsked, FlowAsked, WordsAsked, *socket.ASKED, *socket.SAID)
            _, found = models_json_schema([(model, "validation") for model in more], ref_template=_REF + "{model}")
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            made["components"]["schemas"] = dict(sorted({**found["$defs"], **schemas}.items()))
            names = {"asked": socket.ASKED, "said": socket.SAID}
            made["x-websocket"] = {"path": "/ws"} | {
                side: [{"$ref": _REF + model.__name__} for model in models] for side, models in names.items()
            }
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    async def short() -> Response:
        return Response(protocol.dumps(app.openapi()), media_type="application/json")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page(app.openapi()))


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --muted: #777; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h2 { margin-top: 2.5rem; } h3 { margin: 1.6rem 0 .2rem; font-size: 1rem; } p { margin: .2rem 0; }
pre { white-space: pre-wrap; font-size: 13px; } code { font-size: 13px; } .muted { color: var(--muted); }
table { border-collapse: collapse; width: 100%; } td { border-top: 1px solid var(--line); padding: .2rem .6rem .2rem 0;
vertical-align: top; } td:first-child { width: 11rem; } td:nth-child(2) { width: 17rem; }
"""


def page(openapi: dict[str, Any]) -> str:
    """The description as one plain page."""
    info, schemas = openapi["info"], openapi["components"]["schemas"]
    parts = [f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
             '<p>As a program reads it: <a href="openapi.json">openapi.json</a></p>',
             f"<pre>{_words(info['description'])}</pre><h2>HTTP</h2>"]  # fmt: skip
    for path, operations in openapi["paths"].items():
        parts += [_operation(method, path, said) for method, said in operations.items()]
    sides = (("asked", "The WebSocket /ws: client to server"), ("said", "The WebSocket /ws: server to client"))
    shown: set[str] = set()
    for side, title in sides:
        names = [ref["$ref"].removeprefix(_REF) for ref in openapi["x-websocket"][side]]
        parts += [f"<h2>{title}</h2>", *(_model(name, schemas[name]) for name in names)]
        shown |= set(names)
    parts += ["<h2>Models</h2>", *(_model(name, schema) for name, schema in schemas.items() if name not in shown)]
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])}</title>'
    head += '<link rel="icon" href="static/icon.svg">'
    return f"{head}<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>"


def _operation(method: str, path: str, said: dict[str, Any]) -> str:
    content = said["responses"].get("200", {}).get("content", {})
    answers = [f"{kind}: {_kind(found.get('schema', {}))}" for kind, found in content.items()]
    taken = said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    rows = [_row(p["name"], p["schema"], p.get("description", ""), p.get("required", False))
            for p in said.get("parameters", [])]  # fmt: skip
    rows += [f"<tr><td>body</td><td>{_kind(taken)}</td><td></td></tr>"] if taken else []
    rows += [f"<tr><td>answer</td><td>{answer}</td><td></td></tr>" for answer in answers]
    title = f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
    return f"{title}<p>{_words(said.get('description', ''))}</p><table>{''.join(rows)}</table>"


def _model(name: str, schema: dict[str, Any]) -> str:
    must = schema.get("required", [])
    rows = [_row(key, of, of.get("description", ""), key in must) for key, of in schema.get("properties", {}).items()]
    words = _words(schema.get("description", ""))
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{words}</p><table>{"".join(rows)}</table>'


def _row(name: str, schema: dict[str, Any], words: str, required: bool) -> str:
    default = "" if required or "default" not in schema else f" = {protocol.dumps(schema['default'])}"
    return f"<tr><td><code>{escape(name + default)}</code></td><td>{_kind(schema)}</td><td>{_words(words)}</td></tr>"


def _words(text: str) -> str:
    """A docstring's text: what stands in double backticks is code."""
    return re.sub(r"``(.+?)``", r"<code>\1</code>", escape(text))


def _kind(schema: dict[str, Any]) -> str:
    """The type of a value and its range, in a few words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REF))
        return f'<a href="#{name}">{name}</a>'
    for joined in ("anyOf", "oneOf"):
        if joined in schema:
            return " or ".join(_kind(option) for option in schema[joined])
    if "const" in schema:
        return f"<code>{escape(protocol.dumps(schema['const']))}</code>"
    if "enum" in schema:
        return " or ".join(f"<code>{escape(protocol.dumps(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    signs = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
    bounds = [f"{sign} {schema[key]:.12g}" for key, sign in signs if key in schema]
    words = schema.get("type", "anything")
    return " ".join([" or ".join(words) if isinstance(words, list) else words, *bounds])
