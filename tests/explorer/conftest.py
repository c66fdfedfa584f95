"""What all tests of this folder share: the built file."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the explorer's file; here and not beside the pages, as an imported fixture is one per module."""
    from scansnap.explorer.build import explorer_html

    file = tmp_path_factory.mktemp("explorer") / "explorer.html"
    file.write_text(explorer_html(), encoding="utf-8")
    return file.as_uri()
