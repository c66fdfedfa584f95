"""The explorer in chromium: the decoder and the claims at the step on screen, where a claim applies, the text lens."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import Page, browser, explorer, require_browser

require_browser()

TEXTBOOK = "#classes=textbook&eta_y=0.9&eta_z=0.02&momentum=0&context=inf&batch_size=null&steps=120&flow=off"
GROUPS = "() => [...document.querySelectorAll('#claims section')].map((s) => s.dataset.group)"


@pytest.fixture(scope="module")
def shown(explorer: Callable[..., Page]) -> Iterator[Callable[[str], Page]]:
    """One tab, at one address after the other, with its film complete and its end on screen."""
    page = explorer("#classes=syn-small&steps=60")

    def show(where: str) -> Page:
        page.open(where)
        page.wait("app.state.state === 'done' && app.film.lastStep === app.state.step")
        page.key("End")
        return page

    yield show
    page.check_quiet("422")
    page.context.close()


def go(p: Page, step: int) -> None:
    p.page.evaluate(f"async () => (await import('/static/js/server/runner.js')).seekStep({step})")


def test_the_decoder_and_the_claims_are_of_the_step_on_screen(shown: Callable[[str], Page]) -> None:
    p = shown(TEXTBOOK + "&right=y")
    heading = p.page.locator("#y-step")
    strongest = {}
    for step in (120, 40, 7, 50):
        go(p, step)
        p.page.locator("#y-step", has_text=f"Decoder Y at step {step}").wait_for()
        assert heading.inner_text() == f"Decoder Y at step {step}"
        strongest[step] = float(p.page.inner_text("#panel-y .explain").split("vote is ")[1].split(". ")[0])
    assert strongest[7] < strongest[40] < strongest[50] < strongest[120], "votes grow"
    p.key("3")
    for step in (120, 50):
        go(p, step)
        p.page.locator("#claims-lead", has_text=f"Judged at step {step},").wait_for()
    measured = p.page.locator(".claim dd").all_inner_texts()
    go(p, 120)
    p.page.locator("#claims-lead", has_text="Judged at step 120,").wait_for()
    assert p.page.locator(".claim dd").all_inner_texts() != measured
    go(p, 0)
    p.page.locator("#claims-lead", has_text="go on a few steps").wait_for()
    assert p.page.locator(".claim").count() == 0


def test_before_a_change_of_rates_claims_are_judged_and_after_it_not(shown: Callable[[str], Page]) -> None:
    p = shown(TEXTBOOK + "&marks=60:0.5:0.02&right=claims")
    p.page.locator("#claims-lead", has_text="Judged at step 120,").wait_for()
    assert p.page.evaluate(GROUPS) == ["not applicable"]
    assert "changed on the way, at step 60" in p.page.inner_text(".reason")
    go(p, 50)
    p.page.locator("#claims-lead", has_text="Judged at step 50,").wait_for()
    assert "holds" in p.page.evaluate(GROUPS)


def test_claims_are_grouped_and_lead_to_where_they_apply(shown: Callable[[str], Page]) -> None:
    p = shown("#classes=syn-small&steps=60&flow=off&right=claims")
    p.page.locator("#claims-lead", has_text="Judged at step 60,").wait_for()
    assert p.page.evaluate(GROUPS) == ["holds", "not applicable"]
    because = p.page.locator(".because").first
    assert "long sequences (0.359 against 0.1)" in because.locator(".reason").inner_text()
    names = because.locator(".claim").evaluate_all("(all) => all.map((c) => c.dataset.claim)")
    assert len(names) > 5
    because.locator("button").click()
    p.wait("app.film.run.setup.classes.preset === 'textbook' && app.state.state === 'done'")
    assert p.page.input_value("#preset") == "textbook"
    p.key("End")
    p.page.locator("#claims-lead", has_text="Judged at step 3\u2009000,").wait_for()
    groups = p.page.evaluate(GROUPS)
    assert groups[0] == "fails", "what fails although every assumption is met comes first"
    assert groups[-1] == "not applicable"
    silent = p.page.locator('[data-group="not applicable"] .claim')
    assert not set(names) & set(silent.evaluate_all("(all) => all.map((c) => c.dataset.claim)"))
    for claim in p.page.locator('[data-group="fails"] .claim').all():
        assert claim.locator(".unmet").count() == 0


def test_the_lens_says_whose_entropy_it_is(shown: Callable[[str], Page]) -> None:
    p = shown("#classes=syn-small&steps=60&flow=off&right=lens")
    lens = p.page.locator("#panel-lens")
    lens.locator("pre", has_text="scansnap text train --out models/yz.safetensors").wait_for()
    p.context.grant_permissions(["clipboard-read", "clipboard-write"])
    lens.locator(".command button").first.click()
    p.page.locator("#toast", has_text="on the clipboard").wait_for()
    assert p.page.evaluate("navigator.clipboard.readText()") == "scansnap text train --out models/yz.safetensors"
    over = [{"step": 0, "entropy": 2.71}, {"step": 9000, "entropy": 2.68}]
    answer = {"query": "the", "entropy": 4.91, "uniform_entropy": 5.32, "exact": True, "attended": [], "votes": [],
              "entropy_over_training": over}  # fmt: skip
    p.page.route("**/api/lens", lambda r: r.fulfill(json={"models": [{"name": "wiki", "title": "Wiki"}]}))
    p.page.route("**/api/lens/wiki?*", lambda r: r.fulfill(json=answer))
    lens.locator("button", has_text="Look again").click()
    said = p.page.locator("#lens-entropy")
    said.wait_for()
    assert "“the” spreads its attention with an entropy of 4.91 nats" in said.inner_text()
    assert "before training it was 5.32" in said.inner_text()
    mean = p.page.inner_text("#lens-over")
    assert "mean over all their positions: 2.71 at step 0, 2.68 at step 9" in mean
    assert "the same for every word" in mean
