"""The explorer in a real browser: the built file, opened from disk without a network."""

import re
import threading
from contextlib import contextmanager
from pathlib import Path

from chromium import PATIENCE

QUICK = "#classes=syn-small&steps=60&speed=max&flow=off"
SCREEN, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}
SIZES = [SCREEN, {"width": 1920, "height": 1080}, PHONE]
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI));
"""
LOCAL = ("file:", "blob:", "data:", "about:")


@contextmanager
def serving(**extras):
    """The address of the lab's server, which ends with the block."""
    from scansnap.explorer.lab.server import Extras, LabServer

    with LabServer(Extras(**extras)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


class Page:
    """A tab with the explorer. ``page`` is playwright's; the rest reads and waits in the explorer's own terms."""

    def __init__(self, browser, address, **options):
        self.address = address
        offline = address.startswith("file:")
        self.context = browser.new_context(
            **{"viewport": SCREEN, "accept_downloads": True, "offline": offline, **options}
        )
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.complaints = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        if offline:
            self.page.on("request", lambda r: r.url.startswith(LOCAL) or self.complaints.append(r.url))
        self.page.on("console", self._log)

    def _log(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} {message.location.get('url')}")

    def open(self, where=""):
        """Loads an address and waits until its run is there."""
        self.page.goto("about:blank")
        self.page.goto(self.address + where)
        self.page.wait_for_selector("html[data-ready]")
        return self.wait("app.film?.length > 0")

    def forget(self):
        """Clears what the page remembers between visits: theme, shortcuts, drafts."""
        if self.page.url.startswith(self.address):
            self.page.evaluate("localStorage.clear()")

    def get(self, expression, argument=None):
        """A value of the page, where ``app``, ``modules`` and ``argument`` are known."""
        code = f"async (argument) => {{ const {{ app }} = modules.app; return {expression}; }}"
        return self.page.evaluate(code, argument)

    def wait(self, condition):
        """Until a condition on ``app`` holds."""
        self.page.wait_for_function(f"() => {{ const {{ app }} = modules.app; return {condition}; }}")
        return self

    def settle(self):
        """Until the film is complete and on screen."""
        self.wait("app.state.state === 'done' && app.film.lastStep === app.state.steps").step()
        return self

    def rerun(self, **setup):
        """Types values into controls, and waits for the run they make."""
        for name, value in setup.items():
            self.fill(name, str(value))
            self.wait(f"Number(app.film.run.setup.{name}) === {value}")
        return self.settle()

    def step(self):
        """The step on screen, once the screen has caught up."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return int(re.sub(r"\D", "", self.page.inner_text("#clock b")))

    def seek(self, step):
        self.get("modules['compute/runner'].seekStep(argument)", step)

    def stop_clock(self):
        """From now on the page's time passes only in `pass_time`."""
        self.page.evaluate(
            "() => { const now = performance.now(); window.late = 0; performance.now = () => now + late; }"
        )

    def start_clock(self):
        self.page.evaluate("() => { delete performance.now; }")

    def pass_time(self, milliseconds):
        self.page.evaluate(f"() => {{ window.late += {milliseconds}; }}")

    def key(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def fill(self, name, value, prefix="c"):
        """Types into a control and leaves it."""
        field = self.page.locator(f"#{prefix}-{name}")
        if field.evaluate("(e) => !e.checkVisibility()"):
            self.page.locator("#panel-setup details").evaluate_all("(all) => all.forEach((d) => (d.open = true))")
        field.fill(value)
        field.press("Enter")

    def text(self, selector):
        return self.page.inner_text(selector)

    def box(self, selector):
        return self.page.locator(selector).first.bounding_box()

    def await_text(self, selector, text):
        self.page.locator(selector, has_text=text).first.wait_for()

    def run_to_end(self):
        """Until the film is complete and its last frame is on screen."""
        self.settle().get("modules['compute/runner'].seek(Infinity)")
        self.step()

    def download(self, selector):
        """What a click saves."""
        with self.page.expect_download() as waiting:
            self.page.click(selector)
        return Path(waiting.value.path()).read_bytes()

    def check_quiet(self):
        """No error on the console, no request, no violation of the content-security policy."""
        complaints, self.complaints = self.complaints, []
        assert complaints == []
        assert self.page.evaluate("violations") == []
