"""Titles and labels held for the files after the first are where they would have been."""

import ast
import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import scansnap as ss
from scansnap.plots.style import fix_labels, render, separated, settle, styled


def drawn() -> Figure:
    """Labels of every side, a title above ticks, and one of more lines."""
    with styled(5.0, 3.0) as figure:
        left, right = figure.subplots(1, 2)
        left.plot([1e-3, 1e5], [0, 1])
        left.set(xlabel="time $t/t_0$", ylabel="two\nlines", title="One", xscale="log")
        right.imshow(np.eye(3))
        right.xaxis.tick_top()
        right.yaxis.set_label_position("right")
        right.set(xlabel="below", ylabel="beside", title="Two")
    settle(figure)
    return figure


def places(figure: Figure) -> np.ndarray:
    """Of titles and labels, in points; after a PNG, whose pixels are the figure's own."""
    texts = [text for ax in figure.axes for text in (ax.title, ax.xaxis.label, ax.yaxis.label)]
    return np.array([text.get_transform().transform(text.get_position()) for text in texts]) * 72 / figure.dpi


@pytest.mark.parametrize("kind", ["pdf", "svg"])
def test_they_stay(kind: str) -> None:
    free, held = drawn(), drawn()
    for figure in (free, held):
        render(figure, "png")
    fix_labels(held)
    first = places(held)
    np.testing.assert_allclose(first, places(free), atol=1e-6)
    render(held, kind)
    np.testing.assert_allclose(places(held), first, atol=1e-6)
    render(held, "png")
    np.testing.assert_allclose(places(held), first, atol=1e-6)


def test_only_where_they_were_held() -> None:
    """A layout that changes afterwards takes those along that were not."""
    free, held = drawn(), drawn()
    for figure in (free, held):
        render(figure, "png")
    fix_labels(held)
    before = places(free)
    for figure in (free, held):
        figure.axes[0].tick_params("x", labelsize=30)
        render(figure, "png")
    assert abs(places(free) - before).max() > 5
    np.testing.assert_allclose(places(held), before, atol=1e-6)


def test_labels_are_separated_in_their_order_around_their_values() -> None:
    values = [0.0, 0.01, 0.02, 5.0]
    places = separated(values, 0.5)
    assert all(b - a >= 0.5 - 1e-12 for a, b in itertools.pairwise(places))
    assert sum(places) == pytest.approx(sum(values))


def test_every_legend_names_its_place() -> None:
    """Otherwise matplotlib warns where the search for one takes more than a second, as on a busy machine."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(ss.__file__).parent.rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    legends = [call for call in calls if getattr(call.func, "attr", "") == "legend"]
    assert len(legends) > 10
    assert [ast.unparse(call) for call in legends if "loc" not in {word.arg for word in call.keywords}] == []
