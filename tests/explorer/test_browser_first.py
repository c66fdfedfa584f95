"""In chromium: the first visit, the two levels, the example sentence, own words, from a bar to a probability."""

import math
import re

import numpy as np
import pytest
from browser import QUICK

import scansnap as ss
from scansnap.explorer.presets import PRESETS
from scansnap.explorer.setup import read_setup

pytestmark = pytest.mark.integration

WORDS = "#classes=words&eta_y=2&steps=60&flow=off"
EXPLORE = "#classes=words&steps=60&eta_y=2&momentum=0.9&level=explore"
LAST_FRAME = "[...app.film.frames.at(-1)].map(String)"


@pytest.mark.parametrize("phone", [False, True])
def test_the_first_visit_asks_reveals_and_gives_one_slider(explorer, phone):
    size = {"viewport": {"width": 390, "height": 844}} if phone else {}
    p = explorer("", reduced_motion="reduce", **size)
    p.page.wait_for_selector("#welcome[data-phase=asking]")
    assert "Which word before will the model look at most?" in p.text("#welcome .sentence")
    assert p.page.locator("#welcome-rate").is_hidden()
    milk = p.page.locator("#welcome .nextwords li", has_text="milk")
    milk.wait_for()
    start = float(milk.get_attribute("data-p"))
    assert start == pytest.approx(1 / p.get("app.film.run.classes.vocab_size"), rel=1e-3), "nothing is learned yet"
    x, y, w, h = p.box("#welcome canvas").values()
    p.page.mouse.click(x + 0.55 * w, y + 0.4 * h)
    p.await_text("#welcome .result", "Your choice")
    p.page.click("#welcome-reveal")
    p.page.wait_for_selector("#welcome[data-phase=there]")
    last = "app.film.attention(app.film.length - 1, 0)"
    best = p.get(f"app.film.run.classes.words[app.film.run.layout.tokens[0][{last}.indexOf(Math.max(...{last}))]]")
    assert f"“{best}”" in p.text("#welcome .result")
    p.wait("""Number([...document.querySelectorAll("#welcome .nextwords li")]
           .find((e) => e.textContent.startsWith("milk"))?.dataset.p) > 0.9""")
    p.page.locator("#welcome-rate").fill("20")
    p.wait("app.setup.eta_z < 0.1 && app.film.run.setup.eta_z < 0.1 && app.state.state === 'done'")
    p.wait("/from 64% of the attention to (?!32%)/.test(document.querySelector('#welcome .outcome').textContent)")
    assert p.box("#welcome-done")["y"] + p.box("#welcome-done")["height"] <= p.page.viewport_size["height"]
    p.page.click("#welcome-done")
    assert p.page.locator("#welcome").count() == 0
    assert p.page.evaluate("document.activeElement.id") == "watch"
    p.open("")
    assert p.page.locator("#welcome").count() == 0, "a first visit is the first"


def test_an_address_with_a_state_opens_it_and_a_link_has_a_title_and_a_picture(explorer):
    p = explorer(QUICK)
    assert p.page.locator("#welcome").count() == 0
    assert p.page.get_attribute("html", "data-level") == "theory", "an address without a level shows everything"
    tags = dict(
        p.get("[...document.querySelectorAll('meta[property]')].map((m) => [m.attributes[0].value, m.content])")
    )
    assert {"og:title", "og:description", "og:image"} <= set(tags)
    assert tags["og:image"].endswith(".png")


def test_the_first_page_asks_and_plays(show):
    p = show("#level=theory")
    question = p.text("#question").replace("\u2011", "-")
    assert question == PRESETS[0]["question"] == p.page.get_attribute("#question", "data-first")
    assert p.step() == 0
    now = "Number(document.querySelector('#clock b').textContent.replace(/\\D/g, ''))"
    p.page.click("#watch")
    p.wait(f"{now} > 3")
    assert "Pause" in p.text("#watch")
    p.page.click("#watch")
    assert "Watch" in p.text("#watch")
    at = p.step()
    assert p.step() == at > 3
    p.page.click("#watch")  # from the beginning again
    p.wait(f"{now} < {at}")
    p.page.click("#watch")


def test_two_levels_and_the_address_knows_which(show):
    p = show(EXPLORE)
    for name in ("#view-growth", "#view-chi", "#tab-claims", "#tab-y", "#show-flow", "#c-optimizer"):
        assert p.page.locator(name).is_hidden(), name
    for name in ("#c-eta_y", "#c-eta_z", "#own-words", "#map", "#example-sentence", "#view-loss"):
        assert p.page.locator(name).is_visible(), name
    p.page.click("#level [data-value=theory]")
    for name in ("#view-growth", "#view-chi", "#tab-claims", "#tab-y", "#show-flow"):
        assert p.page.locator(name).is_visible(), name
    assert p.page.locator("#example-sentence").is_hidden()
    p.wait("!location.hash.includes('level=')")
    p.page.focus("#level [data-value=theory]")
    p.key("ArrowLeft")
    p.wait("location.hash.includes('level=explore')")


def test_the_next_word_of_the_example_is_the_softmax_of_its_votes(show):
    p = show(EXPLORE)
    p.run_to_end()
    p.wait("Number(document.querySelector('#example-next li')?.dataset.p) > 0.3")
    chances = p.page.evaluate("[...document.querySelectorAll('#example-next li')].map((e) => Number(e.dataset.p))")
    assert sum(chances) == pytest.approx(1)
    tokens, attention, next_ = p.page.evaluate("""() => {
      const { film } = modules.app.app, { draw, read } = modules['draw/sentence'], tokens = draw(film, 0, 0);
      // Y of one row and two outputs by hand: every word votes for the first with 1
      const rows = film.run.layout.query_tokens[0], values = new Float32Array([rows.length, 2, ...rows, 7, -1,
        ...rows.flatMap(() => [1, 0])]);
      const said = read(film, { step: film.lastStep, values }, 0, 0, tokens);
      return [tokens, said.attention, said.next.map((n) => n.p)]; }""")
    assert len(set(tokens)) == len(tokens) == 6
    z = dict(p.get("app.film.run.layout.query_tokens[0].map((t, j) => [t, app.film.z(app.film.length - 1, 0)[j]])"))
    weights = [math.exp(z[t]) for t in tokens]
    assert attention == pytest.approx([w / sum(weights) for w in weights], rel=1e-5)
    logit, others = sum(attention) / math.hypot(*attention), p.get("app.film.run.classes.vocab_size - 1")
    assert next_[0] == pytest.approx(math.exp(logit) / (math.exp(logit) + others), rel=1e-5)
    before = p.page.text_content("#example-sentence")
    p.page.click("#another")
    p.wait(f"document.querySelector('#example-sentence').textContent !== {before!r}")


# --- words -----------------------------------------------------------------------------------------------------------

PICTURE = "modules['views/stage/stage'].exportSvg()"


def labels(p):
    picture, classes = p.get(PICTURE), p.get("app.film.run.classes")
    words = {classes["words"][str(token)] for c in classes["classes"] for token in c["tokens"]}
    assert [word for word in words if f">{word}</text>" not in picture] == []
    return picture


def test_bars_are_labelled_with_words(show):
    p = show(WORDS)
    p.key("End")
    picture = labels(p)
    best = [text.partition("</text>")[0].rpartition(">")[2] for text in picture.split('font-weight="700"')[1:]]
    assert best == ["kitten", "office", "concert", "goal", "verse", "north"], "the word most looked at stands out"
    p.key("]")  # one class alone: there is room to write across
    p.step()
    alone = p.get(PICTURE)
    assert "rotate(-90)" not in alone
    assert ">kitten</text>" in alone
    show("#classes=syn-small&steps=60&flow=off")
    assert "rotate(-90)" not in p.get(PICTURE), "numbers are not"


def test_own_words_from_paste_to_link(show):
    p = show(WORDS)
    p.page.click("#own-words")
    text, use = p.page.locator("#words-text"), p.page.locator("#use-words")
    for wrong, words in (("only a few words", "20 words"), ("ab " * 8000, "20000"),
                         (" ".join(f"w{i}" for i in range(30)), "no repeated pair")):  # fmt: skip
        text.fill(wrong)
        p.await_text("#words-refusal", words)
        assert use.is_disabled()
    p.page.click("#words-example")
    p.page.locator("#pair-drinks-milk").wait_for()
    p.page.locator("#words-refusal").wait_for(state="hidden")
    assert p.page.locator("#words-pairs [aria-pressed=true]").count() == 6
    use.click()
    p.wait("app.film.run.setup.classes.text").settle()
    labels(p)
    p.page.click("#own-words")
    p.page.focus("#pair-reads-maps")
    p.key("Enter")
    p.page.locator("#pair-reads-maps[aria-pressed=false]").wait_for()
    assert p.page.evaluate("document.activeElement.id") == "pair-reads-maps"
    p.page.click("#pair-and-reads")
    p.page.locator("#pair-and-reads[aria-pressed=true]").wait_for()
    use.click()
    p.wait("app.film.run.setup.classes.pairs").settle()
    classes = p.get("app.film.run.classes")
    names = [(classes["words"][str(c["query"])], classes["words"][str(c["next_token"])]) for c in classes["classes"]]
    assert sorted(names) == [("and", "reads"), ("drinks", "coffee"), ("drinks", "milk"), ("plays", "football"),
                             ("plays", "piano"), ("reads", "poems")]  # fmt: skip
    p.page.click("#share")
    p.wait("location.hash.includes('kitten')")
    address, last = p.page.evaluate("location.hash"), p.get(LAST_FRAME)
    show(address)
    assert p.get(LAST_FRAME) == last
    assert p.get("app.film.run.classes") == classes
    p.page.click("#own-words")  # the text is there to go on with
    p.page.locator("#pair-and-reads[aria-pressed=true]").wait_for()
    p.key("Escape")
    p.page.select_option("#preset", "words")
    p.wait("app.setup.classes.preset === 'words'")
    p.page.click("#own-words")
    assert text.input_value().startswith("The kitten sits by the bowl")
    text.fill(draft := text.input_value() + "One more.")
    p.key("Escape")
    p.page.click("#own-words")
    assert text.input_value() == draft, "a draft too"


def test_a_link_that_mail_programs_would_cut_is_refused(show):
    p = show(WORDS)
    before = p.page.evaluate("location.hash")
    p.get("app.catalogue.limits.address_characters = 20")
    p.page.click("#share")
    p.await_text("#toast", "cut links")
    assert p.page.evaluate("location.hash") == before


# --- from a bar to a probability -------------------------------------------------------------------------------------


def simulated(step):
    setup = read_setup({"classes": {"preset": "words"}, "eta_y": 2.0, "steps": 60}).setup
    classes = ss.SequenceClasses.preset(setup.pop("classes")["preset"])
    names = ("y", "z", "attention", "loss")
    return ss.simulate(classes, record=[step], device="cpu", variables=names, **setup).isel(run=0, step=0), classes


def choose_evening_for_football(show):
    p = show(WORDS)
    p.key("End")
    x, y, w, h = p.box("#attention").values()
    p.page.mouse.click(x + 0.3 * w, y + 0.2 * h)
    p.page.wait_for_selector("#chain-alpha")
    assert p.text(".chain h2") == "How “kitten” counts for “milk” after “drinks”"
    assert p.get("app.focus") == -1, "and the class does not come into focus"
    p.page.select_option("#chain-class", "3")
    p.await_text(".chain h2", "“football” after “plays”")
    p.page.select_option("#chain-token", label="evening, common")
    p.await_text(".chain h2", "How “evening” counts for “football”")
    return p


def probability(logits, token):
    return float(np.exp(logits[token] - logits.max()) / np.exp(logits - logits.max()).sum())


def check_chance(text, p):
    """A percentage, with as many figures as tell it from 0% and from 100%."""
    number, rest = float(text.rstrip("%")) / 100, min(p, 1 - p)
    assert abs(number - p) <= max(0.005 if 0.1 <= p <= 0.9 else 0.1 * rest, 1e-9), (text, p)
    assert (0 < number < 1) == (1e-8 < p < 1 - 1e-8), (text, p)


ALPHA = """async ([k, step]) => {
  const { chainOf } = modules['views/panels/chain'], { app, on } = modules.app;
  const { askTable } = modules['compute/runner'];
  const table = await new Promise((done) => { on("table", done); askTable(256, step); });
  return chainOf(app.film, table, k, app.film.run.layout.tokens[k][0]).votes.alpha; }"""


def test_a_click_on_a_bar_shows_the_chain_of_simulate(show):
    p = choose_evening_for_football(show)
    for step in (60, 5):
        p.seek(step)
        p.wait(f"document.querySelector('#chain-step').dataset.value === '{step}'")
        data, classes = simulated(step)
        n, token, next_token = 3, classes.words.index("evening"), classes.next_token[3]
        c, y = data.attention.values[n].astype(float), data.y.values.astype(float)
        votes = (c / np.linalg.norm(c))[:, None] * y  # (M, M): of each context token for each next token
        expected = {
            "p": classes.p_context[n, token], "c": c[token], "vote": votes[token, next_token],
            "z": data.z.values[classes.queries.tolist().index(classes.query[n]), token],
            "alpha": probability(votes.sum(0), next_token),
        }  # fmt: skip
        values = {name: float(p.page.get_attribute(f"#chain-{name}", "data-value")) for name in expected}
        assert values == pytest.approx(expected, rel=1e-5)
        total = p.get("modules['draw/format'].short(argument)", float(votes.sum(0)[next_token]))
        assert f"out of {total} that" in p.text("#chain-vote")
        without = re.findall(r"it would be ([\d.]+%)", p.text("#chain-alpha"))[0]
        check_chance(without, probability(votes.sum(0) - votes[token], next_token))
        losses = [-np.log(p.page.evaluate(ALPHA, [k, step])) for k in range(6)]
        # of a probability near 1 single precision leaves 2⁻²³
        assert np.mean(losses) == pytest.approx(float(data.loss), rel=1e-5, abs=2**-23), "together they are the loss"


def test_the_chain_is_in_the_link_and_follows_the_run(show):
    p = choose_evening_for_football(show)
    p.wait("location.hash.includes('bar=3:8')")
    show(p.page.evaluate("location.hash"))
    p.await_text(".chain h2", "How “evening” counts for “football”")
    p.page.select_option("#c-classes", "syn-small")  # other tokens: another bar
    p.await_text(".chain h2", "counts for “33” after “31”")
    p.page.select_option("#c-norm", "layernorm")
    p.await_text("#panel-chain .without", "norm l2 or none")
