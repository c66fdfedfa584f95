"""What the site promises, without building it: every public name documented and in the reference, every page in the
navigation, links that lead somewhere, tables from the declarations, formulas without scripts."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTSIDE = ("hooks", "scripts", "overrides")  # folders of docs/ that are no pages


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_hook_{name}", DOCS / "hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


names = hook("names")


def navigation() -> set[str]:
    """Pages that mkdocs.yml names; what is commented out does not count."""
    text = re.sub(r"(^|\s)#.*", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.M)
    return set(re.findall(r"^ +- (?:.*: )?([\w/]+\.(?:md|py|ipynb))$", text.partition("\nnav:")[2], re.M))


def pages(docs: Path = DOCS) -> set[str]:
    found = {path.relative_to(docs) for ending in ("md", "ipynb") for path in docs.rglob(f"*.{ending}")}
    found |= {path.relative_to(docs) for path in docs.glob("tutorials/*.py")}
    return {path.as_posix() for path in found if path.parts[0] not in OUTSIDE}


def test_every_page_is_in_the_navigation() -> None:
    made = {"benchmarks.md"}  # by docs/hooks/outside.py
    assert pages() | made == navigation()


def test_a_page_outside_the_navigation_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "lost.md").write_text("# Lost")
    assert pages(tmp_path) - navigation() == {"lost.md"}


def test_every_public_name_says_what_it_is() -> None:
    assert names.undocumented(names.public()) == []


def test_a_public_name_without_a_docstring_is_noticed() -> None:
    class Silent:
        def method(self) -> None:
            pass

    def silent() -> None:
        pass

    assert names.undocumented({"Silent": Silent, "silent": silent, "K": 3}) == ["Silent", "silent", "K", "Silent.method"]


def test_every_public_name_is_in_the_reference() -> None:
    public = names.public()
    assert {"scansnap.simulate", "scansnap.theory.growth", "scansnap.text.predict", "scansnap.dial.Rung"} <= set(public)
    assert set(public) - names.referenced() == set()


def test_a_public_name_outside_the_reference_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "x.md").write_text("::: scansnap.flow\n\n::: scansnap.measure\n\n::: scansnap.dial\n"
                                                 "    options: {members: []}\n")  # fmt: skip
    shown = names.referenced(tmp_path)
    assert {"scansnap.flow", "scansnap.measure.fates", "scansnap.dial"} <= shown
    assert not {"scansnap.simulate", "scansnap.dial.Rung"} & shown
