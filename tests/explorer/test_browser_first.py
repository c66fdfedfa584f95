"""The explorer in chromium: the first visit, the two levels, the example sentence, the film as GIF."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from browser import QUICK, Page, browser, explorer, require_browser

pytestmark = pytest.mark.integration

require_browser()


def test_the_first_visit_asks_reveals_and_gives_one_slider(explorer: Callable[..., Page]) -> None:
    p = explorer("", reduced_motion="reduce")
    p.page.wait_for_selector("#welcome[data-phase=asking]")
    assert "Which word before will the model look at most?" in p.page.inner_text("#welcome .sentence")
    assert p.page.locator("#welcome-rate").is_hidden()
    p.page.locator("#welcome .nextwords li").first.wait_for()
    before = float(p.page.locator("#welcome .nextwords li", has_text="milk").get_attribute("data-p"))
    assert before == pytest.approx(1 / p.get("app.film.run.classes.vocab_size"), rel=1e-3), "nothing is learned yet"
    canvas = p.page.locator("#welcome canvas").first.bounding_box()
    p.page.mouse.click(canvas["x"] + 0.55 * canvas["width"], canvas["y"] + 0.4 * canvas["height"])
    p.page.locator("#welcome .result", has_text="Your choice").wait_for()
    p.page.click("#welcome-reveal")
    p.page.wait_for_selector("#welcome[data-phase=there]")
    last = "app.film.attention(app.film.length - 1, 0)"
    best = p.get(f"app.film.run.classes.words[app.film.run.layout.tokens[0][{last}.indexOf(Math.max(...{last}))]]")
    assert f"“{best}”" in p.page.inner_text("#welcome .result")
    p.page.wait_for_function(
        """() => Number([...document.querySelectorAll("#welcome .nextwords li")]
             .find((e) => e.textContent.startsWith("milk"))?.dataset.p) > 0.9"""
    )
    p.page.locator("#welcome-rate").fill("20")
    p.wait("app.setup.eta_z < 0.1 && app.film.run.setup.eta_z < 0.1 && app.state.state === 'done'")
    p.page.wait_for_function(
        "() => /from 64% of the attention to (?!32%)/.test(document.querySelector('#welcome .outcome').textContent)"
    )
    p.page.click("#welcome-done")
    assert p.page.locator("#welcome").count() == 0
    assert p.page.evaluate("document.activeElement.id") == "watch"
    p.page.goto("about:blank")
    p.page.goto(p.address)
    p.page.wait_for_selector("html[data-ready]")
    p.wait("app.film?.length > 0")
    assert p.page.locator("#welcome").count() == 0, "a first visit is the first"
    p.check_quiet()
    p.context.close()


def test_an_address_with_a_state_opens_it_and_not_the_welcome(explorer: Callable[..., Page]) -> None:
    p = explorer(QUICK)
    assert p.page.locator("#welcome").count() == 0
    assert p.page.get_attribute("html", "data-level") == "theory", "an address of before has everything"
    p.context.close()


def test_two_levels_and_the_address_knows_which(explorer: Callable[..., Page]) -> None:
    p = explorer("#classes=words&steps=60&eta_y=2&momentum=0.9&level=explore")
    for name in ("#view-growth", "#view-chi", "#tab-claims", "#tab-y", "#show-flow", "#c-optimizer"):
        assert p.page.locator(name).is_hidden(), name
    for name in ("#c-eta_y", "#c-eta_z", "#own-words", "#map", "#example-sentence", "#view-loss"):
        assert p.page.locator(name).is_visible(), name
    p.page.click("#level [data-value=theory]")
    for name in ("#view-growth", "#view-chi", "#tab-claims", "#tab-y", "#show-flow"):
        assert p.page.locator(name).is_visible(), name
    assert p.page.locator("#example-sentence").is_hidden()
    p.page.wait_for_function("() => !location.hash.includes('level=')")
    p.page.focus("#level [data-value=theory]")
    p.key("ArrowLeft")
    p.page.wait_for_function("() => location.hash.includes('level=explore')")
    p.check_quiet()
    p.context.close()


def test_the_next_word_of_the_example_is_the_softmax_of_its_votes(explorer: Callable[..., Page]) -> None:
    p = explorer("#classes=words&steps=60&eta_y=2&momentum=0.9&level=explore")
    p.run_to_end()
    p.page.wait_for_function("() => Number(document.querySelector('#example-next li')?.dataset.p) > 0.3")
    shown = p.page.evaluate("[...document.querySelectorAll('#example-next li')].map((e) => Number(e.dataset.p))")
    assert sum(shown) == pytest.approx(1)
    tokens, attention, next_ = p.page.evaluate(
        """async () => {
             const { app } = modules['app'];
             const { draw, read } = modules['draw/sentence'];
             const film = app.film, tokens = draw(film, 0, 0);
             // Y of one row and two outputs by hand: every word votes for the first with 1
             const rows = film.run.layout.query_tokens[0], values = new Float32Array([rows.length, 2, ...rows, 7, -1,
               ...rows.flatMap(() => [1, 0])]);
             const step = film.lastStep, said = read(film, { step, values }, 0, 0, tokens);
             return [tokens, said.attention, said.next.map((n) => n.p)]; }"""
    )
    assert len(set(tokens)) == len(tokens) == 6
    z = p.get("[app.film.run.layout.query_tokens[0], [...app.film.z(app.film.length - 1, 0)]]")
    weights = [math.exp(dict(zip(*z, strict=True))[t]) for t in tokens]
    assert attention == pytest.approx([w / sum(weights) for w in weights], rel=1e-5)
    logit, others = sum(attention) / math.hypot(*attention), p.get("app.film.run.classes.vocab_size - 1")
    assert next_[0] == pytest.approx(math.exp(logit) / (math.exp(logit) + others), rel=1e-5)
    before = p.page.text_content("#example-sentence")
    p.page.click("#another")
    p.page.wait_for_function(
        "(before) => document.querySelector('#example-sentence').textContent !== before", arg=before
    )
    p.context.close()


def test_a_film_as_gif_is_what_a_browser_shows(explorer: Callable[..., Page]) -> None:
    p = explorer(QUICK)
    p.run_to_end()
    p.key("e")
    gif = p.download(lambda: p.page.click("#export-gif"))
    assert gif[:6] == b"GIF89a"
    assert gif[-1] == 0x3B
    frames = gif.count(b"\x21\xf9\x04")
    assert 20 < frames <= 61
    p.key("Escape")
    shown = p.page.evaluate(
        """async (bytes) => {
             const decoder = new ImageDecoder({ data: new Uint8Array(bytes), type: "image/gif" });
             await decoder.tracks.ready;
             const n = decoder.tracks.selectedTrack.frameCount, canvas = document.createElement("canvas");
             const colour = async (i) => { const { image } = await decoder.decode({ frameIndex: i });
               canvas.width = image.displayWidth; canvas.height = image.displayHeight;
               const c = canvas.getContext("2d", { willReadFrequently: true }); c.drawImage(image, 0, 0);
               const d = c.getImageData(0, 0, canvas.width, canvas.height).data;
               let blue = 0;
               for (let k = 0; k < d.length; k += 4) // #0072B2
                 if (d[k] + Math.abs(d[k + 1] - 114) + Math.abs(d[k + 2] - 178) < 40) blue++;
               return blue; };
             return [n, await colour(0), await colour(n - 1)]; }""",
        list(gif),
    )
    assert shown[0] == frames
    assert shown[2] > 1.1 * shown[1], "distinct tokens gain: more of the last frame is blue"
    p.check_quiet()
    p.context.close()


def test_a_link_has_a_title_and_a_picture(explorer: Callable[..., Page]) -> None:
    p = explorer(QUICK)
    tags = dict(
        p.page.evaluate(
            "[...document.querySelectorAll('meta[property]')].map((m) => [m.getAttribute('property'), m.content])"
        )
    )
    assert {"og:title", "og:description", "og:image"} <= set(tags)
    assert re.search(r"\.png$", tags["og:image"])
    p.context.close()
