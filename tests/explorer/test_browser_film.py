"""The explorer in chromium: every change is a film, the one before it is its ghost, and the map of the rates."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import Page, browser, explorer, require_browser

pytestmark = pytest.mark.integration

require_browser()

SHOWN = "app.film.steps[app.cursor ?? app.film.length - 1]"
COMPLETE = "app.state.state === 'done' && app.film.lastStep === app.state.steps"
SMALL = "#classes=syn-small&steps=300&flow=off"


@pytest.fixture(scope="module")
def shared(explorer: Callable[..., Page]) -> Iterator[Page]:
    made = explorer(SMALL)
    made.wait(COMPLETE)
    yield made
    made.check_quiet()
    made.context.close()


@pytest.fixture
def film(shared: Page) -> Page:
    """The film of rates 1 and 1, without marks, at step 0."""
    shared.page.uncheck("#from-here")
    shared.page.evaluate(
        """async () => { const runner = modules['compute/runner'];
             const { app, emit } = modules['app'];
             app.setup = { ...app.setup, eta_y: 1, eta_z: 1, steps: 300 };
             emit("setup-shown");
             runner.seekStep(0);
             await runner.film(app.setup); }"""
    )
    shared.step()
    assert shared.get("[app.film.marks.length, app.cursor]") == [0, 0]
    return shared


def drag(page: Page, selector: str, to: float) -> None:
    """A slider by the mouse, over many places, to a part of its width."""
    box = page.page.locator(selector).bounding_box()
    assert box
    y, at = box["y"] + box["height"] / 2, page.page.locator(selector).evaluate("(e) => e.value / e.max")
    page.page.mouse.move(box["x"] + 6 + at * (box["width"] - 12), y)
    page.page.mouse.down()
    for i in range(1, 10):
        page.page.mouse.move(box["x"] + 6 + (at + (to - at) * i / 9) * (box["width"] - 12), y)
        page.step()
    page.page.mouse.up()


def test_a_rate_changed_after_the_run_shows_the_run_of_the_new_rates(film: Page) -> None:
    film.key("End")
    before = film.get("[...app.film.frames.at(-1)].map(String)")
    film.fill("eta_y", "10")
    film.wait(f"app.film.run.setup.eta_y === 10 && {COMPLETE}")
    assert film.step() == 300, "the cursor stays"
    assert film.get("app.film.marks") == []
    after = film.get("[...app.film.frames.at(-1)].map(String)")
    assert after != before
    fresh = film.page.evaluate(
        """async () => { const { makeFilm } = modules['compute/aside'];
             const { app } = modules['app'], film = await makeFilm('test', app.film.run.setup, []);
             return [...film.frames.at(-1)].map(String); }"""
    )
    assert after == fresh, "it is the run of these rates from step 0"


def test_the_film_before_is_a_ghost_over_the_bars(film: Page) -> None:
    film.key("End")
    film.fill("eta_y", "5")
    film.wait(f"app.film.run.setup.eta_y === 5 && {COMPLETE}")
    assert film.get("[app.ghost.setup.eta_y, app.ghost.film.lastStep]") == [1, 300]
    assert film.page.inner_text("#legend-ghost").replace("\n", "").replace(" ", "") == "before:ηY1"
    with_ghost = film.page.evaluate(PICTURE)
    film.page.evaluate(
        """async () => { const { app, emit } = modules['app'];
             app.ghost = null; emit("ghost"); }"""
    )
    film.step()
    assert film.page.evaluate(PICTURE) != with_ghost
    assert film.page.locator("#legend-ghost").is_hidden()


PICTURE = "() => document.querySelector('#attention').toDataURL()"


def test_the_cursor_stays_at_its_step_and_a_superseded_film_is_dropped(film: Page) -> None:
    film.page.locator("#scrub").fill("1500")
    at = film.step()
    assert 50 < at < 100
    results = film.page.evaluate(
        """async () => { const runner = modules['compute/runner'];
             const { app } = modules['app'];
             const made = [2, 3, 4].map((eta_y) => runner.film({ ...app.setup, eta_y }));
             return (await Promise.all(made)).map((film) => film && film.run.setup.eta_y); }"""
    )
    assert results == [None, None, 4]
    assert film.get("app.film.run.setup.eta_y") == 4
    assert film.step() == at


def test_steps_are_played_in_the_time_that_is_given(film: Page) -> None:
    film.stop_clock()
    film.page.evaluate(
        """async () => { const runner = modules['compute/runner'];
             window.played = false; runner.playSteps(3, 99, 4).then(() => (window.played = true)); }"""
    )
    film.wait(f"{SHOWN} === 3")
    film.pass_time(2005)
    film.wait(f"{SHOWN} === 19")  # √(4 · 100) − 1
    assert film.page.evaluate("played") is False
    film.pass_time(2000)
    film.wait("played")
    assert film.step() == film.get("app.film.steps[app.film.at(99)]")
    film.start_clock()


@pytest.mark.parametrize("from_here", [False, True])
def test_a_drag_of_a_slider_is_one_change(film: Page, from_here: bool) -> None:
    film.page.set_checked("#from-here", from_here)
    film.page.locator("#scrub").fill("1000")
    at = film.step()
    assert at > 10
    film.page.evaluate(
        """() => { const { workers } = modules['compute/engine'], ask = workers.ask; window.sent = [];
             workers.ask = (op, asked, how) => {
               if (op === "film") sent.push(asked);
               return ask.call(workers, op, asked, how); }; }"""
    )
    drag(film, '.control[data-name="eta_y"] .slider', 0.75)
    now = "(app.film.marks.at(-1) ?? app.film.run.setup).eta_y"
    film.wait(f"app.setup.eta_y > 5 && {COMPLETE} && {now} === app.setup.eta_y")
    marks = film.get("app.film.marks")
    if from_here:
        assert [mark["step"] for mark in marks] == [at]
    else:
        assert marks == []
    starts = film.page.evaluate("sent")
    assert max(len(message["marks"]) for message in starts) == int(from_here)
    last = starts[-1]["marks"][0]["eta_y"] if from_here else starts[-1]["setup"]["eta_y"]
    assert last == film.get("app.setup.eta_y")
    assert film.step() == at
    assert film.get("app.ghost.setup.eta_y") == 1, "what was shown on the way is no result to compare with"
    assert film.get("app.ghost.film.marks") == []


@pytest.mark.parametrize("button", ["#reset", "#step", "#play"])
def test_space_after_a_click_plays(film: Page, button: str) -> None:
    film.page.locator("#scrub").fill("1000")
    film.page.click(button)
    if button == "#play":
        film.wait("document.querySelector('#play').ariaLabel === 'Pause'")
        film.page.click(button)
    film.step()
    at = film.step()
    film.stop_clock()
    film.key(" ")
    film.wait("document.querySelector('#play').ariaLabel === 'Pause'")
    assert film.step() == at
    film.pass_time(60_000)
    film.wait(f"{SHOWN} === 300 && document.querySelector('#play').ariaLabel === 'Play'")
    film.start_clock()


def test_a_button_reached_by_the_keyboard_is_pressed_by_space(film: Page) -> None:
    film.key("End")
    film.page.focus("#reset")
    film.key(" ")
    film.wait("app.cursor === 0")
    assert film.page.evaluate("document.activeElement.id") == "reset"


def test_the_map_shows_where_runs_end_and_its_dot_changes_the_rates(film: Page) -> None:
    film.page.evaluate("() => { document.querySelector('#map').open = true; }")
    film.page.wait_for_function("() => document.querySelectorAll('#map-cells td').length === 82")
    film.page.wait_for_function("() => !document.querySelector('.mapbox.stale')")
    dot = film.page.locator("#map-dot")
    assert "η_Y 1, η_Z 1" in dot.get_attribute("aria-valuetext")
    own, cell = (film.page.evaluate(f"() => parseInt(document.querySelector('{of}').textContent.split(':').at(-1))")
                 for of in ("#map-reading", "#map-cells tr:nth-of-type(6) td:nth-of-type(5)"))  # fmt: skip
    assert own == cell, "the cell of these rates is where the film on screen ends"
    film.key("End")
    dot.focus()
    film.key("ArrowUp", "ArrowUp", "ArrowRight")
    film.wait(f"app.film.run.setup.eta_y === 10 && app.film.run.setup.eta_z === 3.16 && {COMPLETE}")
    assert film.step() == 300
    assert film.page.input_value("#c-eta_y") == "10"
    film.wait("document.querySelector('#map-dot').getAttribute('aria-valuetext').includes('at step 300')")
    box = film.page.locator(".mapbox").bounding_box()
    assert box
    film.page.mouse.move(box["x"] + box["width"] * 5.5 / 9, box["y"] + box["height"] * 2.5 / 9)  # on the dot
    film.page.mouse.down()
    film.page.mouse.move(box["x"] + box["width"] * 3 / 9, box["y"] + box["height"] * 3 / 9)
    film.page.mouse.move(box["x"] + box["width"] * 0.5 / 9, box["y"] + box["height"] * 6.5 / 9)
    film.page.mouse.up()
    film.wait(f"app.film.run.setup.eta_y === 0.1 && app.film.run.setup.eta_z === 0.01 && {COMPLETE}")
    assert film.get("app.film.marks") == []
    assert film.get("app.ghost.setup.eta_y") == 10


def test_a_map_is_computed_once_per_set_up_and_says_what_diverged(film: Page) -> None:
    film.page.evaluate(
        """() => { const { workers } = modules['compute/engine']; window.maps = []; window.restored = workers.map;
             workers.map = async (setup, listener) => {
               maps.push(setup.steps);
               const cells = Array.from({ length: 81 }, (_, i) => ({ row: Math.floor(i / 9), column: i % 9 }));
               listener({ cells: cells.map((cell) => ({ ...cell, share: cell.row === 8 ? NaN : 0.5,
                                                        failed_step: cell.row === 8 ? 12 : null })) }); };
             document.querySelector('#map').open = true; }"""
    )
    film.fill("steps", "301")
    film.wait(f"app.film.run.setup.steps === 301 && {COMPLETE}")
    film.wait("document.querySelector('#map-note').textContent.includes('9 hatched')")
    assert film.page.locator("#map-cells td", has_text="diverged at step 12").count() == 9
    film.fill("eta_y", "2")
    film.wait(f"app.film.run.setup.eta_y === 2 && {COMPLETE}")
    film.wait("document.querySelector('#map-reading').textContent.includes('301')")
    film.page.wait_for_function("() => !document.querySelector('.mapbox.stale')")
    assert film.page.evaluate("maps").count(301) == 1, "the rates on screen are no part of it"
    film.page.evaluate("() => { modules['compute/engine'].workers.map = restored; }")
    film.page.evaluate("() => { document.querySelector('#map').open = false; }")
    film.fill("steps", "300")
    film.wait("app.film.run.setup.steps === 300 && app.state.state === 'done'")


def test_the_map_is_filled_while_it_is_computed(film: Page) -> None:
    known = film.page.evaluate(
        """async () => { const { rateMap } = modules['compute/api'], { app } = modules['app'], known = [];
             document.querySelector('#map').open = false;
             await rateMap({ ...app.film.run.setup, steps: 40 }, (map) => {
               known.push([map.known, map.share.flat().filter((share) => share !== null).length]); });
             return known; }"""
    )
    assert len(known) > 10
    assert known == sorted(known)
    assert known[0][0] < 10
    assert known[-1] == [81, 81]


def test_more_steps_leave_the_film_on_screen(film: Page) -> None:
    film.key("End")
    film.page.evaluate(
        """() => { const { app, on } = modules['app']; window.least = Infinity;
             on("run frames state", () => (least = Math.min(least, app.film.lastStep))); }"""
    )
    frame = film.get("[...app.film.frames[app.film.at(150)]].map(String)")
    film.page.click("#extend")
    film.wait(f"app.state.steps === 600 && {COMPLETE}")
    assert film.page.evaluate("least") == 300, "nothing was taken from the screen"
    assert film.get("[...app.film.frames[app.film.at(150)]].map(String)") == frame
    assert film.get("app.setup.steps") == 600
