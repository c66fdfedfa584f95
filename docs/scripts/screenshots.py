"""Makes the pictures of docs/explorer.md from a server and a browser of its own: python docs/scripts/screenshots.py."""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from typing import Any

from browser import PATIENCE, SIZE, explorer, opened, to_the_end
from PIL import Image

OUT = Path(__file__).parents[1] / "explorer"
WORDS = "#classes=words&eta_y=2&steps=1000&preset=words&right=chain&bar=0:10"
SMALL = "#classes=syn-small&steps=1000&preset=figure-4"
MEDIUM = "#classes=syn-medium&classes.n_queries=10&eta_y=2&init=uniform&steps=2000&speed=max&preset=medium-10&flow=off"
TEXTBOOK = (
    "#classes=textbook&eta_y=0.9&eta_z=0.02&momentum=0&context=inf&batch_size=null&steps=3000&speed=max&preset=textbook"
)


def small(browser: Any, address: str) -> None:
    """Syn-Small: the run, its film, the map of the rates, the decoder, the weights, a lecture."""
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
    page.wait_for_function("() => document.querySelector('#y-canvas')?.ariaLabel?.includes('step 1')")
    shoot(page, "decoder")
    page.keyboard.press("1")
    page.click("#edit-weights")
    shoot(page, "weights")
    page.keyboard.press("Escape")
    shoot_lecture(page)


def medium(browser: Any, address: str) -> None:
    """Twenty classes on a dark page."""
    page = opened(browser, address + MEDIUM, "dark")
    to_the_end(page)
    shoot(page, "medium-dark")


def claims(browser: Any, address: str) -> None:
    """The verdicts, and one that fails in full."""
    page = opened(browser, address + TEXTBOOK + "&right=claims", "light")
    to_the_end(page)
    page.wait_for_selector(".claim.holds", timeout=PATIENCE)
    page.wait_for_timeout(3000)  # the verdicts on the last step
    page.click(".claim.fails summary")
    shoot(page, "claims")


def tour(browser: Any, address: str) -> None:
    """A scene of the guided tour."""
    page = opened(browser, address + "#left=tour&scene=4", "light")
    to_the_end(page)
    shoot(page, "tour")


def words(browser: Any, address: str) -> None:
    """The first run with the chain of a bar, and the dialog of one's own words."""
    page = opened(browser, address + WORDS, "light")
    to_the_end(page)
    page.wait_for_selector("#chain-alpha")
    shoot(page, "words")
    page.click("#own-words")
    page.click("#words-example")
    page.wait_for_selector("#words-pairs button")
    shoot(page, "own-words")


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
        film.keyboard.press("Home")
        for _ in range(15):  # to where the winners emerge
            film.keyboard.press("ArrowRight")
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
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256).save(OUT / f"{name}.png", optimize=True)  # a palette is a third of the bytes
    print(f"{name}.png: {(OUT / f'{name}.png').stat().st_size / 1000:.0f} kB", flush=True)


SCENES = {scene.__name__: scene for scene in (words, small, medium, claims, tour)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)}; default: all")
    wanted = parser.parse_args().scenes or list(SCENES)
    if unknown := [name for name in wanted if name not in SCENES]:
        parser.error(f"no scene {unknown[0]}; there are {', '.join(SCENES)}")
    OUT.mkdir(exist_ok=True)
    with explorer() as (browser, address):
        for name in wanted:
            SCENES[name](browser, address)
