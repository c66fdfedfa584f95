"""The tour in chromium: "Try it" does what the question says, and on a phone stage and words are both on the screen."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import Page, browser, explorer, require_browser

pytestmark = pytest.mark.integration

require_browser()
__all__ = ["browser", "explorer"]  # fixtures

QUIET = "#classes=syn-small&momentum=0.9&steps=40&flow=off&left=tour"


@pytest.fixture(scope="module")
def page(explorer: Callable[..., Page]) -> Iterator[Page]:
    made = explorer(QUIET)
    yield made
    made.check_quiet()
    made.context.close()


def scene(page: Page, number: int) -> None:
    """Opens a scene, and waits until its whole run is there."""
    page.page.locator(".scenes button, .dots button").nth(number - 1).click()
    page.page.locator(".scene-number", has_text=f"Scene {number} of 6").wait_for()
    page.wait("app.state.state === 'done' && app.film.lastStep === 1000")


def test_the_change_of_scene_4_is_made_in_the_middle_of_its_run(page: Page) -> None:
    scene(page, 4)
    assert "in the middle of the run" in page.page.inner_text(".now p")
    frames = "app.film.frames.slice(0, 51).map((frame) => Array.from(frame))"  # of every step to 50
    before, end = page.get(frames), page.get("Array.from(app.film.frames.at(-1))")
    page.page.click("#tour-try")
    page.wait("app.film.marks.length === 1 && app.state.state === 'done' && app.film.lastStep === 1000")
    assert page.get("app.film.marks") == [{"step": 500, "eta_y": 1, "eta_z": 3}]
    assert page.get("[app.film.run.setup.eta_z, app.setup.eta_z]") == [1, 3]
    assert page.get(frames) == before, "the same run until then"
    assert page.get("Array.from(app.film.frames.at(-1))") != end
    page.wait("app.pinned?.film.lastStep === 1000 && app.pinned.setup.eta_z === 1")
    page.page.click("#tour-try")  # again: the same film, over the same pinned run
    page.wait("app.pinned?.film.lastStep === 1000 && app.pinned.film.marks.length === 0")
    assert page.get("app.film.marks.length") == 1


def test_the_answer_of_scene_2_is_computed_at_full_speed_and_says_what_is_seen(page: Page) -> None:
    page.stop_clock()
    scene(page, 2)
    page.page.click("#tour-try")
    page.wait("app.film.run.setup.classes.common_weight === 5 && app.state.state === 'done'")
    page.page.click("#tour-answer")
    rose = """(() => { const f = app.film, last = f.length - 1, common = f.run.classes.common;
      return f.run.layout.tokens.map((tokens, k) => tokens.filter((t, j) =>
        common.includes(t) && f.attention(last, k)[j] > f.attention(0, k)[j]).length); })()"""
    assert page.get(rose) == [3, 2]
    said = page.page.inner_text(".answer")
    assert "three in class 0 and two in class 1 rise" in said
    assert page.step() == 0, "it plays by the page's clock"
    page.pass_time(8_001)
    page.page.wait_for_function("() => document.querySelector('#clock b').textContent.replace(/\\D/g, '') === '1000'")
    page.start_clock()


def test_on_a_phone_the_stage_and_the_words_are_both_seen(page: Page) -> None:
    page.page.set_viewport_size({"width": 390, "height": 844})
    page.page.locator(".dots button").nth(1).click()
    page.page.locator(".scene-number", has_text="Scene 2 of 6").wait_for()

    def place(what: str) -> dict[str, Any]:
        found = page.page.locator(what).first.bounding_box()
        assert found is not None
        return found

    stage, title, words, question = (place(w) for w in ("#attention", "#panel-tour h2", "#panel-tour .prose", ".now p"))
    transport, tour = place(".transport"), place("#panel-tour")
    assert stage["y"] >= 0
    assert stage["height"] > 250
    assert stage["y"] + stage["height"] <= transport["y"], "nothing lies over the stage"
    assert transport["y"] + transport["height"] <= tour["y"]
    for box in (title, words, question):
        assert tour["y"] <= box["y"]
        assert box["y"] + box["height"] <= 844, "on the screen without scrolling"
    page.page.click("#tour-answer")
    answer = place(".answer")
    assert tour["y"] <= answer["y"] + 1
    assert answer["y"] + answer["height"] <= 844 + 1, "the answer comes into view"
    page.page.set_viewport_size({"width": 1280, "height": 720})
