"""In chromium: what needs Python beside the page: the text lens, and the report of a probe's file."""

import pytest
from browser import QUICK, Page, serving

pytestmark = pytest.mark.integration

LENS = QUICK + "&right=lens&level=theory"
KING = {"word": "king", "attention": 0.6, "z": 1.5, "votes": [{"word": "crown", "vote": 2.0}]}
OF = {"word": "of", "attention": 0.1, "z": -0.5, "votes": []}
ANSWER = {"query": "the", "entropy": 4.91, "uniform_entropy": 5.32, "exact": True, "attended": [KING, OF],
          "votes": [{"word": "throne", "vote": 0.31}],
          "entropy_over_training": [{"step": 0, "entropy": 2.71}, {"step": 9000, "entropy": 2.68}]}  # fmt: skip


@pytest.fixture
def lens(browser, tmp_path):
    """The lens beside a server whose folder seems to have one model."""
    with serving(folder=tmp_path) as address:
        p = Page(browser, address)
        p.page.route("**/api/lens", lambda r: r.fulfill(json={"models": [{"name": "wiki", "title": "Wiki"}]}))
        yield p
        p.context.close()


def ask(p, word):
    p.page.fill("#lens-query", word)
    p.page.press("#lens-query", "Enter")


def test_a_file_tells_how_to_begin(explorer):
    p = explorer(LENS)
    p.await_text("#panel-lens pre", "scansnap text train --out models/yz.safetensors")
    p.context.grant_permissions(["clipboard-read", "clipboard-write"])
    p.page.locator("#panel-lens .command button").first.click()
    p.await_text("#toast", "on the clipboard")


def test_a_word_is_explained_and_an_unknown_one_refused(lens):
    lens.page.route("**/api/lens/wiki?*", lambda r: r.fulfill(json=ANSWER) if "query=the" in r.request.url else
                    r.fulfill(status=422, json={"field": "query", "message": "There is no such word."}))  # fmt: skip
    lens.open(LENS)
    for selector, text in {"#lens-entropy": "“the” spreads its attention with an entropy of 4.91 nats",
                           "#panel-lens": "throne 31.0%",
                           "#lens-over": "2.71 at step 0, 2.68 at step 9"}.items():  # fmt: skip
        lens.await_text(selector, text)
    assert "before training it was 5.32" in lens.text("#lens-entropy")
    assert "crown" in lens.text("#panel-lens")
    ask(lens, "xyzzy")
    lens.await_text("#panel-lens .refusal", "no such word")


def test_the_lens_asks_once_and_shows_the_newest_answer(lens):
    asked, late = [], []

    def answer(route):
        query = route.request.url.split("query=")[-1]
        asked.append(query)
        (late.append if query == "slow" else lambda r: r.fulfill(json={**ANSWER, "query": query}))(route)

    lens.page.route("**/api/lens/*", answer)
    lens.open(LENS)
    lens.await_text("#lens-entropy", "“the”")
    ask(lens, "slow")
    ask(lens, "quick")
    lens.await_text("#lens-entropy", "“quick”")
    for route in late:
        route.fulfill(json={**ANSWER, "query": "slow"})
    lens.step()
    assert asked == ["the", "slow", "quick"], "one request for each question"
    assert "“quick”" in lens.text("#lens-entropy")


def test_a_probes_report_is_opened_read_and_searched(browser, tmp_path):
    from probe_file import write

    for name in ("a.zarr", "b.zarr"):
        write(tmp_path / name)
    with serving(probe=tmp_path) as address:
        p = Page(browser, address).open(QUICK)
        p.page.click("#probe")
        p.page.select_option("#probe-file", "b.zarr")
        framed = p.page.frame_locator("dialog iframe")
        framed.locator(".cell").nth(1).click()
        assert framed.locator("#d-name").inner_text() == "layer 0 · head 1", "its own script runs, in the page"
        assert p.page.evaluate("window.hit") is None
        p.check_quiet()
        with p.context.expect_page() as opened:
            p.page.click("dialog a.button")
        page = opened.value
        assert page.url.endswith("probe?file=b.zarr")
        p.page.close()
        p.page = page
        page.on("pageerror", lambda error: p.complaints.append(str(error)))
        assert page.evaluate("window.hit") is None
        assert page.locator(".cell").count() == 6
        cell = page.locator(".cell").nth(1)
        cell.click()
        assert cell.get_attribute("aria-pressed") == "true"
        page.keyboard.press("ArrowDown")
        assert page.inner_text("#d-name") == "layer 1 · head 1"
        page.keyboard.press("ArrowRight")  # the layer has two heads
        assert page.inner_text("#d-name") == "layer 1 · head 1"
        before = cell.locator(".curve").get_attribute("d")
        page.select_option("#quantity", label="moved from start")
        assert cell.locator(".curve").get_attribute("d") != before
        assert "Total variation" in page.inner_text("#meaning")
        page.hover("#d-plot", position={"x": 2, "y": 20})
        assert "at step 0: –" in page.inner_text("#d-read"), "nothing has moved by the first measurement"
        page.click("#all th:nth-child(12) button")  # the last entropy, the greatest first
        values = [float(text) for text in page.locator("#all tbody td:nth-child(12)").all_inner_texts()]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) > 1
        chip = page.locator(".chip:enabled").first
        chip.click()
        assert page.locator(".cell:not(.off)").count() == int(chip.locator("b").inner_text()) > 0
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == 390, "nothing sticks out on a phone"
        p.check_quiet()
        p.context.close()
