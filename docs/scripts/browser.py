"""The explorer in a browser that nobody sees: a server and a chromium of one's own, for pictures and films."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIZE = {"width": 1280, "height": 720}
PATIENCE = 1_800_000  # milliseconds; the machine may be busy
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
SERVE = [sys.executable, "-m", "scansnap", "serve", "--no-open", "--port", "0"]


@contextmanager
def explorer() -> Iterator[tuple[Any, str]]:
    """A browser, and the address of an explorer that is there while it is."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise SystemExit("Pictures of the explorer need playwright: pip install playwright") from None
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Pictures of the explorer need chromium: apt install chromium")
    server = subprocess.Popen(SERVE, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        found = re.search(r"http://\S+", server.stderr.readline())
        if found is None:
            raise SystemExit("The explorer ended without saying where it is.")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            yield browser, found.group()
            browser.close()
    finally:
        server.terminate()
        server.wait(20)


def opened(browser: Any, address: str, scheme: str) -> Any:
    """A page with the run of this address begun."""
    page = browser.new_page(viewport=SIZE, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_selector("#wait", state="hidden")
    page.wait_for_selector("#view-z .main-svg, #panel-curves[hidden]", state="attached")
    return page


def to_the_end(page: Any) -> None:
    """The run is computed, and its last step is on screen."""
    page.wait_for_function("() => document.querySelector('#clock').dataset.state === 'done'", timeout=PATIENCE)
    page.keyboard.press("End")
    page.wait_for_timeout(2500)  # the curves catch up, the flow arrives
