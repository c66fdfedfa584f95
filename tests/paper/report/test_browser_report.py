"""The report of ``scansnap reproduce`` in a real browser: it opens from a file, at three sizes, in light and dark."""

import pytest

from chromium import PATIENCE
from scansnap.paper.figure import Effort
from scansnap.paper.report import make, page
from scansnap.paper.report.manifest import TargetResult
from scansnap.paper.report.targets import IN_WORDS, find
from scansnap.plots.style import settle

pytestmark = pytest.mark.integration

QUICK = Effort(quick=True, device="cpu")
SIZES = [(1280, 720), (1920, 1080), (390, 844)]
# what sticks out of the page, but for what scrolls in a box of its own
OUTSIDE = """() => [...document.querySelectorAll("main *")].filter((e) => {
  const box = e.getBoundingClientRect();
  return !e.closest(".scroll, svg, math, .hidden, pre") && e.checkVisibility() && box.width
    && box.right > innerWidth + 0.5;
}).map((e) => e.outerHTML.slice(0, 80))"""
COLOURS = """() => {
  const figure = document.querySelector("#fig3 svg.drawing");
  const all = [...figure.querySelectorAll("path, use")].map((e) => getComputedStyle(e));
  return { text: getComputedStyle(figure).fill, all: [...new Set(all.flatMap((style) => [style.fill, style.stroke]))] };
}"""
HERE = """document.querySelector("nav.contents a[href='#table1']").getAttribute("aria-current")"""
WIDTHS = "(all) => all.map((e) => e.getBoundingClientRect().width)"


def made(name):
    """A target as ``reproduce`` makes it, without the files."""
    figure = find(name)
    computed = figure.compute(QUICK)
    drawing = figure.draw(computed)
    settle(drawing)
    svg = b"" if name in IN_WORDS else make.on_page(drawing)
    command, files = f"scansnap reproduce {name}", make.files_of(name)
    return TargetResult(name, figure.TITLE, figure.CAPTION, computed, command, 1.0, files, svg, make.focus(drawing))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """With what it has: drawings, heat maps, the claims' table, Table 1, points."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    out.write_text(page.page([made(name) for name in ("fig3", "fig4", "table1", "claims")], QUICK), encoding="utf-8")
    return f"file://{out}"


@pytest.fixture
def opened(browser, report):
    """Opens the report; at the end nothing may have been fetched, refused or thrown."""
    contexts, complaints = [], []

    def open_at(width, height, scheme="light", **options):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True, **options
        )
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(1000 * PATIENCE)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("request", lambda request: complaints.append(request.url) if not request.url.startswith(
            (report, "data:")) else None)  # fmt: skip
        tab.goto(report)
        return tab

    yield open_at
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_fits_and_its_colours_follow_the_scheme(opened, width, height, scheme):
    tab = opened(width, height, scheme)
    tab.evaluate("document.querySelectorAll('article').forEach((e) => { e.style.contentVisibility = 'visible'; })")
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(OUTSIDE) == []
    paper, ink = tab.evaluate(
        "() => { const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]; }"
    )
    assert (paper == "rgb(13, 17, 23)") == (scheme == "dark")
    drawn = tab.evaluate(COLOURS)
    assert drawn["text"] == ink  # text and axes
    assert ink in drawn["all"]
    assert paper in drawn["all"]
    blue = "rgb(0, 114, 178)"
    assert (blue in drawn["all"]) == (scheme == "light")


def test_the_findings_come_first_with_a_drawing_each(opened):
    tab = opened(1280, 720)
    first = tab.locator(".headline").first
    assert first.bounding_box()["y"] < 720
    assert tab.locator(".headline .drawing").count() == tab.locator(".headline").count() == 2
    shown = tab.locator(".headline use").first.evaluate("(e) => e.getBoundingClientRect().width")
    assert shown > 200
    alt = tab.locator(".headline .drawing").first.get_attribute("aria-label")
    assert alt.startswith("Figure 4: Common tokens lose attention: ")


def test_contents_stay_beside_the_text_and_say_where_one_is(opened):
    tab = opened(1280, 720)
    nav = tab.locator("nav.contents")
    assert tab.locator("nav.contents a[href='#table1']").is_visible()
    tab.click("nav.contents a[href='#table1']")
    tab.wait_for_function(HERE)
    top = tab.locator("#table1").bounding_box()["y"]
    assert 0 <= top < 720 / 2
    assert nav.bounding_box()["y"] == 0
    assert tab.locator("nav.contents [aria-current]").count() == 1
    assert tab.locator("#table1 sub").first.evaluate("(e) => e.getBoundingClientRect().height") > 5


def test_on_a_phone_contents_fold_and_work_by_keyboard(opened):
    tab = opened(390, 844)
    heads = "() => [...document.querySelectorAll('.claims thead, .statements thead')].map((e) => e.offsetWidth)"
    assert set(tab.evaluate(heads)) == {1}, "the heads of the columns are for screen readers here"
    summary, link = tab.locator("nav.contents summary"), tab.locator("nav.contents a[href='#claims']")
    assert not link.is_visible()
    summary.focus()
    tab.keyboard.press("Enter")
    link.wait_for(state="visible")
    tab.keyboard.press("Escape")
    link.wait_for(state="hidden")
    assert summary.evaluate("(e) => e === document.activeElement")
    tab.keyboard.press("Enter")
    link.focus()
    tab.keyboard.press("Enter")
    link.wait_for(state="hidden")
    tab.wait_for_function("location.hash === '#claims'")
    box = tab.locator("#claims-title").bounding_box()
    bar = tab.locator("nav.contents").bounding_box()
    assert bar["y"] == 0
    assert bar["height"] - 1 <= box["y"] < 844 / 2


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_a_finding_shows_its_points_on_hover_and_focus(opened, width, height):
    tab = opened(width, height)
    button, box = tab.locator("#fig4 [data-points='fig4-0']"), tab.locator("#points")
    assert box.is_hidden()
    button.scroll_into_view_if_needed()
    button.focus()
    box.wait_for(state="visible")
    assert box.locator("circle").count() == 4 * 3  # patterns and seeds
    assert "a dot for each of 3 seeds" in box.inner_text()
    assert "“falls”" in box.inner_text()
    place = box.bounding_box()
    assert place["x"] >= 0
    assert place["x"] + place["width"] <= width
    labels = box.locator("text").evaluate_all("(all) => all.map((e) => e.getBoundingClientRect().left)")
    assert min(labels) >= place["x"]
    tab.keyboard.press("Escape")
    box.wait_for(state="hidden")
    button.blur()
    button.hover()
    box.wait_for(state="visible")
    tab.mouse.move(2, 2)
    box.wait_for(state="hidden")


def test_the_claims_have_their_curves(opened):
    tab = opened(1280, 720)
    tab.locator("#claims-title").scroll_into_view_if_needed()
    rows = tab.locator("table.claims tbody tr:not(.group)")
    curves = tab.locator("table.claims .spark svg")
    assert rows.count() >= 30
    assert curves.count() >= 25
    assert min(tab.locator("table.claims .spark .measured").evaluate_all(WIDTHS)) > 50


def test_on_a_phone_drawings_fit_and_are_enlarged_into_a_box_that_the_keyboard_reaches(opened):
    tab = opened(390, 844)
    box = tab.locator("#fig4 .scroll")
    assert box.evaluate("(e) => e.scrollWidth - e.clientWidth") == 0
    assert tab.locator(".scroll[tabindex]").count() == 0, "no stop where nothing scrolls"
    tab.locator("#fig4 button.enlarge").click()
    assert box.evaluate("(e) => e.scrollWidth - e.clientWidth") > 100
    assert box.get_attribute("tabindex") == "0"


def test_a_count_filters_the_statements_and_all_come_back(opened):
    tab = opened(1280, 720)
    chip = tab.locator(".counts a.chip").first
    chip.click()
    shown = tab.locator("tr[data-tags]:not(.off)")
    assert shown.count() == int(chip.locator("b").inner_text())
    assert shown.first.is_visible()
    assert not tab.locator("tr[data-tags].off").first.is_visible()
    tab.click("#filter-status button")
    assert tab.locator("tr.off").count() == 0


def test_long_details_end_with_a_button_for_the_rest(opened):
    tab = opened(240, 844)
    tab.evaluate("document.querySelectorAll('article').forEach((e) => { e.style.contentVisibility = 'visible'; })")
    button = tab.locator("button.more").first
    text = button.locator("xpath=preceding-sibling::*[1]")
    cut = text.evaluate("(e) => e.scrollHeight - e.clientHeight")
    button.click()
    assert cut > 0 == text.evaluate("(e) => e.scrollHeight - e.clientHeight")
    assert button.get_attribute("aria-expanded") == "true"


def test_without_script_it_says_the_same(opened):
    tab = opened(390, 844, java_script_enabled=False)
    assert tab.locator("nav.contents a[href='#claims']").is_visible()
    assert tab.locator(".headline").count() == 2
