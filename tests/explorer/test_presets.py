"""The presets tell the truth: what their words say is counted in the runs they start."""

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from scansnap.explorer.live.run import LiveRun
from scansnap.explorer.pages.predict import theory
from scansnap.explorer.setups.presets import DEFAULT, PRESETS
from scansnap.explorer.setups.read import read_setup

BY_NAME = {preset["name"]: preset for preset in PRESETS}
NUMBERS = {"words": ["0.64", "0.32"], "figure-4": ["0.65", "0.39", "0.06", "0.18", "0.19", "0.01", "950"],
           "fast-decoder": ["0.001", "0.62", "0.65", "0.56", "0.38"], "adam": ["0.65", "0.35"],
           "medium-3": ["0.65", "0.27"], "medium-10": ["6", "0.64", "0.65", "0.30"], "textbook": ["0.01"],
           "zipf": ["0.11", "0.17", "0.25"]}  # fmt: skip


@cache
def run(name: str) -> tuple[LiveRun, np.ndarray, dict[str, np.ndarray]]:
    """The run of a preset, its steps, and its quantities by name."""
    live = LiveRun(read_setup(BY_NAME[name]["setup"]))
    while not live.over:
        live.advance(10**9)
    steps, rows = live.film.after(-1)
    return live, steps, {f["name"]: rows[:, f["offset"] : f["offset"] + f["size"]] for f in live.layout()["fields"]}


def row(name: str, step: int) -> int:
    """The frame of a step that is in the film."""
    steps = run(name)[1]
    found = int(np.searchsorted(steps, step))
    assert steps[found] == step
    return found


def attention(name: str, n: int) -> np.ndarray:
    """(frames, tokens) of class n, in the order of its support."""
    live, _, seen = run(name)
    sizes = live.blueprint.layout.n_slots
    first = int(sizes[:n].sum())
    return seen["attention"][:, first : first + sizes[n]]


def common_share(name: str, step: int) -> float:
    """The part of the attention on tokens of several classes, mean over classes."""
    live, i = run(name)[0], row(name, step)
    shares = [attention(name, n)[i, np.isin(live.classes.support(n)[0], live.classes.common)].sum()
              for n in range(live.classes.n_classes)]  # fmt: skip
    return float(np.mean(shares))


def leaders(name: str, step: int) -> list[tuple[int, int, float]]:
    """Per class: its most frequent distinct token, the distinct token that leads, and the attention of the first."""
    live, i = run(name)[0], row(name, step)
    out = []
    for n in range(live.classes.n_classes):
        tokens, p = live.classes.support(n)
        own = np.flatnonzero(~np.isin(tokens, live.classes.common))
        c = attention(name, n)[i]
        frequent, leading = own[np.argmax(p[own])], own[np.argmax(c[own])]
        out.append((int(tokens[frequent]), int(tokens[leading]), float(c[frequent])))
    return out


def said(number: str) -> Any:
    """A value that rounds to the number as it is written."""
    return pytest.approx(float(number), abs=0.5 * 10.0 ** -len(number.partition(".")[2]))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p["name"])
def test_no_number_stands_untested(preset: dict[str, Any]) -> None:
    """A number added to the words has to be added to a test below as well."""
    assert re.findall(r"\d+(?:\.\d+)?", preset["commentary"]) == NUMBERS[preset["name"]]
    assert preset["question"].endswith("?")


def test_six_classes_in_words() -> None:
    assert BY_NAME["words"]["setup"] == DEFAULT
    live = run("words")[0]
    words = live.classes.words
    assert words is not None
    assert len(live.classes.queries) == 3
    assert np.bincount(live.classes.query)[live.classes.queries].tolist() == [2, 2, 2]
    for n in range(6):
        np.testing.assert_allclose(attention("words", n)[0], live.classes.support(n)[1], rtol=1e-6)
    first = [attention("words", n)[0] for n in range(6)]
    the = words.index("the")
    ahead = [c[live.classes.support(n)[0].tolist().index(the)] >= c.max() * (1 - 1e-6) for n, c in enumerate(first)]
    assert sum(ahead) == 5, "“the” is ahead or level in five of six"
    for n, (frequent, leading, c) in enumerate(leaders("words", 1000)):
        assert frequent == leading
        assert c == attention("words", n)[-1].max(), "ahead of the shared words too"
    assert common_share("words", 0) == said("0.64")
    assert common_share("words", 1000) == said("0.32")


def test_scan_and_snap() -> None:
    live = run("figure-4")[0]
    assert len(live.classes.common) == 10
    assert [len(live.classes.distinct(n)) for n in range(2)] == [10, 10]
    assert common_share("figure-4", 0) == said("0.65")
    assert common_share("figure-4", 50) == said("0.39")
    assert [before for _, _, before in leaders("figure-4", 0)] == [said("0.06")] * 2
    assert all(frequent == leading for frequent, leading, _ in leaders("figure-4", 50))
    assert sorted(after for _, _, after in leaders("figure-4", 50)) == [said("0.18"), said("0.19")]
    for n in range(2):
        later = attention("figure-4", n)[row("figure-4", 50) :]
        assert np.abs(later - later[0]).max() <= 0.01


def test_a_faster_decoder() -> None:
    fast, slow = BY_NAME["fast-decoder"]["setup"], BY_NAME["figure-4"]["setup"]
    assert fast == {**slow, "eta_y": 10 * slow["eta_y"]}
    seen = run("fast-decoder")[2]
    assert seen["loss"][row("fast-decoder", 5)] < 0.001
    assert common_share("fast-decoder", 0) == said("0.65")
    assert common_share("fast-decoder", 5) == said("0.62")
    assert common_share("fast-decoder", 1000) == said("0.56")
    assert common_share("figure-4", 1000) == said("0.38")
    assert seen["entropy"][-1].mean() > run("figure-4")[2]["entropy"][-1].mean() + 0.1, "attention stays broad"


def test_adam() -> None:
    live, _, seen = run("adam")
    assert common_share("adam", 0) == said("0.65")
    assert common_share("adam", 500) == said("0.35")
    z = seen["z"].reshape(len(seen["z"]), 2, -1)
    for n, (frequent, leading, _) in enumerate(leaders("adam", 500)):
        tokens, p = live.classes.support(n)
        own = ~np.isin(tokens, live.classes.common)
        assert z[-1, n, own].argmax() == p[own].argmin(), "the rarest gains most"
        assert z[1, n, own] == pytest.approx(z[1, n, own].mean(), rel=0.01), "one step is the same size for all"
        assert frequent != leading


def test_three_queries() -> None:
    live = run("medium-3")[0]
    assert live.blueprint.layout.class_query.tolist() == [0, 0, 1, 1, 2, 2]
    assert all(set(live.classes.common) <= set(live.classes.support(n)[0]) for n in range(6))
    assert common_share("medium-3", 0) == said("0.65")
    assert common_share("medium-3", 50) == said("0.27")
    assert sum(frequent == leading for frequent, leading, _ in leaders("medium-3", 2000)) == 4


def test_ten_queries() -> None:
    live = run("medium-10")[0]
    assert (live.classes.n_classes, len(live.classes.queries)) == (20, 10)
    assert common_share("medium-10", 0) == said("0.65")
    assert common_share("medium-10", 10) == said("0.64")
    assert common_share("medium-10", 50) == said("0.30")
    assert common_share("medium-3", 10) < common_share("medium-10", 10) - 0.05, "it starts later"


def test_what_the_theorems_assume() -> None:
    live, _, seen = run("textbook")
    assert (len(live.classes.common), len(live.classes.queries)) == (1, 1)
    told = theory(live.blueprint)
    assert told["applies"]
    assert told["assumptions"]
    assert all(one["met"] for one in told["assumptions"])
    assert 0 < np.abs(seen["z"][-1]).max() <= 0.01


def test_word_like_frequencies() -> None:
    live = run("zipf")[0]
    assert live.classes.n_classes == 5
    shared = [live.classes.support(n)[1][np.isin(live.classes.support(n)[0], live.classes.common)] for n in range(5)]
    assert [p.sum() for p in shared] == pytest.approx([0.5] * 5)
    assert len({tuple(np.argsort(p, kind="stable")) for p in shared}) == 5, "each class in another order"
    rise = [(before[2], after[2]) for before, after in zip(leaders("zipf", 0), leaders("zipf", 3000), strict=True)]
    assert [first for first, _ in rise] == pytest.approx([0.11] * 5, abs=0.005)
    assert min(last for _, last in rise) == said("0.17")
    assert max(last for _, last in rise) == said("0.25")
    for step in (0, 10, 100, 1000, 3000):
        steps = run("zipf")[1]
        nearest = int(steps[np.searchsorted(steps, step)])
        assert all(frequent == leading for frequent, leading, _ in leaders("zipf", nearest)), "it stays in front"
    assert common_share("zipf", 3000) == pytest.approx(0.5, abs=0.03)
