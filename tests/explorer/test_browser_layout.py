"""The explorer in chromium: nothing that comes or goes moves the rest, on a phone it can be read and pressed, and what
stands there is true: answers, colours, ghosts, names, shortcuts."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import QUICK, Page, browser, explorer, page, require_browser

pytestmark = pytest.mark.integration

require_browser()

WORDS = "#classes=words&eta_y=2&eta_z=1&momentum=0.9&steps=100&flow=off&level=explore"
PHONE = {"width": 390, "height": 844}
SHIFTS = """window.shifts = [];
new PerformanceObserver((list) => { for (const e of list.getEntries())
  shifts.push(...e.sources.map((s) =>
  [s.node?.id || s.node?.className || s.node?.nodeName, JSON.stringify(s.previousRect), JSON.stringify(s.currentRect)
  ]));
}).observe({ type: "layout-shift", buffered: false });"""
PLACES = """() => Object.fromEntries(["c-eta_y", "c-eta_z", "headline", "watch", "attention", "scrub", "clock", "speed",
  "panel-curves", "tab-chain"].map((id) => {
    const b = document.getElementById(id).getBoundingClientRect(); return [id, [b.x, b.y, b.width, b.height]];
  }))"""


@pytest.fixture(scope="module")
def shown(explorer: Callable[..., Page]) -> Iterator[Callable[[str], Page]]:
    """One tab, at one address after the other, with its film complete."""
    made = explorer(WORDS)

    def show(where: str = WORDS) -> Page:
        made.page.set_viewport_size({"width": 1280, "height": 720})
        made.open(where)
        made.wait("app.state.state === 'done' && app.film.lastStep === app.state.steps")
        made.step()
        return made

    yield show
    made.check_quiet()
    made.context.close()


def settle(p: Page) -> None:
    p.wait("app.state.state === 'done' && app.film.lastStep === app.state.steps")
    p.step()


def test_nothing_moves_when_a_rate_changes_a_run_ends_or_is_pinned(shown: Callable[..., Page]) -> None:
    p = shown()
    before = p.page.evaluate(PLACES)
    p.page.evaluate(SHIFTS)
    slider = p.page.locator("#panel-setup .control[data-name=eta_y] .slider").bounding_box()
    p.page.mouse.click(slider["x"] + 0.9 * slider["width"], slider["y"] + slider["height"] / 2)
    p.wait("app.setup.eta_y > 2 && app.film.run.setup.eta_y === app.setup.eta_y")
    settle(p)
    for what in ("slider", "end", "pin", "unpin", "frozen", "back"):
        if what == "end":
            p.run_to_end()
        elif what in ("pin", "unpin"):
            p.key("p")
        elif what in ("frozen", "back"):
            p.fill("eta_z", "0" if what == "frozen" else "1")
            p.wait(f"app.film.run.setup.eta_z === {0 if what == 'frozen' else 1}")
            settle(p)
        p.step()
        assert p.page.evaluate(PLACES) == before, what
    own = {"question", "next", "commentary", "movement-note", "watch"}  # they change what they say, where they are
    moved = [s for s in p.page.evaluate("shifts") if s[0] in before and s[0] not in own]
    assert moved == []


def fell(before: float, after: float) -> str:
    return f"{100 * before:.0f}%\u00a0→\u00a0{100 * after:.0f}%"


def test_watching_ends_in_an_answer_that_is_computed(shown: Callable[..., Page]) -> None:
    p = shown()
    assert p.page.inner_text("#question") == p.get("app.catalogue.presets[0].question").replace("-", "\u2011") or (
        p.get("app.preset") is None
    )
    p.page.select_option("#speed", "max")
    p.page.click("#watch")
    p.page.wait_for_selector("#question[data-is=answer]")
    was, now = p.get("[app.film.common(0), app.film.common(app.film.length - 1)]")
    said = p.page.inner_text("#question")
    assert said == f"Shared words: {fell(was, now)} of attention.\nNext: make the decoder faster"
    p.page.click("#next")
    p.wait("app.setup.eta_y === 20 && app.film.run.setup.eta_y === 20")
    settle(p)
    p.page.wait_for_selector("#question[data-is=answer]")
    said = p.page.inner_text("#question")
    assert f" (before: {100 * now:.0f}%)." in said
    assert said.endswith("Next: use your own words")
    p.key("Home")
    p.page.wait_for_selector("#question[data-is=question]")


def test_heat_maps_end_at_the_step_on_screen(shown: Callable[..., Page]) -> None:
    p = shown()
    colours = """() => { const c = document.querySelector("#attention"), copy = document.createElement("canvas");
      copy.width = c.width; copy.height = c.height;
      const d = copy.getContext("2d", { willReadFrequently: true });
      d.drawImage(c, 0, 0);
      const at = (y) => [...d.getImageData(Math.round(0.3 * c.width), Math.round(y * c.height), 1, 1).data.slice(0, 3)];
      return [at(0.99), getComputedStyle(document.documentElement).getPropertyValue("--faint").trim()]; }"""
    p.page.evaluate("async () => (modules['compute/runner']).seekStep(3)")
    p.step()
    below, faint = p.page.evaluate(colours)
    assert below == [int(faint[i : i + 2], 16) for i in (1, 3, 5)], "what follows is not shown yet"
    p.key("End")
    p.step()
    below, _ = p.page.evaluate(colours)
    assert below != [int(faint[i : i + 2], 16) for i in (1, 3, 5)]


def test_tokens_have_the_colour_of_the_contexts_they_occur_in(shown: Callable[..., Page]) -> None:
    p = shown()
    reach = p.get("""app.film.run.layout.tokens[0].map((t) => [app.film.run.classes.words[t], app.film.reach(0, t),
        app.film.run.classes.classes.filter((c) => c.tokens.includes(t)).length])""")
    assert {word: of for word, of, _ in reach} | {"the": "every", "cup": "several", "kitten": "only"} == {
        word: of for word, of, _ in reach
    }
    for _, of, n in reach:
        assert of == ("only" if n == 1 else "every" if n == 6 else "several")
    rising = p.get("""app.film.run.classes.classes.flatMap((_, k) => app.film.run.layout.tokens[k].filter((t, j) =>
        app.film.reach(k, t) === "every" && app.film.attention(app.film.length - 1, k)[j] > app.film.attention(0, k)[j])
        .map((t) => app.film.run.classes.words[t]))""")
    assert rising == [], "no orange word rises"
    assert p.page.locator("#legend .several").is_visible()
    p = shown(QUICK)
    assert p.page.locator("#legend .several").is_hidden(), "with two classes what is shared is in every context"


def test_the_legend_says_everything_in_full(shown: Callable[..., Page]) -> None:
    p = shown()
    p.key("p")
    p.fill("eta_y", "10")
    p.wait("app.film.run.setup.eta_y === 10")
    settle(p)
    for name in ("start", "pinned"):
        item = p.page.locator(f"#legend .{name}")
        assert item.is_visible()
        assert item.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1"), name
    p.key("p")


def test_no_ghost_of_other_classes(shown: Callable[..., Page]) -> None:
    p = shown(QUICK)
    p.key("End")
    p.page.evaluate("""async () => { const { app } = modules['app'];
        const { take } = modules['views/panels/setup'];
        await take({ ...app.setup, classes: { preset: "synthetic", n_queries: 2,
          next_per_query: 1, common_weight: 5 } }, { play: false }); }""")
    p.wait("app.ghost && app.film !== app.ghost.film && app.state.state === 'done'")
    alike = p.get("String(app.film.run.layout.tokens) === String(app.ghost.film.run.layout.tokens)")
    p.wait("document.querySelector('#view-entropy .plot').figure?.data.length > 0")
    p.step()
    same = p.get("JSON.stringify(app.film.run.classes.classes) === JSON.stringify(app.ghost.film.run.classes.classes)")
    assert p.page.locator("#legend-ghost").is_visible() == same
    assert alike, "the tokens alone do not tell"
    assert not same


def test_a_scene_that_does_not_exist_is_the_last(explorer: Callable[..., Page]) -> None:
    p = explorer("#scene=99")
    assert "Scene 6 of 6" in p.page.inner_text("#panel-tour")
    assert p.get("app.film.run.setup.optimizer") == "adam"
    p.check_quiet()
    p.context.close()


def test_a_rate_typed_back_gives_the_preset_back(shown: Callable[..., Page]) -> None:
    p = shown("#level=explore")
    assert p.page.input_value("#preset") == "words"
    p.fill("eta_y", "3")
    p.wait("app.film.run.setup.eta_y === 3")
    assert p.page.input_value("#preset") == ""
    assert "decoder rate" in p.page.inner_text("#commentary")
    p.fill("eta_y", "2")
    p.wait("app.film.run.setup.eta_y === 2")
    assert p.page.input_value("#preset") == "words"
    p.fill("eta_z", "0,5")
    p.wait("app.film.run.setup.eta_z === 0.5")
    p.page.click("#back-to-preset")
    p.wait("app.film.run.setup.eta_z === 1")


def test_digits_follow_the_tabs_and_letters_can_be_switched_off(shown: Callable[..., Page]) -> None:
    p = shown(QUICK)
    names = p.page.evaluate("[...document.querySelectorAll('#right-tabs > *')].map((t) => t.id.slice(4))")
    for digit, name in enumerate(names, 1):
        p.key(str(digit))
        assert p.page.locator(f"#panel-{name}").is_visible()
    p.key("1", "?")
    p.page.uncheck("#letters")
    p.key("Escape")
    for key in ("2", "]", "l", "d"):
        p.key(key)
    assert p.page.locator("#panel-curves").is_visible()
    assert p.get("[app.focus, app.scale]") == [-1, "log"]
    p.key("Home", "ArrowRight")
    assert p.step() == 1, "keys that are no character act all the same"
    p.page.click("#help")
    p.page.check("#letters")
    p.key("Escape", "]")
    assert p.get("app.focus") == 0
    p.key("a")


def test_what_is_zero_is_said_to_be_zero(shown: Callable[..., Page]) -> None:
    p = shown("#classes=syn-small&steps=120&eta_z=0&flow=off")
    p.key("End")
    p.page.locator("#movement-note", has_text="Attention is frozen here").wait_for()
    assert "more than 0" not in p.page.inner_text("#movement-note")
    p.key("Home", "2")
    p.page.locator("#panel-y .explain", has_text="No votes yet").wait_for()
    p.key("1")


def test_toasts_leave_the_clock_and_the_slider_free(shown: Callable[..., Page]) -> None:
    p = shown()
    p.key("p")
    toast = p.page.locator("#toast").bounding_box()
    for name in ("#clock", "#scrub", "#play", "#watch"):
        box = p.page.locator(name).bounding_box()
        apart = toast["y"] + toast["height"] <= box["y"] or box["y"] + box["height"] <= toast["y"]
        assert apart or toast["x"] + toast["width"] <= box["x"] or box["x"] + box["width"] <= toast["x"], name
    p.key("p")


def test_letters_and_targets_on_a_phone(shown: Callable[..., Page]) -> None:
    p = shown()
    p.page.set_viewport_size(PHONE)
    for level in ("explore", "theory"):
        p.page.click(f"#level [data-value={level}]")
        p.step()
        small = p.page.evaluate(
            """() => [...document.querySelectorAll("body *")]
                 .filter((e) => e.checkVisibility() && !e.closest(".hidden, canvas")
                 && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
                 && parseFloat(getComputedStyle(e).fontSize) < 12 && e.id !== "link")
                 .map((e) => e.outerHTML.slice(0, 90))"""
        )
        assert small == [], level
        low = p.page.evaluate(
            """() => [...document.querySelectorAll("button, select, summary, input:not([type=checkbox]), a.button")]
                 .filter((e) => e.checkVisibility() && !e.closest(".hidden"))
                 .map((e) => [e.outerHTML.slice(0, 90), e.getBoundingClientRect().width, e.offsetHeight])
                 .filter(([_, width, height]) => height < 40 || width < 40)"""
        )
        assert low == [], level
        assert p.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_the_tour_on_a_phone_can_be_closed(shown: Callable[..., Page]) -> None:
    p = shown()
    p.page.set_viewport_size(PHONE)
    p.page.locator("#tab-tour").click()
    p.page.locator(".scenes button").first.click()
    p.page.locator("#tour-next").wait_for()
    p.page.click("#tour-close")
    assert p.page.locator("#panel-tour").is_hidden()
    assert p.page.locator("#panel-setup").is_visible()


def test_own_words_are_there_again(shown: Callable[..., Page]) -> None:
    p = shown()
    p.page.click("#own-words")
    p.page.click("#words-example")
    text = p.page.input_value("#words-text")
    p.page.locator("#use-words:enabled").click()
    p.wait("app.film.run.classes.n_classes > 0 && app.setup.classes.text !== undefined")
    p.page.select_option("#preset", "words")
    p.wait("app.setup.classes.preset === 'words'")
    p.page.click("#own-words")
    assert p.page.input_value("#words-text") == text
    p.page.fill("#words-text", text + "One more.")
    p.key("Escape")
    p.page.click("#own-words")
    assert p.page.input_value("#words-text") == text + "One more.", "a draft too"
    p.key("Escape")
