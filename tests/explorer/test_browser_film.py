"""In chromium: every change is a film, the film before it is its ghost, and the map of the rates."""

import pytest

pytestmark = pytest.mark.integration

SHOWN = "app.film.steps[app.cursor ?? app.film.length - 1]"
LAST_FRAME = "[...app.film.frames.at(-1)].map(String)"
PLAYING = "document.querySelector('#play').ariaLabel === 'Pause'"


@pytest.fixture
def film(show):
    return show("#classes=syn-small&steps=300&flow=off")


def drag(p, selector, to):
    """A slider by the mouse, over many places, to a part of its width."""
    box = p.box(selector)
    y, at = box["y"] + box["height"] / 2, p.page.locator(selector).evaluate("(e) => e.value / e.max")
    p.page.mouse.move(box["x"] + 6 + at * (box["width"] - 12), y)
    p.page.mouse.down()
    for i in range(1, 10):
        p.page.mouse.move(box["x"] + 6 + (at + (to - at) * i / 9) * (box["width"] - 12), y)
        p.step()
    p.page.mouse.up()


def test_a_changed_rate_shows_the_run_of_the_new_rates_over_its_ghost(film):
    film.key("End")
    before = film.get(LAST_FRAME)
    film.rerun(eta_y=10)
    assert film.step() == 300, "the cursor stays"
    assert film.get("app.film.marks") == []
    after = film.get(LAST_FRAME)
    assert after != before
    fresh = film.get(f"await modules['compute/aside'].makeFilm('test', app.film.run.setup, []).then((film) => "
                     f"{LAST_FRAME.replace('app.film', 'film')})")  # fmt: skip
    assert after == fresh, "it is the run of these rates from step 0"
    assert film.get("[app.ghost.setup.eta_y, app.ghost.film.lastStep]") == [1, 300]
    assert film.text("#legend-ghost").replace("\n", "").replace(" ", "") == "before:ηY1"
    assert film.page.locator("#option-ghost").is_visible()
    film.wait("document.querySelector('#view-entropy .plot').figure.data.some((t) => t.name?.startsWith('run before'))")
    picture = "document.querySelector('#attention').toDataURL()"
    with_ghost = film.get(picture)
    film.page.evaluate("() => { modules.app.app.ghost = null; modules.app.emit('ghost'); }")
    film.step()
    assert film.get(picture) != with_ghost
    assert film.page.locator("#legend-ghost").is_hidden()


def test_no_ghost_of_other_classes(film):
    film.key("End")
    film.get("""modules['views/panels/setup'].take({ ...app.setup, classes: { preset: "synthetic", n_queries: 2,
             next_per_query: 1, common_weight: 5 } }, { play: false })""")
    film.wait("app.ghost && app.film !== app.ghost.film").settle()
    tokens, classes = film.get("""[(run) => run.layout.tokens, (run) => JSON.stringify(run.classes.classes)].map((of) =>
                               String(of(app.film.run)) === String(of(app.ghost.film.run)))""")
    assert tokens, "the tokens alone do not tell"
    assert not classes
    assert film.page.locator("#legend-ghost").is_hidden()
    film.key("End")
    assert "before" not in film.text("#question"), "nor is it compared with other classes"


def test_the_newest_film_wins_and_the_cursor_stays(film):
    film.page.locator("#scrub").fill("1500")
    at = film.step()
    assert 50 < at < 100
    rates = film.get("""(await Promise.all([2, 3, 4].map((eta_y) => modules['compute/runner']
                     .film({ ...app.setup, eta_y })))).map((film) => film && film.run.setup.eta_y)""")
    assert rates == [None, None, 4]
    assert film.get("app.film.run.setup.eta_y") == 4
    assert film.step() == at


def test_a_stretch_is_played_in_the_time_asked_for(film):
    film.stop_clock()
    film.page.evaluate("""() => { window.played = false;
                       modules['compute/runner'].playSteps(3, 99, 4).then(() => (window.played = true)); }""")
    film.wait(f"{SHOWN} === 3")
    film.pass_time(2005)
    film.wait(f"{SHOWN} === 19")  # √(4 · 100) − 1
    assert film.page.evaluate("played") is False
    film.pass_time(2000)
    film.wait("played")
    assert film.step() == film.get("app.film.steps[app.film.at(99)]")


@pytest.mark.parametrize("from_here", [False, True])
def test_a_drag_of_a_slider_is_one_change(film, from_here):
    film.page.set_checked("#from-here", from_here)
    film.page.locator("#scrub").fill("1000")
    at = film.step()
    assert at > 10
    film.page.evaluate("""() => { const { workers } = modules['compute/engine'], ask = workers.ask; window.sent = [];
      workers.ask = (op, asked, how) => { if (op === "film") sent.push(asked); return ask.call(workers, op, asked, how);
      }; }""")
    drag(film, '.control[data-name="eta_y"] .slider', 0.75)
    now = "(app.film.marks.at(-1) ?? app.film.run.setup).eta_y"
    film.wait(f"app.setup.eta_y > 5 && {now} === app.setup.eta_y").settle()
    assert [mark["step"] for mark in film.get("app.film.marks")] == [at] * from_here
    starts = film.page.evaluate("sent")
    assert max(len(message["marks"]) for message in starts) == int(from_here)
    last = starts[-1]["marks"][0]["eta_y"] if from_here else starts[-1]["setup"]["eta_y"]
    assert last == film.get("app.setup.eta_y")
    assert film.step() == at
    assert film.get("[app.ghost.setup.eta_y, app.ghost.film.marks.length]") == [1, 0], "a preview leaves no ghost"


@pytest.mark.parametrize("button", ["#reset", "#step", "#play"])
def test_space_after_a_click_plays(film, button):
    film.page.locator("#scrub").fill("1000")
    film.page.click(button)
    if button == "#play":
        film.wait(PLAYING)
        film.page.click(button)
    film.step()
    at = film.step()
    film.stop_clock()
    film.key(" ")
    film.wait(PLAYING)
    assert film.step() == at
    film.pass_time(60_000)
    film.wait(f"{SHOWN} === 300 && !({PLAYING})")
    film.page.focus("#reset")
    film.key(" ")
    film.wait("app.cursor === 0")
    assert film.page.evaluate("document.activeElement.id") == "reset", "a focused button is pressed by space"


def test_more_steps_leave_the_film_on_screen(film):
    film.key("End")
    film.page.evaluate("""() => { const { app, on } = modules.app; window.least = Infinity;
                       on("run frames state", () => (least = Math.min(least, app.film.lastStep))); }""")
    frame = "[...app.film.frames[app.film.at(150)]].map(String)"
    before = film.get(frame)
    film.page.click("#extend")
    film.wait("app.state.steps === 600").settle()
    assert film.page.evaluate("least") == 300, "nothing was taken from the screen"
    assert film.get(frame) == before
    assert film.get("app.setup.steps") == 600


# --- the map ---------------------------------------------------------------------------------------------------------

FILLED = "() => document.querySelectorAll('#map-cells td').length === 82 && !document.querySelector('.mapbox.stale')"


def test_the_map_shows_where_runs_end_and_its_dot_changes_the_rates(film):
    film.page.evaluate("() => { document.querySelector('#map').open = true; }")
    film.page.wait_for_function(FILLED)
    assert "Decoder rate" in film.text(".mapaxis.y")
    assert "Attention rate" in film.text(".mapaxis.x")
    dot = film.page.locator("#map-dot")
    assert "η_Y 1, η_Z 1" in dot.get_attribute("aria-valuetext")
    own, cell = (film.page.evaluate(f"parseInt(document.querySelector('{of}').textContent.split(':').at(-1))")
                 for of in ("#map-reading", "#map-cells tr:nth-of-type(6) td:nth-of-type(5)"))  # fmt: skip
    assert own == cell, "the cell of these rates is where the film on screen ends"
    film.key("End")
    dot.focus()
    film.key("ArrowUp", "ArrowUp", "ArrowRight")
    film.wait("app.film.run.setup.eta_y === 10 && app.film.run.setup.eta_z === 3.16").settle()
    assert film.step() == 300
    assert film.page.input_value("#c-eta_y") == "10"
    film.wait("document.querySelector('#map-dot').getAttribute('aria-valuetext').includes('at step 300')")
    x, y, w, h = film.box(".mapbox").values()
    film.page.mouse.move(x + w * 5.5 / 9, y + h * 2.5 / 9)  # on the dot
    film.page.mouse.down()
    film.page.mouse.move(x + w * 3 / 9, y + h * 3 / 9)
    film.page.mouse.move(x + w * 0.5 / 9, y + h * 6.5 / 9)
    film.page.mouse.up()
    film.wait("app.film.run.setup.eta_y === 0.1 && app.film.run.setup.eta_z === 0.01").settle()
    assert film.get("[app.film.marks.length, app.ghost.setup.eta_y]") == [0, 10]


def test_a_map_is_computed_once_per_set_up_and_shows_what_diverged(film):
    film.page.evaluate("""() => { window.maps = [];
      modules['compute/engine'].workers.map = async (setup, listener) => {
        maps.push(setup.steps);
        const cells = Array.from({ length: 81 }, (_, i) => ({ row: Math.floor(i / 9), column: i % 9 }));
        listener({ cells: cells.map((cell) => ({ ...cell, share: cell.row === 8 ? NaN : 0.5,
                                                 failed_step: cell.row === 8 ? 12 : null })) }); };
      document.querySelector('#map').open = true; }""")
    for steps, eta_y in ((301, 2), (302, 3)):
        film.rerun(steps=steps)
        film.page.wait_for_function(f"() => maps.includes({steps})")
        film.wait("document.querySelector('#map-note').textContent.includes('9 hatched')")
        assert film.page.locator("#map-cells td", has_text="diverged at step 12").count() == 9
        film.rerun(eta_y=eta_y)
    assert film.page.evaluate("maps").count(301) == 1, "the rates on screen are no part of it"


def test_the_map_is_filled_while_it_is_computed(film):
    known = film.page.evaluate("""async () => { const known = [];
      await modules['compute/api'].rateMap({ ...modules.app.app.film.run.setup, steps: 40 }, (map) => {
        known.push([map.known, map.share.flat().filter((share) => share !== null).length]); });
      return known; }""")
    assert len(known) > 10
    assert known == sorted(known)
    assert known[0][0] < 10
    assert known[-1] == [81, 81]
