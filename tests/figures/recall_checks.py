"""What the tests of Figures 11 and 12 share: the findings by another route, on plain dictionaries."""

import numpy as np


def flatter(table, along, across, better, value="recall"):
    """Panels where the fall of recall is smaller at the end ``better`` of ``along`` by more than 2 standard errors."""
    recall = {}
    for row in table.itertuples(index=False):
        key = (row.n_query, getattr(row, across), getattr(row, along), row.seed)
        recall.setdefault(key, []).append((row.threshold, getattr(row, value)))
    falls = {key: max(points)[1] - min(points)[1] for key, points in recall.items()}  # negative: last minus first
    seeds = sorted({key[3] for key in falls})
    low, high = min(table[along]), max(table[along])
    worse = high if better == low else low
    panels = {key[:2] for key in falls}
    agree = 0
    for panel in panels:
        difference = [falls[(*panel, better, seed)] - falls[(*panel, worse, seed)] for seed in seeds]
        agree += np.mean(difference) > 2 * np.std(difference, ddof=1) / np.sqrt(len(seeds))
    return agree, len(panels)


def mirrored(table, column):
    """The same runs with the values of a column in reverse order."""
    values = sorted(table[column].unique())
    return table.assign(**{column: table[column].map(dict(zip(values, reversed(values), strict=True)))})
