"""The presets tell the truth: what their words say is counted in the runs they start."""

import re
from functools import cache

import numpy as np
import pytest
from films import Film, hold

from scansnap.claims.assumptions import check_assumptions
from scansnap.explorer.presets import DEFAULT, PRESETS

BY_NAME = {preset["name"]: preset for preset in PRESETS}
NUMBERS = {"words": ["64", "32"], "figure-4": ["65", "39", "6", "18", "19", "950"],
           "fast-decoder": ["0.001", "62", "65", "56", "38"], "adam": ["65", "35"], "medium-3": ["65", "27"],
           "medium-10": ["6", "64", "65", "30"], "textbook": ["0.01"], "zipf": ["11", "17", "25"]}  # fmt: skip


@cache
def run(name):
    return Film(BY_NAME[name]["setup"], extra=(100, 1000))


def leaders(name, step):
    """Per class: its most frequent distinct token, the distinct token that leads, and the attention of the first."""
    film = run(name)
    out = []
    for n in range(film.classes.n_classes):
        own, p = film.classes.distinct(n), film.classes.p_context[n]
        c = film.distinct(step, n)
        frequent = int(np.argmax(p[own]))
        out.append((int(own[frequent]), int(own[np.argmax(c)]), float(c[frequent])))
    return out


def common_share(name, step):
    return run(name).common(step)


def said(number):
    """A value that rounds to the number as it is written."""
    return pytest.approx(float(number), abs=0.5 * 10.0 ** -len(number.partition(".")[2]))


def shares_are(name, **shares):
    """The share of attention on common tokens, as written, by step."""
    return {step: common_share(name, int(step[1:])) for step in shares} == {s: said(v) for s, v in shares.items()}


def words():
    film = run("words")
    classes, first, last = film.classes, film.at("attention", 0), film.at("attention", 1000)
    the = classes.words.index("the")
    yield from (BY_NAME["words"]["setup"] == DEFAULT,
                np.bincount(classes.query)[classes.queries].tolist() == [2, 2, 2],
                first == pytest.approx(classes.p_context, rel=1e-6), shares_are("words", _0="0.64", _1000="0.32"),
                sum(c[the] >= c.max() * (1 - 1e-6) for c in first) == 5)  # fmt: skip
    for n, (frequent, leading, c) in enumerate(leaders("words", 1000)):
        yield frequent == leading
        yield c == last[n].max()  # ahead of the shared words too


def figure_4():
    film = run("figure-4")
    start, end = leaders("figure-4", 0), leaders("figure-4", 50)
    later = film.rows["attention"][film.steps >= 50]
    yield from (len(film.classes.common) == 10, [len(film.classes.distinct(n)) for n in range(2)] == [10, 10],
                shares_are("figure-4", _0="0.65", _50="0.39"), [c for *_, c in start] == [said("0.06")] * 2,
                all(frequent == leading for frequent, leading, _ in end),
                sorted(c for *_, c in end) == [said("0.18"), said("0.19")],
                np.abs(later - later[0]).max() <= 0.01)  # fmt: skip


def fast_decoder():
    film, (fast, slow) = run("fast-decoder"), (BY_NAME[name]["setup"] for name in ("fast-decoder", "figure-4"))
    yield from (fast == {**slow, "eta_y": 10 * slow["eta_y"]}, film.at("loss", 5) < 0.001,
                shares_are("fast-decoder", _0="0.65", _5="0.62", _1000="0.56"), shares_are("figure-4", _1000="0.38"),
                film.entropy(1000) > run("figure-4").entropy(1000) + 0.1)  # fmt: skip


def adam():
    film = run("adam")
    yield shares_are("adam", _0="0.65", _500="0.35")
    for n, (frequent, leading, _) in enumerate(leaders("adam", 500)):
        own, p = film.classes.distinct(n), film.classes.p_context[n]
        last, second = film.at("z", 500)[n, own], np.abs(film.at("z", 2)[n, own])
        yield from (last.argmax() == p[own].argmin(), second == pytest.approx(second.mean(), rel=0.01),
                    frequent != leading)  # fmt: skip


def medium_3():
    classes = run("medium-3").classes
    yield from ([list(classes.queries).index(m) for m in classes.query] == [0, 0, 1, 1, 2, 2],
                all(set(classes.common) <= set(classes.support(n)[0]) for n in range(6)),
                shares_are("medium-3", _0="0.65", _50="0.27"),
                sum(frequent == leading for frequent, leading, _ in leaders("medium-3", 2000)) == 4)  # fmt: skip


def medium_10():
    classes = run("medium-10").classes
    yield from ((classes.n_classes, len(classes.queries)) == (20, 10),
                shares_are("medium-10", _0="0.65", _10="0.64", _50="0.30"),
                common_share("medium-3", 10) < common_share("medium-10", 10) - 0.05)  # fmt: skip


def textbook():
    film, setup = run("textbook"), BY_NAME["textbook"]["setup"]
    assumptions = check_assumptions(film.classes, eta_y=setup["eta_y"], eta_z=setup["eta_z"], context=np.inf)
    yield from ((len(film.classes.common), len(film.classes.queries)) == (1, 1), len(assumptions) > 0,
                all(a.met for a in assumptions), 0 < np.abs(film.rows["z"][-1]).max() <= 0.01)  # fmt: skip


def zipf():
    classes = run("zipf").classes
    start, end = ([c for *_, c in leaders("zipf", step)] for step in (0, 3000))
    orders = {tuple(np.argsort(p[classes.common], kind="stable")) for p in classes.p_context}
    yield from (classes.n_classes == len(orders) == 5, start == pytest.approx([0.11] * 5, abs=0.005),
                classes.p_context[:, classes.common].sum(1) == pytest.approx([0.5] * 5),
                min(end) == said("0.17"), max(end) == said("0.25"),
                common_share("zipf", 3000) == pytest.approx(0.5, abs=0.03))  # fmt: skip
    for step in (0, 10, 100, 1000, 3000):
        yield all(frequent == leading for frequent, leading, _ in leaders("zipf", step))


FACTS = [words, figure_4, fast_decoder, adam, medium_3, medium_10, textbook, zipf]
assert [facts.__name__.replace("_", "-") for facts in FACTS] == list(BY_NAME)


@pytest.mark.parametrize("facts", FACTS, ids=lambda facts: facts.__name__)
def test_what_a_preset_says_is_counted_in_its_run(facts):
    """A number added to the words has to be added to the facts as well."""
    preset = BY_NAME[facts.__name__.replace("_", "-")]
    assert re.findall(r"\d+(?:\.\d+)?", preset["commentary"]) == NUMBERS[preset["name"]]
    assert preset["question"].endswith("?")
    hold(preset["commentary"], facts())
