"""In chromium: the tour and lectures, beat by beat, by keyboard and on a phone, and the lecture as a file."""

import json
import re

import pytest
from browser import PHONE, QUICK, SCREEN, Page
from films import Film

from scansnap.explorer.build import explorer_html
from scansnap.explorer.lecture import read_deck

pytestmark = pytest.mark.integration

# --- the tour --------------------------------------------------------------------------------------------------------

TOUR = "#classes=syn-small&momentum=0.9&steps=40&flow=off&left=tour"


def scene(p, number):
    """Opens a scene, and waits until its whole run is there."""
    p.page.locator(".scenes button, .dots button").nth(number - 1).click()
    p.await_text(".scene-number", f"Scene {number} of 6")
    p.wait("app.state.state === 'done' && app.film.lastStep === 1000")


def test_the_tour_has_six_scenes_that_run(page):
    page.key("t")
    page.page.locator(".scenes button").first.click()
    scenes = page.get("app.catalogue.scenes")
    assert len(scenes) == 6
    for i, made in enumerate(scenes):
        page.await_text(".scene-number", f"Scene {i + 1} of 6")
        eta_y, eta_z = made["setup"]["eta_y"], made["setup"]["eta_z"]
        page.wait(f"app.film.run.setup.eta_y === {eta_y} && app.film.run.setup.eta_z === {eta_z} && app.state.step > 0")
        assert page.page.locator(".watched").count() >= 1
        if made["overlay"]:
            page.wait("app.pinned?.film.length > 1")
        page.page.click("#tour-answer")
        assert len(page.text(".answer")) > 20
        if i < 5:
            page.page.click("#tour-next")
    page.page.locator(".dots button").first.click()
    page.wait("app.film.run.setup.eta_z === 0").settle()
    for _ in range(2):  # both times over what the scene showed
        page.page.click("#tour-try")
        page.wait("app.film.run.setup.eta_z === 1 && app.pinned?.film.lastStep > 0 && app.state.state === 'done'")
        assert page.get("app.pinned.setup.eta_z") == 0


def test_a_link_to_a_scene_opens_the_tour_there_or_at_the_last(explorer):
    for scene, title in (("1", "Scene 2 of 6"), ("99", "Scene 6 of 6")):
        p = explorer(f"#scene={scene}")
        assert p.page.locator(".scene-number", has_text=title).is_visible()
    assert p.get("app.film.run.setup.optimizer") == "adam"
    p.wait("app.state.state === 'done' && app.pinned?.film.lastStep === 500")
    common = p.get("[app.film, app.pinned.film].map((film) => film.common(film.length - 1))")
    assert max(common) < 0.4 < p.get("app.film.common(0)"), "they fall under Adam and under SGD"
    assert "The common tokens fall as under SGD" in p.text("#panel-tour")


def test_the_change_of_scene_4_is_made_in_the_middle_of_its_run(show):
    p = show(TOUR)
    scene(p, 4)
    frames = "app.film.frames.slice(0, 51).map((frame) => Array.from(frame))"  # of every step to 50
    before, end = p.get(frames), p.get("Array.from(app.film.frames.at(-1))")
    p.page.click("#tour-try")
    p.wait("app.film.marks.length === 1").settle()
    assert p.get("app.film.marks") == [{"step": 500, "eta_y": 1, "eta_z": 3}]
    assert p.get("[app.film.run.setup.eta_z, app.setup.eta_z]") == [1, 3]
    assert p.get(frames) == before, "the same run until then"
    assert p.get("Array.from(app.film.frames.at(-1))") != end
    p.wait("app.pinned?.film.lastStep === 1000 && app.pinned.setup.eta_z === 1")
    p.page.click("#tour-try")  # again: the same film, over the same pinned run
    p.wait("app.pinned?.film.lastStep === 1000 && app.pinned.film.marks.length === 0")
    assert p.get("app.film.marks.length") == 1


def test_the_answer_of_scene_2_tells_what_is_seen(show):
    p = show(TOUR)
    p.stop_clock()
    scene(p, 2)
    p.page.click("#tour-try")
    p.wait("app.film.run.setup.classes.common_weight === 5").settle()
    p.page.click("#tour-answer")
    rose = p.get("""(() => { const f = app.film, last = f.length - 1, common = f.run.classes.common;
      return f.run.layout.tokens.map((tokens, k) => tokens.filter((t, j) =>
        common.includes(t) && f.attention(last, k)[j] > f.attention(0, k)[j]).length); })()""")
    assert rose == [3, 2]
    assert "three in class 0 and two in class 1 rise" in p.text(".answer")
    assert p.step() == 0, "it plays by the page's clock"
    p.pass_time(8_001)
    p.wait("document.querySelector('#clock b').textContent.replace(/\\D/g, '') === '1000'")


def test_on_a_phone_the_stage_and_the_tour_are_both_seen_and_the_tour_can_be_closed(show):
    p = show(TOUR, phone=True)
    scene(p, 2)
    stage, transport, tour = p.box("#attention"), p.box(".transport"), p.box("#panel-tour")
    assert stage["y"] >= 0
    assert stage["height"] > 250
    assert stage["y"] + stage["height"] <= transport["y"], "nothing lies over the stage"
    assert transport["y"] + transport["height"] <= tour["y"]
    for words in ("#panel-tour h2", "#panel-tour .prose", ".now p"):
        box = p.box(words)
        assert tour["y"] <= box["y"]
        assert box["y"] + box["height"] <= PHONE["height"], "on the screen without scrolling"
    p.page.click("#tour-answer")
    answer = p.box(".answer")
    assert tour["y"] <= answer["y"] + 1
    assert answer["y"] + answer["height"] <= PHONE["height"] + 1, "the answer comes into view"
    p.page.click("#tour-close")
    assert p.page.locator("#panel-tour").is_hidden()
    assert p.page.locator("#panel-setup").is_visible()


# --- lectures --------------------------------------------------------------------------------------------------------

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
def lectern(browser, tmp_path_factory):
    """A page with its own deck and a stopped clock: beats play when a test lets time pass."""
    deck = tmp_path_factory.mktemp("deck") / "short.toml"
    deck.write_text(DECK, encoding="utf-8")
    page = deck.with_suffix(".html")
    page.write_text(explorer_html([read_deck(deck)]), encoding="utf-8")
    tab = Page(browser, page.as_uri()).open(QUICK).settle()
    tab.stop_clock()
    yield tab
    tab.check_quiet()
    tab.context.close()


def at(tab, beat, phase):
    tab.locator(f"#lecture[data-beat='{beat}'][data-phase='{phase}']").wait_for()
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def clock(tab):
    return int(re.sub(r"\D", "", tab.inner_text("#lecture .clock b")))


def click_bar(p, column, columns=20):
    """One class is on the stage: its bars fill the width right of the axis."""
    x, y, w, h = p.box("#lecture .stagebox canvas").values()
    axis = 34 * p.get("1.35 * parseFloat(getComputedStyle(document.documentElement).fontSize) / 13.3")
    p.page.mouse.click(x + axis + (w - axis) * (column + 0.5) / columns, y + h * 0.3)


def winner():
    """The sentence of the reveal, counted in a run of the package."""
    values = Film(SMALL).attention(40, 0)
    token = max(values, key=values.get)
    return (
        f"Token {token}, distinct (only in this context), wins: {100 * values[token]:.0f}% of the attention at step 40."
    )


def test_a_lecture_by_keyboard(lectern):
    tab, before = lectern.page, lectern.get("[app.film.number, app.cursor]")
    lectern.key("f")
    tab.locator(".deck").first.wait_for()
    assert tab.locator("#lecture .tools").evaluate("(e) => getComputedStyle(e).opacity") == "1", "the way out is seen"
    assert tab.locator(".deck b").all_inner_texts() == [
        "A short talk", "Scan and Snap in ten minutes", "What fails and what holds", "Adam against SGD",
    ]  # fmt: skip
    lectern.key("Enter")
    at(tab, 1, "there")
    assert (lectern.text("#lecture .sentence"), clock(tab)) == ("All logits begin at 0.", 0)
    lectern.key("PageDown")
    at(tab, 2, "asking")
    lectern.key(" ")
    at(tab, 2, "playing")
    lectern.pass_time(2000)  # of four seconds, paced by ln t
    lectern.wait("document.querySelector('#lecture .clock b').textContent === '5'")
    assert lectern.text("#lecture .sentence") == "Which token of class 0 wins?", "no word of the outcome yet"
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
    assert "the other run" in lectern.text("#lecture .legend")
    for key, beat in (("ArrowRight", 3), ("PageUp", 2), ("Home", 1)):
        lectern.key(key)
        at(tab, beat, "there")
    tab.click("#lecture [aria-label=Forward]")  # as on a phone
    at(tab, 2, "asking")
    lectern.key("Escape")
    assert tab.locator("#lecture").count() == 0
    assert lectern.get("[app.film.number, app.cursor]") == before, "the page is as it was"
    lectern.key("2")
    assert tab.get_attribute("#tab-y", "aria-selected") == "true", "and has its keys again"


def test_the_audience_predicts_before_the_reveal(lectern):
    tab, result = lectern.page, "#lecture .result"
    tab.click("#lecture-open")
    tab.locator(".deck").first.click()
    at(tab, 1, "there")
    for column, verdict in ((10, "You said token 10"), (19, "Right.")):  # by frequency: the rarest, the most frequent
        lectern.key("Home", "ArrowRight")
        at(tab, 2, "asking")
        click_bar(lectern, column)
        assert lectern.text(result).startswith(f"Your choice: token {column}.")
        lectern.key("ArrowRight", "ArrowRight")
        at(tab, 2, "there")
        assert lectern.text(result).startswith(verdict)
        assert lectern.text(result).endswith(winner())
        for size in (PHONE, SCREEN):
            tab.set_viewport_size(size)
            sentence, below, stage = (lectern.box(f"#lecture {w}") for w in (".sentence", ".result", ".stagebox"))
            assert sentence["y"] + sentence["height"] <= below["y"]
            assert below["y"] + below["height"] <= stage["y"], "the words lie over nothing"
    lectern.key("Home", "ArrowRight")
    at(tab, 2, "asking")
    lectern.key("ArrowUp")  # without a mouse: to the next bar on the left
    assert "token 18" in lectern.text(result)
    lectern.key("Escape")


def test_a_lecture_is_saved_as_one_file_that_needs_nothing(lectern, browser, tmp_path):
    lectern.key("f")
    lectern.page.locator(".deck").first.click()
    at(lectern.page, 1, "there")
    file = tmp_path / "short.html"
    file.write_bytes(lectern.download("#lecture-save"))
    lectern.key("Escape")
    (inside,) = re.findall(r'id="data-catalogue">(.*?)</script>', file.read_text(encoding="utf-8"))
    assert "<" not in inside
    assert (json.loads(inside)["lecture"], json.loads(inside)["decks"][0]["title"]) == (True, "A short talk")
    p = Page(browser, file.as_uri(), reduced_motion="reduce").open()
    at(p.page, 1, "there")
    for key, beat, phase in (("PageDown", 2, "asking"), ("ArrowUp", 2, "asking"), (" ", 2, "there"),
                             ("ArrowRight", 3, "there"), ("ArrowLeft", 2, "there"), ("End", 3, "there"),
                             ("PageUp", 2, "there")):  # fmt: skip
        p.key(key)
        at(p.page, beat, phase)
    assert p.text("#lecture .result") == f"Right. {winner()}"
    assert p.text("#lecture .sentence") == "The most frequent distinct token <b>wins</b>.", "no markup from a deck"
    p.check_quiet()
    p.context.close()
