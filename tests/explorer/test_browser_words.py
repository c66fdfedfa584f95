"""The explorer in chromium: the first question, one's own words, and the chain from a bar to a probability."""

# ruff: noqa: F401, F811 (fixtures come by their name)
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from browser import Page, browser, explorer, require_browser

import scansnap as ss
from scansnap.explorer.presets import PRESETS
from scansnap.explorer.setups.read import read_setup

pytestmark = pytest.mark.integration

require_browser()

WORDS = "#classes=words&eta_y=2&steps=60&flow=off"


@pytest.fixture(scope="module")
def page(explorer: Callable[..., Page]) -> Iterator[Page]:
    made = explorer("#level=theory")
    yield made
    made.check_quiet()
    made.context.close()


def test_the_first_page_asks_and_plays(page: Page) -> None:
    question = page.page.inner_text("#question").replace("\u2011", "-")
    assert question == PRESETS[0]["question"] == page.page.get_attribute("#question", "data-first")
    assert page.get("app.film.run.classes.words[10]") == "kitten"
    assert page.step() == 0
    page.page.click("#watch")
    page.page.wait_for_function("() => Number(document.querySelector('#clock b').textContent.replace(/\\D/g, '')) > 3")
    assert "Pause" in page.page.inner_text("#watch")
    page.page.click("#watch")
    assert "Watch" in page.page.inner_text("#watch")
    at = page.step()
    assert page.step() == at > 3
    page.page.click("#watch")  # from the beginning again
    page.page.wait_for_function(
        f"() => Number(document.querySelector('#clock b').textContent.replace(/\\D/g, '')) < {at}"
    )
    page.page.click("#watch")


PICTURE = "async () => (modules['views/stage/stage']).exportSvg()"


def test_bars_are_labelled_with_words(page: Page) -> None:
    page.open(WORDS)
    page.wait("app.state.state === 'done'")
    page.key("End")
    picture = page.page.evaluate(PICTURE)
    classes = page.get("app.film.run.classes")
    for one in classes["classes"]:
        for token in one["tokens"]:
            assert f'text-anchor="end">{classes["words"][str(token)]}</text>' in picture
    best = [text.partition("</text>")[0].rpartition(">")[2] for text in picture.split('font-weight="700"')[1:]]
    assert best == ["kitten", "office", "concert", "goal", "verse", "north"], "the word most looked at stands out"
    page.key("]")  # one class alone: there is room to write across
    page.step()
    alone = page.page.evaluate(PICTURE)
    assert "rotate(-90)" not in alone
    assert ">kitten</text>" in alone
    page.open("#classes=syn-small&steps=60&flow=off")
    assert "rotate(-90)" not in page.page.evaluate(PICTURE), "numbers are not"


def test_every_class_of_the_example_has_its_words(page: Page) -> None:
    page.open(WORDS)
    page.page.click("#own-words")
    page.page.click("#words-example")
    page.page.locator("#use-words:enabled").click()
    page.wait("app.film.run.setup.classes.text && app.state.state === 'done'")
    picture, classes = page.page.evaluate(PICTURE), page.get("app.film.run.classes")
    for one in classes["classes"]:  # of the one with the most words too
        for token in one["tokens"]:
            assert f">{classes['words'][str(token)]}</text>" in picture


def test_own_words_from_paste_to_link(page: Page) -> None:
    page.open(WORDS)
    page.page.click("#own-words")
    text, refusal, use = (page.page.locator(f"#{name}") for name in ("words-text", "words-refusal", "use-words"))
    for wrong, words in (("only a few words", "at least 20 words"), ("ab " * 8000, "at most 20000"),
                         (" ".join(f"w{i}" for i in range(30)), "no repeated pair")):  # fmt: skip
        text.fill(wrong)
        page.page.locator("#words-refusal", has_text=words).wait_for()
        assert use.is_disabled()
    page.page.click("#words-example")
    milk = page.page.locator("#pair-drinks-milk")
    milk.wait_for()
    refusal.wait_for(state="hidden")
    chosen = page.page.locator("#words-pairs [aria-pressed=true]")
    assert chosen.count() == 6
    assert page.page.locator("#pair-and-drinks").is_enabled()
    page.page.focus("#pair-reads-maps")
    page.key("Enter")
    page.page.locator("#pair-reads-maps[aria-pressed=false]").wait_for()
    assert page.page.evaluate("document.activeElement.id") == "pair-reads-maps"
    page.page.click("#pair-and-reads")
    page.page.locator("#pair-and-reads[aria-pressed=true]").wait_for()
    use.click()
    page.wait("app.film.run.setup.classes.text && app.state.state === 'done'")
    classes = page.get("app.film.run.classes")
    names = [(classes["words"][str(c["query"])], classes["words"][str(c["next_token"])]) for c in classes["classes"]]
    assert sorted(names) == sorted(
        [("drinks", "milk"), ("drinks", "coffee"), ("plays", "piano"), ("plays", "football"), ("reads", "poems"),
         ("and", "reads")]
    )  # fmt: skip
    page.page.click("#share")
    page.wait("location.hash.includes('kitten')")
    address, last = page.page.evaluate("location.hash"), page.get("[...app.film.frames.at(-1)].map(String)")
    page.open(address)
    page.wait("app.state.state === 'done' && app.film.lastStep === 60")
    assert page.get("[...app.film.frames.at(-1)].map(String)") == last
    assert page.get("app.film.run.classes") == classes
    page.page.click("#own-words")  # the text is there to go on with
    page.page.locator("#pair-and-reads[aria-pressed=true]").wait_for()
    assert text.input_value().startswith("The kitten sits by the bowl")
    page.key("Escape")


def test_a_link_that_programs_would_cut_is_refused_in_words(page: Page) -> None:
    before = page.page.evaluate("location.hash")
    page.get("app.catalogue.limits.address_characters = 20")
    page.page.click("#share")
    page.page.locator("#toast", has_text="beyond 20 mail and chat programs cut links").wait_for()
    assert page.page.evaluate("location.hash") == before
    page.get("app.catalogue.limits.address_characters = 8000")


def simulated(step: int) -> Any:
    setup = read_setup({"classes": {"preset": "words"}, "eta_y": 2.0, "steps": 60}).setup
    classes = ss.SequenceClasses.preset(setup.pop("classes")["preset"])
    names = ("y", "z", "attention", "loss")
    return ss.simulate(classes, record=[step], device="cpu", variables=names, **setup).isel(run=0, step=0), classes


def value(page: Page, name: str) -> float:
    return float(page.page.get_attribute(f"#chain-{name}", "data-value"))


def click_the_last_bar_of_class_0(page: Page) -> None:
    page.open(WORDS)
    page.wait("app.state.state === 'done' && app.film.lastStep === 60")
    page.key("End")
    box = page.page.locator("#attention").bounding_box()
    page.page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 0.2 * box["height"])
    page.page.wait_for_selector("#chain-alpha")


def choose_evening_for_football(page: Page) -> None:
    page.page.select_option("#chain-class", "3")
    page.page.locator(".chain h2", has_text="“football” after “plays”").wait_for()
    page.page.select_option("#chain-token", label="evening, common")
    page.page.locator(".chain h2", has_text="How “evening” counts for “football”").wait_for()


def test_a_click_on_a_bar_tells_the_chain_of_simulate(page: Page) -> None:
    click_the_last_bar_of_class_0(page)
    assert page.page.inner_text(".chain h2") == "How “kitten” counts for “milk” after “drinks”"
    assert page.get("app.focus") == -1, "and the class does not come into focus"
    choose_evening_for_football(page)
    for step in (60, 5):
        page.page.evaluate(SEEK, step)
        page.wait(f"document.querySelector('#chain-step').dataset.value === '{step}'")
        data, classes = simulated(step)
        n, token = 3, classes.words.index("evening")
        c, y = data.attention.values[n].astype(float), data.y.values.astype(float)
        votes = (c / np.linalg.norm(c))[:, None] * y  # (M, M): of each context token for each next token
        following = classes.next_token[n]
        expected = {
            "p": classes.p_context[n, token], "c": c[token], "vote": votes[token, following],
            "z": data.z.values[classes.queries.tolist().index(classes.query[n]), token],
            "alpha": probability(votes.sum(0), following),
        }  # fmt: skip
        for name, number in expected.items():
            assert value(page, name) == pytest.approx(number, rel=1e-5), name
        said = f"{page.page.inner_text('#chain-alpha')} {page.page.inner_text('#chain-vote')}"
        assert f"out of {written(votes.sum(0)[following])} that all tokens together give" in said
        without = re.findall(r"it would be ([\d.]+%)", said)[0]
        check_chance(without, probability(votes.sum(0) - votes[token], following))
        losses = [-np.log(page.page.evaluate(ALPHA, [k, step])) for k in range(6)]
        # of a probability near 1 single precision leaves 2⁻²³
        assert np.mean(losses) == pytest.approx(float(data.loss), rel=1e-5, abs=2**-23), "together they are the loss"


def probability(logits: np.ndarray, following: int) -> float:
    return float(np.exp(logits[following] - logits.max()) / np.exp(logits - logits.max()).sum())


def written(number: float) -> str:
    """As the page writes numbers: three figures."""
    if abs(number) < 1e-4:
        figures, exponent = f"{number:.1e}".split("e")
        return f"{figures}·10⁻{str(-int(exponent)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return f"{float(f'{number:.3g}'):g}".replace("-", "−")


def check_chance(said: str, p: float) -> None:
    """A percentage, with as many figures as tell it from 0% and from 100%."""
    number, rest = float(said.rstrip("%")) / 100, min(p, 1 - p)
    assert abs(number - p) <= max(0.005 if 0.1 <= p <= 0.9 else 0.1 * rest, 1e-9), (said, p)
    assert (0 < number < 1) == (1e-8 < p < 1 - 1e-8), (said, p)


SEEK = "async (step) => (modules['compute/runner']).seekStep(step)"
ALPHA = """async ([k, step]) => {
  const { chainOf } = modules['views/panels/chain'], { app, on } = modules['app'];
  const { askTable } = modules['compute/runner'];
  const table = await new Promise((done) => { on("table", done); askTable(256, step); });
  return chainOf(app.film, table, k, app.film.run.layout.tokens[k][0]).votes.alpha;
}"""


def test_the_chain_is_in_the_link_and_follows_the_run(page: Page) -> None:
    click_the_last_bar_of_class_0(page)
    choose_evening_for_football(page)
    page.page.wait_for_function("() => location.hash.includes('bar=3:8')")
    page.open(page.page.evaluate("location.hash"))
    page.page.locator(".chain h2", has_text="How “evening” counts for “football”").wait_for()
    page.page.select_option("#c-classes", "syn-small")  # other tokens: another bar
    page.page.locator(".chain h2", has_text="counts for “33” after “31”").wait_for()
    page.page.select_option("#c-norm", "layernorm")
    page.page.locator("#panel-chain .without", has_text="norm l2 or none").wait_for()
