"""The explorer in chromium: views, claims, compare, tour, lens, files, addresses, keyboard."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import PATIENCE, QUICK, Page, browser, explorer, page, require_browser

pytestmark = pytest.mark.integration

require_browser()

TEXTBOOK = "#classes=textbook&eta_y=0.9&eta_z=0.02&momentum=0&context=inf&batch_size=null&steps=120&speed=max"


def lines(page: Page, view: str) -> list[dict[str, Any]]:
    """Width, dash and colour of every line of a curve view, once it is drawn."""
    page.page.wait_for_function(f"() => document.querySelector('#view-{view} .plot').figure?.data.length > 0")
    return page.page.evaluate(f"() => document.querySelector('#view-{view} .plot').figure.data.map((t) => t.line)")


def test_the_run_stands_against_flow_and_closed_form(explorer: Callable[..., Page]) -> None:
    p = explorer(TEXTBOOK)
    p.run_to_end()
    p.wait("app.flow && app.curves && app.response")
    p.wait("document.querySelector('#view-growth .plot').figure?.data.some((t) => t.line.dash === 'dash')")
    for view, dashes in {
        "loss": {"dash"},
        "entropy": {"dash", "dashdot"},
        "growth": {"dash", "dot", "dashdot"},
        "chi": {"dash", "dot", "dashdot"},
        "z": {"dash", "dashdot"},
    }.items():
        last = "dash" if view == "loss" else "dashdot"
        p.wait(f"document.querySelector('#view-{view} .plot').figure?.data.some((t) => t.line.dash === '{last}')")
        assert {line.get("dash") for line in lines(p, view)} - {None} == dashes, view
    theory = p.get("app.film.run.theory")
    marks = p.page.evaluate("() => document.querySelector('#view-growth .plot').figure.moments.map((m) => m.x)")
    assert marks == pytest.approx([theory["t_scan"], theory["t_snap"]])
    p.page.uncheck("#show-theory")
    p.wait("document.querySelector('#view-growth .plot').figure.data.every((t) => t.line.dash !== 'dot')")
    p.page.hover("#view-z figcaption")
    p.page.click("#view-z figcaption button")
    p.page.wait_for_selector("dialog .large[data-zoomed=false] canvas")
    p.key("Escape")
    p.page.wait_for_selector("dialog", state="detached")
    p.check_quiet()
    p.context.close()


def test_hovering_tells_token_class_and_value(page: Page) -> None:
    page.run_to_end()
    box = page.page.locator("#attention").bounding_box()
    page.page.mouse.move(box["x"] + 0.48 * box["width"], box["y"] + 0.4 * box["height"])  # the last bar of class 0
    said = page.page.inner_text("#tip")
    now = page.get("app.film.attention(app.film.length - 1, 0)[19]")
    assert "token 19, distinct" in said
    assert "class 0, step 60" in said
    assert f"attention {float(f'{now:.3g}'):g}" in said
    page.page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.6 * box["height"])  # early, in the heat map
    assert "common" in page.page.inner_text("#tip")
    assert "step 60" not in page.page.inner_text("#tip")
    page.key("2")
    page.page.wait_for_function(
        "() => document.querySelector('#y-canvas').getAttribute('aria-label').includes('step 60')"
    )
    box = page.page.locator("#y-canvas").bounding_box()
    page.page.mouse.move(box["x"] + 60, box["y"] + 100)
    assert "vote" in page.page.inner_text("#tip")


def test_a_pinned_run_lies_under_the_next(page: Page) -> None:
    page.run_to_end()
    page.key("p")
    page.wait("app.pinned !== null")
    page.fill("eta_y", "10")
    page.key("r")
    page.wait("app.film.run.setup.eta_y === 10")
    page.run_to_end()
    assert "1" in page.page.inner_text("#legend-pinned")
    page.wait(
        "document.querySelector('#view-entropy .plot').figure?.data.some((t) => t.name?.startsWith('pinned run'))"
    )
    assert page.get("app.pinned.film.value('loss', 20)") != page.get("app.film.value('loss', 20)")
    page.page.click("#pin")
    page.wait(
        "document.querySelector('#view-entropy .plot').figure.data.every((t) => !t.name.startsWith('pinned run'))"
    )


def test_cursor_curve_and_film_slider_are_at_one_place(page: Page) -> None:
    """Shares of the axis of time: of the film's slider, the line in a plot, and what is revealed of its curves."""
    page.run_to_end()
    page.wait("document.querySelector('#view-loss .plot').figure?.x.range[1] > 1")

    def places() -> list[float]:
        page.step()
        return page.page.evaluate(
            """async () => {
                 const { areaOf } = modules['draw/plot'];
                 const { unit } = modules['draw/pen'];
                 const box = document.querySelector("#view-loss .plot"), b = box.getBoundingClientRect(), u = unit();
                 const area = areaOf(box.figure, { width: b.width / u, height: b.height / u });
                 const share = (x) => (x / u - area.x) / area.w;
                 const hidden = parseFloat(box.querySelector(".front").style.clipPath.split(" ")[1]);
                 const slider = document.querySelector("#scrub");
                 const line = document.querySelector("#view-loss .cursor").getBoundingClientRect();
                 return [slider.value / slider.max, share(line.left - b.left), share(b.width - hidden)]; }"""
        )

    assert places() == pytest.approx([1, 1, 1], abs=0.02)
    for scale in ("linear", "log"):
        page.key("l")
        page.wait(f"app.scale === '{scale}'")
        for wanted in (0, 1, 7, 30):
            page.page.evaluate(f"async () => (modules['compute/runner']).seekStep({wanted})")
            share = wanted / 60 if scale == "linear" else math.log(wanted + 1) / math.log(61)
            page.page.wait_for_function(
                """([step, share]) => { const { time, x } = document.querySelector("#view-loss .plot").figure;
                     return Math.abs(time(step) / x.range[1] - share) < 1e-6; }""",
                arg=[wanted, share],
            )
            assert places() == pytest.approx([share] * 3, abs=0.02), (scale, wanted)


def test_an_enlarged_plot_zooms_by_drag_and_keyboard(page: Page) -> None:
    page.run_to_end()
    page.page.hover("#view-entropy figcaption")
    page.page.click("#view-entropy figcaption button")
    canvas = page.page.locator("dialog .large canvas")
    box = canvas.bounding_box()
    page.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"], steps=4)
    page.page.mouse.up()
    page.page.wait_for_selector("dialog .large[data-zoomed=true]")
    page.page.click("#zoom-all")
    page.page.wait_for_selector("dialog .large[data-zoomed=false]")
    canvas.focus()
    page.key("+")
    page.page.wait_for_selector("dialog .large[data-zoomed=true]")
    svg = page.download(lambda: page.page.click("dialog button[aria-label='Save as SVG']")).decode()
    assert "clip-path" in svg
    assert "(entropy)" in svg
    page.key("0")
    page.page.wait_for_selector("dialog .large[data-zoomed=false]")
    page.key("Escape")
    page.page.wait_for_selector("dialog", state="detached")


def test_the_tour_has_six_scenes_that_run(page: Page) -> None:
    page.key("t")
    page.page.locator(".scenes button").first.click()
    scenes = page.get("app.catalogue.scenes")
    assert len(scenes) == 6
    for i, scene in enumerate(scenes):
        page.page.locator(".scene-number", has_text=f"Scene {i + 1} of 6").wait_for()
        eta_y, eta_z = scene["setup"]["eta_y"], scene["setup"]["eta_z"]
        page.wait(f"app.film.run.setup.eta_y === {eta_y} && app.film.run.setup.eta_z === {eta_z} && app.state.step > 0")
        assert page.page.locator(".watched").count() >= 1
        if scene["overlay"]:
            page.wait("app.pinned?.film.length > 1")
        page.page.click("#tour-answer")
        assert len(page.page.inner_text(".answer")) > 20
        if i < 5:
            page.page.click("#tour-next")
    before = page.get("app.film.number")
    page.page.locator(".dots button").first.click()
    page.page.click("#tour-try")
    page.wait(f"app.film.number !== {before} && app.film.run.setup.eta_z === 1 && app.pinned !== null")


def test_files(page: Page, tmp_path: Path, browser: Any) -> None:
    from scansnap.cli.run_file import find_run

    page.run_to_end()
    page.key("2")  # so that there is a table Y
    page.page.wait_for_function(
        "() => document.querySelector('#y-canvas').getAttribute('aria-label').includes('step 60')"
    )
    page.key("e")
    got = {
        what: page.download(lambda what=what: page.page.click(f"#export-{what}")) for what in ("csv", "toml", "film")
    }
    rows = list(csv.DictReader(io.StringIO(got["csv"].decode())))
    assert {row["quantity"] for row in rows} >= {"loss", "entropy", "attention", "z"}
    last = [
        float(r["value"]) for r in rows if r["quantity"] == "attention" and r["step"] == "60" and r["seq_class"] == "0"
    ]
    assert sum(last) == pytest.approx(1, abs=1e-5)
    (tmp_path / "run.toml").write_bytes(got["toml"])
    classes, _, settings = find_run(tmp_path / "run.toml", {})
    assert classes is not None
    assert classes.n_classes == 2
    assert settings["steps"] == 60
    for view in ("attention", "growth", "y"):
        png = page.download(lambda view=view: page.page.click(f"#export-{view}-png"))
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        assert len(png) > 5000
        svg = page.download(lambda view=view: page.page.click(f"#export-{view}-svg")).decode()
        assert svg.startswith("<svg")
        assert svg.rstrip().endswith("</svg>")
    (tmp_path / "film.html").write_bytes(got["film"])
    plays(browser, tmp_path / "film.html")


def plays(browser: Any, film: Path) -> None:
    """The film, from the disk, without a server: it plays, pauses, and goes where the slider goes."""
    context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
    context.set_default_timeout(1000 * PATIENCE)
    context.add_init_script("window.late = 0; performance.now = () => window.late;")
    tab, loud = context.new_page(), []
    tab.on("pageerror", lambda error: loud.append(str(error)))
    tab.on("console", lambda m: loud.append(m.text) if m.type == "error" else None)
    tab.goto(film.as_uri())
    frames = int(tab.get_attribute("html", "data-ready"))
    assert frames > 50
    tab.evaluate("() => { window.late = 1000; }")  # of eight seconds
    tab.wait_for_function(f"() => Number(document.getElementById('scrub').value) === {frames // 8}")  # by itself
    tab.keyboard.press(" ")
    assert tab.inner_text("#play") == "Play"
    tab.locator("#scrub").fill(str(frames - 1))
    assert tab.inner_text("#clock") == "step 60 of 60"
    ink = tab.evaluate(
        """() => { const c = document.getElementById("stage"), n = new Uint8Array(c.width * c.height);
             const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
             return n.filter((_, i) => d[4 * i] === 0 && d[4 * i + 1] === 114 && d[4 * i + 2] === 178).length; }"""
    )
    assert ink > 5000  # blue bars
    assert loud == []
    context.close()


def test_an_address_holds_the_whole_state(explorer: Callable[..., Page]) -> None:
    p = explorer("#classes=syn-medium&classes.n_queries=2&steps=300&speed=100&init=uniform&seed=3&flow=off")
    p.wait("app.state.state === 'done'")
    p.key("s", "s", "s")
    p.page.check("#from-here")
    p.fill("eta_z", "2")
    p.wait("app.film.marks.length === 1 && app.state.state === 'done'")
    p.key("s", "s", "]", "]", "l", "3", "p")
    p.wait("app.cursor === 5 && app.pinned")
    p.page.click("#share")
    address = p.page.evaluate("location.hash")
    other = explorer(address)
    other.wait("app.cursor === 5 && app.pinned?.film.length > 1 && app.state.state === 'done'")
    for what in (
        "app.film.marks",
        "app.film.run.setup",
        "app.film.run.classes",
        "[...app.film.frames[5]].map((x) => String(x))",
        "app.setup.eta_z",
        "app.focus",
        "app.scale",
        "document.querySelector('#right-tabs [aria-selected=true]').id",
    ):
        assert other.get(what) == p.get(what), what
    assert other.page.evaluate("async () => (modules['address']).make()") == address
    other.page.wait_for_function("(address) => location.hash === address", arg=address)
    for made in (p, other):
        made.check_quiet()
        made.context.close()


def test_keyboard_themes_and_names(page: Page) -> None:
    page.key("?")
    assert "next frame" in page.page.inner_text("dialog")
    page.key("Escape")
    assert page.page.get_attribute("html", "data-theme") == "light"
    page.key("d")
    assert page.page.get_attribute("html", "data-theme") == "dark"
    page.key("]")
    assert page.get("app.focus") == 0
    page.key("[")
    assert page.get("app.focus") == -1
    page.key("l")
    assert page.get("app.scale") == "linear"
    for key, name in zip("54321", ("lens", "claims", "chain", "y", "curves"), strict=True):
        page.key(key)
        assert page.page.locator(f"#panel-{name}").is_visible()
    page.page.focus("#tab-curves")
    page.key("ArrowRight")
    assert page.page.evaluate("document.activeElement.id") == "tab-y"
    nameless = page.page.evaluate(
        """() => [...document.querySelectorAll(
               "button, input, select, textarea, canvas:not([aria-hidden]), [role=img], [role=slider]")]
             .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
             .map((e) => e.outerHTML.slice(0, 100))"""
    )
    assert nameless == []
    assert page.page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    ) == [1280, 720]


def test_dark_is_what_the_system_wishes(explorer: Callable[..., Page]) -> None:
    p = explorer(QUICK, color_scheme="dark")
    assert p.page.get_attribute("html", "data-theme") == "dark"
    p.context.close()
