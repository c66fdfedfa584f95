"""Drawings of single results, for the command line and, by `plot`, for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr

from scansnap.checks import InputError, check_integer
from scansnap.claims.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(result: xr.Dataset | Report, run: int = 0) -> Figure:
    """Plot a result.

    Parameters
    ----------
    result
        A trajectory of `scansnap.simulate` (plots attention, logits, entropy and loss of one run), or a report of
        `scansnap.verify` (plots measured against predicted values).
    run
        Index of the run in the trajectory.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it; ``.savefig(path)`` writes it.

    Examples
    --------
    >>> result = ss.simulate(ss.SequenceClasses.syn_small(), eta_z=1.0, eta_y=1.0, steps=20)
    >>> len(ss.plot(result).axes) > 1
    True
    """
    if isinstance(result, Report):
        from scansnap.plots import claim_curves

        return claim_curves.draw(claim_curves.compute(result))
    if not isinstance(result, xr.Dataset) or "step" not in result.dims:
        raise InputError("result", type(result).__name__, "what simulate or verify returns")
    from scansnap.plots import overview

    return overview.draw(overview.compute(result, check_integer("run", run, least=0, most=result.sizes["run"] - 1)))
