"""The explorer in chromium: every change is a film, the one before it is its ghost, and the map of the rates."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import Page, browser, explorer, require_browser

require_browser()

SHOWN = "app.film.steps[app.cursor ?? app.film.length - 1]"
COMPLETE = "app.state.state === 'done' && app.film.lastStep === app.state.steps"
SMALL = "#classes=syn-small&steps=300&flow=off"
COUNT = """() => { window.sent = []; const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (text) { sent.push(JSON.parse(text)); return send.call(this, text); }; }"""


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
        """async () => { const runner = await import('/static/js/server/runner.js');
             const { app, emit } = await import('/static/js/app.js');
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
        """async () => { const { aside } = await import('/static/js/server/socket.js');
             const { app } = await import('/static/js/app.js');
             return new Promise((done) => aside(app.film.run.setup, [], { frames: (steps, values, floats) => {
               if (steps.at(-1) === 300) done([...values.slice(-floats)].map(String)); } })); }"""
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
        """async () => { const { app, emit } = await import('/static/js/app.js');
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
        """async () => { const runner = await import('/static/js/server/runner.js');
             const { app } = await import('/static/js/app.js');
             const made = [2, 3, 4].map((eta_y) => runner.film({ ...app.setup, eta_y }));
             return (await Promise.all(made)).map((film) => film && film.run.setup.eta_y); }"""
    )
    assert results == [None, None, 4]
    assert film.get("app.film.run.setup.eta_y") == 4
    assert film.step() == at


def test_a_rate_changed_while_another_change_is_checked_is_not_lost(film: Page) -> None:
    waiting: list[Any] = []
    film.page.route("**/api/check", lambda route: route.continue_() if waiting else waiting.append(route))
    film.fill("seed", "5")
    while not waiting:
        film.step()
    film.fill("eta_y", "3")
    waiting[0].continue_()  # the answer of before
    film.wait(f"app.film.run.setup.seed === 5 && {COMPLETE}")
    film.page.wait_for_load_state("networkidle")
    assert film.get("[app.setup.eta_y, app.film.run.setup.eta_y]") == [3, 3]
    assert film.page.input_value("#c-eta_y") == "3"
    film.page.unroute("**/api/check")
    film.fill("seed", "0")
    film.wait(f"app.film.run.setup.seed === 0 && {COMPLETE}")


def test_steps_are_played_in_the_time_that_is_given(film: Page) -> None:
    film.stop_clock()
    film.page.evaluate(
        """async () => { const runner = await import('/static/js/server/runner.js');
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
    film.page.evaluate(COUNT)
    drag(film, '.control[data-name="eta_y"] .slider', 0.75)
    now = "(app.film.marks.at(-1) ?? app.film.run.setup).eta_y"
    film.wait(f"app.setup.eta_y > 5 && {COMPLETE} && {now} === app.setup.eta_y")
    marks = film.get("app.film.marks")
    if from_here:
        assert [mark["step"] for mark in marks] == [at]
    else:
        assert marks == []
    starts = [message for message in film.page.evaluate("sent") if message["op"] == "start"]
    assert max(len(message["marks"]) for message in starts) == int(from_here)
    last = starts[-1]["marks"][0]["eta_y"] if from_here else starts[-1]["setup"]["eta_y"]
    assert last == film.get("app.setup.eta_y")
    assert not [message for message in film.page.evaluate("sent") if message["op"] == "rates"]
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


def forget(page: Page) -> None:
    """As after a restart of the server: the page comes back to a run nobody knows."""
    page.page.evaluate('() => { const s = sockets.at(-1); s.send(\'{"op": "close"}\'); s.close(); }')


def test_a_run_that_the_server_lost_goes_on_from_where_it_was(explorer: Callable[..., Page]) -> None:
    p = explorer(f"{SMALL}&marks=20:5:0.5&step=20".replace("steps=300", "steps=20000"))
    p.wait("app.film.marks.length === 1 && app.film.lastStep > 200")
    run, marks = p.get("app.film.run.run"), p.get("app.film.marks")
    frame = "[...app.film.frames[app.film.at(150)]].map(String)"
    there, reached = p.get(frame), p.get("app.film.lastStep")
    p.page.evaluate(
        """async () => { const { app, on } = await import('/static/js/app.js'); window.least = Infinity;
             on("run frames state", () => (least = Math.min(least, app.film.lastStep))); }"""
    )
    forget(p)
    p.wait(f"app.film.run.run !== '{run}'")
    p.wait("document.querySelector('#toast').textContent.includes('computed again')")
    p.wait(f"app.film.lastStep > {reached} && app.state.step > {reached}")
    assert p.page.evaluate("least") >= reached, "nothing was taken from the screen"
    assert p.get("app.film.marks") == marks == [{"step": 20, "eta_y": 5, "eta_z": 0.5}]
    assert p.get("[app.setup.eta_y, app.setup.eta_z]") == [5, 0.5]
    assert p.page.input_value("#c-eta_y") == "5"
    assert p.get(frame) == there, "the same numbers"
    assert p.step() == 20
    p.page.evaluate('() => sockets.at(-1).send(\'{"op": "close"}\')')
    p.check_quiet()
    p.context.close()


def test_a_run_that_cannot_be_started_again_is_said_in_words(explorer: Callable[..., Page]) -> None:
    p = explorer(SMALL)
    p.wait(COMPLETE)
    p.page.evaluate(
        """() => { const send = WebSocket.prototype.send; WebSocket.prototype.send = function (text) {
             return send.call(this, text.includes('"start"') ? text.replace('"eta_y":1', '"eta_y":-1') : text); }; }"""
    )
    forget(p)
    p.page.locator("#run-refusal:visible").wait_for()
    words = p.page.inner_text("#run-refusal")
    assert "could not start it again" in words
    assert "from before" in words
    assert p.get("app.film.lastStep") == 300
    p.context.close()


def test_the_first_run_is_on_screen_without_any_worker(browser: Any, explorer: Callable[..., Page]) -> None:
    address = explorer(SMALL).address
    p = Page(browser, address)
    p.page.route("**/api/**", lambda route: None)  # a server too busy to answer
    p.page.route_web_socket("**/ws", lambda socket: None)
    p.page.goto(address)
    p.wait("app.film?.length > 100 && app.film.lastStep === app.film.run.steps")
    p.page.locator("#wait").wait_for(state="hidden")
    p.page.click("#play")
    p.wait(f"{SHOWN} > 5")
    p.page.unroute_all(behavior="ignoreErrors")
    p.context.close()
    p = explorer("")
    shipped = p.get("app.film.steps.length")
    p.wait("app.film.run.run !== ''")  # the server has it too
    p.wait(COMPLETE)
    assert shipped > 100
    assert p.get("app.ghost") is None, "the same run is nothing to compare with"
    p.check_quiet()
    p.context.close()


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
    film.page.evaluate(COUNT)
    film.page.mouse.move(box["x"] + box["width"] * 5.5 / 9, box["y"] + box["height"] * 2.5 / 9)  # on the dot
    film.page.mouse.down()
    film.page.mouse.move(box["x"] + box["width"] * 3 / 9, box["y"] + box["height"] * 3 / 9)
    film.page.mouse.move(box["x"] + box["width"] * 0.5 / 9, box["y"] + box["height"] * 6.5 / 9)
    film.page.mouse.up()
    film.wait(f"app.film.run.setup.eta_y === 0.1 && app.film.run.setup.eta_z === 0.01 && {COMPLETE}")
    assert film.get("app.film.marks") == []
    assert film.get("app.ghost.setup.eta_y") == 10
    assert all(message["op"] == "start" for message in film.page.evaluate("sent"))


def test_a_map_is_asked_for_once_per_set_up_and_says_what_diverged(film: Page) -> None:
    asked: list[Any] = []
    told = {"eta_y": [0.01 * 10 ** (i / 2) for i in range(9)], "eta_z": [0.01 * 10 ** (i / 2) for i in range(9)],
            "share": [[None if i == 8 else 0.5 for _ in range(9)] for i in range(9)], "step": 100, "steps": 301,
            "failed_step": [[12 if i == 8 else None for _ in range(9)] for i in range(9)], "seconds": 1.0}  # fmt: skip

    def answer(route: Any) -> None:
        asked.append(json.loads(route.request.post_data))
        route.fulfill(json=told)

    film.page.route("**/api/map", answer)
    film.page.evaluate("() => { document.querySelector('#map').open = true; }")
    film.fill("steps", "301")
    film.wait(f"app.film.run.setup.steps === 301 && {COMPLETE}")
    film.wait("document.querySelector('#map-note').textContent.includes('9 hatched')")
    assert "step 100 of 301 only" in film.page.inner_text("#map-note").replace("\u2009", "")
    assert film.page.locator("#map-cells td", has_text="diverged at step 12").count() == 9
    film.fill("eta_y", "2")
    film.wait(f"app.film.run.setup.eta_y === 2 && {COMPLETE}")
    film.wait("document.querySelector('#map-reading').textContent.includes('301')")
    film.page.wait_for_function("() => !document.querySelector('.mapbox.stale')")
    assert [setup["steps"] for setup in asked].count(301) == 1
    film.page.unroute("**/api/map")
    film.fill("steps", "300")
    film.wait("app.film.run.setup.steps === 300 && app.state.state === 'done'")
