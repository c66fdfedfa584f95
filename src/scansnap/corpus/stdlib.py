"""A text that every machine with Python has: the docstrings of its standard library.

The modules are parsed and not imported. Each paragraph of a docstring is one line of words and punctuation marks in
lower case, since the corpus is small. A digest of its path decides the split of a module (8 : 1 : 1), so that held-out
text is from other files, and the same in every version of Python. Tests and installed packages are excluded.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scansnap.checks import InputError
from scansnap.corpus.sources import SPLITS, TextSource

RULES = 1  # increase it when the extraction changes
EXCLUDED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
TEXT_PER_MODULE = 3000  # bytes, about
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def standard_library(root: Path | None = None) -> TextSource:
    """The docstrings of the Python that is running (or of the modules under ``root``)."""
    root = Path(sysconfig.get_paths()["stdlib"]) if root is None else root
    version = ".".join(platform.python_version_tuple()[:2])
    modules = _modules(root)
    if not modules:
        raise InputError("data", "stdlib", f"a folder or a file on this machine: {root} has no .py files to read")
    where = {split: f"the {split} modules under {root}" for split in SPLITS}
    return TextSource(
        "stdlib",
        f"Python {version} standard library docstrings",
        read=lambda split: [(where[split], _read(root, [name for name in modules if split_of(name) == split]))],
        fingerprint=lambda: _fingerprint(root, modules),
        size=TEXT_PER_MODULE * len(modules),
        where=where,
    )


def split_of(module: str) -> str:
    """The split of a module, from its path relative to the library: 8 : 1 : 1."""
    number = int.from_bytes(hashlib.sha256(module.encode()).digest()[:8], "big") % 10
    return "train" if number < 8 else SPLITS[number - 7]


def paragraphs(code: str) -> Iterator[str]:
    """The docstrings' paragraphs in the order of the file, as words between single blanks."""
    with warnings.catch_warnings(), _no_collection():
        warnings.simplefilter("ignore")  # such as an old escape in a string
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError):  # a template, or a file for another version
            return
    for node in _documented(tree):
        for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
            if words := WORD.findall(paragraph.lower()):
                yield " ".join(words)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Syntax trees have no cycles, but so many nodes that garbage collection takes most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _documented(node: ast.AST) -> Iterator[Documented]:
    if isinstance(node, Documented):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):  # expressions hold no docstrings
            yield from _documented(child)


def _modules(root: Path) -> list[str]:
    modules = []
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if name not in EXCLUDED]
        modules += [Path(folder, name).relative_to(root).as_posix() for name in files if name.endswith(".py")]
    return sorted(modules)


def _code(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _read(root: Path, modules: list[str]) -> Iterator[bytes]:
    for name in modules:
        lines = list(paragraphs(_code(root / name).decode("utf-8", errors="ignore")))
        if lines:
            yield "".join(line + "\n" for line in lines).encode()


def _fingerprint(root: Path, modules: list[str]) -> str:
    digest = hashlib.sha256(f"{RULES} {platform.python_version()}".encode())
    for name in modules:
        digest.update(hashlib.sha256(name.encode() + b"\0" + _code(root / name)).digest())
    return digest.hexdigest()
