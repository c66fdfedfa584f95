"""In chromium: nothing moves, everything can be read and pressed, on a screen and on a phone; colours, names, keys."""

import pytest
from browser import PHONE, QUICK, SIZES, Page

pytestmark = pytest.mark.integration

WORDS = "#classes=words&eta_y=2&eta_z=1&momentum=0.9&steps=100&flow=off&level=explore"
TABS = ("tour", "setup", "y", "chain", "lens", "claims", "curves")
SHIFTS = """() => { window.moved = [];
  const side = (a, b) => Math.max(Math.abs(a.x - b.x), Math.abs(a.y - b.y));
  new PerformanceObserver((list) => { for (const { sources } of list.getEntries()) for (const s of sources)
    if (s.node && side(s.previousRect, s.currentRect) >= 0.5)
      moved.push([s.node.id || s.node.className, JSON.stringify([s.previousRect, s.currentRect])]);
  }).observe({ type: "layout-shift", buffered: true }); }"""
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))"
PLACES = """() => Object.fromEntries(["c-eta_y", "c-eta_z", "headline", "watch", "attention", "scrub", "clock", "speed",
  "panel-curves", "tab-chain"].map((id) => {
    const b = document.getElementById(id).getBoundingClientRect(); return [id, [b.x, b.y, b.width, b.height]];
  }))"""


def moved(p):
    p.page.evaluate(SETTLED)
    return p.page.evaluate("moved.splice(0)")


def test_nothing_moves_when_a_rate_changes_a_run_ends_or_is_pinned(show):
    p = show(WORDS)
    before = p.page.evaluate(PLACES)
    p.page.evaluate(SHIFTS)
    slider = p.box("#panel-setup .control[data-name=eta_y] .slider")
    p.page.mouse.click(slider["x"] + 0.9 * slider["width"], slider["y"] + slider["height"] / 2)
    p.wait("app.setup.eta_y > 2 && app.film.run.setup.eta_y === app.setup.eta_y").settle()
    changes = {"slider": p.step, "end": p.run_to_end, "pin": lambda: p.key("p"), "unpin": lambda: p.key("p"),
               "frozen": lambda: p.rerun(eta_z=0), "back": lambda: p.rerun(eta_z=1)}  # fmt: skip
    for name, change in changes.items():
        change()
        p.step()
        assert p.page.evaluate(PLACES) == before, name
    assert [s for s in moved(p) if s[0] in before and s[0] not in ("headline", "watch")] == []


def test_nothing_moves_by_tabs_refusals_and_dialogs(page):
    page.run_to_end()
    page.page.evaluate(SHIFTS)
    assert moved(page) == [], "while the page opens"
    for act in (*(f"#tab-{name}" for name in TABS), "#pin", "#pin"):
        page.page.click(act)
        assert moved(page) == [], act
    page.fill("eta_z", "-3")
    page.page.locator(".control.refused .refusal").wait_for(state="visible")
    assert moved(page) == [], "a refusal takes the place of the explanation"
    page.fill("eta_z", "1")
    page.page.click("#own-words")
    moved(page)
    for text in ("too short", "the cat drinks milk. " * 8):
        page.page.fill("#words-text", text)
        page.page.locator("#words-refusal" if "short" in text else "#words-pairs button").first.wait_for()
        assert moved(page) == [], text


def test_watching_ends_in_an_answer_that_is_computed(show):
    def fell(before, after):
        return f"{100 * before:.0f}%\u00a0→\u00a0{100 * after:.0f}%"

    p = show(WORDS)
    p.page.select_option("#speed", "max")
    p.page.click("#watch")
    p.page.wait_for_selector("#question[data-is=answer]")
    was, now = p.get("[app.film.common(0), app.film.common(app.film.length - 1)]")
    assert p.text("#question") == f"Shared words: {fell(was, now)} of attention.\nNext: make the decoder faster"
    p.page.click("#next")
    p.wait("app.setup.eta_y === 20 && app.film.run.setup.eta_y === 20").settle()
    p.page.wait_for_selector("#question[data-is=answer]")
    assert f" (before: {100 * now:.0f}%)." in p.text("#question")
    assert p.text("#question").endswith("Next: use your own words")
    for size in SIZES:
        p.page.set_viewport_size(size)
        fits = "(e) => e.scrollHeight <= e.clientHeight && e.scrollWidth <= e.clientWidth"
        assert p.page.locator("#question").evaluate(fits), size
    p.key("Home")
    p.page.wait_for_selector("#question[data-is=question]")


def test_heat_maps_end_at_the_step_on_screen(show):
    p = show(WORDS)
    colours = """() => { const c = document.querySelector("#attention"), copy = document.createElement("canvas");
      copy.width = c.width; copy.height = c.height;
      const d = copy.getContext("2d", { willReadFrequently: true });
      d.drawImage(c, 0, 0);
      const at = [...d.getImageData(Math.round(0.3 * c.width), Math.round(0.99 * c.height), 1, 1).data.slice(0, 3)];
      const faint = getComputedStyle(document.documentElement).getPropertyValue("--faint").trim();
      return String(at) === String([1, 3, 5].map((i) => parseInt(faint.slice(i, i + 2), 16))); }"""
    p.seek(3)
    p.step()
    assert p.page.evaluate(colours), "what follows is not shown yet"
    p.key("End")
    p.step()
    assert not p.page.evaluate(colours)


def test_tokens_have_the_colour_of_the_contexts_they_occur_in(show):
    p = show(WORDS)
    reach = p.get("""app.film.run.layout.tokens[0].map((t) => [app.film.run.classes.words[t], app.film.reach(0, t),
                  app.film.run.classes.classes.filter((c) => c.tokens.includes(t)).length])""")
    words = {word: of for word, of, _ in reach}
    assert [words[word] for word in ("the", "cup", "kitten")] == ["every", "several", "only"]
    assert all(of == ("only" if n == 1 else "every" if n == 6 else "several") for _, of, n in reach)
    rising = p.get("""app.film.run.classes.classes.flatMap((_, k) => app.film.run.layout.tokens[k].filter((t, j) =>
      app.film.reach(k, t) === "every" && app.film.attention(app.film.length - 1, k)[j] > app.film.attention(0, k)[j]))
      """)
    assert rising == [], "no orange word rises"
    assert p.page.locator("#legend .several").is_visible()
    p = show(QUICK)
    assert p.page.locator("#legend .several").is_hidden(), "with two classes what is shared is in every context"


CONTRAST = """() => { const style = getComputedStyle(document.querySelector("#pin"));
  const colours = [style.color, style.backgroundColor].map((c) =>
    "#" + c.match(/\\d+/g).slice(0, 3).map((v) => Number(v).toString(16).padStart(2, "0")).join(""));
  return document.querySelector("#pin").matches(":hover") && !document.getAnimations().length
    && modules["draw/colours"].contrast(...colours); }"""


def test_the_legend_is_whole_and_unpin_can_be_read(show):
    p = show(WORDS)
    p.page.hover("#pin")
    p.page.click("#pin")
    p.rerun(eta_y=10)
    for name in ("start", "pinned"):
        item = p.page.locator(f"#legend .{name}")
        assert item.is_visible()
        assert item.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1"), name
    assert p.page.locator("#legend-ghost").is_hidden(), "the pinned run is what this one is compared with"
    p.page.hover("#pin")
    assert p.page.wait_for_function(CONTRAST).json_value() > 4.5
    toast = p.box("#toast")
    for name in ("#clock", "#scrub", "#play", "#watch"):
        box = p.box(name)
        apart = toast["y"] + toast["height"] <= box["y"] or box["y"] + box["height"] <= toast["y"]
        assert apart or toast["x"] + toast["width"] <= box["x"] or box["x"] + box["width"] <= toast["x"], name


CONTRASTS = """() => {
  const style = getComputedStyle(document.documentElement), { contrast } = modules["draw/colours"];
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const least = (names, on) => Math.min(...names.flatMap((a) => on.map((b) => contrast(of(a), of(b)))));
  return [least(["ink", "soft", "muted", "good", "bad", "open"], ["panel", "page", "faint"]),
          least(["several", "distinct", "pinned"], ["panel", "page"])]; }"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_the_systems_and_greys_can_be_read(explorer, scheme):
    p = explorer(QUICK, color_scheme=scheme)
    assert p.page.get_attribute("html", "data-theme") == scheme
    text, graphics = p.page.evaluate(CONTRASTS)
    assert text >= 4.5
    assert graphics >= 3


def test_keys_follow_the_tabs_and_letters_can_be_switched_off(page):
    assert page.page.get_attribute("html", "data-theme") == "light"
    names = page.page.evaluate("[...document.querySelectorAll('#right-tabs > *')].map((t) => t.id.slice(4))")
    assert len(names) == 5
    for digit, name in enumerate(names, 1):
        page.key(str(digit))
        assert page.page.locator(f"#panel-{name}").is_visible()
    page.key("1", "d", "]", "l")
    assert page.page.get_attribute("html", "data-theme") == "dark"
    assert page.get("[app.focus, app.scale]") == [0, "linear"]
    page.key("[", "l", "?")
    assert "next frame" in page.text("dialog")
    page.page.uncheck("#letters")
    page.key("Escape")
    for key in ("2", "]", "l", "d"):
        page.key(key)
    assert page.page.locator("#panel-curves").is_visible()
    assert page.get("[app.focus, app.scale]") == [-1, "log"]
    page.key("Home", "ArrowRight")
    assert page.step() == 1, "other keys work all the same"
    page.page.click("#help")
    page.page.check("#letters")
    page.key("Escape", "]")
    assert page.get("app.focus") == 0
    page.page.focus("#tab-curves")
    page.key("ArrowRight")
    assert page.page.evaluate("document.activeElement.id") == "tab-y"
    nameless = """[...document.querySelectorAll("button, input, select, textarea, canvas:not([aria-hidden]),"
      + "[role=img], [role=slider]")]
      .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
      .map((e) => e.outerHTML.slice(0, 100))"""
    assert page.page.evaluate(nameless) == []
    size = "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    assert page.page.evaluate(size) == [1280, 720]


def test_zero_is_written_as_zero_and_numbers_as_people_write_them(show):
    p = show("#classes=syn-small&steps=120&eta_z=0&flow=off")
    p.key("End")
    p.await_text("#movement-note", "Attention is frozen here")
    assert "more than 0" not in p.text("#movement-note")
    p.key("Home", "2")
    p.await_text("#panel-y .explain", "No votes yet")
    written = {5.4e-16: "≈ 0", 0: "0", 1e-6: "10⁻⁶", -3.1e-7: "−3.1·10⁻⁷", 2.5e8: "2.5·10⁸", 0.1234: "0.123",
               12345: "12\u202f345"}  # fmt: skip
    assert {x: p.get("modules['draw/format'].short(argument)", x) for x in written} == written
    chances = {0.99998: "99.998%", 0.5: "50%", 0.042: "4.2%", 0: "0%", 1: "100%"}
    assert {x: p.get("modules['draw/format'].percent(argument)", x) for x in chances} == chances
    maths = {"10 M^−0.99": "10 <var>M</var><sup>−0.99</sup>", "X^T b": "<var>X</var><sup>T</sup> b",
             "ż_ml": "<var>ż</var><sub>ml</sub>", "e^{4z}": "<var>e</var><sup>4z</sup>", "it’s γ": "it’s <var>γ</var>",
             "eta_y": "<var>η</var><sub>Y</sub>"}  # fmt: skip
    html = "modules['page/dom'].h('p', {}, modules['page/dom'].maths(argument)).innerHTML"
    assert {text: p.get(html, text) for text in maths} == maths


# --- on a phone ------------------------------------------------------------------------------------------------------

SMALL = """() => [...document.querySelectorAll("dialog *, body > :not(dialog) *")].filter((e) => {
  if (!e.checkVisibility() || e.closest(".hidden, canvas") || e.id === "link") return false;
  if (document.querySelector("dialog") && !e.closest("dialog")) return false;
  const { width, height } = e.getBoundingClientRect();
  const isText = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const isTarget = e.matches("button, select, summary, input:not([type=checkbox]), a.button, .bar");
  return (isText && parseFloat(getComputedStyle(e).fontSize) < 12)
    || (isTarget && Math.min(width, height) < 39.5); }).map((e) => e.outerHTML.slice(0, 90))"""
WIDTH = "document.documentElement.scrollWidth"


def test_letters_and_targets_on_a_phone(show):
    p = show(WORDS, phone=True)
    for level in ("explore", "theory"):
        p.page.click(f"#level [data-value={level}]")
        p.step()
        assert p.page.evaluate(SMALL) == [], level
        assert p.page.evaluate(WIDTH) == PHONE["width"]
    p.page.click("#edit-weights")
    assert p.page.evaluate(SMALL) == []
    p.key("Escape")
    p.page.click("#own-words")
    p.page.click("#words-example")
    p.page.locator("#words-pairs button").first.wait_for()
    assert p.page.evaluate(SMALL) == []
    p.key("Escape")
    p.page.click("#tab-tour")
    assert p.page.evaluate(WIDTH) == PHONE["width"]


# --- as a file -------------------------------------------------------------------------------------------------------


def test_a_file_is_shared_with_the_text_behind_its_address(page, browser, tmp_path):
    page.page.click("#share")
    assert page.box("#share-part")["width"] == pytest.approx(page.box("dialog .share")["width"], abs=1)
    assert page.page.input_value("#share-part") == page.page.evaluate("location.hash")
    heights = page.page.locator("dialog footer button").evaluate_all("(all) => all.map((b) => b.offsetHeight)")
    assert len(set(heights)) == 1, "no button breaks its words"
    (tmp_path / "saved.html").write_bytes(page.download("#share-file"))
    again = Page(browser, (tmp_path / "saved.html").as_uri()).open(page.page.input_value("#share-part"))
    again.wait("app.film.run.steps === 60")
    again.check_quiet()
    again.context.close()


def test_another_page_may_frame_it(browser, built, tmp_path):
    course = tmp_path / "course.html"
    course.write_text(f'<iframe src="{built}{QUICK.replace("&", "&amp;")}" width="900" height="600"></iframe>')
    context = browser.new_context(offline=True)
    tab = context.new_page()
    tab.goto(course.as_uri())
    tab.frame_locator("iframe").locator("html[data-ready] #clock").wait_for()
    tab.frames[1].wait_for_function("() => modules.app.app.state.state === 'done'")
    assert tab.frames[1].evaluate("modules.app.app.film.lastStep") == 60
    context.close()
