"""The explorer in chromium: classes drawn and pasted, pinned runs, presets' names, and links to all of it."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import QUICK, Page, browser, explorer, require_browser

require_browser()

EXAMPLES = Path(__file__).parents[2] / "examples"
MARKED = "#classes=syn-small&steps=60&flow=off&marks=20:5:1"


@pytest.fixture(scope="module")
def shared(explorer: Callable[..., Page]) -> Iterator[Page]:
    made = explorer(QUICK)
    yield made
    made.check_quiet()
    made.context.close()


@pytest.fixture
def page(shared: Page) -> Page:
    shared.open(QUICK)
    shared.wait("app.state.state === 'done'")
    return shared


def test_an_address_that_cannot_be_run_leaves_the_usual_run_and_says_why(explorer: Callable[..., Page]) -> None:
    p = explorer("#classes=syn-small&eta_y=-3&steps=60")
    said = p.page.inner_text("#panel-setup > .refusal")
    assert "what the address asks for cannot be run" in said
    assert "-3" in said
    assert p.get("app.film.run.setup.eta_y") == p.get("app.catalogue.default.eta_y")
    p.fill("steps", "50")
    p.page.locator("#panel-setup > .refusal").wait_for(state="hidden")
    p.check_quiet()
    p.context.close()


def test_a_query_is_corrected_after_a_refusal(page: Page) -> None:
    page.page.click("#edit-weights")
    query = page.page.locator('dialog input[aria-label="Query"]')
    query.fill("abc")
    query.press("Tab")
    page.page.click("#use-classes")
    page.page.locator("dialog .refusal:visible").wait_for()
    assert "abc" in page.page.inner_text("dialog .refusal")
    query.fill("30")
    query.press("Tab")
    page.page.click("#use-classes")
    page.wait("app.film.run.setup.classes.bars?.classes[0].query === 30")
    assert page.page.locator("dialog").count() == 0


def test_the_focus_stays_in_the_weights(page: Page) -> None:
    page.page.click("#edit-weights")
    bars = page.page.locator("dialog .bar")
    before = bars.count()
    bars.nth(3).focus()
    for left in (before - 1, before - 2):
        page.key("Delete")
        assert bars.count() == left
        assert page.page.evaluate("document.activeElement.getAttribute('aria-label')") == bars.nth(3).get_attribute(
            "aria-label"
        )
    page.key("End")
    assert bars.nth(3).get_attribute("aria-valuenow") == "1"
    bars.nth(left - 1).focus()
    page.key("Delete")
    assert page.page.evaluate("document.activeElement.getAttribute('aria-label')") == bars.nth(left - 2).get_attribute(
        "aria-label"
    )
    page.page.locator("#add-common").focus()
    page.key("Enter")
    assert page.page.evaluate("document.activeElement.id") == "add-common"
    page.key("Escape")


def test_weights_of_words_can_be_read_and_reached_on_a_phone(page: Page) -> None:
    page.open("#classes=words&eta_y=2&steps=60&flow=off")
    page.page.set_viewport_size({"width": 390, "height": 844})
    page.page.click("#edit-weights")
    cut = "(all) => all.filter((e) => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1).length"
    labels = page.page.locator("dialog .bar span")
    assert labels.count() == 13
    assert labels.evaluate_all(cut) == 0
    heights = page.page.locator("dialog .bar i").evaluate_all(
        "(all) => all.map((e) => e.getBoundingClientRect().height)"
    )
    assert max(heights) > 100
    assert min(heights) > 10
    assert page.page.locator("dialog .classbar").evaluate_all(cut) == 0, "all buttons are seen"
    page.key("Escape")
    page.page.set_viewport_size({"width": 1280, "height": 720})


CONTRAST = """() => {
  const style = getComputedStyle(document.querySelector("#pin"));
  const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number)
    .map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const [a, b] = [style.color, style.backgroundColor].map(light).sort((x, y) => y - x);
  const still = document.querySelector("#pin").matches(":hover") && !document.getAnimations().length;
  return still && (a + 0.05) / (b + 0.05);
}"""


def test_pinning_moves_nothing_and_unpin_can_be_read(page: Page) -> None:
    page.page.select_option("#c-optimizer", "adam")
    page.wait("app.film.run.setup.optimizer === 'adam' && app.state.state === 'done' && app.ghost")
    places = "() => ['#attention', '#scale', '#share'].map((id) => document.querySelector(id).getBoundingClientRect())"
    before = page.page.evaluate(places)
    page.page.hover("#pin")
    page.page.click("#pin")
    page.wait("app.pinned !== null")
    page.page.locator("#legend-pinned").wait_for(state="visible")
    page.step()
    assert page.page.evaluate(places) == before
    cut = "() => [...document.querySelectorAll('.legend li')].filter((e) => e.scrollWidth > e.clientWidth).length"
    assert page.page.locator("#legend-ghost").is_hidden(), "the pinned run is what this one is compared with"
    assert page.page.evaluate(cut) == 0
    contrast = page.page.wait_for_function(CONTRAST).json_value()
    assert contrast > 4.5
    page.page.click("#pin")


def test_a_link_has_the_changes_of_rates_of_the_pinned_run(page: Page) -> None:
    page.open(MARKED)
    page.wait("app.film.marks.length === 1 && app.state.state === 'done'")
    page.key("p")
    page.page.click("#share")
    page.wait("location.hash.includes('pin.classes')")
    assert "pin.marks=20:5:1" in page.page.evaluate("location.hash")
    frame = "[...app.pinned.film.frames.at(-1)].map(String)"
    before = page.get(frame)
    page.open(page.page.evaluate("location.hash"))
    page.wait("app.pinned?.film.lastStep === 60")
    assert page.get("app.pinned.film.marks") == [{"step": 20, "eta_y": 5, "eta_z": 1}]
    assert page.get(frame) == before


def test_trying_twice_compares_with_the_scene_both_times(page: Page) -> None:
    """And never with the run itself."""
    page.key("t")
    page.page.locator(".scenes button").first.click()
    page.wait("app.film?.run.setup.eta_z === 0 && app.state.state === 'done'")  # attention is frozen in this scene
    for _ in range(2):
        page.page.click("#tour-try")
        page.wait("app.film.run.setup.eta_z === 1 && app.pinned?.film.lastStep > 0 && app.state.state === 'done'")
        assert page.get("app.pinned.setup.eta_z") == 0


def test_a_preset_is_named_only_as_long_as_it_is_one(page: Page) -> None:
    page.page.select_option("#preset", "figure-4")
    page.wait("app.preset === 'figure-4' && app.film.run.setup.steps === 1000")
    assert "ten common tokens" in page.page.inner_text("#commentary")
    page.fill("context", "64")
    page.wait("app.film.run.setup.context === 64")
    assert page.page.input_value("#preset") == ""
    assert page.page.inner_text("#commentary").startswith("Changed from “Scan and snap (Figure 4)”: sequence length.")
    page.fill("context", "128")
    page.wait("app.film.run.setup.context === 128")
    page.open("#classes=syn-small&steps=60&flow=off&preset=figure-4")  # of an older link
    assert page.page.input_value("#preset") == ""


def test_an_example_with_several_runs_shows_its_first(page: Page) -> None:
    page.page.click("#paste-toml")
    page.page.wait_for_function("() => document.querySelector('#toml-text')?.value.length > 10")
    page.page.fill("#toml-text", (EXAMPLES / "adam.toml").read_text(encoding="utf-8"))
    page.page.click("#use-classes")
    page.wait("app.film.run.setup.optimizer === 'adam' && app.state.steps === 100")
    assert page.get("[app.setup.eta_y, app.setup.eta_z]") == [0.1, 0.1]
    assert page.page.inner_text("#classes-note") == "The file has 3 runs; this is the first: eta_z = 0.1."


def test_the_words_stay_when_weights_are_drawn(page: Page) -> None:
    page.open("#classes=words&steps=60&flow=off")
    page.page.click("#edit-weights")
    assert page.page.locator(".classbar button").first.inner_text() == "drinks → milk"
    bar = page.page.locator('.bar[aria-label="Weight of kitten"]')
    bar.press("Home")
    field = page.page.locator('dialog input[aria-label="Next token"]')
    assert field.input_value() == "milk"
    field.fill("cream")
    field.press("Tab")
    page.page.click("#use-classes")
    page.wait("app.film.run.setup.classes.bars")
    classes = page.get("app.film.run.classes")
    assert classes["words"][str(classes["classes"][0]["next_token"])] == "cream"
    assert classes["vocab_size"] == 50
    assert classes["words"]["10"] == "kitten"
    assert 10 not in classes["classes"][0]["tokens"]
