"""The figure of an explanation: the votes in it, and words that are no mathematics."""

from scansnap.plots import explanation
from scansnap.plots.style import render
from scansnap.text.explanation import AttendedWord, Explanation

FOUND = Explanation(
    query="$_$", context=None,
    attended=(AttendedWord("$^$", 1.0, 2.0, 0.6, (("a", 3.0), ("b", 1.0))),
              AttendedWord("it", 1.0, 1.0, 0.4, (("b", 2.5),))),
    own=(), predicted=(("a", 0.9),), entropy=0.6, uniform_entropy=0.7, exact=True,
)  # fmt: skip


def test_columns_are_ordered_by_their_votes():
    columns, table = explanation.compute(FOUND)
    assert columns == ["b", "a"]
    assert table.tolist() == [[1.0, 3.0], [2.5, 0.0]]


def test_dollar_signs_are_words():
    figure = explanation.draw(FOUND)
    render(figure, "svg")
    bars = figure.axes[0]
    assert [label.get_text() for label in bars.get_yticklabels()] == ["$^$", "it"]
    assert bars.get_title() == "“$_$” attends to"
