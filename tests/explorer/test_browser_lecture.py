"""Lecture mode in chromium: beats by keyboard, a question and its reveal, and the file that needs no server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import PATIENCE, QUICK, Page, browser, require_browser
from films import Film

from scansnap.explorer.build import explorer_html
from scansnap.explorer.lecture import read_deck

pytestmark = pytest.mark.integration

require_browser()
__all__ = ["browser"]  # a fixture

DECK = """
title = "A short talk"
author = "A. Lecturer"
[[beat]]
setup = {preset = "figure-4", steps = 60}
to = 0
sentence = "All logits begin at 0."
highlight = {tokens = ["common"]}
curve = "loss"
[[beat]]
setup = {preset = "figure-4", steps = 60}
to = 40
seconds = 4
sentence = "The most frequent distinct token <b>wins</b>."
curve = "logits"
predict = {question = "Which token of class 0 wins?", class = 0}
[[beat]]
setup = {preset = "figure-4", steps = 60}
against = {preset = "fast-decoder", steps = 60}
marks = [{step = 20, eta_z = 3.0}]
from = 10
to = 60
seconds = 4
sentence = "η_Z rises at step 20."
"""
SMALL = {"classes": {"preset": "syn-small"}, "eta_y": 1.0, "eta_z": 1.0, "momentum": 0.9, "steps": 60}


@pytest.fixture(scope="module")
def lectern(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page with a deck of its own, and its clock stopped: beats play when a test lets time pass."""
    own = tmp_path_factory.mktemp("deck") / "short.toml"
    own.write_text(DECK, encoding="utf-8")
    page = own.with_suffix(".html")
    page.write_text(explorer_html([read_deck(own)]), encoding="utf-8")
    made = Page(browser, page.as_uri()).open(QUICK)
    made.wait("app.state.state === 'done' && app.film.lastStep === app.state.step")
    made.stop_clock()
    yield made
    made.check_quiet()
    made.context.close()


def at(tab: Any, beat: int, phase: str) -> None:
    tab.locator(f"#lecture[data-beat='{beat}'][data-phase='{phase}']").wait_for()
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def clock(tab: Any) -> int:
    return int(re.sub(r"\D", "", tab.inner_text("#lecture .clock b")))


def click_bar(tab: Any, column: int, columns: int = 20) -> None:
    """One class is on the stage: its bars fill the width right of the axis."""
    box = tab.locator("#lecture .stagebox canvas").bounding_box()
    axis = 34 * tab.evaluate("() => 1.35 * parseFloat(getComputedStyle(document.documentElement).fontSize) / 13.3")
    tab.mouse.click(box["x"] + axis + (box["width"] - axis) * (column + 0.5) / columns, box["y"] + box["height"] * 0.3)


def wins(token: int, value: float) -> str:
    return f"Token {token}, distinct (only in this context), wins: {100 * value:.0f}% of the attention at step 40."


def winner() -> tuple[int, float]:
    """Of the question, counted in a run of its own."""
    values = Film(SMALL).attention(40, 0)
    token = max(values, key=lambda t: values[t])
    return token, values[token]


def test_a_lecture_by_keyboard(lectern: Page) -> None:
    tab, before = lectern.page, lectern.get("[app.film.number, app.cursor]")
    lectern.key("f")
    tab.locator(".deck").first.wait_for()
    assert tab.locator("#lecture .tools").evaluate("(e) => getComputedStyle(e).opacity") == "1", "the way out is seen"
    assert tab.locator(".deck b").all_inner_texts() == [
        "A short talk", "Scan and Snap in ten minutes", "What fails and what holds", "Adam against SGD",
    ]  # fmt: skip
    lectern.key("Enter")
    at(tab, 1, "there")
    assert tab.inner_text("#lecture .sentence") == "All logits begin at 0."
    assert clock(tab) == 0
    lectern.key("PageDown")
    at(tab, 2, "asking")
    lectern.key(" ")
    at(tab, 2, "playing")
    lectern.pass_time(2000)  # of four seconds, paced by ln t
    tab.wait_for_function("() => document.querySelector('#lecture .clock b').textContent === '5'")
    assert tab.inner_text("#lecture .sentence") == "Which token of class 0 wins?", "no word of the outcome yet"
    lectern.key("ArrowRight")
    at(tab, 2, "there")
    assert clock(tab) == 40, "forward: what is still to come"
    lectern.key("ArrowRight")
    at(tab, 3, "playing")
    assert clock(tab) == 10
    lectern.pass_time(4001)
    at(tab, 3, "there")
    assert clock(tab) == 60
    assert tab.inner_html("#lecture .sentence") == "<var>η</var><sub>Z</sub> rises at step 20."
    assert "the other run" in tab.inner_text("#lecture .legend")
    lectern.key("ArrowRight")
    at(tab, 3, "there")
    lectern.key("PageUp")
    at(tab, 2, "there")
    assert clock(tab) == 40
    lectern.key("Home")
    at(tab, 1, "there")
    tab.click("#lecture [aria-label=Forward]")  # as on a phone
    at(tab, 2, "asking")
    lectern.key("Escape")
    assert tab.locator("#lecture").count() == 0
    assert lectern.get("[app.film.number, app.cursor]") == before, "the page is as it was"
    lectern.key("2")
    assert tab.get_attribute("#tab-y", "aria-selected") == "true", "and has its keys again"


def test_the_audience_predicts_before_the_reveal(lectern: Page) -> None:
    tab, (token, value) = lectern.page, winner()
    tab.click("#lecture-open")
    tab.locator(".deck").first.click()
    at(tab, 1, "there")
    for column, verdict in ((10, "You said token 10"), (19, "Right.")):  # by frequency: the rarest, the most frequent
        lectern.key("Home", "ArrowRight")
        at(tab, 2, "asking")
        click_bar(tab, column)
        assert tab.inner_text("#lecture .result").startswith(f"Your choice: token {column}.")
        lectern.key("ArrowRight", "ArrowRight")
        at(tab, 2, "there")
        said = tab.inner_text("#lecture .result")
        assert said.startswith(verdict)
        assert said.endswith(wins(token, value))
        assert tab.inner_text("#lecture .sentence") == "The most frequent distinct token <b>wins</b>."
        for size in ({"width": 390, "height": 844}, {"width": 1280, "height": 720}):
            tab.set_viewport_size(size)
            sentence, result, stage = (tab.locator(f"#lecture {w}").bounding_box()
                                       for w in (".sentence", ".result", ".stagebox"))  # fmt: skip
            assert sentence["y"] + sentence["height"] <= result["y"]
            assert result["y"] + result["height"] <= stage["y"], "the words lie over nothing"
    lectern.key("Home", "ArrowRight")
    at(tab, 2, "asking")
    lectern.key("ArrowUp")  # without a mouse: to the next bar on the left
    assert "token 18" in tab.inner_text("#lecture .result")
    lectern.key("Escape")


def test_a_lecture_is_saved_as_one_file_that_needs_nothing(lectern: Page, browser: Any, tmp_path: Path) -> None:
    tab = lectern.page
    lectern.key("f")
    tab.locator(".deck").first.click()
    at(tab, 1, "there")
    saved = lectern.download(lambda: tab.click("#lecture-save"))
    lectern.key("Escape")
    file = tmp_path / "short.html"
    file.write_bytes(saved)
    (inside,) = re.findall(r'id="data-catalogue">(.*?)</script>', saved.decode())
    assert "<" not in inside
    told = json.loads(inside)
    assert told["lecture"] is True
    assert told["decks"][0]["title"] == "A short talk"
    context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True, reduced_motion="reduce")
    context.set_default_timeout(1000 * PATIENCE)
    offline, loud = context.new_page(), []
    offline.on("pageerror", lambda error: loud.append(str(error)))
    offline.on("console", lambda m: loud.append(m.text))
    offline.on("request", lambda r: loud.append(r.url) if not r.url.startswith(("file:", "blob:")) else None)
    offline.goto(file.as_uri())
    offline.locator("html[data-ready]").wait_for(state="attached")
    at(offline, 1, "there")
    for key, beat, phase in (("PageDown", 2, "asking"), ("ArrowUp", 2, "asking"), (" ", 2, "there"),
                             ("ArrowRight", 3, "there"), ("ArrowLeft", 2, "there"), ("End", 3, "there")):  # fmt: skip
        offline.keyboard.press(key)
        at(offline, beat, phase)
    offline.keyboard.press("PageUp")
    at(offline, 2, "there")
    token, value = winner()
    assert offline.inner_text(".result") == f"Right. {wins(token, value)}"
    assert offline.inner_text(".sentence") == "The most frequent distinct token <b>wins</b>.", "no markup from a deck"
    blue = offline.evaluate(
        """() => { const c = document.querySelector(".stagebox canvas"), pixels = c.getContext("2d"); let n = 0;
             const d = pixels.getImageData(0, 0, c.width, c.height).data;
             for (let i = 0; i < d.length; i += 4) n += d[i] === 0 && d[i + 1] === 114;
             return n; }"""
    )
    assert blue > 5000, "bars of distinct tokens"
    assert loud == []
    context.close()
