"""Help of settings in the reference (an extension of Griffe).

A field that is declared with ``setting(…)`` has its help there. The class's page shows it among the parameters.
"""

from __future__ import annotations

import importlib
from typing import Any

import griffe

from scansnap.settings import EMPTY, specs_by_field

HEADER = "Parameters\n----------\n"


class SettingsHelp(griffe.Extension):
    """Run on each class before Griffe builds the ``__init__`` of dataclasses."""

    def on_class_members(self, *, cls: griffe.Class, **rest: Any) -> None:
        """Add the help of each setting to the parameters of ``cls``, and show defaults instead of declarations."""
        declared = {name: field for name, field in cls.attributes.items() if str(field.value).startswith("setting(")}
        if not declared or cls.docstring is None:
            return
        specs = specs_by_field(getattr(importlib.import_module(cls.module.path), cls.name))
        for name, field in declared.items():
            field.value = None if specs[name].default is EMPTY else repr(specs[name].default)
        allowed = {name: spec.summary.partition("; default: ")[0] for name, spec in specs.items()}
        entries = (f"{name}\n    {spec.help} Allowed: {allowed[name]}.\n" for name, spec in specs.items())
        cls.docstring.value = with_parameters(cls.docstring.value, "".join(entries))


def with_parameters(text: str, entries: str) -> str:
    """Add entries at the top of the section Parameters, which is before the examples."""
    if HEADER in text:
        return text.replace(HEADER, HEADER + entries, 1)
    body, heading, examples = text.partition("\n\nExamples\n")
    return f"{body}\n\n{HEADER}{entries}{heading.removeprefix(chr(10))}{examples}"
