"""The explorer in chromium: shipped verdicts, what the page checks itself, and the command that judges the rest."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser, explorer, require_browser, serving

pytestmark = pytest.mark.integration

require_browser()

THEORY = "&level=theory&flow=off&right=claims"
TEXTBOOK = "#classes=textbook&eta_y=0.9&eta_z=0.02&momentum=0&context=inf&batch_size=null&steps={steps}" + THEORY
FIGURE_4 = "#classes=syn-small&eta_y=1&eta_z=1&momentum=0.9&steps={steps}" + THEORY
GROUPS = "() => [...document.querySelectorAll('#claims section[data-group]')].map((s) => s.dataset.group)"
SEEK = "(step) => modules['compute/runner'].seekStep(step)"
CURVE = {"x_label": "t", "y_label": "y", "x": [1, 2, 4], "measured": [1, 2, 4], "predicted": [1, 1, 1],
         "log_x": True, "log_y": False}  # fmt: skip
OURS = {"name": "memory", "reference": "Memory", "statement": "what holds", "status": "holds", "off": 0.005,
        "words": "instead: memory holds up to 10 t₀", "theirs": 0.88, "x": [1, 2, 4], "y": [1, 2, 4]}  # fmt: skip


@pytest.fixture(scope="module")
def shown(explorer: Callable[..., Page]) -> Iterator[Callable[[str], Page]]:
    """One tab, at one address after the other, with its film complete and its end on screen."""
    page = explorer("#classes=syn-small&steps=60")

    def show(where: str) -> Page:
        page.open(where)
        page.wait("app.state.state === 'done' && app.film.lastStep === app.state.steps")
        page.key("End")
        return page

    yield show
    page.check_quiet()
    page.context.close()


def checks(p: Page, step: str) -> dict[str, str]:
    """What the page checked up to a step, and how it came out."""
    p.page.locator("#claims h3", has_text=f"Checked here, to step {step}").wait_for()
    rows = p.page.locator("#live-checks li").evaluate_all(
        "(all) => all.map((e) => [e.children[1].textContent, e.className])"
    )
    return dict(rows)


def test_the_decoder_is_of_the_step_on_screen(shown: Callable[[str], Page]) -> None:
    p = shown(TEXTBOOK.format(steps=120).replace("right=claims", "right=y"))
    strongest = {}
    for step in (120, 40, 7, 50):
        p.page.evaluate(SEEK, step)
        p.page.wait_for_function(f"() => document.querySelector('#y-step').textContent === 'Decoder Y at step {step}'")
        strongest[step] = float(p.page.inner_text("#panel-y .explain").split("vote is ")[1].split(". ")[0])
    assert strongest[7] < strongest[40] < strongest[50] < strongest[120], "votes grow"


def test_the_verdicts_on_a_preset_are_shipped(shown: Callable[[str], Page]) -> None:
    p = shown(TEXTBOOK.format(steps=3000))
    p.page.locator("#claims-lead", has_text="Judged by scansnap").wait_for()
    groups = p.page.evaluate(GROUPS)
    assert groups[0] == "fails", "what fails although every assumption is met comes first"
    assert groups[-1] == "not applicable"
    for claim in p.page.locator('[data-group="fails"] .claim').all():
        assert claim.locator(".unmet").count() == 0
    tally = [int(text) for text in p.page.locator("#tally b").all_inner_texts()]
    assert tally[0] > 0
    assert tally[1] > 0


def test_where_nothing_applies_there_is_no_row_of_zeros(shown: Callable[[str], Page]) -> None:
    p = shown(FIGURE_4.format(steps=1000))
    p.page.locator(".because").first.wait_for()
    assert p.page.locator("#tally b").count() == 0
    assert [state for text, state in checks(p, "1\u202f000").items() if "Σ dz = 0" in text] == ["holds"]
    because = p.page.locator(".because", has=p.page.locator("button")).first
    names = because.locator(".claim").evaluate_all("(all) => all.map((c) => c.dataset.claim)")
    assert names
    because.locator("button").click()
    p.wait("app.film.run.setup.classes.preset === 'textbook' && app.state.state === 'done'")
    p.key("End")
    p.page.locator("#claims-lead", has_text="Judged by scansnap").wait_for()
    silent = p.page.locator('[data-group="not applicable"] .claim')
    assert not set(names) & set(silent.evaluate_all("(all) => all.map((c) => c.dataset.claim)"))


def test_another_run_is_checked_here_and_judged_by_a_command(
    shown: Callable[[str], Page], scansnap: Callable[..., tuple[int, str, str]]
) -> None:
    p = shown(TEXTBOOK.format(steps=200))
    said = checks(p, "200")
    assert [state for text, state in said.items() if "Σ dz = 0" in text] == ["holds"]
    assert [state for text, state in said.items() if "Distinct tokens" in text] == ["holds"]
    assert [state for text, state in said.items() if "Growth" in text] == ["fails"], (
        "Theorem 4 is off, and the page says so"
    )
    assert p.page.locator("#tally b").count() == 0
    command = shlex.split(p.page.inner_text("#verify-command"))
    assert command[:2] == ["scansnap", "verify"]
    assert scansnap(*command[1:])[0] in (0, 1), "it runs, and something may fail"


def test_a_run_that_takes_a_file_has_both_commands(
    shown: Callable[[str], Page], scansnap: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    p = shown(FIGURE_4.format(steps=80))
    p.page.locator("#verify-command").wait_for()
    p.page.click("#export")
    text = p.download(lambda: p.page.click("#export-toml"))
    p.key("Escape")
    (tmp_path / "scansnap-run.toml").write_bytes(text)
    for line in p.page.inner_text("#verify-command").splitlines():
        command = shlex.split(line)
        assert command[0] == "scansnap"
        code, _, err = scansnap(*command[1:])
        assert code in (0, 1), err


def test_of_changed_rates_and_other_optimisers_it_says_why(shown: Callable[[str], Page]) -> None:
    p = shown(TEXTBOOK.format(steps=120) + "&marks=60:0.5:0.02")
    p.page.locator("#claims", has_text="rates change on the way").wait_for()
    assert p.page.locator("#verify-command").count() == 0
    p = shown("#classes=syn-small&steps=60&optimizer=adam&momentum=0" + THEORY)
    p.page.locator("#claims-lead", has_text="the optimiser is not SGD").wait_for()
    assert p.page.locator("#verify-command").count() == 0


def test_undecided_claims_and_kinds_are_shown(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scansnap.explorer import build, verdicts

    found = copy.deepcopy(verdicts.load())
    claims = found["entries"]["figure-4"]["claims"]
    for claim in claims:
        claim |= {"status": "holds", "kind": "measured", "why": ""}
    claims[0] |= {"status": "undecided", "why": "9 seeds would decide"}
    claims[1] |= {"kind": "identity"}
    claims[2] |= {"status": "fails", "instead": OURS, "curve": CURVE}
    monkeypatch.setattr(verdicts, "load", lambda: found)
    (tmp_path / "x.html").write_text(build.explorer_html(), encoding="utf-8")
    p = Page(browser, (tmp_path / "x.html").as_uri()).open(FIGURE_4.format(steps=1000))
    still = p.page.locator(".claim.undecided")
    still.wait_for()
    assert still.locator(".sign").inner_text() == "?"
    still.locator("summary").click()
    assert "What would decide: 9 seeds would decide" in still.inner_text()
    broken = p.page.locator(".claim.fails")
    broken.locator("summary").click()
    assert broken.locator(".instead").inner_text() == (
        "Instead: memory holds up to 10 t₀: what holds. Its curve (broad) is off by 0.5%, the paper's by 88%."
    )
    assert p.page.locator(".claim[data-kind=identity] .kind").inner_text() == "identity"
    tally = [int(t) for t in p.page.locator("#tally b").all_inner_texts()]
    assert tally == [len(claims) - 3, 1, 1, 0]
    assert "Counted apart: 1 identity (1 hold)" in p.page.inner_text("#claims-lead")
    p.check_quiet()
    p.context.close()


def test_beside_python_any_run_is_judged_at_once(browser: Any) -> None:
    with serving() as address:
        p = Page(browser, address).open(FIGURE_4.format(steps=80))
        p.wait("app.state.state === 'done'")
        p.page.click("#judge")
        p.page.locator(".claim").first.wait_for()
        assert "not applicable" in p.page.evaluate(GROUPS)
        p.check_quiet()
        p.context.close()
