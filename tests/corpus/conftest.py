"""Little corpora, and a cache of each test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# The user's own, read before the fixture below hides it: tests on a real corpus ask for it by name.
GIVEN = os.environ.get("SCANSNAP_DATA")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SCANSNAP_DATA", raising=False)
    return tmp_path / "cache" / "corpus"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files; "b" is the most frequent word of the first, "z" occurs only in the last."""
    path = tmp_path / "small"
    path.mkdir()
    (path / "train.txt").write_text("b a b\n\nc b a <unk>\n")
    (path / "valid.txt").write_text("a c\n")
    (path / "test.txt").write_text("z b")
    return path


@pytest.fixture
def wikitext() -> Path:
    """WikiText-2, where SCANSNAP_DATA names a folder of it."""
    if not GIVEN or "wikitext-2" not in Path(GIVEN).name:
        pytest.skip("needs WikiText-2: SCANSNAP_DATA names no folder called wikitext-2")
    return Path(GIVEN)
