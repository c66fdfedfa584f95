"""What a query word attends to, and what each of those words votes for."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from scansnap.plots.style import DISTINCT, styled
from scansnap.text.explanation import Explanation

MOST_COLUMNS = 14


def compute(explanation: Explanation) -> tuple[list[str], np.ndarray]:
    """The next words that get votes, and the votes (word, next); 0 where a word is not among another's votes."""
    totals: dict[str, float] = {}
    for row in explanation.attended:
        for word, vote in row.votes:
            totals[word] = totals.get(word, 0.0) + max(vote, 0.0)
    columns = sorted(totals, key=lambda word: -totals[word])[:MOST_COLUMNS]
    table = np.zeros((len(explanation.attended), len(columns)))
    for i, row in enumerate(explanation.attended):
        for word, vote in row.votes:
            if word in columns:
                table[i, columns.index(word)] = vote
    return columns, table


def draw(explanation: Explanation) -> Figure:
    """Bars of z (without a context) or attention (with one), and the votes beside them."""
    columns, table = compute(explanation)
    words = [row.word for row in explanation.attended]
    values = [row.z if explanation.context is None else row.attention for row in explanation.attended]
    with styled(9.0, 1.2 + 0.28 * len(words)) as figure:
        bars, votes = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.6))
        bars.barh(range(len(words)), values, color=DISTINCT)
        bars.set_yticks(range(len(words)), words, parse_math=False)  # "$" is a word
        bars.invert_yaxis()
        bars.set_xlabel("attention logit  z" if explanation.context is None else "attention  c")
        bars.set_title(f"“{explanation.query}” attends to", parse_math=False)
        image = votes.imshow(table, aspect="auto", cmap="Blues", vmin=0, interpolation="none")
        votes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", parse_math=False)
        votes.set_title("and they vote for")
        votes.spines[:].set_visible(False)
        figure.colorbar(image, ax=votes, label="vote  Y", pad=0.01)
    return figure
