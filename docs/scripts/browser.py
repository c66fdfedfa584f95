"""The explorer in a browser that nobody sees: its file and a chromium of one's own, for pictures and films."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SIZE = {"width": 1280, "height": 720}
PATIENCE = 1_800_000  # milliseconds; the machine may be busy
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@contextmanager
def explorer() -> Iterator[tuple[Any, str]]:
    """A browser, and the address of the explorer's file, which is there while it is."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise SystemExit("Pictures of the explorer need playwright: pip install playwright") from None
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Pictures of the explorer need chromium: apt install chromium")
    from scansnap.explorer.build import explorer_html

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "explorer.html")
        file.write_text(explorer_html(), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser, file.as_uri()
        browser.close()


def opened(browser: Any, address: str, scheme: str) -> Any:
    """A page with the run of this address begun."""
    page = browser.new_page(viewport=SIZE, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_function("() => document.querySelector('#wait')?.hidden")
    return page


def to_the_end(page: Any) -> None:
    """The run is computed, and its last step is on screen."""
    done = "() => document.querySelector('#clock').dataset.state === 'done'"
    while True:
        page.wait_for_function(done)
        page.keyboard.press("End")
        page.wait_for_timeout(2500)  # the curves catch up, the flow arrives; a change of rates begins its run
        if page.evaluate(done):
            return
