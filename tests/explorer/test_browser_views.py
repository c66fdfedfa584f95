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

require_browser()

TEXTBOOK = "#classes=textbook&eta_y=0.9&eta_z=0.02&momentum=0&context=inf&batch_size=null&steps=120&speed=max"


def lines(page: Page, view: str) -> list[dict[str, Any]]:
    """Width, dash and colour of every line of a curve view, once it is drawn."""
    page.page.wait_for_function(f"() => document.querySelector('#view-{view} .plot').data?.length > 0")
    return page.page.evaluate(f"() => document.querySelector('#view-{view} .plot').data.map((t) => t.line)")


def test_the_run_stands_against_flow_and_closed_form(explorer: Callable[..., Page]) -> None:
    p = explorer(TEXTBOOK)
    p.run_to_end()
    p.wait("app.flow && app.curves && app.response")
    p.wait("document.querySelector('#view-growth .plot').data?.some((t) => t.line.dash === 'dash')")
    for view, dashes in {
        "loss": {"dash"},
        "entropy": {"dash", "dashdot"},
        "growth": {"dash", "dot", "dashdot"},
        "chi": {"dash", "dot", "dashdot"},
        "z": {"dash", "dashdot"},
    }.items():
        last = "dash" if view == "loss" else "dashdot"
        p.wait(f"document.querySelector('#view-{view} .plot').data?.some((t) => t.line.dash === '{last}')")
        assert {line.get("dash") for line in lines(p, view)} - {None} == dashes, view
    theory = p.get("app.film.run.theory")
    marks = p.page.evaluate("() => document.querySelector('#view-growth .plot').layout.shapes.map((s) => s.x0)")
    assert marks == pytest.approx([theory["t_scan"], theory["t_snap"]])
    p.page.uncheck("#show-theory")
    p.wait("document.querySelector('#view-growth .plot').data.every((t) => t.line.dash !== 'dot')")
    p.page.hover("#view-z figcaption")
    p.page.click("#view-z figcaption button")
    p.page.wait_for_selector("dialog .large .main-svg")
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


def test_claims_come_with_numbers_and_reasons(explorer: Callable[..., Page]) -> None:
    p = explorer(TEXTBOOK + "&right=claims&flow=off")
    p.run_to_end()
    p.page.wait_for_selector(".claim.holds")
    tally = [int(t) for t in p.page.locator("#tally b").all_inner_texts()]
    assert sum(tally) == p.page.locator(".claim[data-kind=measured]").count() > 10
    assert p.page.locator("#tally b").count() == 4
    lead = p.page.inner_text("#claims-lead")
    assert f"Measured: {tally[0]} hold, {tally[1]} fail, {tally[2]} undecided, {tally[3]} not applicable." in lead
    first = p.page.locator(".claim.holds").first
    assert first.locator("dt").all_inner_texts() == ["measured", "predicted", "margin"]
    first.locator("summary").click()
    assert len(first.locator(".statement").inner_text()) > 20
    p.page.select_option("#c-optimizer", "adam")
    p.wait("app.film.run.setup.optimizer === 'adam'")
    p.run_to_end()
    p.page.wait_for_function(
        "() => document.querySelectorAll('.claim.not-applicable').length === document.querySelectorAll('.claim').length"
    )
    assert "Why not applicable" in p.page.locator(".claim[open] .why").inner_text()  # opened before, still open
    p.check_quiet()
    p.context.close()


CURVE = {"x_label": "t", "y_label": "y", "x": [1, 2, 4], "measured": [1, 2, 4], "predicted": [1, 1, 1],
         "log_x": True, "log_y": False}  # fmt: skip
OURS = {"name": "memory", "reference": "Memory", "statement": "what holds", "status": "holds", "off": 0.005,
        "words": "instead: memory holds up to 10 t₀", "theirs": 0.88, "x": [1, 2, 4], "y": [1, 2, 4]}  # fmt: skip


def test_undecided_claims_and_kinds_are_shown(explorer: Callable[..., Page]) -> None:
    p = explorer(TEXTBOOK + "&right=claims&flow=off")

    def answer(route: Any) -> None:
        found = route.fetch().json()
        for claim in found["claims"]:
            claim |= {"status": "holds", "kind": "measured", "why": ""}
        found["claims"][0] |= {"status": "undecided", "why": "9 seeds would decide"}
        found["claims"][1] |= {"kind": "identity"}
        found["claims"][2] |= {"status": "fails", "instead": OURS, "curve": CURVE}
        route.fulfill(json=found)

    p.page.route("**/api/runs/*/claims*", answer)
    p.run_to_end()
    still = p.page.locator(".claim.undecided")
    still.wait_for(timeout=30_000)
    assert still.locator(".sign").inner_text() == "?"
    assert still.locator("strong").inner_text() == "undecided"
    still.locator("summary").click()
    assert "What would decide: 9 seeds would decide" in still.inner_text()
    broken = p.page.locator(".claim.fails")
    broken.locator("summary").click()
    assert broken.locator(".instead").inner_text() == (
        "Instead: memory holds up to 10 t₀: what holds. Its curve (broad) is off by 0.5%, the paper's by 88%."
    )
    green = """canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]
        .filter((v, i, d) => i % 4 === 1 && d[i + 2] > 20 && v > d[i - 1] + 40 && v > d[i + 1] + 20).length"""
    p.page.wait_for_timeout(300)
    assert broken.locator("canvas").evaluate(green) > 50, "its curve is drawn"
    assert p.page.locator(".claim[data-kind=identity] .kind").inner_text() == "identity"
    tally = [int(t) for t in p.page.locator("#tally b").all_inner_texts()]
    assert tally[2] == 1
    assert sum(tally) == p.page.locator(".claim").count() - 1
    assert "Counted apart: 1 identity (1 hold)" in p.page.inner_text("#claims-lead")
    p.page.unroute("**/api/runs/*/claims*")
    p.context.close()


def test_a_pinned_run_lies_under_the_next(page: Page) -> None:
    page.run_to_end()
    page.key("p")
    page.wait("app.pinned !== null")
    page.fill("eta_y", "10")
    page.key("r")
    page.wait("app.film.run.setup.eta_y === 10")
    page.run_to_end()
    assert "1" in page.page.inner_text("#legend-pinned")
    page.wait("document.querySelector('#view-entropy .plot').data?.some((t) => t.name?.startsWith('pinned run'))")
    assert page.get("app.pinned.film.value('loss', 20)") != page.get("app.film.value('loss', 20)")
    page.page.click("#pin")
    page.wait("document.querySelector('#view-entropy .plot').data.every((t) => !t.name.startsWith('pinned run'))")


def test_the_cursor_stands_at_the_step_on_screen_zoomed_or_not(page: Page) -> None:
    """Against the axes that plotly has drawn, not against its numbers."""
    page.run_to_end()
    page.wait("document.querySelector('#view-loss .plot').layout?.xaxis.range[1] > 1")

    def place() -> float:
        """Where the cursor is, as a share of the drawn axis."""
        page.step()
        return page.page.evaluate(
            """() => { const place = (what) => document.querySelector("#view-loss " + what).getBoundingClientRect();
                 return (place(".cursor").left - place(".nsewdrag").left) / place(".nsewdrag").width; }"""
        )

    assert place() == pytest.approx(1, abs=0.02)
    page.page.evaluate("() => Plotly.relayout(document.querySelector('#view-loss .plot'), {'xaxis.range': [0, 3]})")
    assert place() == pytest.approx(math.log10(60) / 3, abs=0.02)
    page.key("Home")
    assert place() == pytest.approx(0, abs=0.02)


def test_the_tour_has_six_scenes_that_run(page: Page) -> None:
    page.key("t")
    page.page.locator(".scenes button").first.click()
    scenes = page.page.evaluate("async () => (await (await fetch('/api/tour')).json()).scenes")
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
    before = page.get("app.film.run.run")
    page.page.locator(".dots button").first.click()
    page.page.click("#tour-try")
    page.wait(f"app.film.run.run !== '{before}' && app.film.run.setup.eta_z === 1 && app.pinned !== null")


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
    last = [float(r["value"]) for r in rows if r["quantity"] == "attention" and r["step"] == "60" and r["class"] == "0"]
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
    assert other.page.evaluate("async () => (await import('/static/js/address.js')).make()") == address
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
    for key, name in zip("4321", ("lens", "claims", "y", "curves"), strict=True):
        page.key(key)
        assert page.page.locator(f"#panel-{name}").is_visible()
    page.page.focus("#tab-curves")
    page.key("ArrowRight")
    assert page.page.evaluate("document.activeElement.id") == "tab-y"
    nameless = page.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea, canvas, [role=img], [role=slider]")]
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


def test_the_lens_without_and_with_a_model(page: Page) -> None:
    page.key("4")
    page.page.locator("#panel-lens", has_text="No text model here yet").wait_for()
    answer = {
        "query": "the",
        "entropy": 1.25,
        "attended": [
            {"word": "king", "attention": 0.6, "z": 1.5, "votes": [{"word": "crown", "vote": 2.0}]},
            {"word": "of", "attention": 0.1, "z": -0.5, "votes": []},
        ],
        "votes": [{"word": "throne", "vote": 0.31}],
        "entropy_over_training": [{"step": 0, "entropy": 3.0}, {"step": 50, "entropy": 1.25}],
    }
    page.page.route("**/api/lens", lambda r: r.fulfill(json={"models": [{"name": "wiki", "title": "Wiki"}]}))
    page.page.route("**/api/lens/wiki?*", lambda r: r.fulfill(json=answer) if "query=the" in r.request.url else
                    r.fulfill(status=422, json={"field": "query", "message": "There is no such word."}))  # fmt: skip
    page.page.locator("#panel-lens button", has_text="Look again").click()
    page.page.locator("#panel-lens .words li", has_text="king").wait_for()
    said = page.page.inner_text("#panel-lens")
    assert "1.25 nats" in said
    assert "crown" in said
    assert "throne 31.0%" in said
    page.page.fill("#lens-query", "xyzzy")
    page.page.click("#panel-lens form button")
    page.page.locator("#panel-lens .refusal", has_text="no such word").wait_for()
