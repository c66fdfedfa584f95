"""The explorer in chromium: what curves and drawings say, and that it can be read: labels, colours, hover, overlays."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser, explorer, require_browser

pytestmark = pytest.mark.integration

require_browser()

TEXTBOOK = "#classes=textbook&eta_y=0.9&eta_z=0.02&momentum=0&context=inf&batch_size=null&steps=120"
LONG = "#classes=syn-small&steps=15128&marks=14000:2:3&flow=on&step=9000"
SIZES = [(1280, 720), (1920, 1080), (390, 844)]
# what a canvas was written on, where, in its own pixels; forgotten when it is cleared
WRITTEN = """
window.written = new Map();
const drawing = CanvasRenderingContext2D.prototype, { fillText, clearRect } = drawing;
drawing.clearRect = function (...a) { written.delete(this.canvas); clearRect.apply(this, a); };
drawing.fillText = function (text, x, y) {
  const m = this.measureText(text), t = this.getTransform();
  const box = [x - m.actualBoundingBoxLeft, y - m.actualBoundingBoxAscent,
               x + m.actualBoundingBoxRight, y + m.actualBoundingBoxDescent];
  const [x0, y0, x1, y1] = box.map((v, i) => (i % 2 ? v * t.d + t.f : v * t.a + t.e));
  written.set(this.canvas, [...(written.get(this.canvas) ?? []), { text, x0, y0, x1, y1 }]);
  fillText.call(this, text, x, y);
};
"""
ON_CANVAS = """() => [...document.querySelectorAll("canvas:not(.plot canvas)")]
  .filter((c) => c.checkVisibility()).map((c) => ({
  where: c.id, width: c.width, height: c.height, texts: written.get(c) ?? [] }))"""
# of a plot, whose layers lie on each other
ON_PLOTS = """() => [...document.querySelectorAll("#panel-curves .plot")].map((p) => {
  const layers = [...p.querySelectorAll("canvas")], { width, height } = layers[0];
  return { where: p.closest("figure").id, width, height, texts: layers.flatMap((c) => written.get(c) ?? []) }; })"""
FITTED = """() => [...document.querySelectorAll("#panel-curves .plot")].every((p) => p.figure &&
    Math.abs(p.firstChild.width - p.clientWidth) <= 1 && Math.abs(p.firstChild.height - p.clientHeight) <= 1)
  && Math.abs(document.querySelector("#attention").width - document.querySelector("#attention-box").clientWidth) <= 1"""


@pytest.fixture(scope="module")
def shown(browser: Any, explorer: Callable[..., Page]) -> Iterator[Callable[[str], Page]]:
    """One tab that notes what is written, at one address after the other, with its film complete."""
    page = explorer("#classes=syn-small&steps=60")
    page.page.add_init_script(WRITTEN)

    def show(where: str) -> Page:
        page.open(where)
        page.wait("app.state.state === 'done' && app.film.lastStep === app.state.step")
        page.wait("[...document.querySelectorAll('#panel-curves .plot')].every((p) => p.figure)")
        return page

    yield show
    page.check_quiet()
    page.context.close()


def badly_placed(found: list[dict[str, Any]]) -> list[str]:
    """Labels that stick out of what they are drawn on, and pairs that lie on each other."""
    wrong = []
    for drawing in found:
        texts = drawing["texts"]
        wrong += [f"{drawing['where']}: {t['text']!r} is cut off" for t in texts if t["x0"] < -1 or t["y0"] < -1
                  or t["x1"] > drawing["width"] + 1 or t["y1"] > drawing["height"] + 1]  # fmt: skip
        for i, a in enumerate(texts):
            wrong += [f"{drawing['where']}: {a['text']!r} on {b['text']!r}" for b in texts[:i] if a["x0"] < b["x1"] - 1
                      and b["x0"] < a["x1"] - 1 and a["y0"] < b["y1"] - 1 and b["y0"] < a["y1"] - 1]  # fmt: skip
    return wrong


def test_no_label_is_cut_off_or_lies_on_another(browser: Any, shown: Callable[[str], Page], tmp_path: Path) -> None:
    p = shown(LONG)
    p.wait("app.flow")
    for width, height in SIZES:
        p.page.set_viewport_size({"width": width, "height": height})
        for scale in ("linear", "log"):
            p.key("l")
            p.wait(f"app.scale === '{scale}'")
            p.page.wait_for_function(FITTED)
            p.page.wait_for_function(
                f"() => (document.querySelector('#view-z .plot').figure.time(9) === 9) === ('{scale}' === 'linear')"
            )
            step = f"{p.step():,}".replace(",", "\u202f")
            canvases, plots = p.page.evaluate(ON_CANVAS), p.page.evaluate(ON_PLOTS)
            texts = {t["text"] for drawing in canvases + plots for t in drawing["texts"]}
            assert step in texts, "the step on screen"
            assert "15\u202f128" in texts or scale == "log", "the last one, where the one on screen is not beside it"
            assert any("η" in text for text in texts), "the change of the rates"
            assert sum(len(d["texts"]) for d in plots) > (25 if width > 700 else 20), (
                "of larger letters there are fewer"
            )
            assert badly_placed(canvases + plots) == []
        p.key("2")
        p.page.wait_for_function("() => document.querySelector('#y-step').textContent")
        p.step()
        table = [d for d in p.page.evaluate(ON_CANVAS) if d["where"] == "y-canvas"]
        assert len(table[0]["texts"]) > 5
        assert badly_placed(table) == []
        p.key("1")
    film = tmp_path / "film.html"
    film.write_text(p.page.evaluate("modules['compute/api'].file(modules.app.app.film, 'film.html')"), encoding="utf-8")
    p.page.set_viewport_size({"width": 1280, "height": 720})
    tab = browser.new_page()
    tab.add_init_script(WRITTEN)
    for width, height in SIZES:
        tab.set_viewport_size({"width": width, "height": height})
        tab.goto(film.as_uri())
        tab.wait_for_selector("html[data-ready]")
        tab.keyboard.press("End")
        found = tab.evaluate(ON_CANVAS)
        assert len(found) == 2
        assert all(len(d["texts"]) >= 4 for d in found)
        assert badly_placed(found) == []
    tab.close()


def hover(p: Page, view: str, name: str, texts: str, point: int) -> str:
    """What is shown at a point of a line, with the mouse there."""
    p.page.wait_for_function(
        f"() => document.querySelector('#view-{view} .plot').figure.data.some((t) => t.name.startsWith('{name}'))"
    )
    at = p.page.evaluate(
        """async ([view, name, texts, point]) => {
             const { areaOf, projection } = modules['draw/plot'];
             const { unit } = modules['draw/pen'];
             const box = document.querySelector(`#view-${view} .plot`), b = box.getBoundingClientRect(), u = unit();
             const area = areaOf(box.figure, { width: b.width / u, height: b.height / u });
             const { px, py } = projection(box.figure, area);
             const found = box.figure.data.find(
               (t) => t.name.startsWith(name) && t.texts.some((x) => x.includes(texts)));
             return [b.x + u * px(found.x[point]), b.y + u * py(found.y[point])]; }""",
        [view, name, texts, point],
    )
    p.page.mouse.move(*at)
    return p.page.inner_text("#tip").replace("\n", " ")


def test_overlays_speak_of_the_run_and_hover_texts_of_whole_steps(shown: Callable[[str], Page]) -> None:
    p = shown(TEXTBOOK)
    p.wait("app.flow && app.response && app.curves")
    for name in ("flow", "theory", "response"):
        assert p.page.is_checked(f"#show-{name}")
    p.run_to_end()
    p.wait("document.querySelector('#view-growth .plot').figure.data.some((t) => t.line.dash === 'dashdot')")
    for view, line, texts, words in (
        ("growth", "infinite-data", "flow", r"(infinite|our formula|run, |the paper).*\s+step \d+\s+Bₙ "),
        ("chi", "the paper", "upper", r"the paper's formula \(closed form\), upper bound\s+step \d+\s+ln χ "),
        ("entropy", "run", "mean", r"(infinite.*|our formula.*|mean.*|class \d)\s+step \d+\s+entropy [\d.]+ nats"),
        ("z", "distinct", "distinct", r"(token \d+, .*|.*, token \d+)\s+step \d+\s+z "),
    ):  # fmt: skip
        assert re.match(words, hover(p, view, line, texts, 40)), (view, line)
    p.page.mouse.move(640, 300)
    p.key("Home")
    p.step()
    hover(p, "chi", "the paper", "upper", 40)
    assert p.page.locator("#tip").is_hidden(), "what is not revealed yet is not told"
    p.key("End")
    # the response is the theory that holds: on this run it is far nearer to what is measured than the closed form
    off = p.get("""[app.response, app.curves].map((said) => { const i = said.t.length - 1;
                     return Math.abs(said.growth[0][i] - app.film.value('growth', app.film.length - 1, 0)); })""")
    assert off[0] < 0.05 * off[1]


def test_overlays_of_another_run_are_off_and_say_why(shown: Callable[[str], Page]) -> None:
    p = shown("#classes=syn-small&steps=60&momentum=0.9")
    for name in ("flow", "theory", "response"):
        assert not p.page.is_checked(f"#show-{name}")
    said = p.page.inner_text("#predict-note")
    assert "momentum 0.9" in said
    assert "T = 128" in said
    assert "They are off" in said
    assert p.get("app.flow") is None
    p.page.check("#show-theory")
    p.wait("document.querySelector('#view-growth .plot').figure.data.some((t) => t.line.dash === 'dot')")
    assert "They need not agree" in p.page.inner_text("#predict-note")
    p.fill("seed", "7")  # what was switched by hand stays so
    p.wait("app.film.run.setup.seed === 7")
    assert p.page.is_checked("#show-theory")
    assert not p.page.is_checked("#show-flow")


@pytest.mark.parametrize("rule", ["adam", "muon"])
def test_no_t0_where_closed_forms_do_not_speak(shown: Callable[[str], Page], rule: str) -> None:
    p = shown(f"#classes=syn-small&steps=200&optimizer={rule}&eta_y=0.1&eta_z=0.1&momentum=0&context=inf&flow=on")
    p.page.check("#show-theory")
    p.step()
    theory = p.get("app.film.run.theory")
    assert 0 < theory["t_snap"] < 200
    assert p.page.evaluate("() => document.querySelector('#view-growth .plot').figure.moments.length") == 0
    assert "do not apply to this run: the optimiser is not SGD" in p.page.inner_text("#predict-note")


def test_after_a_change_of_rates_overlays_say_whose_they_are(shown: Callable[[str], Page]) -> None:
    p = shown(TEXTBOOK + "&marks=30:2:0.5")
    p.wait("app.film.marks.length === 1")
    p.page.locator("#predict-note", has_text="The rates changed at step 30").wait_for()
    assert "limit and our formula, t₀′ and t₀ use the first rates" in p.page.inner_text("#predict-note")
    p = shown("#classes=syn-small&steps=1000&flow=off&marks=30:1:4,200:5:4")
    p.wait("document.querySelector('#view-loss .plot').figure?.moments.length === 2")
    p.step()
    named = [[t["text"] for t in d["texts"] if "η" in t["text"]] for d in p.page.evaluate(ON_PLOTS)]
    assert named == [["η_Y 5, η_Z 4"]] * 5, "the newest change, once in every view"


def contrast(a: str, b: str) -> float:
    """WCAG 2, of "#RRGGBB" or "rgb(…)"."""

    def luminance(colour: str) -> float:
        parts = ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] if colour.startswith("#") else
                 [float(v) for v in re.findall(r"[\d.]+", colour)][:3])  # fmt: skip
        linear = [v / 255 / 12.92 if v <= 10.3 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    values = sorted([luminance(a), luminance(b)])
    return values[1] / values[0]


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_lines_stand_out_from_their_ground(shown: Callable[[str], Page], theme: str) -> None:
    p = shown("#classes=syn-small&steps=60&flow=on")
    p.wait("app.flow")
    if p.page.get_attribute("html", "data-theme") != theme:
        p.key("d")
    p.key("p")
    ground = p.page.evaluate("getComputedStyle(document.querySelector('.right')).backgroundColor")
    ink = p.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()")
    p.wait(f"document.querySelector('#view-loss .plot').figure.data.some((t) => t.line.color === '{ink}')")
    other = {"light": "#ecebe6", "dark": "#1d1f24"}[theme]  # the ink of the other theme
    p.wait(
        "[...document.querySelectorAll('#panel-curves .plot')]"
        f".every((p) => p.figure.data.every((t) => t.line.color !== '{other}'))"
    )
    p.wait("document.querySelector('#view-z .plot').figure.data.some((t) => t.line.dash === 'dash')")
    p.wait("document.querySelector('#view-loss .plot').figure.data.some((t) => t.name.startsWith('pinned'))")
    drawn = p.page.evaluate(
        """() => [...document.querySelectorAll("#panel-curves .plot")]
             .flatMap((p) => p.figure.data.map((t) => t.line.color))"""
    )
    assert len(drawn) > 12
    for colour in drawn:
        assert contrast(colour, ground) >= 3, (theme, colour)
    if theme == "dark":  # the distinct tokens' thin blue ones
        blue = p.page.evaluate(
            "document.querySelector('#view-z .plot').figure.data.find((t) => t.name.startsWith('distinct')).line.color"
        )
        assert contrast(blue, ground) >= 4.5
    p.key("p")


def test_pictures_carry_title_legend_and_settings(shown: Callable[[str], Page]) -> None:
    p = shown("#classes=syn-small&steps=60&flow=off&step=60")
    p.key("e")
    settings = "syn-small, K 2, M 34, sgd, η_Y 1, η_Z 1, momentum 0.9, T 128, batch 128, seed 0"
    attention = p.download(lambda: p.page.click("#export-attention-svg")).decode()
    for words in (
        settings,
        "Attention at step 60",
        ">distinct (only in this context)<",
        ">common (in every context)<",
        ">at step 0<",
    ):
        assert words in attention
    width = float(re.findall(r'<svg[^>]* width="([\d.]+)"', attention)[0])
    right = max(
        float(x) + float(w) for x, w in re.findall(r'<image x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', attention)
    )
    assert width - right >= 19.9, "moved by 10, and 10 free on the right"
    p.page.evaluate("() => { written.clear(); }")
    p.download(lambda: p.page.click("#export-attention-png"))
    drawn = p.page.evaluate("() => [...written.values()].flat().map((t) => t.text)")
    assert {settings, "Attention at step 60", "distinct (only in this context)", "at step 0"} <= set(drawn)
    loss = p.download(lambda: p.page.click("#export-entropy-svg")).decode()
    for words in (settings, "(entropy)", "run, mean over classes", "each class"):
        assert words in loss
    assert len(p.download(lambda: p.page.click("#export-entropy-png"))) > 20_000
    p.key("Escape")


def test_a_class_has_its_headline_and_small_movement_a_view(shown: Callable[[str], Page]) -> None:
    p = shown("#classes=syn-small&steps=60&step=60")
    assert p.page.locator("#movement").is_hidden()
    was, now = p.get("[0, app.film.length - 1].map((i) => app.film.share(i, 0, 'common'))")
    p.step()
    texts = [t["text"] for d in p.page.evaluate(ON_CANVAS) for t in d["texts"] if d["where"] == "attention"]
    assert was == pytest.approx(0.645, abs=1e-3)
    assert f"common tokens {100 * was:.0f}% → {100 * now:.0f}%" in texts
    p = shown(TEXTBOOK + "&step=120&flow=off")
    note = p.page.inner_text("#movement-note")
    assert note.startswith("Here the theorems apply and attention barely moves: no token's share has changed by more")
    p.page.click("#movement")
    p.step()
    assert p.page.get_attribute("#movement", "aria-pressed") == "true"
    texts = [t["text"] for d in p.page.evaluate(ON_CANVAS) for t in d["texts"] if d["where"] == "attention"]
    assert any(text.startswith("−") for text in texts), "bars go down as well"
    p.fill("eta_y", "1.5")  # still small, but no theorem's any more
    p.wait("app.film.run.setup.eta_y === 1.5 && app.state.state === 'done'")
    p.page.locator("#movement-note", has_text="Attention barely moves here").wait_for()


def test_the_run_before_is_behind_the_curves(shown: Callable[[str], Page]) -> None:
    p = shown("#classes=syn-small&steps=60&flow=off&step=60")
    assert p.page.locator("#option-ghost").is_hidden()
    p.wait("app.state.state === 'done'")  # a run that has not come to the step on screen leaves no ghost
    p.fill("eta_z", "0.2")
    p.wait("app.ghost && app.state.state === 'done'")
    p.wait("document.querySelector('#view-entropy .plot').figure.data.some((t) => t.name?.startsWith('run before'))")
    assert p.page.locator("#option-ghost").is_visible()
