"""Chromium for the tests of pages; a conftest imports the fixture ``browser``."""

import shutil

import pytest

PATIENCE = 300  # seconds until a test that waits for an event gives up; no result depends on it
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="session")
def browser():
    """One browser; where there is none, its tests are skipped loudly."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("NO BROWSER: install chromium (apt install chromium) to test pages")
    playwright = pytest.importorskip("playwright.sync_api", reason="NO BROWSER: pip install playwright to test pages")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=chromium, args=ARGUMENTS, timeout=1000 * PATIENCE)
        yield started
        started.close()
