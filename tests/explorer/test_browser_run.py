"""In chromium: set-ups, runs, rates in mid-run, refusals, classes drawn and pasted, links."""

from pathlib import Path

import pytest
from browser import PHONE, QUICK

SLOW = "#classes=syn-small&steps=3000&speed=30&flow=off"
SHOWN = "app.film.steps[app.cursor ?? app.film.length - 1]"
EXAMPLES = Path(__file__).parents[2] / "examples"
LAST_FRAME = "[...app.film.frames.at(-1)].map(String)"


def test_the_page_explains_every_control_and_fetches_nothing(page):
    assert page.page.evaluate("performance.getEntriesByType('resource').map((e) => e.name)") == []
    for control in page.get("app.catalogue.controls"):
        row = page.page.locator(f'#panel-setup .control[data-name="{control["name"]}"]')
        text = row.locator(".explain").text_content().replace(" ", "")
        assert text == control["explain"].replace("_", "").replace(" ", ""), control["name"]
        assert row.locator("label").text_content().startswith(control["label"])
    page.page.wait_for_function("() => document.querySelector('#attention').ariaLabel.includes('step 0')")


def test_run_pause_step_and_reset(show):
    p = show(SLOW, complete=False)
    p.key(" ")
    p.wait(f"{SHOWN} > 5")
    assert p.page.get_attribute("#play", "aria-label") == "Pause"
    p.page.click("#play")
    p.wait("app.state.state === 'done'")
    at = p.step()
    assert 5 < at < 3000, "the film is complete, and the view has stopped"
    first, second = p.get(f"app.film.steps.filter((step) => step > {at}).slice(0, 2)")
    p.page.click("#step")
    assert p.step() == first
    p.key("s")
    assert p.step() == second
    p.page.select_option("#speed", "max")
    p.key(" ")
    p.wait(f"{SHOWN} > 300")
    p.key("r")
    p.wait("app.cursor === 0 && document.querySelector('#play').ariaLabel === 'Play' && app.state.state === 'done'")
    assert p.step() == 0


def test_a_finished_run_is_a_film(page):
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


def test_a_rate_changed_in_mid_run_is_marked(show):
    p = show(SLOW)
    p.page.check("#from-here")
    p.page.locator("#scrub").fill("600")
    p.wait("app.cursor > 0")
    at = p.step()
    assert 5 < at < 30
    p.fill("eta_y", "5")
    p.wait("app.film.marks.length === 1 && app.state.state === 'done'")
    assert p.get("app.film.marks") == [{"step": at, "eta_y": 5, "eta_z": 1}]
    assert (p.step(), p.get("app.film.run.setup.eta_y")) == (at, 1)
    p.wait("document.querySelectorAll('#scrub-marks .rate').length === 1")
    p.wait(f"document.querySelector('#view-loss .plot').figure?.moments.some((m) => m.x === {at})")
    assert "= 5" in p.text(".ratio")
    p.key("r")  # from the start, at the rates on screen
    p.wait("app.film.run.setup.eta_y === 5 && app.film.marks.length === 0")
    assert p.step() == 0


VALUES = {
    "eta_y": 2.5, "eta_z": 0.5, "momentum": 0.5, "weight_decay": 0.01, "steps": 50, "seed": 7, "init": "normal(0.1)",
    "optimizer": "adam", "norm": "layernorm", "residual": "plain", "query_in_keys": True, "outputs": "next", "heads": 2,
    "sampling": "tokens", "position_bias": 0.1, "dtype": "float64", "context": 64, "batch_size": 32,
}  # fmt: skip


def test_each_control_reaches_the_run(page):
    assert {control["name"] for control in page.get("app.catalogue.controls")} == set(VALUES)
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


def test_infinity_sliders_commas_and_class_settings(page):
    page.page.click('.control[data-name="context"] .word')
    page.wait("app.film.run.setup.context === 'inf'")
    page.page.click('.control[data-name="batch_size"] .word')
    page.wait("app.film.run.setup.batch_size === null")
    page.page.locator('.control[data-name="eta_y"] .slider').fill("1000")  # the far end: 100
    page.wait("app.film.run.setup.eta_y === 100")
    assert page.page.input_value("#c-eta_y") == "100"
    page.fill("eta_z", "0,5")
    page.wait("app.film.run.setup.eta_z === 0.5")
    page.page.select_option("#c-classes", "syn-medium")
    page.wait("app.film.run.classes.n_classes === 2 && app.film.run.setup.classes.preset === 'syn-medium'")
    page.fill("n_queries", "3", "k")
    page.wait("app.film.run.classes.n_classes === 6")
    page.page.select_option("#preset", "adam")
    page.wait("app.film.run.setup.optimizer === 'adam' && app.state.step > 3")
    assert "Adam" in page.text("#commentary")


def test_refusals_stand_beside_their_control(page):
    for name, wrong, right in [("eta_y", "-1", "1"), ("momentum", "lots", "0.9"), ("init", "ones", "zero")]:
        refusal = page.page.locator(f'.control[data-name="{name}"] .refusal')
        page.fill(name, wrong)
        refusal.wait_for(state="visible")
        assert wrong in refusal.inner_text()
        assert page.page.locator(".refusal:visible").count() == 1
        page.fill(name, right)
        refusal.wait_for(state="hidden")
    page.page.click('.control[data-name="batch_size"] .word')  # “all” needs T = ∞
    page.page.locator(".control.refused .refusal").wait_for(state="visible")
    page.fill("batch_size", "128")
    page.page.locator(".control.refused").wait_for(state="detached")
    page.page.select_option("#c-classes", "syn-medium")
    page.page.wait_for_selector("#k-n_queries")
    page.fill("n_queries", "1000", "k")
    page.await_text("#panel-setup .refusal:visible", "1000")


def test_an_address_that_cannot_be_run_leaves_the_usual_run_and_gives_the_reason(show):
    p = show("#classes=syn-small&eta_y=-3&steps=60")
    assert "-3" in p.text("#panel-setup > .refusal")
    assert p.get("app.film.run.setup.eta_y") == p.get("app.catalogue.default.eta_y")
    p.fill("steps", "50")
    p.page.locator("#panel-setup > .refusal").wait_for(state="hidden")


# --- classes drawn and pasted ----------------------------------------------------------------------------------------


def paste(p, text):
    p.page.click("#paste-toml")
    p.page.wait_for_function("() => document.querySelector('#toml-text')?.value.length > 10")
    p.page.fill("#toml-text", text)
    p.page.click("#use-classes")


def test_weights_are_drawn_and_toml_is_pasted(page):
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
    page.page.fill('dialog input[aria-label="Weight of the class"]', "0,25")
    page.page.click("#add-common")
    page.page.click("#use-classes")
    page.wait("app.film.run.setup.classes.bars && app.film.run.classes.common.length === 11")
    assert page.get("app.film.run.setup.classes.bars.classes[0].p_class") == 0.25
    first = page.get("app.film.run.classes.classes[0]")
    p = dict(zip(first["tokens"], first["p"], strict=True))
    assert p[12] / p[19] == pytest.approx(0.95, rel=1e-3)
    paste(page, "preset = 'nothing'")
    page.page.locator("dialog .refusal:visible").wait_for()
    page.page.fill("#toml-text", '[classes]\npreset = "textbook"\n\n[run]\neta_y = 0.5\nsteps = 70\n')
    page.page.click("#use-classes")
    page.wait("app.film.run.setup.eta_y === 0.5 && app.state.steps === 70")
    paste(page, (EXAMPLES / "adam.toml").read_text(encoding="utf-8"))
    page.wait("app.film.run.setup.optimizer === 'adam' && app.state.steps === 100")
    assert page.get("[app.setup.eta_y, app.setup.eta_z]") == [0.1, 0.1], "the first of its runs"
    assert "eta_z = 0.1" in page.text("#classes-note")


def test_the_focus_stays_in_the_weights_and_a_query_is_corrected(page):
    page.page.click("#edit-weights")
    bars, focused = page.page.locator("dialog .bar"), "document.activeElement.getAttribute('aria-label')"
    before = bars.count()
    bars.nth(3).focus()
    for left in (before - 1, before - 2):
        page.key("Delete")
        assert bars.count() == left
        assert page.page.evaluate(focused) == bars.nth(3).get_attribute("aria-label")
    page.key("End")
    assert bars.nth(3).get_attribute("aria-valuenow") == "1"
    bars.nth(left - 1).focus()
    page.key("Delete")
    assert page.page.evaluate(focused) == bars.nth(left - 2).get_attribute("aria-label")
    page.page.locator("#add-common").focus()
    page.key("Enter")
    assert page.page.evaluate("document.activeElement.id") == "add-common"
    query = page.page.locator('dialog input[aria-label="Query"]')
    for text in ("abc", "30"):
        query.fill(text)
        query.press("Tab")
        page.page.click("#use-classes")
        if text == "abc":
            page.await_text("dialog .refusal:visible", "abc")
    page.wait("app.film.run.setup.classes.bars?.classes[0].query === 30")
    assert page.page.locator("dialog").count() == 0


def test_the_words_stay_when_weights_are_drawn(show):
    p = show("#classes=words&steps=60&flow=off")
    p.page.set_viewport_size(PHONE)
    p.page.click("#edit-weights")
    cut = "(all) => all.filter((e) => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1).length"
    labels, heights = p.page.locator("dialog .bar span"), "(all) => all.map((e) => e.getBoundingClientRect().height)"
    assert labels.count() == 13
    assert labels.evaluate_all(cut) == p.page.locator("dialog .classbar").evaluate_all(cut) == 0
    assert min(p.page.locator("dialog .bar i").evaluate_all(heights)) > 10
    assert p.page.locator(".classbar button").first.inner_text() == "drinks → milk"
    p.page.locator('.bar[aria-label="Weight of kitten"]').press("Home")
    field = p.page.locator('dialog input[aria-label="Next token"]')
    assert field.input_value() == "milk"
    field.fill("cream")
    field.press("Tab")
    p.page.click("#use-classes")
    p.wait("app.film.run.setup.classes.bars")
    classes = p.get("app.film.run.classes")
    assert classes["words"][str(classes["classes"][0]["next_token"])] == "cream"
    assert (classes["vocab_size"], classes["words"]["10"]) == (50, "kitten")
    assert 10 not in classes["classes"][0]["tokens"]


# --- presets, links --------------------------------------------------------------------------------------------------


def test_a_preset_is_named_only_as_long_as_it_is_one(show):
    p = show(QUICK)
    p.page.select_option("#preset", "figure-4")
    p.wait("app.preset === 'figure-4' && app.film.run.setup.steps === 1000")
    assert "ten common tokens" in p.text("#commentary")
    for context, name in ((64, ""), (128, "figure-4")):
        p.fill("context", str(context))
        p.wait(f"app.film.run.setup.context === {context}")
        assert p.page.input_value("#preset") == name, "typed back, it is the preset again"
        assert ("sequence length" in p.text("#commentary")) == (name == "")
    p.rerun(eta_z=2)
    p.page.click("#back-to-preset")
    p.wait("app.film.run.setup.eta_z === 1")
    p = show("#classes=syn-small&steps=60&flow=off&preset=figure-4")  # an outdated link
    assert p.page.input_value("#preset") == ""


def test_a_link_holds_the_pinned_run_with_its_changes_of_rates(show):
    p = show("#classes=syn-small&steps=60&flow=off&marks=20:5:1")
    p.wait("app.film.marks.length === 1")
    p.key("p")
    p.page.click("#share")
    p.wait("location.hash.includes('pin.classes')")
    assert "pin.marks=20:5:1" in p.page.evaluate("location.hash")
    frame = LAST_FRAME.replace("app.film", "app.pinned.film")
    before = p.get(frame)
    p = show(p.page.evaluate("location.hash"))
    p.wait("app.pinned?.film.lastStep === 60")
    assert p.get("app.pinned.film.marks") == [{"step": 20, "eta_y": 5, "eta_z": 1}]
    assert p.get(frame) == before


def test_an_address_holds_the_whole_state(show, explorer):
    p = show("#classes=syn-medium&classes.n_queries=2&steps=300&speed=100&init=uniform&seed=3&flow=off")
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
    for value in ("app.film.marks", "app.film.run.setup", "app.film.run.classes", "app.setup.eta_z", "app.focus",
                  "[...app.film.frames[5]].map(String)", "app.scale",
                  "document.querySelector('#right-tabs [aria-selected=true]').id"):  # fmt: skip
        assert other.get(value) == p.get(value), value
    assert other.get("modules.address.make()") == address
    other.page.wait_for_function("(address) => location.hash === address", arg=address)
