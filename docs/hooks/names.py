"""Every public name has a docstring and a place in the reference: what lacks either fails the build.

Public is what ``scansnap.__all__`` names, what its rooms export in turn, and the methods and properties of the
classes.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

DOCS = Path(__file__).parents[1]
ENTRY = re.compile(r"^::: *([\w.]+)\n((?:    .*\n)*)", re.M)
log = logging.getLogger("mkdocs.hooks.names")


def exported(room: ModuleType) -> list[str]:
    """What a room exports: its ``__all__``, or what it imports for users on first use."""
    found = getattr(room, "__all__", None)
    if found is None:
        text = Path(str(room.__file__)).read_text(encoding="utf-8")
        found = re.findall(r"^    from scansnap[\w.]* import (\w+) as \1$", text, re.M)
    return [name for name in found if not name.startswith("__")]


def public() -> dict[str, Any]:
    """What there is, by the name users write."""
    import scansnap

    found: dict[str, Any] = {}
    for name in exported(scansnap):
        one = found[f"scansnap.{name}"] = getattr(scansnap, name)
        if isinstance(one, ModuleType):
            found |= {f"scansnap.{name}.{inner}": getattr(one, inner) for inner in exported(one)}
    return found


def undocumented(names: Mapping[str, Any]) -> list[str]:
    """Names, and methods and properties of classes, that say nothing of themselves."""
    found = [name for name, one in names.items() if not _says(name, one)]
    for name, one in names.items():
        if inspect.isclass(one):
            found += [f"{name}.{method}" for method, what in _methods(one) if not inspect.getdoc(what)]
    return found


def _says(name: str, one: Any) -> bool:
    if callable(one) or isinstance(one, ModuleType):
        written = inspect.getdoc(one) or ""
        made = inspect.isclass(one) and written.startswith(f"{one.__name__}(")  # by dataclasses, of the fields
        return bool(written) and not made
    return name.rpartition(".")[2] in _described_values()


def _described_values() -> set[str]:
    """Constants with a text below them, which ``inspect`` does not see."""
    import scansnap

    found = set()
    for name, home in scansnap._HOME.items():
        text = Path(str(importlib.import_module(home).__file__)).read_text(encoding="utf-8")
        if re.search(rf'^{name}(?:: .*)? = .*\n"""', text, re.M):
            found.add(name)
    return found


def _methods(one: type) -> Iterator[tuple[str, Any]]:
    for name, what in vars(one).items():
        plain = what.fget if isinstance(what, property) else getattr(what, "func", getattr(what, "__func__", what))
        if not name.startswith("_") and inspect.isfunction(plain):
            yield name, plain


def referenced(docs: Path = DOCS) -> set[str]:
    """The names that the reference shows; a room shows what it exports, unless its entry says which members."""
    found = set()
    for page in sorted((docs / "reference").glob("*.md")):
        for name, options in ENTRY.findall(page.read_text(encoding="utf-8") + "\n"):
            found.add(name)
            room = Path(__file__).parents[2] / "src" / name.replace(".", "/") / "__init__.py"
            if room.is_file() and "members" not in options:
                found |= {f"{name}.{inner}" for inner in exported(importlib.import_module(name))}
    return found


def on_config(config: Any) -> Any:
    """Warnings, which fail a strict build."""
    names = public()
    for name in undocumented(names):
        log.warning("%s is public and has no docstring", name)
    for name in sorted(set(names) - referenced()):
        log.warning("%s is public and not in docs/reference/", name)
    return config
