"""The presets tell the truth: what their words say is counted in the runs they start."""

import re
from functools import cache

import numpy as np
import pytest
from films import Film

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


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p["name"])
def test_no_number_stands_untested(preset):
    """A number added to the words has to be added to a test below as well."""
    assert re.findall(r"\d+(?:\.\d+)?", preset["commentary"]) == NUMBERS[preset["name"]]
    assert preset["question"].endswith("?")


def test_six_classes_in_words():
    assert BY_NAME["words"]["setup"] == DEFAULT
    film = run("words")
    classes, words = film.classes, film.classes.words
    assert words is not None
    assert np.bincount(classes.query)[classes.queries].tolist() == [2, 2, 2]
    first, the = film.at("attention", 0), words.index("the")
    np.testing.assert_allclose(first, classes.p_context, rtol=1e-6)
    assert sum(c[the] >= c.max() * (1 - 1e-6) for c in first) == 5, "“the” is ahead or level in five of six"
    for n, (frequent, leading, c) in enumerate(leaders("words", 1000)):
        assert frequent == leading
        assert c == film.at("attention", 1000)[n].max(), "ahead of the shared words too"
    assert common_share("words", 0) == said("0.64")
    assert common_share("words", 1000) == said("0.32")


def test_scan_and_snap():
    film = run("figure-4")
    assert len(film.classes.common) == 10
    assert [len(film.classes.distinct(n)) for n in range(2)] == [10, 10]
    assert common_share("figure-4", 0) == said("0.65")
    assert common_share("figure-4", 50) == said("0.39")
    assert [before for _, _, before in leaders("figure-4", 0)] == [said("0.06")] * 2
    assert all(frequent == leading for frequent, leading, _ in leaders("figure-4", 50))
    assert sorted(after for _, _, after in leaders("figure-4", 50)) == [said("0.18"), said("0.19")]
    later = film.rows["attention"][film.steps >= 50]
    assert np.abs(later - later[0]).max() <= 0.01


def test_a_faster_decoder():
    fast, slow = BY_NAME["fast-decoder"]["setup"], BY_NAME["figure-4"]["setup"]
    assert fast == {**slow, "eta_y": 10 * slow["eta_y"]}
    film = run("fast-decoder")
    assert film.at("loss", 5) < 0.001
    assert common_share("fast-decoder", 0) == said("0.65")
    assert common_share("fast-decoder", 5) == said("0.62")
    assert common_share("fast-decoder", 1000) == said("0.56")
    assert common_share("figure-4", 1000) == said("0.38")
    assert film.entropy(1000) > run("figure-4").entropy(1000) + 0.1, "attention stays broad"


def test_adam():
    film = run("adam")
    assert common_share("adam", 0) == said("0.65")
    assert common_share("adam", 500) == said("0.35")
    for n, (frequent, leading, _) in enumerate(leaders("adam", 500)):
        own, p = film.classes.distinct(n), film.classes.p_context[n]
        last, second = film.at("z", 500)[n, own], film.at("z", 2)[n, own]
        assert last.argmax() == p[own].argmin(), "the rarest gains most"
        assert np.abs(second) == pytest.approx(np.abs(second).mean(), rel=0.01), "one step is the same size for all"
        assert frequent != leading


def test_three_queries():
    classes = run("medium-3").classes
    assert [list(classes.queries).index(m) for m in classes.query] == [0, 0, 1, 1, 2, 2]
    assert all(set(classes.common) <= set(classes.support(n)[0]) for n in range(6))
    assert common_share("medium-3", 0) == said("0.65")
    assert common_share("medium-3", 50) == said("0.27")
    assert sum(frequent == leading for frequent, leading, _ in leaders("medium-3", 2000)) == 4


def test_ten_queries():
    classes = run("medium-10").classes
    assert (classes.n_classes, len(classes.queries)) == (20, 10)
    assert common_share("medium-10", 0) == said("0.65")
    assert common_share("medium-10", 10) == said("0.64")
    assert common_share("medium-10", 50) == said("0.30")
    assert common_share("medium-3", 10) < common_share("medium-10", 10) - 0.05, "it starts later"


def test_what_the_theorems_assume():
    film, setup = run("textbook"), BY_NAME["textbook"]["setup"]
    assert (len(film.classes.common), len(film.classes.queries)) == (1, 1)
    assumptions = check_assumptions(film.classes, eta_y=setup["eta_y"], eta_z=setup["eta_z"], context=np.inf)
    assert assumptions
    assert all(one.met for one in assumptions)
    assert 0 < np.abs(film.rows["z"][-1]).max() <= 0.01


def test_word_like_frequencies():
    film = run("zipf")
    classes, common = film.classes, film.classes.common
    assert classes.n_classes == 5
    assert classes.p_context[:, common].sum(1) == pytest.approx([0.5] * 5)
    orders = {tuple(np.argsort(p[common], kind="stable")) for p in classes.p_context}
    assert len(orders) == 5, "each class in another order"
    rise = [(before[2], after[2]) for before, after in zip(leaders("zipf", 0), leaders("zipf", 3000), strict=True)]
    assert [first for first, _ in rise] == pytest.approx([0.11] * 5, abs=0.005)
    assert min(last for _, last in rise) == said("0.17")
    assert max(last for _, last in rise) == said("0.25")
    for step in (0, 10, 100, 1000, 3000):
        assert all(frequent == leading for frequent, leading, _ in leaders("zipf", step)), "it stays in front"
    assert common_share("zipf", 3000) == pytest.approx(0.5, abs=0.03)
