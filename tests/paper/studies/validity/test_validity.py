"""The figure on validity: drawn from given numbers, with findings that can fail, and swept in processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up_rows import sound_rows

from local_pool import LocalPool
from scansnap import processes
from scansnap.paper.figure import Computed, Effort
from scansnap.paper.studies import validity
from scansnap.paper.studies.validity import measured
from scansnap.paper.studies.validity.study import by_moment
from scansnap.plots.style import save_figure


@pytest.fixture
def table() -> pd.DataFrame:
    return by_moment(sound_rows())


def test_sound_maps_agree_and_the_paper_does_not(table: pd.DataFrame) -> None:
    result = validity.findings(table)
    assert [f.verdict for f in result] == ["agrees", "agrees", "agrees", "disagrees"]
    assert result[0].of == 3 * table[table.moment == 1].assumptions_met.sum() == 9
    assert result[1].of == len(table) - 12  # overlap 0.8 is not trusted at 10 t₀ and 100 t₀
    assert "18 of 54" in result[3].detail


@pytest.mark.parametrize(
    ("change", "which", "verdict"),
    [
        ({"error": 0.02}, 0, "disagrees"),  # off by more than 1% everywhere
        ({"error": 0.2, "estimate": 0.2}, 1, "disagrees"),
        ({"estimate": 1e-4}, 2, "disagrees"),  # an estimate that is far too small
        ({"paper": 0.01}, 3, "agrees"),  # a paper that is right
    ],
)
def test_each_finding_can_come_out_otherwise(table: pd.DataFrame, change: dict, which: int, verdict: str) -> None:
    assert validity.findings(table.assign(**change))[which].verdict == verdict


def test_errors_of_the_integration_are_not_held_against_the_estimate(table: pd.DataFrame) -> None:
    result = validity.findings(table.assign(error=1e-7, estimate=1e-10))[2]
    assert (result.of, result.verdict) == (0, "not applicable")


def test_it_draws_what_it_is_given(table: pd.DataFrame, tmp_path: Path) -> None:
    figure = validity.draw(Computed(table, {}))
    save_figure(figure, tmp_path / "validity.png")
    maps = [ax for ax in figure.axes if ax.get_xscale() == "log" and ax.get_xlabel()]
    assert len(maps) == 8
    drawn = maps[2].collections[0].get_array().reshape(3, 3)  # 100 t₀ of the first map
    at = table[(table.part == "ratio") & (table.moment == 100)]
    wanted = at.sort_values(["overlap", "ratio"]).error.to_numpy().reshape(3, 3)
    np.testing.assert_allclose(drawn, np.log10(wanted))
    everywhere = table.assign(error=1e-9, estimate=1e-9, paper=1.0, trusted_until=np.inf)  # nothing to draw a line at
    validity.draw(Computed(everywhere, {}))


def test_rows_come_in_the_order_of_the_settings_and_once_for_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(measured, "measure", lambda setting: made.append(setting) or {"ratio": setting.ratio})
    monkeypatch.setattr(processes, "ProcessPoolExecutor", LocalPool)
    monkeypatch.setattr(measured, "as_completed", lambda jobs: reversed(list(jobs)))
    effort, calls = Effort(quick=True), []
    rows = measured.swept(effort, lambda done, total: calls.append((done, total)))
    assert rows.ratio.tolist() == [setting.ratio for setting in made]
    assert calls[-1] == (len(made), len(made))
    assert measured.swept(effort) is rows
    assert len(made) == len(rows)
