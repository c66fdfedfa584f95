"""In chromium: what curves and drawings show, and that it can be read: labels, colours, hover, overlays, pictures."""

import csv
import io
import math
import re

import pytest
from browser import QUICK, SIZES, Page

from chromium import PATIENCE

pytestmark = pytest.mark.integration

TEXTBOOK = "#classes=textbook&eta_y=0.9&eta_z=0.02&momentum=0&context=inf&batch_size=null&steps=120"
LONG = "#classes=syn-small&steps=15128&marks=14000:2:3&flow=on&step=9000"
PLOT = "document.querySelector('#view-{} .plot').figure"
# the texts on a canvas, and where they stand, in its own pixels; clearing it forgets them
WRITTEN = """
window.written = new Map();
const drawing = CanvasRenderingContext2D.prototype, { fillText, clearRect } = drawing;
drawing.clearRect = function (...a) { written.delete(this.canvas); clearRect.apply(this, a); };
drawing.fillText = function (text, x, y) {
  const m = this.measureText(text), t = this.getTransform();
  const box = [x - m.actualBoundingBoxLeft, y - m.actualBoundingBoxAscent,
               x + m.actualBoundingBoxRight, y + m.actualBoundingBoxDescent];
  const [x0, y0, x1, y1] = box.map((v, i) => (i % 2 ? v * t.d + t.f : v * t.a + t.e));
  written.set(this.canvas, [...(written.get(this.canvas) ?? []), { text, x0, y0, x1, y1 }]);
  fillText.call(this, text, x, y);
};
"""
ON_CANVAS = """() => [...document.querySelectorAll("canvas:not(.plot canvas)")].filter((c) => c.checkVisibility())
  .map((c) => ({ name: c.id, width: c.width, height: c.height, texts: written.get(c) ?? [] }))"""
# of a plot, whose layers lie on each other
ON_PLOTS = """() => [...document.querySelectorAll("#panel-curves .plot")].map((p) => {
  const layers = [...p.querySelectorAll("canvas")], { width, height } = layers[0];
  return { name: p.closest("figure").id, width, height, texts: layers.flatMap((c) => written.get(c) ?? []) }; })"""
FITTED = """() => [...document.querySelectorAll("#panel-curves .plot")].every((p) => p.figure &&
    Math.abs(p.firstChild.width - p.clientWidth) <= 1 && Math.abs(p.firstChild.height - p.clientHeight) <= 1)
  && Math.abs(document.querySelector("#attention").width - document.querySelector("#attention-box").clientWidth) <= 1"""
LINES = "[...document.querySelectorAll('#panel-curves .plot')].flatMap((p) => p.figure.data.map((t) => t.line.color))"


@pytest.fixture(scope="module")
def shared(browser, built):
    """Here the tab notes what is written."""
    tab = Page(browser, built)
    tab.page.add_init_script(WRITTEN)
    yield tab
    tab.context.close()


@pytest.fixture
def draw(show):
    def draw_all(where):
        return show(where).wait("[...document.querySelectorAll('#panel-curves .plot')].every((p) => p.figure)")

    return draw_all


def has_line(view, test):
    return f"{PLOT.format(view)}?.data.some((t) => {test})"


def misplaced(drawings):
    """Labels that stick out of what they are drawn on, and pairs that lie on each other."""
    wrong = []
    for drawing in drawings:
        texts = drawing["texts"]
        wrong += [f"{drawing['name']}: {t['text']!r} is cut off" for t in texts if t["x0"] < -1 or t["y0"] < -1
                  or t["x1"] > drawing["width"] + 1 or t["y1"] > drawing["height"] + 1]  # fmt: skip
        for i, a in enumerate(texts):
            wrong += [f"{drawing['name']}: {a['text']!r} on {b['text']!r}" for b in texts[:i] if a["x0"] < b["x1"] - 1
                      and b["x0"] < a["x1"] - 1 and a["y0"] < b["y1"] - 1 and b["y0"] < a["y1"] - 1]  # fmt: skip
    return wrong


def test_no_label_is_cut_off_or_lies_on_another(browser, draw, tmp_path):
    p = draw(LONG)
    p.wait("app.flow")
    for size in SIZES:
        p.page.set_viewport_size(size)
        for scale in ("linear", "log"):
            p.key("l")
            p.wait(f"app.scale === '{scale}' && ({PLOT.format('z')}.time(9) === 9) === ('{scale}' === 'linear')")
            p.page.wait_for_function(FITTED)
            step = f"{p.step():,}".replace(",", "\u202f")
            canvases, plots = p.page.evaluate(ON_CANVAS), p.page.evaluate(ON_PLOTS)
            texts = {t["text"] for drawing in canvases + plots for t in drawing["texts"]}
            assert step in texts, "the step on screen"
            assert "15\u202f128" in texts or scale == "log", "the last one, where the one on screen is not beside it"
            assert any("η" in text for text in texts), "the change of the rates"
            assert sum(len(d["texts"]) for d in plots) > (25 if size["width"] > 700 else 20)
            assert misplaced(canvases + plots) == []
        p.key("2")
        p.page.wait_for_function("() => document.querySelector('#y-step').textContent")
        p.step()
        (table,) = [d for d in p.page.evaluate(ON_CANVAS) if d["name"] == "y-canvas"]
        assert len(table["texts"]) > 5
        assert misplaced([table]) == []
        p.key("1")
    film = tmp_path / "film.html"
    film.write_text(p.get("modules['compute/api'].file(app.film, 'film.html')"), encoding="utf-8")
    tab = browser.new_page()
    tab.add_init_script(WRITTEN)
    for size in SIZES:
        tab.set_viewport_size(size)
        tab.goto(film.as_uri())
        tab.wait_for_selector("html[data-ready]")
        tab.keyboard.press("End")
        drawings = tab.evaluate(ON_CANVAS)
        assert [len(d["texts"]) >= 4 for d in drawings] == [True, True]
        assert misplaced(drawings) == []
    tab.close()


# --- overlays --------------------------------------------------------------------------------------------------------

HOVER = """async ([view, name, texts, point]) => {
  const { areaOf, projection } = modules['draw/plot'], { unit } = modules['draw/pen'];
  const box = document.querySelector(`#view-${view} .plot`), b = box.getBoundingClientRect(), u = unit();
  const { px, py } = projection(box.figure, areaOf(box.figure, { width: b.width / u, height: b.height / u }));
  const line = box.figure.data.find((t) => t.name.startsWith(name) && t.texts.some((x) => x.includes(texts)));
  return [b.x + u * px(line.x[point]), b.y + u * py(line.y[point])]; }"""


def hover(p, view, name, texts, point=40):
    """What is shown at a point of a line, with the mouse there."""
    p.wait(has_line(view, f"t.name.startsWith('{name}')"))
    p.page.mouse.move(*p.page.evaluate(HOVER, [view, name, texts, point]))
    return p.text("#tip").replace("\n", " ")


def test_predictions_stand_beside_the_run_and_hover_texts_name_whole_steps(draw):
    p = draw(TEXTBOOK)
    p.run_to_end()
    p.wait("app.flow && app.response && app.curves")
    assert all(p.page.is_checked(f"#show-{name}") for name in ("flow", "theory", "response"))
    assert [p.text(f"label:has(#show-{name})").strip() for name in ("flow", "theory", "response")] == [
        "infinite-data limit", "the paper's formula", "our formula"]  # fmt: skip
    for view, dashes in {"loss": ["dash"], "entropy": ["dash", "dashdot"], "growth": ["dash", "dashdot", "dot"],
                         "chi": ["dash", "dashdot", "dot"], "z": ["dash", "dashdot"]}.items():  # fmt: skip
        p.wait(has_line(view, f"t.line.dash === '{'dash' if view == 'loss' else 'dashdot'}'"))
        assert sorted({*p.get(f"{PLOT.format(view)}.data.map((t) => t.line.dash)")} - {None}) == dashes, view
    theory = p.get("app.film.run.theory")
    assert p.get(f"{PLOT.format('growth')}.moments.map((m) => m.x)") == pytest.approx(
        [theory["t_scan"], theory["t_snap"]]
    )
    for view, line, texts, words in (
        ("growth", "infinite-data", "flow", r"(infinite|our formula|run, |the paper).*\s+step \d+\s+Bₙ "),
        ("chi", "the paper", "upper", r"the paper's formula \(closed form\), upper bound\s+step \d+\s+ln χ "),
        ("entropy", "run", "mean", r"(infinite.*|our formula.*|mean.*|class \d)\s+step \d+\s+entropy [\d.]+ nats"),
        ("z", "distinct", "distinct", r"(token \d+, .*|.*, token \d+)\s+step \d+\s+z "),
    ):
        assert re.match(words, hover(p, view, line, texts)), (view, line)
    p.page.mouse.move(640, 300)
    p.key("Home")
    p.step()
    hover(p, "chi", "the paper", "upper")
    assert p.page.locator("#tip").is_hidden(), "what is not revealed yet has no text"
    p.key("End")
    off = p.get("""[app.response, app.curves].map(({ t, growth }) =>
      Math.abs(growth[0][t.length - 1] - app.film.value('growth', app.film.length - 1, 0)))""")
    assert off[0] < 0.05 * off[1], "our formula holds where the paper's does not"
    p.page.uncheck("#show-theory")
    p.wait(f"!{has_line('growth', 't.line.dash === `dot`')}")


def test_predictions_for_another_run_are_off_and_the_note_gives_the_reason(draw):
    p = draw("#classes=syn-small&steps=60&momentum=0.9")
    assert not any(p.page.is_checked(f"#show-{name}") for name in ("flow", "theory", "response"))
    for text in ("momentum 0.9", "T = 128", "They are off"):
        p.await_text("#predict-note", text)
    assert p.get("app.flow") is None
    p.page.check("#show-theory")
    p.wait(has_line("growth", "t.line.dash === 'dot'"))
    p.await_text("#predict-note", "They need not agree")
    p.rerun(seed=7)
    assert p.page.is_checked("#show-theory"), "what was switched by hand stays so"
    assert not p.page.is_checked("#show-flow")


@pytest.mark.parametrize("rule", ["adam", "muon"])
def test_no_t0_where_closed_forms_do_not_apply(draw, rule):
    p = draw(f"#classes=syn-small&steps=200&optimizer={rule}&eta_y=0.1&eta_z=0.1&momentum=0&context=inf&flow=on")
    p.page.check("#show-theory")
    p.step()
    assert 0 < p.get("app.film.run.theory.t_snap") < 200
    assert p.get(f"{PLOT.format('growth')}.moments.length") == 0
    p.await_text("#predict-note", "do not apply to this run: the optimiser is not SGD")


def test_after_a_change_of_rates_predictions_use_the_first(draw):
    p = draw(TEXTBOOK + "&marks=30:2:0.5")
    p.await_text("#predict-note", "The rates changed at step 30")
    assert "t₀′ and t₀ use the first rates" in p.text("#predict-note")
    p = draw("#classes=syn-small&steps=1000&flow=off&marks=30:1:4,200:5:4")
    p.wait(f"{PLOT.format('loss')}?.moments.length === 2")
    p.step()
    named = [[t["text"] for t in d["texts"] if "η" in t["text"]] for d in p.page.evaluate(ON_PLOTS)]
    assert named == [["η_Y 5, η_Z 4"]] * 5, "the newest change, once in every view"


# --- hover, cursor, zoom, colours ------------------------------------------------------------------------------------


def test_hovering_shows_token_class_and_value(page):
    page.run_to_end()
    x, y, w, h = page.box("#attention").values()
    page.page.mouse.move(x + 0.48 * w, y + 0.4 * h)  # the last bar of class 0
    now = page.get("app.film.attention(app.film.length - 1, 0)[19]")
    for text in ("token 19, distinct", "class 0, step 60", f"attention {float(f'{now:.3g}'):g}"):
        assert text in page.text("#tip")
    page.page.mouse.move(x + 0.1 * w, y + 0.6 * h)  # early, in the heat map
    assert "common" in page.text("#tip")
    assert "step 60" not in page.text("#tip")
    page.key("2")
    page.wait("document.querySelector('#y-canvas').ariaLabel.includes('step 60')")
    x, y, *_ = page.box("#y-canvas").values()
    page.page.mouse.move(x + 60, y + 100)
    assert "vote" in page.text("#tip")


def test_a_pinned_run_lies_under_the_next(page):
    page.key("p")
    page.wait("app.pinned !== null")
    page.rerun(eta_y=10).run_to_end()
    assert "1" in page.text("#legend-pinned")
    page.wait(has_line("entropy", "t.name?.startsWith('pinned run')"))
    assert page.get("app.pinned.film.value('loss', 20) !== app.film.value('loss', 20)")
    page.page.click("#pin")
    page.wait(f"!{has_line('entropy', 't.name.startsWith(`pinned run`)')}")


PLACES = """() => {
  const { areaOf } = modules['draw/plot'], { unit } = modules['draw/pen'];
  const box = document.querySelector("#view-loss .plot"), b = box.getBoundingClientRect(), u = unit();
  const area = areaOf(box.figure, { width: b.width / u, height: b.height / u });
  const share = (x) => (x / u - area.x) / area.w;
  const hidden = parseFloat(box.querySelector(".front").style.clipPath.split(" ")[1]);
  const slider = document.querySelector("#scrub");
  const line = document.querySelector("#view-loss .cursor").getBoundingClientRect();
  return [slider.value / slider.max, share(line.left - b.left), share(b.width - hidden)]; }"""


def test_cursor_curve_and_film_slider_are_at_one_place(page):
    """Shares of the time axis: of the film's slider, the line in a plot, and what is revealed of its curves."""
    page.run_to_end()
    page.wait(f"{PLOT.format('loss')}?.x.range[1] > 1")
    page.step()
    assert page.page.evaluate(PLACES) == pytest.approx([1, 1, 1], abs=0.02)
    for scale in ("linear", "log"):
        page.key("l")
        page.wait(f"app.scale === '{scale}'")
        for step in (0, 1, 7, 30):
            page.seek(step)
            share = step / 60 if scale == "linear" else math.log(step + 1) / math.log(61)
            figure = PLOT.format("loss")
            page.wait(f"Math.abs({figure}.time({step}) / {figure}.x.range[1] - {share}) < 1e-6")
            page.step()
            assert page.page.evaluate(PLACES) == pytest.approx([share] * 3, abs=0.02), (scale, step)


def test_an_enlarged_plot_zooms_by_drag_and_keyboard(page):
    page.run_to_end()
    page.page.hover("#view-entropy figcaption")
    page.page.click("#view-entropy figcaption button")

    def zoomed(is_zoomed):
        page.page.wait_for_selector(f"dialog .large[data-zoomed={'true' if is_zoomed else 'false'}]")

    zoomed(False)
    canvas = page.page.locator("dialog .large canvas")
    x, y, w, h = canvas.bounding_box().values()
    page.page.mouse.move(x + 0.3 * w, y + 0.3 * h)
    page.page.mouse.down()
    page.page.mouse.move(x + 0.6 * w, y + 0.6 * h, steps=4)
    page.page.mouse.up()
    zoomed(True)
    page.page.click("#zoom-all")
    zoomed(False)
    canvas.focus()
    page.key("+")
    zoomed(True)
    svg = page.download("dialog button[aria-label='Save as SVG']").decode()
    assert "clip-path" in svg
    assert "(entropy)" in svg
    page.key("0")
    zoomed(False)
    page.key("Escape")
    page.page.wait_for_selector("dialog", state="detached")


@pytest.mark.parametrize(("theme", "foreign_ink"), [("dark", "#1d1f24"), ("light", "#ecebe6")])
def test_lines_stand_out_from_their_ground(draw, theme, foreign_ink):
    p = draw("#classes=syn-small&steps=60&flow=on")
    p.wait("app.flow")
    if p.page.get_attribute("html", "data-theme") != theme:
        p.key("d")
    p.key("p")
    p.wait(f"{has_line('z', 't.line.dash === `dash`')} && {has_line('loss', 't.name.startsWith(`pinned`)')}")
    p.wait(f"!{LINES}.includes('{foreign_ink}')")
    drawn = p.get(LINES)
    assert len(drawn) > 12
    ratio = "modules['draw/colours'].contrast(argument, getComputedStyle(document.documentElement)"
    ratio += ".getPropertyValue('--panel').trim())"
    assert {colour: p.get(ratio, colour) >= 3 for colour in drawn} == dict.fromkeys(drawn, True)
    blue = p.get(f"{PLOT.format('z')}.data.find((t) => t.name.startsWith('distinct')).line.color")
    assert theme == "light" or p.get(ratio, blue) >= 4.5, "thin lines"


def test_a_class_has_its_headline_and_small_movement_a_view(draw):
    def texts():
        p.step()
        return [t["text"] for d in p.page.evaluate(ON_CANVAS) for t in d["texts"] if d["name"] == "attention"]

    p = draw("#classes=syn-small&steps=60&step=60")
    assert p.page.locator("#movement").is_hidden()
    was, now = p.get("[0, app.film.length - 1].map((i) => app.film.share(i, 0, 'common'))")
    assert was == pytest.approx(0.645, abs=1e-3)
    assert f"common tokens {100 * was:.0f}% → {100 * now:.0f}%" in texts()
    p = draw(TEXTBOOK + "&step=120&flow=off")
    p.await_text("#movement-note", "Here the theorems apply and attention barely moves")
    p.page.click("#movement")
    assert any(text.startswith("−") for text in texts()), "bars go down as well"
    assert p.page.get_attribute("#movement", "aria-pressed") == "true"
    p.rerun(eta_y=1.5)  # still small, but no theorem's any more
    p.await_text("#movement-note", "Attention barely moves here")


# --- files -----------------------------------------------------------------------------------------------------------


def test_pictures_carry_title_legend_and_settings(draw):
    p = draw("#classes=syn-small&steps=60&flow=off&step=60")
    p.key("e")
    settings = "syn-small, K 2, M 34, sgd, η_Y 1, η_Z 1, momentum 0.9, T 128, batch 128, seed 0"
    legend = ["Attention at step 60", "distinct (only in this context)", "common (in every context)", "at step 0"]
    attention = p.download("#export-attention-svg").decode()
    assert [text for text in (settings, *legend) if f">{text}<" not in attention] == []
    width = float(re.findall(r'<svg[^>]* width="([\d.]+)"', attention)[0])
    images = re.findall(r'<image x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', attention)
    assert width - max(float(x) + float(w) for x, w in images) >= 19.9, "moved by 10, and 10 free on the right"
    p.page.evaluate("() => { written.clear(); }")
    p.download("#export-attention-png")
    drawn = p.page.evaluate("() => [...written.values()].flat().map((t) => t.text)")
    assert {settings, *legend} <= set(drawn)
    loss = p.download("#export-entropy-svg").decode()
    assert [text for text in (settings, "(entropy)", "run, mean over classes", "each class") if text not in loss] == []
    assert len(p.download("#export-entropy-png")) > 20_000


def test_data_set_up_pictures_and_the_film_are_files(page, tmp_path, browser):
    from scansnap.cli.run import find_run

    page.run_to_end()
    page.key("2")  # so that there is a table Y
    page.wait("document.querySelector('#y-canvas').ariaLabel.includes('step 60')")
    page.key("e")
    rows = list(csv.DictReader(io.StringIO(page.download("#export-csv").decode())))
    assert {row["quantity"] for row in rows} >= {"loss", "entropy", "attention", "z"}
    last = [r for r in rows if (r["quantity"], r["step"], r["seq_class"]) == ("attention", "60", "0")]
    assert sum(float(row["value"]) for row in last) == pytest.approx(1, abs=1e-5)
    (tmp_path / "run.toml").write_bytes(page.download("#export-toml"))
    classes, _, settings = find_run(tmp_path / "run.toml", {})
    assert (classes.n_classes, settings["steps"]) == (2, 60)
    for view in ("attention", "growth", "y"):
        png = page.download(f"#export-{view}-png")
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        assert len(png) > 5000
        svg = page.download(f"#export-{view}-svg").decode()
        assert svg.startswith("<svg")
        assert svg.rstrip().endswith("</svg>")
    (tmp_path / "film.html").write_bytes(page.download("#export-film"))
    plays(browser, tmp_path / "film.html")


def plays(browser, film):
    """The film, from the disk: it plays by itself, pauses, and goes where the slider goes."""
    context = browser.new_context(viewport=SIZES[0], offline=True)
    context.set_default_timeout(1000 * PATIENCE)
    context.add_init_script("window.late = 0; performance.now = () => window.late;")
    tab, errors = context.new_page(), []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda m: m.type == "error" and errors.append(m.text))
    tab.goto(film.as_uri())
    frames = int(tab.get_attribute("html", "data-ready"))
    assert frames > 50
    tab.evaluate("() => { window.late = 1000; }")  # of eight seconds
    tab.wait_for_function(f"() => Number(document.getElementById('scrub').value) === {frames // 8}")
    tab.keyboard.press(" ")
    assert tab.inner_text("#play") == "Play"
    tab.locator("#scrub").fill(str(frames - 1))
    assert tab.inner_text("#clock") == "step 60 of 60"
    blue = """() => { const c = document.getElementById("stage"), n = new Uint8Array(c.width * c.height);
      const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
      return n.filter((_, i) => d[4 * i] === 0 && d[4 * i + 1] === 114 && d[4 * i + 2] === 178).length; }"""
    assert tab.evaluate(blue) > 5000
    assert errors == []
    context.close()


GIF = """async (bytes) => {
  const decoder = new ImageDecoder({ data: new Uint8Array(bytes), type: "image/gif" });
  await decoder.tracks.ready;
  const n = decoder.tracks.selectedTrack.frameCount, canvas = document.createElement("canvas");
  const blue = async (i) => {
    const { image } = await decoder.decode({ frameIndex: i });
    canvas.width = image.displayWidth; canvas.height = image.displayHeight;
    const c = canvas.getContext("2d", { willReadFrequently: true }); c.drawImage(image, 0, 0);
    const d = c.getImageData(0, 0, canvas.width, canvas.height).data;
    let count = 0;
    for (let k = 0; k < d.length; k += 4) // #0072B2
      if (d[k] + Math.abs(d[k + 1] - 114) + Math.abs(d[k + 2] - 178) < 40) count++;
    return count; };
  return [n, await blue(0), await blue(n - 1)]; }"""


def test_the_film_as_gif_is_what_a_browser_shows(show):
    p = show(QUICK)
    p.run_to_end()
    p.key("e")
    gif = p.download("#export-gif")
    assert (gif[:6], gif[-1]) == (b"GIF89a", 0x3B)
    n_frames, first, last = p.page.evaluate(GIF, list(gif))
    assert 20 < n_frames == gif.count(b"\x21\xf9\x04") <= 61
    assert last > 1.1 * first, "distinct tokens gain: more of the last frame is blue"
