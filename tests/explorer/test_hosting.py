"""A server for others: behind a proxy's path, with a token, for a small class; refusals before a port is opened."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import ARGUMENTS, CHROMIUM, QUICK, Page, require_browser, serving
from explorer_site import PATIENCE, SMALL, Client
from path_proxy import PathProxy, proxy
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import scansnap
from scansnap.checks import InputError
from scansnap.cli import serve as command
from scansnap.cli.serve import serve

PATH, TOKEN = "/lectures/scansnap", "a-token-of-a-class"
STATIC = Path(scansnap.__file__).parent / "explorer" / "static"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


DECK = """
title = "Under a path"
[[beat]]
setup = {preset = "figure-4", steps = 40}
to = 40
seconds = 0.1
sentence = "It is here."
curve = "logits"
"""


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PathProxy, str]]:
    """The proxy and the address of the page behind it."""
    deck = tmp_path_factory.mktemp("deck") / "short.toml"
    deck.write_text(DECK, encoding="utf-8")
    with proxy(PATH) as made:
        options = ("--workers", "1", "--token", TOKEN, "--root-path", PATH, "--allowed-host", f"127.0.0.1:{made.port}",
                   "--deck", str(deck))  # fmt: skip
        with serving(more=options) as printed:
            found = re.fullmatch(rf"http://127.0.0.1:(\d+){PATH}/\?token={TOKEN}", printed)
            assert found is not None, printed
            made.upstream = int(found.group(1))
            yield made, f"http://127.0.0.1:{made.port}{PATH}/"


EVIL = "</script><img src=x onerror=window.stolen=1>"
WORDS = {"0": EVIL, "1": "a", "2": "b", "3": EVIL.upper(), "4": "<!--"}
WRITTEN = {"classes": {"bars": {"vocab_size": 5, "words": WORDS,
                                "classes": [{"query": 3, "next_token": 4, "tokens": [0, 1], "weights": [1, 2]},
                                            {"query": 4, "next_token": 3, "tokens": [0, 2], "weights": [1, 2]}]}},
           "steps": 20}  # fmt: skip


def socket_of(client: httpx.Client, address: str, **headers: str) -> Client:
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    more = {"additional_headers": {"Cookie": cookie, **headers}} if cookie or headers else {}
    made: Any = connect(address.replace("http", "ws") + "ws", max_size=None, ping_interval=None,
                        open_timeout=PATIENCE, **more)  # fmt: skip
    return Client(made.__enter__())


def test_behind_a_proxy_everything_is_under_its_path(hosted: tuple[PathProxy, str]) -> None:
    between, address = hosted
    with httpx.Client(base_url=address, timeout=PATIENCE, follow_redirects=True) as client:
        assert client.get("").status_code == 401
        assert client.get("static/js/main.js").status_code == 401
        with pytest.raises(InvalidStatus) as refused:
            socket_of(client, address)
        assert refused.value.response.status_code == 403
        page = client.get("", params={"token": TOKEN})
        assert (page.status_code, str(page.url)) == (200, address)
        for link in re.findall(r'(?:href|src)="([^"#]+)"', page.text):
            if link != "probe":
                assert client.get(link).status_code == 200, link
        assert "Too Many" not in client.get("docs").text
        assert client.get("openapi.json").json()["info"]["title"] == "scansnap explorer"
        own = socket_of(client, address, Origin=address.partition(PATH)[0])
        own.send(op="start", setup={**SMALL, "steps": 60})
        own.wait_state("done")
        assert own.run is not None
        own.send(op="start", setup=WRITTEN)
        own.wait(lambda c: c.run["setup"]["steps"] == 20)
        own.wait_state("done")
        film = client.get(f"api/runs/{own.run['run']}/film.html")
        assert film.status_code == 200
        assert "onerror" in film.text, "the word is told …"
        assert not re.search("<[^>]*onerror|<!--(?! )", film.text), "… but not as an element"
        own.close()
        with pytest.raises(InvalidStatus):
            socket_of(client, address, Origin="https://evil.example")
    assert between.outside == []


def test_a_browser_behind_a_proxy(hosted: tuple[PathProxy, str]) -> None:
    """The page comes with its run, the token leaves the address, and nothing is asked for outside of the path."""
    require_browser()
    from playwright.sync_api import sync_playwright

    between, address = hosted
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=1000 * PATIENCE)
        page = Page(started, address)
        page.page.goto(address)
        assert "open to those who have its link" in page.page.inner_text("body")
        assert page.page.inner_text("h1") == "Scan and Snap"
        page.complaints.clear()  # Chromium logs the 401
        page.open(f"?token={TOKEN}{QUICK}")
        page.wait("app.state.state === 'done' && app.film.lastStep === 60")
        shown = page.page.evaluate("location.href")
        assert shown.startswith(f"{address}#")
        assert TOKEN not in shown
        assert page.page.evaluate("document.cookie") == "", "a script cannot read it"
        assert page.page.evaluate("sockets.map((one) => one.url)") == [address.replace("http", "ws") + "ws"]
        asked = page.page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
        assert len(asked) > 20
        assert [one for one in asked if not one.startswith(address)] == []
        page.key("f")  # a lecture, its runs and its file
        page.page.locator(".deck", has_text="Under a path").click()
        page.page.locator("#lecture[data-beat='1'][data-phase='there']").wait_for()
        assert page.page.inner_text("#lecture .sentence") == "It is here."
        assert page.page.inner_text("#lecture .clock") == "step 40 of 40"
        saved = page.download(lambda: page.page.click("#lecture-save"))
        assert b"It is here." in saved
        page.key("Escape")
        page.page.reload()
        page.page.wait_for_selector("html[data-ready]")
        page.check_quiet()
        started.close()
    assert between.outside == []


def test_words_of_a_visitor_are_text_in_a_film(hosted: tuple[PathProxy, str], tmp_path: Path) -> None:
    """In a browser: what looks like the end of a script and an element with a script of its own is a word."""
    require_browser()
    from playwright.sync_api import sync_playwright

    _, address = hosted
    with httpx.Client(base_url=address, timeout=PATIENCE, follow_redirects=True) as client:
        client.get("", params={"token": TOKEN})
        own = socket_of(client, address)
        own.send(op="start", setup=WRITTEN)
        own.wait_state("done")
        assert own.run is not None
        film = tmp_path / "film.html"
        film.write_bytes(client.get(f"api/runs/{own.run['run']}/film.html").content)
        own.close()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=1000 * PATIENCE)
        page = started.new_page()
        page.goto(film.as_uri())
        page.wait_for_function("() => Number(document.querySelector('#scrub').max) > 0")
        assert page.evaluate("[document.images.length, document.scripts.length, window.stolen ?? null]") == [0, 2, None]
        started.close()


def test_no_address_in_the_page_leaves_its_path() -> None:
    """Addresses that begin at the root are passed through ``url``, which puts them under the page's own path."""
    rooted = re.compile(r"""["'`(]/(?:api|static|vendor|ws|probe|docs)\b""")
    found = []
    for path in [*STATIC.rglob("*.js"), *STATIC.rglob("*.html"), *STATIC.rglob("*.css")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            if rooted.search(line) and not re.search(r"\b(?:url|ask|post)\(", line):
                found.append(f"{path.relative_to(STATIC)}: {line.strip()}")
    assert found == []


def test_a_small_class() -> None:
    """Eight pages with films, questions, pings and live runs: each is served, nothing is refused or above its cap."""
    code = [sys.executable, str(BENCHMARKS / "explorer_class.py"), "--quick", "--pages", "8", "--films", "1",
            "--workers", "1", "--memory", "400MiB", "--json", "-"]  # fmt: skip
    done = subprocess.run(code, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    many = found["class"]
    assert many["films_least"] >= 1
    assert many["frames_least"] > 0
    assert many["pings"] >= 8
    assert many["refusals"] == {}
    assert many["runs"] <= 8  # as often as it was asked, which on a busy machine may be after all have ended
    assert many["planned"] <= 400
    assert many["memory"] <= found["cap"]


@pytest.mark.parametrize(("options", "said"), [
    ({"token": "short"}, "--token"), ({"token": "long enough, but not for a link"}, "--token"),
    ({"token": "a-good-token", "no_token": True}, "--no-token"), ({"allowed_host": ["http://a"]}, "--allowed-host"),
    ({"root_path": "scansnap"}, "--root-path"), ({"workers": 0}, "--workers"), ({"workers": 10**6}, "--workers"),
    ({"memory": "much"}, "--memory"), ({"memory": "1MB"}, "--memory"), ({"host": "no such host"}, "--host"),
])  # fmt: skip
def test_bad_options_are_one_sentence_and_open_no_port(
    options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: Any, **__: Any) -> None:
        pytest.fail("a port was opened")

    monkeypatch.setattr(command.socket, "create_server", opened)
    with pytest.raises(InputError, match=said) as error:
        serve(**{"host": "127.0.0.1", "port": 0, "open_browser": False, **options})
    assert str(error.value).count(". ") == 0


def test_bad_options_end_with_code_2() -> None:
    done = subprocess.run([sys.executable, "-m", "scansnap", "serve", "--no-open", "--root-path", "x"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["Error: --root-path is 'x'; it must be a path of letters, digits, hyphens, "
                                        "dots, underscores and tildes, such as /scansnap."]  # fmt: skip


@pytest.mark.parametrize(("options", "token"), [
    ({}, None), ({"host": "0.0.0.0"}, "made"), ({"allowed_host": ["a.example"]}, "made"), ({"root_path": "/a"}, "made"),
    ({"host": "0.0.0.0", "no_token": True}, None), ({"token": "a-good-token"}, "a-good-token"),
    ({"host": "0.0.0.0", "token": "a-good-token"}, "a-good-token")])  # fmt: skip
def test_who_can_be_reached_by_others_has_a_token(
    options: dict[str, Any], token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []
    monkeypatch.setattr(command, "_bind", lambda *_: socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr(command, "_serve", lambda _, settings, *__: served.append(settings) or 0)
    for _ in range(2):
        serve(**{"port": 0, "open_browser": False, **options})
    made = {settings.token for settings in served}
    if token == "made":
        assert len(made) == 2, "a new one each time"
        assert all(len(one) >= 32 for one in made)
    else:
        assert made == {token}
    assert all(settings.shared == bool(options) for settings in served)
