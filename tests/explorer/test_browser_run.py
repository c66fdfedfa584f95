"""The explorer in chromium: set-up, run, pause, step, scrub, rates in mid-run, refusals, lost connections."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from browser import QUICK, Page, browser, explorer, page, require_browser

require_browser()

SLOW = "#classes=syn-small&steps=3000&speed=30&flow=off"
ENDLESS = "#classes=syn-small&steps=1000000&flow=off"  # still being computed, whatever a test does
SHOWN = "app.film.steps[app.cursor ?? app.film.length - 1]"


def test_the_page_loads_nothing_but_its_own_files_and_explains_every_control(page: Page) -> None:
    loaded = page.page.evaluate("performance.getEntriesByType('resource').map((e) => new URL(e.name).pathname)")
    assert [path for path in loaded if "vendor" in path or "plotly" in path] == []
    for control in page.get("app.catalogue.controls"):
        row = page.page.locator(f'#panel-setup .control[data-name="{control["name"]}"]')
        text = row.locator(".explain").text_content().replace(" ", "")
        assert text == control["explain"].replace("_", "").replace(" ", ""), control["name"]
        assert row.locator("label").text_content().startswith(control["label"])
    page.page.wait_for_function("() => document.querySelector('#attention').ariaLabel.includes('step 0')")


def test_run_pause_step_and_reset(explorer: Callable[..., Page]) -> None:
    p = explorer(SLOW)
    assert p.get("app.cursor") in (0, None)
    p.key(" ")
    p.wait(f"{SHOWN} > 5")
    assert p.page.get_attribute("#play", "aria-label") == "Pause"
    p.page.click("#play")
    p.wait("app.state.state === 'done'")  # a film reaches further than what is shown; its later steps stand wider apart
    at = p.step()
    assert 5 < at < 3000, "the film is made, and what is shown has stopped"
    first, second = p.get(f"app.film.steps.filter((step) => step > {at}).slice(0, 2)")
    p.page.click("#step")
    assert p.step() == first
    p.key("s")
    assert p.step() == second
    p.page.select_option("#speed", "max")
    p.key(" ")
    p.wait(f"{SHOWN} > 300")
    p.key("r")
    p.wait("app.cursor === 0 && document.querySelector('#play').ariaLabel === 'Play'")
    p.wait("app.state.state === 'done'")
    assert p.step() == 0
    p.check_quiet()
    p.context.close()


def test_a_finished_run_is_a_film(page: Page) -> None:
    page.run_to_end()
    assert page.step() == 60
    page.key("ArrowLeft", "ArrowLeft")
    assert page.step() == page.get("app.film.steps.at(-3)")
    page.key("ArrowRight")
    assert page.step() == page.get("app.film.steps.at(-2)")
    page.key("Home")
    page.wait("document.querySelector('#clock b').textContent === '0'")
    page.page.locator("#scrub").fill("1000")  # half of a logarithmic axis
    page.wait("document.querySelector('#clock b').textContent !== '0'")
    assert 5 <= page.step() <= 9
    page.key("Home")
    page.page.select_option("#speed", "log")
    page.stop_clock()
    page.key(" ")  # twelve seconds for the whole film, even in ln t
    page.pass_time(6000)
    page.wait(f"{SHOWN} === 6")  # √61 − 1 = 6.8
    page.key(" ")
    page.pass_time(6000)
    assert page.step() == 6
    page.page.select_option("#speed", "10")  # steps per second
    page.key(" ")
    page.pass_time(2050)
    page.wait(f"{SHOWN} === 26")
    page.key(" ")
    page.start_clock()
    page.key("End")
    page.wait("app.cursor === null")
    page.page.click("#extend")
    page.wait("app.state.steps === 120")
    page.run_to_end()
    assert page.step() == 120


def test_a_rate_changed_in_mid_run_is_marked(explorer: Callable[..., Page]) -> None:
    p = explorer(SLOW)
    p.page.check("#from-here")
    p.page.locator("#scrub").fill("600")
    p.wait("app.cursor > 0")  # the film may still be on its way there
    at = p.step()
    assert 5 < at < 30
    p.fill("eta_y", "5")
    p.wait("app.film.marks.length === 1 && app.state.state === 'done'")
    assert p.get("app.film.marks") == [{"step": at, "eta_y": 5, "eta_z": 1}]
    assert p.step() == at
    assert p.get("app.film.run.setup.eta_y") == 1
    p.wait("document.querySelectorAll('#scrub-marks .rate').length === 1")
    p.wait(f"document.querySelector('#view-loss .plot').figure?.moments.some((m) => m.x === {at})")
    assert "= 5" in p.page.inner_text(".ratio")
    p.key("r")  # from the start, at the rates on screen
    p.wait("app.film.run.setup.eta_y === 5 && app.film.marks.length === 0")
    assert p.step() == 0
    p.check_quiet()
    p.context.close()


VALUES: dict[str, Any] = {
    "eta_y": 2.5, "eta_z": 0.5, "momentum": 0.5, "weight_decay": 0.01, "steps": 50, "seed": 7, "init": "normal(0.1)",
    "optimizer": "adam", "norm": "layernorm", "residual": "plain", "query_in_keys": True, "outputs": "next", "heads": 2,
    "sampling": "tokens", "position_bias": 0.1, "dtype": "float64", "context": 64, "batch_size": 32,
}  # fmt: skip


def test_each_control_reaches_the_run(page: Page) -> None:
    names = {control["name"] for control in page.get("app.catalogue.controls")}
    assert names == set(VALUES)
    for name, value in VALUES.items():
        field = page.page.locator(f"#c-{name}")
        field.evaluate("(e) => { const d = e.closest('details'); if (d) d.open = true; }")
        if isinstance(value, bool):
            field.check()
        elif field.evaluate("(e) => e.tagName") == "SELECT":
            field.select_option(value)
        else:
            page.fill(name, str(value))
        shown = '"' + value + '"' if isinstance(value, str) else str(value).lower()
        page.wait(f"app.film.run.setup.{name} === {shown}")


def test_infinity_sliders_and_knobs(page: Page) -> None:
    page.page.click('.control[data-name="context"] .word')
    page.wait("app.film.run.setup.context === 'inf'")
    page.page.click('.control[data-name="batch_size"] .word')
    page.wait("app.film.run.setup.batch_size === null")
    page.page.locator('.control[data-name="eta_y"] .slider').fill("1000")  # the far end: 100
    page.wait("app.film.run.setup.eta_y === 100")
    assert page.page.input_value("#c-eta_y") == "100"
    page.page.select_option("#c-classes", "syn-medium")
    page.wait("app.film.run.classes.n_classes === 2 && app.film.run.setup.classes.preset === 'syn-medium'")
    page.fill("n_queries", "3", "k")
    page.wait("app.film.run.classes.n_classes === 6")
    page.page.select_option("#preset", "adam")
    page.wait("app.film.run.setup.optimizer === 'adam' && app.state.step > 3")
    assert "Adam" in page.page.inner_text("#commentary")


def test_refusals_stand_next_to_their_control(page: Page) -> None:
    def refusal(name: str) -> Any:
        return page.page.locator(f'.control[data-name="{name}"] .refusal')

    for name, wrong, right, words in [("eta_y", "-1", "1", "-1"), ("momentum", "lots", "0.9", "lots"),
                                      ("init", "ones", "zero", "ones")]:  # fmt: skip
        page.fill(name, wrong)
        refusal(name).wait_for(state="visible")
        assert words in refusal(name).inner_text()
        assert page.page.locator(".refusal:visible").count() == 1
        page.fill(name, right)
        refusal(name).wait_for(state="hidden")
    page.page.click('.control[data-name="batch_size"] .word')  # “all” needs T = ∞
    page.page.locator(".control.refused .refusal").wait_for(state="visible")
    page.fill("batch_size", "128")
    page.page.locator(".control.refused").wait_for(state="detached")
    page.page.select_option("#c-classes", "syn-medium")
    page.wait("app.film.run.setup.classes.preset === 'syn-medium'")
    page.page.wait_for_selector("#k-n_queries")
    page.fill("n_queries", "1000", "k")
    page.page.locator("#panel-setup .refusal:visible").wait_for()
    assert "1000" in page.page.inner_text("#panel-setup .refusal:visible")


def test_weights_are_drawn_and_toml_is_pasted(page: Page) -> None:
    page.page.click("#edit-weights")
    bar = page.page.locator('.bar[aria-label="Weight of token 12"]')
    box = bar.bounding_box()
    page.page.mouse.move(box["x"] + 5, box["y"] + 0.8 * box["height"])
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + 5, box["y"] - 20)  # past the top: 1
    page.page.mouse.up()
    assert bar.get_attribute("aria-valuenow") == "1"
    bar.press("ArrowDown")
    assert bar.get_attribute("aria-valuenow") == "0.95"
    page.page.click("#add-common")
    page.page.click("#use-classes")
    page.wait("app.film.run.setup.classes.bars && app.film.run.classes.common.length === 11")
    first = page.get("app.film.run.classes.classes[0]")
    p = dict(zip(first["tokens"], first["p"], strict=True))
    assert p[12] / p[19] == pytest.approx(0.95, rel=1e-3)
    page.page.click("#paste-toml")
    page.page.wait_for_function("() => document.querySelector('#toml-text')?.value.length > 10")
    page.page.fill("#toml-text", "preset = 'nothing'")
    page.page.click("#use-classes")
    page.page.locator("dialog .refusal:visible").wait_for()
    page.page.fill("#toml-text", '[classes]\npreset = "textbook"\n\n[run]\neta_y = 0.5\nsteps = 70\n')
    page.page.click("#use-classes")
    page.wait("app.film.run.setup.eta_y === 0.5 && app.state.steps === 70")
