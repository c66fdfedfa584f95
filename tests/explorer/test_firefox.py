"""The file in Debian's Firefox, driven over WebDriver BiDi: it opens from disk, computes, and has Python's numbers."""

import base64
import json
import re
import shutil
import subprocess
from contextlib import ExitStack, closing

import numpy as np
import pytest
from films import Film

from scansnap.explorer.presets import DEFAULT

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
if FIREFOX is None:
    pytest.skip("NO FIREFOX: apt install firefox-esr to test the explorer's page in it", allow_module_level=True)
PATIENCE = 300  # seconds until a test that hears nothing gives up
DONE = "modules.app.app.state.state === 'done'"


class Firefox:
    """One headless browser with one tab."""

    def __init__(self, profile):
        from websockets.sync.client import connect

        words = [FIREFOX, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"]
        self.stack = ExitStack()
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert self.process.stderr is not None
        found = next(m for line in self.process.stderr if (m := re.search(r"BiDi listening on (ws://\S+)", line)))
        self.socket = self.stack.enter_context(connect(f"{found[1]}/session", max_size=None, open_timeout=PATIENCE))
        self.number, self.complaints = 0, []
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded"])
        self.tab = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def call(self, method, **params):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(PATIENCE))
            if message.get("method") == "log.entryAdded" and message["params"]["level"] in ("error", "warn"):
                self.complaints.append(message["params"]["text"])
            if message.get("id") == self.number:
                assert message["type"] == "success", message
                return message["result"]

    def open(self, address):
        for url in ("about:blank", address):  # from the same file another fragment would not load it
            self.call("browsingContext.navigate", context=self.tab, url=url, wait="complete")

    def get(self, expression):
        """A value of the page, by way of JSON."""
        asked = f"(async () => JSON.stringify(await ({expression}) ?? null))()"
        found = self.call("script.evaluate", expression=asked, target={"context": self.tab}, awaitPromise=True)
        assert found["type"] == "success", found
        return json.loads(found["result"]["value"])

    def wait(self, condition):
        self.get(
            f"new Promise((done) => {{ const look = () => ({condition}) ? done(1) : setTimeout(look, 50); look(); }})"
        )

    def close(self):
        self.stack.close()
        self.process.terminate()
        self.process.wait(PATIENCE)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    with closing(Firefox(tmp_path_factory.mktemp("profile"))) as browser:
        yield browser


def test_the_default_film_has_pythons_numbers(firefox, built):
    firefox.open(f"{built}#classes=words&eta_y=2&eta_z=1&momentum=0.9&steps=1000&preset=words")
    firefox.wait(DONE)
    film = Film({**DEFAULT, "dtype": "float64"})
    last = np.concatenate(
        [film.frame_values(name)[-1] for name in ("loss", "entropy", "growth", "log_chi", "attention", "z")]
    )
    np.testing.assert_allclose(firefox.get("[...modules.app.app.film.frames.at(-1)]"), last, rtol=1e-9, atol=1e-12)
    assert firefox.complaints == []


def test_a_changed_rate_the_flow_and_the_map_come(firefox, built):
    firefox.open(
        f"{built}#classes=syn-small&steps=60&marks=20:5:0.5&level=theory&context=inf&batch_size=null&momentum=0&flow=on"
    )
    firefox.wait(DONE)
    assert firefox.get("modules.app.app.film.marks") == [{"step": 20, "eta_y": 5, "eta_z": 0.5}]
    firefox.wait("modules.app.app.flow !== null")
    firefox.get("document.querySelector('#map').open = true")
    firefox.wait("document.querySelectorAll('#map-cells td').length === 82")
    assert firefox.complaints == []


def test_the_lecture_begins_and_a_picture_is_drawn(firefox, built):
    firefox.open(f"{built}#classes=syn-small&steps=60")
    firefox.wait(DONE)
    firefox.get("document.querySelector('#lecture-open').click()")
    firefox.get("document.querySelector('.deck').click()")
    firefox.wait("document.querySelector('#lecture')?.dataset.phase !== undefined")
    firefox.wait("document.querySelector('#lecture .sentence').textContent.length > 10")
    picture = base64.b64decode(firefox.call("browsingContext.captureScreenshot", context=firefox.tab)["data"])
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000, "more than an empty page"
    assert firefox.complaints == []
