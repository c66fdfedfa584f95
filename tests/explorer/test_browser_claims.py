"""In chromium: shipped verdicts, what the page checks itself, and the command that judges the rest."""

import copy
import shlex

import pytest
from browser import Page, serving

pytestmark = pytest.mark.integration

THEORY = "&level=theory&flow=off&right=claims"
TEXTBOOK = "#classes=textbook&eta_y=0.9&eta_z=0.02&momentum=0&context=inf&batch_size=null&steps={steps}" + THEORY
FIGURE_4 = "#classes=syn-small&eta_y=1&eta_z=1&momentum=0.9&steps={steps}" + THEORY
GROUPS = "[...document.querySelectorAll('#claims section[data-group]')].map((s) => s.dataset.group)"
CURVE = {"x_label": "t", "y_label": "y", "x": [1, 2, 4], "measured": [1, 2, 4], "predicted": [1, 1, 1],
         "log_x": True, "log_y": False}  # fmt: skip
OURS = {"name": "memory", "reference": "Memory", "statement": "what holds", "status": "holds", "off": 0.005,
        "words": "instead: memory holds up to 10 t₀", "theirs": 0.88, "x": [1, 2, 4], "y": [1, 2, 4]}  # fmt: skip


@pytest.fixture
def end(show):
    def at_the_end(where, **values):
        p = show(where.format(**values))
        p.key("End")
        return p

    return at_the_end


def checks(p, step):
    """What the page checked up to a step, and the outcome."""
    p.await_text("#claims h3", f"Checked here, to step {step}")
    rows = "(all) => all.map((e) => [e.children[1].textContent, e.className])"
    return p.page.locator("#live-checks li").evaluate_all(rows)


def outcome(rows, text):
    return [state for label, state in rows if text in label]


def test_the_decoder_is_of_the_step_on_screen(end):
    p = end(TEXTBOOK.replace("right=claims", "right=y"), steps=120)
    strongest = {}
    for step in (120, 40, 7, 50):
        p.seek(step)
        p.wait(f"document.querySelector('#y-step').textContent === 'Decoder Y at step {step}'")
        strongest[step] = float(p.text("#panel-y .explain").split("vote is ")[1].split(". ")[0])
    assert strongest[7] < strongest[40] < strongest[50] < strongest[120], "votes grow"


def test_the_verdicts_on_a_preset_are_shipped(end):
    p = end(TEXTBOOK, steps=3000)
    p.await_text("#claims-lead", "Judged by scansnap")
    groups = p.get(GROUPS)
    assert (groups[0], groups[-1]) == ("fails", "not applicable"), "failures with every assumption met come first"
    assert p.page.locator('[data-group="fails"] .claim .unmet').count() == 0
    tally = [int(text) for text in p.page.locator("#tally b").all_inner_texts()]
    assert min(tally[:2]) > 0


def test_where_nothing_applies_there_is_no_row_of_zeros(end):
    p = end(FIGURE_4, steps=1000)
    p.page.locator(".because").first.wait_for()
    assert p.page.locator("#tally b").count() == 0
    assert outcome(checks(p, "1\u202f000"), "Σ dz = 0") == ["holds"]
    because, names = (
        p.page.locator(".because", has=p.page.locator("button")).first,
        "(all) => all.map((c) => c.dataset.claim)",
    )
    claims = set(because.locator(".claim").evaluate_all(names))
    assert claims
    because.locator("button").click()
    p.wait("app.film.run.setup.classes.preset === 'textbook'").settle()
    p.key("End")
    p.await_text("#claims-lead", "Judged by scansnap")
    assert not claims & set(p.page.locator('[data-group="not applicable"] .claim').evaluate_all(names))


def test_another_run_is_checked_here_and_judged_by_a_command(end, scansnap):
    p = end(TEXTBOOK, steps=200)
    rows = checks(p, "200")
    for text, state in {"Σ dz = 0": "holds", "Distinct tokens": "holds", "Growth": "fails"}.items():
        assert outcome(rows, text) == [state]
    assert p.page.locator("#tally b").count() == 0
    command = shlex.split(p.text("#verify-command"))
    assert command[:2] == ["scansnap", "verify"]
    assert scansnap(*command[1:])[0] in (0, 1), "it runs, and something may fail"


def test_a_run_that_needs_a_file_has_both_commands(end, scansnap, tmp_path):
    p = end(FIGURE_4, steps=80)
    p.page.locator("#verify-command").wait_for()
    p.page.click("#export")
    (tmp_path / "scansnap-run.toml").write_bytes(p.download("#export-toml"))
    p.key("Escape")
    for line in p.text("#verify-command").splitlines():
        command = shlex.split(line)
        assert command[0] == "scansnap"
        code, _, err = scansnap(*command[1:])
        assert code in (0, 1), err


@pytest.mark.parametrize(("where", "reason"), [
    (TEXTBOOK + "&marks=60:0.5:0.02", "rates change on the way"),
    ("#classes=syn-small&steps={steps}&optimizer=adam&momentum=0" + THEORY, "the optimiser is not SGD")])  # fmt: skip
def test_of_changed_rates_and_other_optimisers_it_gives_the_reason(end, where, reason):
    p = end(where, steps=120)
    p.await_text("#panel-claims", reason)
    assert p.page.locator("#verify-command").count() == 0


@pytest.mark.parametrize(
    ("setting", "verdict"), [("", "holds"), ("&init=uniform", "holds"), ("&optimizer=adam", "fails")]
)
def test_the_changes_of_the_decoder_are_summed_over_the_outputs(end, setting, verdict):
    p = end("#classes=syn-small&steps=60&flow=off&right=claims" + setting)
    row = p.page.locator(f"#live-checks li.{verdict}", has_text="Σ dY = 0")
    row.wait_for()
    assert ("0 up to rounding" if verdict == "holds" else "% of all changes") in row.inner_text()


def test_undecided_claims_and_kinds_are_shown(browser, tmp_path, monkeypatch):
    from scansnap.explorer import build

    altered = copy.deepcopy(build.load())
    claims = altered["entries"]["figure-4"]["claims"]
    for claim in claims:
        claim |= {"status": "holds", "kind": "measured", "why": ""}
    claims[0] |= {"status": "undecided", "why": "9 seeds would decide"}
    claims[1] |= {"kind": "identity"}
    claims[2] |= {"status": "fails", "instead": OURS, "curve": CURVE}
    monkeypatch.setattr(build, "load", lambda: altered)
    (tmp_path / "x.html").write_text(build.explorer_html(), encoding="utf-8")
    p = Page(browser, (tmp_path / "x.html").as_uri()).open(FIGURE_4.format(steps=1000))
    p.page.locator(".claim.undecided summary").click()
    assert p.text(".claim.undecided .sign") == "?"
    assert "What would decide: 9 seeds would decide" in p.text(".claim.undecided")
    p.page.locator(".claim.fails summary").click()
    instead = p.text(".claim.fails .instead")
    assert [text for text in ("memory holds up to 10 t₀", "0.5%", "88%") if text not in instead] == []
    assert p.text(".claim[data-kind=identity] .kind") == "identity"
    assert [int(t) for t in p.page.locator("#tally b").all_inner_texts()] == [len(claims) - 3, 1, 1, 0]
    assert "Counted apart: 1 identity (1 hold)" in p.text("#claims-lead")
    p.check_quiet()
    p.context.close()


def test_beside_python_any_run_is_judged_at_once(browser):
    with serving() as address:
        p = Page(browser, address).open(FIGURE_4.format(steps=80)).settle()
        p.page.click("#judge")
        p.page.locator(".claim").first.wait_for()
        assert "not applicable" in p.get(GROUPS)
        p.check_quiet()
        p.context.close()
