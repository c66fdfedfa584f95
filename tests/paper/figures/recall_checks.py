"""What the tests of Figures 11 and 12 share: the findings by another route, on plain dictionaries."""

import numpy as np
from scipy.stats import ttest_1samp


def flatter(table, along, across, better, value="recall"):
    """Panels where the fall of recall is smaller at the end ``better`` of ``along``, undecided ones, and all.

    By SciPy's t test with Holm's correction.
    """
    recall = {}
    for row in table.itertuples(index=False):
        key = (row.n_query, getattr(row, across), getattr(row, along), row.seed)
        recall.setdefault(key, []).append((row.threshold, getattr(row, value)))
    falls = {key: max(points)[1] - min(points)[1] for key, points in recall.items()}  # negative: last minus first
    seeds = sorted({key[3] for key in falls})
    low, high = min(table[along]), max(table[along])
    worse = high if better == low else low
    panels = {key[:2] for key in falls}
    found = []
    for panel in panels:
        difference = [falls[(*panel, better, seed)] - falls[(*panel, worse, seed)] for seed in seeds]
        if len(set(difference)) == 1:  # no spread: the signs decide, if there are enough of them
            found.append((min(1.0, 2.0 ** (1 - len(seeds))) if difference[0] else 1.0, np.sign(difference[0])))
        else:
            found.append((ttest_1samp(difference, 0).pvalue, np.sign(np.mean(difference))))
    found.sort()
    decided = next((i for i, (p, _) in enumerate(found) if p > 0.05 / (len(found) - i)), len(found))
    return sum(sign > 0 for _, sign in found[:decided]), len(found) - decided, len(found)


def mirrored(table, column):
    """The same runs with the values of a column in reverse order."""
    values = sorted(table[column].unique())
    return table.assign(**{column: table[column].map(dict(zip(values, reversed(values), strict=True)))})
