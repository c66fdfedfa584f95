"""The explorer in a real browser: ``scansnap serve`` as a process of its own, and a page that remembers complaints."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI));
window.sockets = [];
window.WebSocket = class extends WebSocket { constructor(...a) { super(...a); sockets.push(this); } };
"""
PATIENCE = 300  # seconds until a test that sees nothing gives up; no result depends on it
# a page that comes back late, because the machine is busy, still finds its run
SERVE = f"""
from scansnap.explorer.protocol import LIMITS
for name in ("grace_seconds", "flow_seconds", "claims_limit_seconds", "lens_seconds", "answer_seconds"):
    LIMITS[name] = {PATIENCE}
from scansnap.cli.app import main
main()
"""
APP = "await import(new URL('static/js/app.js', document.baseURI))"
LATE_CLAIMS = re.compile(r"status of 404 .* \S+/api/runs/\S+/claims(\?step=\d+)?$")
QUICK = "#classes=syn-small&steps=60&speed=max&flow=off"


def require_browser() -> None:
    """Skips, loudly, where there is no browser to test in."""
    if CHROMIUM is None:
        pytest.skip(
            "NO BROWSER: install chromium (apt install chromium) to test the explorer's page", allow_module_level=True
        )
    pytest.importorskip("playwright", reason="NO BROWSER: pip install playwright to test the explorer's page")


@contextmanager
def serving(
    port: int = 0, folder: Path | None = None, probe: Path | None = None, more: Sequence[str] = ()
) -> Iterator[str]:
    """The address of a server that ends with the block."""
    command = [sys.executable, "-c", SERVE, "serve", "--no-open", "--port", str(port)]
    command += ["--folder", str(folder)] if folder else []
    command += [*(["--probe", str(probe)] if probe else []), *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found, said
        yield found.group().replace("localhost", "127.0.0.1")
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


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
        self.context = browser.new_context(viewport={"width": 1280, "height": 720}, accept_downloads=True, **options)
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
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
        return self.page.evaluate(f"async () => {{ const {{ app }} = {APP}; return {expression}; }}")

    def wait(self, condition: str) -> None:
        """Until a condition on ``app`` holds."""
        self.page.evaluate(f"async () => {{ window.app = ({APP}).app; }}")
        self.page.wait_for_function(f"() => {condition}")

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
        self.wait("app.film.run.run && app.state.state === 'done' && app.film.lastStep === app.state.steps")
        self.page.evaluate("async () => (await import('/static/js/server/runner.js')).seek(Infinity)")
        self.step()

    def download(self, act: Callable[[], Any]) -> bytes:
        with self.page.expect_download() as waiting:
            act()
        return Path(waiting.value.path()).read_bytes()

    def check_quiet(self, *allowed: str) -> None:
        """No errors on the console, no breach of the content-security policy.

        Chromium logs answers too: a refusal is a 422, and 404 are claims asked of a run that was replaced meanwhile.
        """
        loud = [c for c in self.complaints if not any(a in c for a in allowed) and not LATE_CLAIMS.search(c)]
        assert not loud, loud
        assert self.page.evaluate("violations") == []


@pytest.fixture(scope="module")
def explorer(browser: Any, served: str) -> Callable[..., Page]:
    """Opens pages of the one server."""

    def new(where: str = "", **options: Any) -> Page:
        return Page(browser, served, **options).open(where)

    return new


@pytest.fixture
def page(explorer: Callable[..., Page]) -> Iterator[Page]:
    made = explorer(QUICK)
    yield made
    made.check_quiet("422")
    made.context.close()
