"""Imports follow the way the data flows: a room imports rooms above it, never below."""

from __future__ import annotations

import ast
from pathlib import Path

import scansnap

SOURCE = Path(scansnap.__file__).parent

# From what everything rests on to what rests on everything. A room is a folder or a file of src/scansnap.
ORDER = (
    "interrupt", "processes", "progress", "checks", "cluster", "settings", "storage", "html", "sampling", "corpus",
    "classes", "runs", "results", "measure", "theory", "kernels", "dynamics", "claims", "rates", "text", "probe",
    "dial", "sweep", "plots", "paper", "explorer", "cli",
)  # fmt: skip


def room(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(path: Path) -> set[str]:
    """Rooms that a file imports, inside functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "scansnap":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scansnap."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("scansnap.")}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add("a relative import")
    return found - {"__version__"}


FILES = sorted(
    path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem not in ("__init__", "__main__")
)


def test_every_room_has_its_place() -> None:
    assert {room(path) for path in FILES} == set(ORDER)


def test_nothing_is_imported_from_below() -> None:
    below = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in FILES
        for name in sorted(imported(path))
        if ORDER.index(name) > ORDER.index(room(path))
    ]
    assert not below, "\n".join(below)


def test_an_import_from_below_is_noticed(tmp_path: Path) -> None:
    """The reader of imports sees every way to write one."""
    file = tmp_path / "x.py"
    file.write_text(
        "from scansnap import cli\ndef f():\n    import scansnap.web.x\n    from scansnap.paper.y import z\n"
    )
    assert imported(file) == {"cli", "web", "paper"}
