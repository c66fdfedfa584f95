"""``ss.plot``: one figure of a trajectory or of verdicts, which a notebook shows without any back end."""

from __future__ import annotations

import subprocess
import sys

import pytest

import scansnap as ss
from refusals import refused

SMALL = ss.SequenceClasses.syn_small()


def test_a_trajectory_is_drawn_and_a_notebook_can_show_it() -> None:
    runs = ss.grid(eta_y=1.0, eta_z=1.0, seed=[0, 1])
    data = ss.simulate(SMALL, runs, steps=4, batch_size=8, context=8, record="all", device="cpu")
    figure = ss.plot(data, run=1)
    assert "run 1 of 2" in figure.get_suptitle()
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    with refused("run"):
        ss.plot(data, run=2)


def test_verdicts_are_drawn_a_panel_for_each_claim_with_a_curve() -> None:
    report = ss.verify(SMALL, eta_y=1.0, eta_z=0.1, t_end=30.0, checks=["theorem-2", "conservation"])
    shown = [claim for claim in report if claim.curve is not None]
    assert shown
    titles = [axes.get_title() for folder in ss.plot(report).subfigs for axes in folder.axes]
    assert len(titles) == len(shown)


@pytest.mark.parametrize("result", [None, SMALL, 3.0])
def test_anything_else_is_refused(result: object) -> None:
    with refused("result"):
        ss.plot(result)  # type: ignore[arg-type]


def test_a_notebook_keeps_its_own_back_end() -> None:
    """Figures need none, so importing them must not choose one: a notebook's own figures would no longer be shown."""
    code = "import matplotlib; matplotlib.use('svg'); import scansnap.plots.style; print(matplotlib.get_backend())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().lower() == "svg"
