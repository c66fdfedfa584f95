"""The text lens in chromium: what a file says of it, and what the lab's server answers."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import QUICK, Page, browser, explorer, require_browser, serving

pytestmark = pytest.mark.integration

require_browser()

KING = {"word": "king", "attention": 0.6, "z": 1.5, "votes": [{"word": "crown", "vote": 2.0}]}
OF = {"word": "of", "attention": 0.1, "z": -0.5, "votes": []}
ANSWER = {"query": "the", "entropy": 4.91, "uniform_entropy": 5.32, "exact": True, "attended": [KING, OF],
          "votes": [{"word": "throne", "vote": 0.31}],
          "entropy_over_training": [{"step": 0, "entropy": 2.71}, {"step": 9000, "entropy": 2.68}]}  # fmt: skip


@pytest.fixture
def lens(browser: Any, tmp_path: Path) -> Iterator[Page]:
    """The lens beside a server whose folder has one model, as far as the page can tell."""
    with serving(folder=tmp_path) as address:
        p = Page(browser, address)
        p.page.route("**/api/lens", lambda r: r.fulfill(json={"models": [{"name": "wiki", "title": "Wiki"}]}))
        yield p
        p.context.close()


def test_a_file_says_how_to_begin(explorer: Callable[..., Page]) -> None:
    p = explorer(QUICK + "&right=lens&level=theory")
    p.page.locator("#panel-lens pre", has_text="scansnap text train --out models/yz.safetensors").wait_for()
    p.context.grant_permissions(["clipboard-read", "clipboard-write"])
    p.page.locator("#panel-lens .command button").first.click()
    p.page.locator("#toast", has_text="on the clipboard").wait_for()
    p.check_quiet()
    p.context.close()


def test_a_word_is_explained_and_another_one_refused(lens: Page) -> None:
    lens.page.route("**/api/lens/wiki?*", lambda r: r.fulfill(json=ANSWER) if "query=the" in r.request.url else
                    r.fulfill(status=422, json={"field": "query", "message": "There is no such word."}))  # fmt: skip
    lens.open(QUICK + "&right=lens&level=theory")
    said = lens.page.locator("#lens-entropy")
    said.wait_for()
    assert "“the” spreads its attention with an entropy of 4.91 nats" in said.inner_text()
    assert "before training it was 5.32" in said.inner_text()
    panel = lens.page.inner_text("#panel-lens")
    assert "crown" in panel
    assert "throne 31.0%" in panel
    assert "mean over all their positions: 2.71 at step 0, 2.68 at step 9" in lens.page.inner_text("#lens-over")
    lens.page.fill("#lens-query", "xyzzy")
    lens.page.press("#lens-query", "Enter")
    lens.page.locator("#panel-lens .refusal", has_text="no such word").wait_for()


def test_the_lens_asks_once_and_shows_the_newest_answer(lens: Page) -> None:
    asked: list[str] = []
    late: list[Any] = []

    def answer(route: Any) -> None:
        query = route.request.url.split("query=")[-1]
        asked.append(query)
        said = {**ANSWER, "query": query}
        late.append((route, said)) if query == "slow" else route.fulfill(json=said)

    lens.page.route("**/api/lens/*", answer)
    lens.open(QUICK + "&right=lens&level=theory")
    lens.page.locator("#lens-entropy", has_text="“the”").wait_for()
    for query in ("slow", "quick"):
        lens.page.fill("#lens-query", query)
        lens.page.press("#lens-query", "Enter")
    lens.page.locator("#lens-entropy", has_text="“quick”").wait_for()
    for route, said in late:
        route.fulfill(json=said)
    lens.step()
    assert asked == ["the", "slow", "quick"], "one request for each question"
    assert "“quick”" in lens.page.inner_text("#lens-entropy")
