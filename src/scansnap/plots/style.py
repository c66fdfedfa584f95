"""One look for all figures: colours by meaning, readable at a paper's column width."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from scansnap.storage import put

# Okabe and Ito's palette, which stays apart for colour-blind readers
DISTINCT = "#0072B2"
COMMON = "#E69F00"
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
ATTENTION_MAP = "viridis"
HEADLINE = "headline"  # the gid of axes that the report shows alone, beside the finding it begins with
FILES_ONLY = "files only"  # the gid of what lies at the bottom of a figure and the report leaves to the PNG and the PDF

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
    "figure.dpi": 200,  # that of the files, so that texts are measured once for layout and drawing
    "savefig.dpi": 200,
    "svg.hashsalt": "scansnap",
}


class Drawing(Figure):
    """A figure that opens no window and needs no back end, and that a notebook shows all the same."""

    def _repr_png_(self) -> bytes:
        return render(self, "png")


@contextmanager
def styled(width: float, height: float) -> Iterator[Figure]:
    """A new figure, laid out so that labels never overlap; what is drawn inside the block is in this style."""
    with matplotlib.rc_context(_RC):
        figure = Drawing(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


_NOTE_INCHES = 0.17


def add_note(figure: Figure, note: str) -> None:
    """Small print in a strip below the panels."""
    engine: Any = figure.get_layout_engine()
    strip = _NOTE_INCHES / figure.get_figheight()
    engine.set(rect=(0, strip, 1, 1 - strip))
    figure.text(0.995, strip / 4, note, ha="right", va="bottom", fontsize=7, color="0.35")


def settle(figure: Figure) -> None:
    """Fix the layout: computing it for every file format takes longer than drawing."""
    engine: Any = figure.get_layout_engine()
    with matplotlib.rc_context(_RC):
        engine.execute(figure)
        figure.set_layout_engine(None)  # "none" would leave one that has each format drawn twice


def fix_labels(figure: Figure) -> None:
    """Titles and labels stay where the last file has them; finding their places is a large part of each drawing."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.label.get_text():
                at = axis.label.get_transform().transform(axis.label.get_position())
                axis.set_label_coords(*axes.transAxes.inverted().transform(at))
        axes._autotitlepos = False  # type: ignore[attr-defined]  # as set_title does where it is told the place


def save_figure(figure: Figure, path: Path) -> None:
    """Write PNG, PDF or SVG by the path's ending, whole or not at all."""
    put(path, render(figure, path.suffix[1:]))


def render(figure: Figure, kind: str, part: Bbox | None = None) -> bytes:
    """PNG, PDF or SVG; without a date, so that the same figure gives the same bytes. ``part``, in inches, or all."""
    target = BytesIO()
    undated: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with matplotlib.rc_context(_RC):
        figure.savefig(target, format=kind, metadata=undated, bbox_inches=part)
    return target.getvalue()


def separated(values: list[float], gap: float) -> list[float]:
    """Ascending places for labels near ascending values, at least a gap apart."""
    spots = list(values)
    for i in range(1, len(spots)):
        spots[i] = max(spots[i], spots[i - 1] + gap)
    shift = (sum(spots) - sum(values)) / max(len(spots), 1)
    return [spot - shift for spot in spots]
