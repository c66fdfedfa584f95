"""Drawings of single results, for the command line and, by `plot`, for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xarray as xr

from scansnap.checks import InputError, check_integer
from scansnap.claims.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(result: xr.Dataset | Report, run: int = 0) -> Figure:
    """The project's own figure of a result: as a cell's last line a notebook shows it, ``.savefig(path)`` keeps it.

    result  what `scansnap.simulate` returns: attention of the classes, logits, entropy and loss of one ``run``;
            or what `scansnap.verify` returns: measured against predicted, with what holds instead of what fails
    """
    if isinstance(result, Report):
        from scansnap.plots import claim_curves

        return claim_curves.draw(claim_curves.compute(result))
    if not isinstance(result, xr.Dataset) or "step" not in result.dims:
        raise InputError("result", type(result).__name__, "what simulate or verify returns")
    from scansnap.plots import overview

    return overview.draw(overview.compute(result, check_integer("run", run, least=0, most=result.sizes["run"] - 1)))
