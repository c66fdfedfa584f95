"""Does attention move from common to distinct tokens?

    scan index(t) = mean over sequences of  d(t) − d(first)

d is the mean distinctness (0 to 1) of the tokens that a head attends to in a sequence. A head scans if its index passes
two tests, each corrected for the number of heads (Bonferroni), so that a model without scanning heads shows one with
probability of about ``LEVEL``. First, a t-interval over sequences lies above ``LEAST``. Second, the index is beyond
``scan_chance``, its spread under permuted distinctness: attention that leaves a few frequent tokens for any other
reason has an index too, the same in all sequences.
"""

from __future__ import annotations

import warnings

import numpy as np
import xarray as xr
from scipy.stats import norm

from scansnap.checks.arrays import FloatArray
from scansnap.measure.comparison import LEVEL, t_half_width
from scansnap.probe.corpus import ITSELF

LEAST = 0.05  # five percentile points of rarity; a smaller shift is no scanning that a reader would notice


def scan_findings(data: xr.Dataset, least: float = LEAST) -> xr.Dataset:
    """``scan_index`` (step, layer, head), its interval, and ``scans``: 1, 0 or NaN (undecided).

    ``least`` is the smallest index that counts.
    """
    d = data["distinctness"].transpose("sequence", "step", "layer", "head")
    change = (d - d.isel(step=0)).values
    n_heads = max(int(np.isfinite(change[:, -1]).any(0).sum()), 1) if change.shape[1] else 1
    index, low, high = t_interval(change, LEVEL / n_heads)
    chance = data["scan_chance"].transpose("step", "layer", "head").values
    beyond = index > norm.isf(LEVEL / (2 * n_heads)) * chance  # False if chance is unknown
    scans = np.where((low > least) & beyond, 1.0, np.where(high < least, 0.0, np.nan))
    scans = np.full(index.shape[1:], np.nan) if why_scanning_is_unknown(data) else scans[-1]
    at_each = ("step", "layer", "head")
    return xr.Dataset(
        {
            "scan_index": (at_each, index, {"long_name": "change of the mean distinctness of the tokens attended to"}),
            "scan_low": (at_each, low, {"long_name": f"lower end of its 95 % interval, adjusted for {n_heads} heads"}),
            "scan_high": (at_each, high, {"long_name": "upper end of it"}),
            "scans": (("layer", "head"), scans, {"long_name": "1: scans, 0: does not, NaN: undecided"}),
        }
    )


def why_scanning_is_unknown(data: xr.Dataset) -> str:
    """Why scanning cannot be judged; empty if it can."""
    if data.sizes.get("step", 0) < 2:
        return "a single measurement"
    n = data.sizes.get("sequence", 0)
    if n < 2:
        return "a single sequence" if n else "no token ids"
    return "no corpus" if data.attrs.get("corpus", ITSELF) == ITSELF else ""


def t_interval(values: FloatArray, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean over the first axis and its two-sided t-interval, without NaN.

    The interval is infinite without a spread (one value, or equal ones from copies of a sequence), unless all are 0.
    """
    known = np.isfinite(values)
    n = known.sum(0)
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # empty slices are NaN
        mean, spread = np.nanmean(values, 0), np.nanstd(values, 0, ddof=1)
        width = t_half_width(spread, n, level)
    most = np.where(known, np.abs(values), 0.0).max(0, initial=0.0)
    rounding = 1e-6 * most  # distinctness is float32
    width = np.where((n > 1) & (spread > rounding), width, np.where((n > 1) & (most == 0), 0.0, np.inf))
    return mean, np.where(n > 0, mean - width, np.nan), np.where(n > 0, mean + width, np.nan)
