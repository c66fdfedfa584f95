"""Makes the pictures of docs/explorer.md from a server and a browser of its own: python docs/make_screenshots.py."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "explorer"
WORDS = "#classes=words&eta_y=2&steps=1000&preset=words&right=chain&bar=0:10"
SMALL = "#classes=syn-small&steps=1000&preset=figure-4"
MEDIUM = "#classes=syn-medium&classes.n_queries=10&eta_y=2&init=uniform&steps=2000&speed=max&preset=medium-10&flow=off"
TEXTBOOK = (
    "#classes=textbook&eta_y=0.9&eta_z=0.02&momentum=0&context=inf&batch_size=null&steps=3000&speed=max&preset=textbook"
)
SIZE = {"width": 1280, "height": 720}
PATIENCE = 300_000  # milliseconds; the machine may be busy
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def main() -> int:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("Screenshots need playwright: pip install playwright", file=sys.stderr)
        return 2
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("Screenshots need chromium: apt install chromium", file=sys.stderr)
        return 2
    OUT.mkdir(exist_ok=True)
    command = [sys.executable, "-c", "from scansnap.cli.app import main; main()", "serve", "--no-open", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        found = re.search(r"http://\S+", server.stderr.readline())
        assert found, "the server did not start"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            take_all(browser, found.group())
            browser.close()
    finally:
        server.terminate()
        server.wait(20)
    return 0


def take_all(browser: Any, address: str) -> None:
    shoot_words(browser, address)
    page = opened(browser, address + SMALL, "light")
    to_the_end(page)
    shoot(page, "run")
    shoot_film(browser, page)
    page.keyboard.press("m")
    page.wait_for_function("() => document.querySelectorAll('#map-cells td').length > 0")
    page.focus("#map-dot")
    for key in ("ArrowUp", "ArrowUp", "ArrowRight"):  # and the run before is a ghost
        page.keyboard.press(key)
    to_the_end(page)
    shoot(page, "map")
    page.keyboard.press("m")
    page.keyboard.press("2")
    page.wait_for_timeout(1500)
    shoot(page, "decoder")
    page.keyboard.press("1")
    page.click("#edit-weights")
    shoot(page, "weights")
    page.keyboard.press("Escape")
    shoot_lecture(page)
    page = opened(browser, address + MEDIUM, "dark")
    to_the_end(page)
    shoot(page, "medium-dark")
    page = opened(browser, address + TEXTBOOK + "&right=claims", "light")
    to_the_end(page)
    page.wait_for_selector(".claim.holds", timeout=PATIENCE)
    page.wait_for_timeout(3000)  # the verdicts on the last step
    page.click(".claim.fails summary")
    shoot(page, "claims")
    page = opened(browser, address + "#left=tour&scene=4", "light")
    page.wait_for_function("() => document.querySelector('#clock').dataset.state === 'done'", timeout=PATIENCE)
    page.wait_for_timeout(2500)
    shoot(page, "tour")


def shoot_words(browser: Any, address: str) -> None:
    """The first run with the chain of a bar, and the dialog of one's own words."""
    page = opened(browser, address + WORDS, "light")
    to_the_end(page)
    page.wait_for_selector("#chain-alpha")
    shoot(page, "words")
    page.click("#own-words")
    page.click("#words-example")
    page.wait_for_selector("#words-pairs button")
    shoot(page, "own-words")


def opened(browser: Any, address: str, scheme: str) -> Any:
    page = browser.new_page(viewport=SIZE, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_selector("#wait", state="hidden")
    page.wait_for_selector("#view-z .main-svg, #panel-curves[hidden]", state="attached")
    return page


def to_the_end(page: Any) -> None:
    page.wait_for_function("() => document.querySelector('#clock').dataset.state === 'done'", timeout=PATIENCE)
    page.keyboard.press("End")
    page.wait_for_timeout(2500)  # the curves catch up, the flow arrives


def shoot_film(browser: Any, page: Any) -> None:
    """The film of the run on screen, from its file, without a server."""
    page.keyboard.press("e")
    with page.expect_download() as waiting, tempfile.TemporaryDirectory() as folder:
        page.click("#export-film")
        file = Path(folder) / "film.html"
        waiting.value.save_as(file)
        film = browser.new_page(viewport=SIZE, offline=True)
        film.goto(file.as_uri())
        film.wait_for_selector("html[data-ready]")
        film.keyboard.press("End")
        for _ in range(60):  # to where the winners emerge
            film.keyboard.press("ArrowLeft")
        shoot(film, "film")
        film.close()
    page.keyboard.press("Escape")


def shoot_lecture(page: Any) -> None:
    """The question of the first deck, answered wrongly."""
    page.keyboard.press("f")
    page.locator(".deck").first.click()
    page.wait_for_selector("#lecture[data-phase=asking]")
    page.evaluate("() => document.activeElement.blur()")
    for key in ["ArrowUp"] * 6 + ["ArrowRight", "ArrowRight"]:
        page.keyboard.press(key)
    page.wait_for_selector("#lecture[data-phase=there]")
    shoot(page, "lecture")
    page.keyboard.press("Escape")


def shoot(page: Any, name: str) -> None:
    page.mouse.move(5, 5)
    page.wait_for_timeout(300)
    page.screenshot(path=OUT / f"{name}.png")
    print(OUT / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
