"""The messages as TypeScript types for the page's checks: ``python tests/explorer/page_types.py`` writes them anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import scansnap
from scansnap.explorer.messages import decks, fields, http, setups, socket, told

FILE = Path(scansnap.__file__).parent / "explorer" / "static" / "js" / "messages.d.ts"
_OPEN = ("Setup", "ClassesByPreset")  # their keys are in the catalogue, and a page holds values not yet accepted
_PLAIN = {"number": "number", "integer": "number", "string": "string", "boolean": "boolean", "null": "null"}


def types() -> str:
    """The text of the file."""
    models = {
        found
        for module in (setups, socket, http, told, decks)
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, BaseModel)
        and found not in (fields.Asked, fields.Said, decks.Table)
    }
    _, made = models_json_schema([(model, "validation") for model in models], ref_template="{model}")
    said = {model.__name__ for model in models if issubclass(model, fields.Said)}
    lines = [
        "// What the page and the server say to each other. Made from the server's models by page_types.py; not edited."
    ]
    for name, schema in sorted(made["$defs"].items()):
        lines += ["", f"/** {' '.join(schema.get('description', '').split())} */", f"export interface {name} {{"]
        must = schema.get("required", [])
        for key, of in () if name in _OPEN else schema["properties"].items():
            words = f"  // {' '.join(of['description'].split())}" if "description" in of else ""
            given = key in must or name in said  # what the server says has all its keys
            lines.append(f"  {key}{'' if given else '?'}: {_type(of)};{words}")
        if name in _OPEN or schema.get("additionalProperties") is True:
            lines.append("  [key: string]: any;")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"])
    for joined in ("anyOf", "oneOf"):
        if joined in schema:
            return " | ".join(dict.fromkeys(_type(option) for option in schema[joined]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        inner = _type(schema.get("items", {}))
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if kind == "object":
        of = schema.get("additionalProperties")
        return f"Record<string, {_type(of) if isinstance(of, dict) else 'any'}>"
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_PLAIN[k] for k in kind))
    return _PLAIN.get(str(kind), "any")


if __name__ == "__main__":
    FILE.write_text(types(), encoding="utf-8")
