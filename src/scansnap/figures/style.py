"""One look for all figures: colours by meaning, readable at a paper's column width."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only; never opens a window

from matplotlib.figure import Figure

from scansnap.storage import replacing

# Okabe and Ito's palette, which stays apart for colour-blind readers
DISTINCT = "#0072B2"
COMMON = "#E69F00"
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
ATTENTION_MAP = "viridis"

_RC: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "figure.dpi": 110,
    "savefig.dpi": 200,
    "svg.hashsalt": "scansnap",
}


@contextmanager
def styled(width: float, height: float) -> Iterator[Figure]:
    """A new figure, laid out so that labels never overlap; what is drawn inside the block is in this style."""
    with matplotlib.rc_context(_RC):
        yield Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write PNG, PDF or SVG by the path's ending, whole or not at all."""
    with replacing(path) as scratch, matplotlib.rc_context(_RC):
        figure.savefig(scratch, format=path.suffix[1:])
