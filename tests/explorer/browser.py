"""The explorer in a real browser: the built file, opened from disk without a network, and what it complains of."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI));
"""
PATIENCE = 300  # seconds until a test that sees nothing gives up; no result depends on it
QUICK = "#classes=syn-small&steps=60&speed=max&flow=off"


def require_browser() -> None:
    """Skips, loudly, where there is no browser to test in."""
    if CHROMIUM is None:
        pytest.skip(
            "NO BROWSER: install chromium (apt install chromium) to test the explorer's page", allow_module_level=True
        )
    pytest.importorskip("playwright", reason="NO BROWSER: pip install playwright to test the explorer's page")


@contextmanager
def serving(**extras: Any) -> Iterator[str]:
    """The address of the lab's server, which ends with the block."""
    from scansnap.explorer.lab.server import Extras, LabServer

    with LabServer(Extras(**extras)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=1000 * PATIENCE)
        yield started
        started.close()


class Page:
    """One tab with the explorer. ``page`` is playwright's; the rest reads and waits in the explorer's own terms."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        offline = address.startswith("file:")
        options = {"viewport": {"width": 1280, "height": 720}, "accept_downloads": True, "offline": offline, **options}
        self.context = browser.new_context(**options)
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        if offline:
            self.page.on("request", lambda r: self.complaints.append(r.url) if not r.url.startswith(
                ("file:", "blob:", "data:", "about:")) else None)  # fmt: skip
        self.page.on("console", lambda m: self.complaints.append(f"{m.text} {m.location.get('url')}")
                     if m.type in ("error", "warning") else None)  # fmt: skip

    def open(self, where: str = "") -> Page:
        """Loads an address and waits until its run is there."""
        self.page.goto("about:blank")
        self.page.goto(self.address + where)
        self.page.wait_for_selector("html[data-ready]")
        self.wait("app.film?.length > 0")
        return self

    def get(self, expression: str) -> Any:
        """A value of the page's state, ``app``."""
        return self.page.evaluate(f"() => {{ const {{ app }} = modules.app; return {expression}; }}")

    def wait(self, condition: str) -> None:
        """Until a condition on ``app`` holds."""
        self.page.wait_for_function(f"() => {{ const {{ app }} = modules.app; return {condition}; }}")

    def step(self) -> int:
        """The step on screen, once the screen has caught up."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return int(re.sub(r"\D", "", self.page.inner_text("#clock b")))

    def stop_clock(self) -> None:
        """From now on the page's time passes only in :meth:`pass_time`."""
        self.page.evaluate(
            "() => { const now = performance.now(); window.late = 0; performance.now = () => now + late; }"
        )

    def start_clock(self) -> None:
        self.page.evaluate("() => { delete performance.now; }")

    def pass_time(self, milliseconds: float) -> None:
        self.page.evaluate(f"() => {{ window.late += {milliseconds}; }}")

    def key(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def fill(self, name: str, value: str, prefix: str = "c") -> None:
        """Types into a control and leaves it."""
        field = self.page.locator(f"#{prefix}-{name}")
        details = self.page.locator("#panel-setup details")
        if field.evaluate("(e) => !e.checkVisibility()"):
            details.evaluate_all("(all) => all.forEach((d) => (d.open = true))")
        field.fill(value)
        field.press("Enter")

    def run_to_end(self) -> None:
        """Until the film is complete, and its last frame is on screen."""
        self.wait("app.state.state === 'done' && app.film.lastStep === app.state.steps")
        self.page.evaluate("() => modules['compute/runner'].seek(Infinity)")
        self.step()

    def download(self, act: Callable[[], Any]) -> bytes:
        with self.page.expect_download() as waiting:
            act()
        return Path(waiting.value.path()).read_bytes()

    def check_quiet(self, *allowed: str) -> None:
        """No errors on the console, no request, no breach of the content-security policy."""
        loud = [c for c in self.complaints if not any(a in c for a in allowed)]
        assert not loud, loud
        assert self.page.evaluate("violations") == []


@pytest.fixture(scope="module")
def explorer(browser: Any, built: str) -> Callable[..., Page]:
    """Opens the file."""

    def new(where: str = "", **options: Any) -> Page:
        return Page(browser, built, **options).open(where)

    return new


@pytest.fixture
def page(explorer: Callable[..., Page]) -> Iterator[Page]:
    made = explorer(QUICK)
    yield made
    made.check_quiet()
    made.context.close()
