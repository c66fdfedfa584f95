"""A test that replaces something of the package fails when the package no longer has it.

``monkeypatch.setattr``, and ``mock.patch.object`` in the scripts of child processes, refuse a missing name. A plain
assignment creates the name, and the test goes on without the effect that it relies on.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent


def scripts(tree: ast.AST) -> Iterator[ast.AST]:
    """The program texts among the strings of a file, parsed; what is filled in later stands as ``None``."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node] if id(node) not in inside else []
        if not parts or not isinstance(parts[0], ast.Constant) or not isinstance(parts[0].value, str):
            continue
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "None" for part in parts)
        if " = " not in text and "import " not in text:
            continue
        try:
            yield ast.parse(textwrap.dedent(text))
        except (SyntaxError, ValueError):
            continue


def imported(tree: ast.AST) -> set[str]:
    aliases = [(node, alias) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
               for alias in node.names]  # fmt: skip
    return {alias.asname or (alias.name.split(".")[0] if isinstance(node, ast.Import) else alias.name)
            for node, alias in aliases}  # fmt: skip


def root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def keyword(call: ast.Call, name: str, value: bool) -> bool:
    return any(k.arg == name and isinstance(k.value, ast.Constant) and k.value.value is value for k in call.keywords)


def unchecked(source: str) -> list[str]:
    """Statements of a test file, and of the scripts in it, that set a name whether or not it exists."""
    trees = [ast.parse(source)]
    trees += scripts(trees[0])
    names = set[str]().union(*map(imported, trees))
    found = []
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and root(node) in names:
            found.append(f"{ast.unparse(node)} = …")
        if isinstance(node, ast.Call):
            target = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)
            builtin = isinstance(node.func, ast.Name) and target == "setattr" and root(node.args[0]) in names
            if builtin or (target == "setattr" and keyword(node, "raising", False)) or keyword(node, "create", True):
                found.append(ast.unparse(node))
    return found


def test_no_test_sets_a_name_that_may_be_missing() -> None:
    files = sorted(TESTS.rglob("*.py"))
    assert len(files) > 100
    found = [f"{path.relative_to(TESTS)}: {line}" for path in files if path != Path(__file__)
             for line in unchecked(path.read_text(encoding="utf-8"))]  # fmt: skip
    assert not found, "\n".join(found)


def test_every_way_to_set_such_a_name_is_noticed() -> None:
    source = '''
from scansnap import storage
from scansnap.dynamics import loop, simulate as engine
import scansnap.settings
SCRIPT = """
from scansnap.sweep import run
run.LIMIT = 1
for run.a, other in []: pass
"""
OTHER = f"""
import json
json.x = {1}
"""
def test(monkeypatch):
    loop.LIMIT, x = 1, 2
    engine.LIMIT += 1
    scansnap.settings.X: int = 3
    storage.writing.swap = None
    setattr(loop, "A", 1)
    monkeypatch.setattr(loop, "A", 1, raising=False)
    mock.patch.object(loop, "A", 1, create=True)
    fine = loop.LIMIT
    fine.x = 1
    monkeypatch.setattr(loop, "A", 1)
    monkeypatch.delenv("A", raising=False)
    patch.object(loop, "A", 1).start()
'''
    assert sorted(unchecked(source)) == [
        "engine.LIMIT = …", "json.x = …", "loop.LIMIT = …", "mock.patch.object(loop, 'A', 1, create=True)",
        "monkeypatch.setattr(loop, 'A', 1, raising=False)", "run.LIMIT = …", "run.a = …", "scansnap.settings.X = …",
        "setattr(loop, 'A', 1)", "storage.writing.swap = …",
    ]  # fmt: skip
