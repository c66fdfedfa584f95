"""The explorer in chromium: nothing moves, contrasts, conserved sums, sharing a file, phones, embedding."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import QUICK, Page, browser, explorer, page, require_browser

pytestmark = pytest.mark.integration

require_browser()

CLAIMS = "#classes=syn-small&steps=60&flow=off&right=claims"
TABS = ("tour", "setup", "y", "chain", "lens", "claims", "curves")
WATCH_SHIFTS = """() => {
  window.moved = [];
  const side = (a, b) => Math.max(Math.abs(a.x - b.x), Math.abs(a.y - b.y));
  new PerformanceObserver((list) => {
    for (const { sources } of list.getEntries())
      for (const s of sources)
        if (s.node && side(s.previousRect, s.currentRect) >= 0.5)
          moved.push(`${s.node.id || s.node.className}: ${JSON.stringify([s.previousRect, s.currentRect])}`);
  }).observe({ type: "layout-shift", buffered: true });
}"""
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))"
CONTRASTS = """() => {
  const style = getComputedStyle(document.documentElement), { contrast } = modules["draw/colours"];
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const least = (names, on) => Math.min(...names.flatMap((a) => on.map((b) => contrast(of(a), of(b)))));
  const ground = ["panel", "page", "faint"];
  const text = ["ink", "soft", "muted", "good", "bad", "open"], graphics = ["several", "distinct", "pinned"];
  return [least(text, ground), least(graphics, ["panel", "page"])];
}"""
TOO_SMALL = """() => [...document.querySelectorAll("dialog *")].filter((e) => {
  const { width, height } = e.getBoundingClientRect();
  const isText = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const isLow = isText && parseFloat(getComputedStyle(e).fontSize) < 12;
  return e.checkVisibility() && (isLow || (e.matches("button, .bar") && Math.min(width, height) < 39.5));
}).map((e) => `${e.tagName} ${e.textContent}`)"""


def moved(p: Page) -> list[str]:
    p.page.evaluate(SETTLED)
    return p.page.evaluate("moved.splice(0)")


def test_nothing_moves_by_tabs_levels_refusals_and_dialogs(page: Page) -> None:
    page.run_to_end()
    page.page.evaluate(WATCH_SHIFTS)
    assert moved(page) == [], "while the page opens"
    for act in (*(f"#tab-{name}" for name in TABS), "#pin", "#pin"):
        page.page.click(act)
        assert moved(page) == [], act
    page.fill("eta_z", "-3")
    page.page.locator(".control.refused .refusal").wait_for(state="visible")
    assert moved(page) == [], "a refusal takes the place of the explanation"
    page.fill("eta_z", "1")
    page.page.click("#own-words")
    moved(page)
    for text in ("too short", "the cat drinks milk. " * 8):
        page.page.fill("#words-text", text)
        page.page.locator("#words-refusal" if "short" in text else "#words-pairs button").first.wait_for()
        assert moved(page) == [], text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_greys_can_be_read(explorer: Callable[..., Page], scheme: str) -> None:
    p = explorer(QUICK, color_scheme=scheme)
    text, graphics = p.page.evaluate(CONTRASTS)
    assert text >= 4.5
    assert graphics >= 3
    p.context.close()


SUMS = [("", "holds"), ("&init=uniform", "holds"), ("&optimizer=adam", "fails")]


@pytest.mark.parametrize(("setting", "verdict"), SUMS)
def test_the_changes_of_the_decoder_are_summed_over_the_outputs(
    explorer: Callable[..., Page], setting: str, verdict: str
) -> None:
    p = explorer(CLAIMS + setting)
    p.run_to_end()
    p.page.locator("#claims h3", has_text="Checked here, to step 60").wait_for()
    row = p.page.locator(f"#live-checks li.{verdict}", has_text="Σ dY = 0")
    row.wait_for()
    assert ("0 up to rounding" if verdict == "holds" else "% of all changes") in row.inner_text()
    p.check_quiet()
    p.context.close()


def test_numbers_are_written_as_people_write_them(page: Page) -> None:
    short = "(x) => modules['draw/format'].short(x)"
    written = {5.4e-16: "≈ 0", 0: "0", 1e-6: "10⁻⁶", -3.1e-7: "−3.1·10⁻⁷", 2.5e8: "2.5·10⁸", 0.1234: "0.123"}
    assert {x: page.page.evaluate(short, x) for x in written} == written
    maths = "(text) => modules['page/dom'].h('p', {}, modules['page/dom'].maths(text)).innerHTML"
    assert page.page.evaluate(maths, "10 M^−0.99") == "10 <var>M</var><sup>−0.99</sup>"


def test_a_file_is_shared_with_the_text_behind_its_address(page: Page, browser: Any, tmp_path: Path) -> None:
    page.page.click("#share")
    field, body = (page.page.locator(f"dialog {name}").bounding_box() for name in ("#share-part", ".share"))
    assert field["width"] == pytest.approx(body["width"], abs=1)
    assert page.page.input_value("#share-part") == page.page.evaluate("location.hash")
    heights = page.page.locator("dialog footer button").evaluate_all("(all) => all.map((b) => b.offsetHeight)")
    assert len(set(heights)) == 1, "no button breaks its words"
    (tmp_path / "saved.html").write_bytes(page.download(lambda: page.page.click("#share-file")))
    again = Page(browser, (tmp_path / "saved.html").as_uri()).open(page.page.input_value("#share-part"))
    again.wait("app.film.run.steps === 60")
    again.check_quiet()
    again.context.close()


def test_dialogs_and_the_tour_fit_a_phone(explorer: Callable[..., Page]) -> None:
    p = explorer("#classes=words&steps=60&flow=off", viewport={"width": 390, "height": 844})
    p.page.click("#edit-weights")
    assert p.page.evaluate(TOO_SMALL) == []
    p.key("Escape")
    p.page.click("#own-words")
    p.page.click("#words-example")
    p.page.locator("#words-pairs button").first.wait_for()
    assert p.page.evaluate(TOO_SMALL) == []
    p.key("Escape")
    p.page.click("#tab-tour")
    assert p.page.evaluate("document.documentElement.scrollWidth") == 390
    p.context.close()


def test_another_page_may_frame_it(browser: Any, built: str, tmp_path: Path) -> None:
    course = tmp_path / "course.html"
    course.write_text(f'<iframe src="{built}{QUICK.replace("&", "&amp;")}" width="900" height="600"></iframe>')
    context = browser.new_context(offline=True)
    tab = context.new_page()
    tab.goto(course.as_uri())
    tab.frame_locator("iframe").locator("html[data-ready] #clock").wait_for()
    tab.frames[1].wait_for_function("() => modules.app.app.state.state === 'done'")
    assert tab.frames[1].evaluate("modules.app.app.film.lastStep") == 60
    context.close()
