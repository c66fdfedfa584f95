"""The curve that is followed: how far attention has gone from common to distinct tokens."""

from __future__ import annotations

import numpy as np
import xarray as xr

from scansnap.checks import InputError
from scansnap.classes import SequenceClasses
from scansnap.measure.fates import check_classes, time_dim


def log_odds(data: xr.Dataset, classes: SequenceClasses | None = None, *, local: bool = False) -> xr.DataArray:
    """S_n(t): the log-odds of attention on distinct against common tokens, less their first recorded value.

    Dims (run,) step or t, seq_class. Without ``classes`` the contexts are read off the attention at the first recorded
    time, which is above 0 exactly on them (then ``local`` needs classes too). NaN for classes without distinct or
    without common tokens, and −∞ or +∞ where attention on one of them is too small for its floating-point type.
    """
    time = time_dim(data, "attention")
    c = data["attention"].transpose(..., time, "seq_class", "token")
    if classes is None:
        if local:
            raise InputError("local", local, "given together with classes")
        used = (c.isel({time: 0}).values > 0).reshape(-1, c.sizes["seq_class"], c.sizes["token"]).any(0)
        distinct = used & (used.sum(0) == 1)
    else:
        check_classes(data, classes)
        used, distinct = np.zeros((2, classes.n_classes, classes.vocab_size), dtype=bool)
        for n in range(classes.n_classes):
            used[n, classes.support(n)[0]] = True
            distinct[n, classes.distinct(n, local)] = True
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.log(_sum(c.values, kind)) for kind in (distinct, used & ~distinct)]
        odds = parts[0] - parts[1]
        odds -= odds[..., :1, :]
    odds[..., ~(distinct.any(-1) & (used & ~distinct).any(-1))] = np.nan
    return (
        c.isel(token=0, drop=True)
        .copy(data=odds)
        .rename("log_odds")
        .assign_attrs(long_name="log-odds of attention on distinct against common tokens, less the first")
    )


def log_growth(s: np.ndarray) -> np.ndarray:
    """ln(χ − 1) with χ = e^{2S}, which is followed in t; −∞ for S = 0, without overflow."""
    return np.asarray(2 * s + np.log(-np.expm1(-2 * s)))


def _sum(attention: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Attention on a mask (seq_class, token), without a copy of the attention."""
    return np.einsum("...nl,nl->...n", attention, mask.astype(attention.dtype))
