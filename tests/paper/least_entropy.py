"""Figure 6 without the finer grid of ratios and the flows of its right panel, for tests of other things."""

import numpy as np
import pandas as pd

from scansnap.paper.figures.fig6 import FREE


def any_least_entropy():
    """A table as of ``fig6.least_entropy``, of two sizes and made-up numbers."""
    index = pd.MultiIndex.from_tuples([(1, 2, 0.5), (3, 6, 0.5)], names=FREE)
    return pd.DataFrame(np.random.default_rng(0).uniform(1, 2, (2, 4)), index, [0, 1, 2, "equation"])
