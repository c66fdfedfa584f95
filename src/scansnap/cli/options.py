"""Options that several commands share, options derived from declared settings, and checks of output paths."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.checks import InputError
from scansnap.classes import PRESETS, SequenceClasses
from scansnap.settings import SettingSpec, parse_numbers
from scansnap.storage import check_writable, is_stream

File = Annotated[Path | None, typer.Argument(help="A TOML file with classes, or with [classes] and [run].")]
Preset = Annotated[str | None, typer.Option(help=f"A preset of classes: {', '.join(PRESETS)}.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the preset, such as n_queries=3. Repeat for more.")
]
Data = Annotated[str | None, typer.Option(
    help="The text: a folder with train.txt, valid.txt and test.txt (or folders of these names), a .txt file, stdlib, "
    "wikitext-2 or wikitext-103; separate several with commas. "
    "[default: SCANSNAP_DATA, else stdlib: the docstrings of Python's standard library]"
)]  # fmt: skip
Device = Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an unfinished run.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing results.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def numbered_output(help_text: str, first: str) -> Any:
    """``--out`` of a command that numbers its output; see `default_output`."""
    path = Path(first)
    second = path.with_name(f"{path.stem}-2{path.suffix}")
    return typer.Option("--out", help=f"{help_text} [default: {path}; if that exists {second}, and so on]")


DEFAULT_PRESET = "syn-small"
PICTURES = (".png", ".pdf", ".svg")
REPLACE, RESUME_OR_REPLACE = "--overwrite to replace it", "--resume to continue or --overwrite to replace it"
_METAVAR = {"integer": "<int>", "float": "<float>"}


def preset_settings(pairs: list[str] | None) -> dict[str, Any]:
    """``--set n_queries=3`` as a dictionary; commas separate the numbers of a list."""
    settings: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError("--set", pair, "name=value, for example n_queries=3")
        values = parse_numbers(name, text)
        settings[name] = values if "," in text else values[0]
    return settings


def find_classes(path: Path | None, preset: str | None, settings: dict[str, Any]) -> SequenceClasses:
    """The classes of a TOML file, or of a preset (syn-small by default)."""
    if path is None:
        return SequenceClasses.preset(preset or DEFAULT_PRESET, **settings)
    if preset is not None or settings:
        raise InputError("FILE", str(path), "no value when --preset or --set is given")
    return SequenceClasses.from_toml(path)


def with_settings(command: Callable[..., int], specs: Mapping[str, SettingSpec]) -> Callable[..., int]:
    """The command with an option for each setting; ``**overrides`` receives the parsed values of the typed ones."""
    own = inspect.signature(command, eval_str=True)
    derived = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(spec))
               for name, spec in specs.items()]  # fmt: skip
    parameters = list(own.parameters.values())
    before = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    after = [p for p in parameters if p.kind is p.KEYWORD_ONLY]

    def call(**values: Any) -> int:
        texts = {name: values.pop(name) for name in specs}
        read = {name: specs[name].read(text) if isinstance(text, str) else text for name, text in texts.items()
                if text is not None}  # fmt: skip
        return command(**values, **read)

    call.__doc__, call.__name__ = command.__doc__, command.__name__
    call.__signature__ = own.replace(parameters=[*before, *derived, *after])  # type: ignore[attr-defined]
    return call


def _option(spec: SettingSpec) -> Any:
    name = "--" + spec.name.replace("_", "-")
    help_text = f"{spec.help} [{spec.summary}]"
    if spec.kind == "flag":
        return Annotated[bool | None, typer.Option(f"{name}/--no-{name[2:]}", help=help_text)]
    metavar = "<numbers>" if spec.per_run else _METAVAR.get(spec.kind, "<str>")
    return Annotated[str | None, typer.Option(name, help=help_text, metavar=metavar)]


def check_output(option: str, path: Path, *endings: str, stream: bool = False) -> None:
    """Refuse a path with another ending, or that cannot be written. A name ending in .zarr is a folder.

    ``stream`` allows a device or a pipe.
    """
    if endings and path.suffix not in endings:
        raise InputError(option, str(path), f"a name ending in {' or '.join(endings)}")
    if not is_stream(path):
        check_writable(option, path, folder=path.suffix == ".zarr" and ".zarr" in endings)
    elif not stream:
        raise InputError(option, str(path), "the name of a file, not a device or a pipe")


def refuse_existing(option: str, path: Path, overwrite: bool, remedy: str = REPLACE) -> None:
    """Refuse to replace a file. Commands call it after they have read everything that the user typed."""
    if not overwrite and os.path.lexists(path) and not is_stream(path):
        raise InputError.conflict(option, f"{path} exists; pass {remedy}", str(path))


def default_output(first: Path, *beside: str, resume: bool = False, overwrite: bool = False) -> Path:
    """The first free path of out/run.zarr, out/run-2.zarr, …; the last existing one to resume, the first to overwrite.

    ``beside`` are endings of further files of the same name, such as ``.png``.
    """
    last = first
    for n in count(1):
        path = first if n == 1 else first.with_name(f"{first.stem}-{n}{first.suffix}")
        files = (path, path.with_name(f"{path.name}.partial"), *(path.with_suffix(ending) for ending in beside))
        if overwrite or not any(map(os.path.lexists, files)):
            return last if resume and not overwrite else path
        last = path
    raise AssertionError("unreachable")
