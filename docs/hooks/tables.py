"""Tables of settings, commands, file keys and variables, made from their declarations whenever the site is built.

A page asks for one by ``<!-- table: NAME -->``. docs/settings.md is there for readers of the repository; here it is
made anew, so that it cannot be out of date.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer

from scansnap import measure
from scansnap.claims.registry import statements
from scansnap.classes import PRESETS
from scansnap.cli import reference
from scansnap.cli.app import commands
from scansnap.dial.components import COMPONENTS
from scansnap.dynamics.settings import run_settings
from scansnap.probe.schema import VARIABLES as PROBED
from scansnap.results.variables import FLOWING, SIMULATED, VARIABLES
from scansnap.runs import run_fields
from scansnap.sweep import measures

MARK = re.compile(r"^<!-- table: ([\w ]+) -->$", re.M)
NOTE = re.compile(r"\s*\[([^\[\]]*)\]$")  # what stands in brackets behind an option's help: range, default


def rows(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in body)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def command_line() -> str:
    """Every command with its help, examples and options."""
    return "\n".join(_command(name, command) for name, command in leaves(typer.main.get_command(commands())))


def leaves(group: Any, prefix: str = "scansnap") -> Iterator[tuple[str, Any]]:
    """Every command of the app by its full name; groups are looked into."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _command(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    records = [one.get_help_record(context) for one in command.params]
    examples = (command.epilog or "").removeprefix("Example: ").replace("; scansnap ", "\nscansnap ")
    table = rows(("option", "what it does", "allowed and default"), map(_option, filter(None, records)))
    return f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n\n```sh\n{examples}\n```\n\n{table}"


def _option(record: tuple[str, str]) -> tuple[str, str, str]:
    option, says = record
    notes = []
    while found := NOTE.search(says):
        notes.insert(0, found[1])
        says = says[: found.start()]
    return f"`{option.replace(' <', '` `<', 1)}`", says, "; ".join(notes)


def run_file() -> str:
    """Keys of ``[run]``: those of the runs, which may be lists, and those of the simulation."""
    return reference.table((run_fields() | run_settings()).values())


def presets() -> str:
    return rows(
        ("preset", "what it is", "its keys"),
        ((f"`{name}`", _first(make), ", ".join(f"`{key}`" for key in _keys(make)))
         for name, make in PRESETS.items()),
    )  # fmt: skip


def _keys(make: Any) -> list[str]:
    return list(reference.settings_of(make))


def _first(thing: Any) -> str:
    """The first line of what it says of itself."""
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", (inspect.getdoc(thing) or "").split("\n")[0])


def measure_file() -> str:
    """Keys of ``[measure]`` in a sweep: functions, and the options each takes."""
    return rows(
        ("key", "what is measured", "options"),
        ((f"`{name}`", _first(getattr(measure, name)),
          ", ".join(f"`{one}`" for one in inspect.signature(getattr(measure, name)).parameters
                    if one not in measures._OURS))
         for name in measures._TAKES),
    )  # fmt: skip


def trajectory() -> str:
    made = {"`simulate`": SIMULATED, "`flow`": FLOWING}
    return rows(
        ("variable", "dimensions after run and step (or t)", "what it is", "made by"),
        ((f"`{name}`", ", ".join(one.dims) or "none", ": ".join(filter(None, (one.long_name, one.description))),
          ", ".join(maker for maker, names in made.items() if name in names)) for name, one in VARIABLES.items()),
    )  # fmt: skip


def probe() -> str:
    return rows(
        ("variable", "dimensions after step", "what it is"),
        ((f"`{name}`", ", ".join(one.dims) or "none", one.meaning) for name, one in PROBED.items()),
    )


def claims() -> str:
    return rows(
        ("claim", "where it stands", "what it says", "kind"),
        ((f"`{one.name}`", one.reference, one.text, one.kind) for one in statements()),
    )


def components() -> str:
    return rows(("component", "what it changes"), ((f"`{one.name}`", one.title) for one in COMPONENTS.values()))


TABLES: dict[str, Callable[[], str]] = {
    "commands": command_line, "run file": run_file, "presets": presets, "measure file": measure_file,
    "trajectory": trajectory, "probe": probe, "claims": claims, "components": components,
}  # fmt: skip


def on_page_markdown(markdown: str, *, page: Any, **rest: Any) -> str:
    if page.file.src_uri == "settings.md":
        return reference.reference()
    return MARK.sub(lambda found: TABLES[found[1]](), markdown)
