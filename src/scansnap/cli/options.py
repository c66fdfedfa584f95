"""Options that several commands share, and those that come from declared settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.checks import InputError
from scansnap.classes import PRESETS
from scansnap.settings import SettingSpec, parse_numbers

File = Annotated[Path | None, typer.Argument(help="A TOML file with classes, or with [classes] and [run].")]
Preset = Annotated[str | None, typer.Option(help=f"Classes by name: one of {', '.join(PRESETS)}.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A setting of the preset, such as n_queries=3.")]
Data = Annotated[str | None, typer.Option(
    help="A folder with train.txt, valid.txt and test.txt (or folders of these names), a .txt file, stdlib, wikitext-2 "
    "or wikitext-103; several with commas between them. "
    "[default: SCANSNAP_DATA, else stdlib: the docstrings of Python's standard library]"
)]  # fmt: skip
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue what was stopped.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace earlier results.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

_METAVAR = {"integer": "<int>", "float": "<float>"}


def preset_settings(pairs: list[str] | None) -> dict[str, Any]:
    """``--set n_queries=3`` as a dictionary; a list of numbers has commas."""
    found: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError("--set", pair, "name=value, for example n_queries=3")
        values = parse_numbers(name, text)
        found[name] = values if "," in text else values[0]
    return found


def with_settings(command: Callable[..., int], knobs: Mapping[str, SettingSpec]) -> Callable[..., int]:
    """A command whose ``**given`` becomes an option for each setting; it gets those that were given, read."""
    own = inspect.signature(command, eval_str=True)
    derived = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(spec))
               for name, spec in knobs.items()]  # fmt: skip
    before = [one for one in own.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    after = [one for one in own.parameters.values() if one.kind is one.KEYWORD_ONLY]

    def call(**values: Any) -> int:
        given = {name: values.pop(name) for name in knobs}
        read = {name: knobs[name].read(text) if isinstance(text, str) else text for name, text in given.items()
                if text is not None}  # fmt: skip
        return command(**values, **read)

    call.__doc__, call.__name__ = command.__doc__, command.__name__
    call.__signature__ = own.replace(parameters=[*before, *derived, *after])  # type: ignore[attr-defined]
    return call


def _option(spec: SettingSpec) -> Any:
    name = "--" + spec.name.replace("_", "-")
    told = f"{spec.help} [{spec.summary}]"
    if spec.kind == "flag":
        return Annotated[bool | None, typer.Option(f"{name}/--no-{name[2:]}", help=told)]
    metavar = "<numbers>" if spec.per_run else _METAVAR.get(spec.kind, "<str>")
    return Annotated[str | None, typer.Option(name, help=told, metavar=metavar)]
