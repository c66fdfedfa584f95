"""ES modules as one script: each in a function that returns its exports, in the order of their imports.

A page that opens from ``file://`` can fetch no second file, so a module and all it imports become one text. Only the
forms that the page uses are understood; anything else, and an import cycle, is refused.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from scansnap.checks import InputError

_IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "(\.[^"]+)\.js";$', re.M)
_LATER = re.compile(r'\bawait import\("(\.[^"]+)\.js"\)')
_LIST = re.compile(r"^export \{([^}]*)\};$", re.M)
_SEVERAL = re.compile(r"^export (?=const \{ ([\w$, ]+) \} = )", re.M)
_ONE = re.compile(r"^export (?=(?:const|(let)|(?:async )?function\*?|class) ([\w$]+))", re.M)
_LEFT = re.compile(r"^(?:import|export)\b.*$", re.M)


def bundle(root: Path, entry: str) -> str:
    """The script that runs the module ``entry``, a path below ``root`` without its suffix.

    While the page is open its modules are in ``globalThis.modules``, by the same paths.
    """
    modules: dict[str, str] = {}
    exports: dict[str, list[str]] = {}
    waiting = [entry]

    def add(path: str, above: tuple[str, ...]) -> None:
        if path in modules:
            return
        if path in above:
            raise InputError("import cycle", " → ".join([*above[above.index(path) :], path]), "broken up")
        source = (root / f"{path}.js").read_text(encoding="utf-8")
        folder = posixpath.dirname(path)

        def resolve(target: str) -> str:
            return posixpath.normpath(posixpath.join(folder, target))

        for names, _, target in _IMPORT.findall(source):
            add(resolve(target), (*above, path))
            _check_names(path, names, resolve(target), exports)
        own = {name: name for name in _exported(source)}
        live = {name for let, name in _ONE.findall(source) if let}
        for names in _LIST.findall(source):
            own |= {outside: inside for inside, outside in _pairs(names)}
        waiting.extend(resolve(target) for target in _LATER.findall(source))

        def imported(match: re.Match[str]) -> str:
            names = ", ".join(a if a == b else f"{a}: {b}" for a, b in _pairs(match[1] or ""))
            return f'const {match[2] or "{ " + names + " }"} = modules["{resolve(match[3])}"];'

        source = _LATER.sub(lambda m: f'modules["{resolve(m[1])}"]', _IMPORT.sub(imported, source))
        for pattern in (_LIST, _SEVERAL, _ONE):
            source = pattern.sub("", source)
        if left := _LEFT.search(source):
            raise InputError(f"{path}.js", left[0], "a named import or export in one of the forms of bundle.py")
        fields = [f"get {outside}() {{ return {inside}; }}" if inside in live else f"{outside}: {inside}"
                  for outside, inside in own.items()]  # fmt: skip
        exports[path] = list(own)
        modules[path] = f'modules["{path}"] = (() => {{\n{source}\nreturn {{ {", ".join(fields)} }};\n}})();\n'

    while waiting:
        add(waiting.pop(), ())
    ordered = sorted(modules, key=lambda path: path == entry)  # modules that are imported later must exist by then
    return '"use strict";\nconst modules = (globalThis.modules = {});\n' + "".join(modules[path] for path in ordered)


def _exported(source: str) -> list[str]:
    several = [name for names in _SEVERAL.findall(source) for name in names.split(", ")]
    return several + [name for _, name in _ONE.findall(source)]


def _pairs(names: str) -> list[tuple[str, str]]:
    """``a, b as c`` as pairs of the name inside and outside."""
    parts = [part.split(" as ") for part in re.split(r",\s*", names.strip().rstrip(",")) if part]
    return [(part[0].strip(), part[-1].strip()) for part in parts]


def _check_names(path: str, names: str, target: str, exports: dict[str, list[str]]) -> None:
    for name, _ in _pairs(names):
        if name not in exports[target]:
            raise InputError(f"the import of {path}.js from {target}.js", name, f"one of {', '.join(exports[target])}")
