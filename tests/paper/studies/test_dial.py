"""The dial as a target: what is counted, and a control that does not stay empty is seen."""

from __future__ import annotations

import pandas as pd
import pytest

from scansnap.dial.study import COLUMNS
from scansnap.paper.figure import Effort
from scansnap.paper.studies import dial


def table(*rows: tuple[str, str, str]) -> pd.DataFrame:
    full = [("yz", way, "sgd", name, 1.0, 1.0, 1.0, verdict) for way, name, verdict in rows]
    return pd.DataFrame(full, columns=list(COLUMNS))


def test_each_statement_is_counted_over_cells() -> None:
    found = dial.findings(
        table(
            ("alone", "scan_order_end", "holds"),
            ("cumulative", "scan_order_end", "diverged"),
            ("without", "scan_order_end", "undecided"),
            ("alone", "c_max", "diverged"),
        )
    )
    (order,) = found
    assert (order.agree, order.of, order.undecided) == (1, 3, 1)
    assert "at least 0.8" in order.says


def test_a_control_in_which_something_holds_disagrees() -> None:
    empty, full = (dial.findings(table(("control", "snap", verdict)))[-1] for verdict in ("fails", "holds"))
    assert (empty.verdict, full.verdict) == ("agrees", "disagrees")


def test_the_target_takes_over_finished_cells(tmp_path, monkeypatch) -> None:
    """``reproduce`` gives the folder in which a stopped command left its cells."""
    seen = {}

    def measured(**given):
        seen.update(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(dial, "dial", measured)
    with pytest.raises(KeyboardInterrupt):
        dial.compute(Effort(quick=True, device="cpu", kept=tmp_path))
    assert (seen["out"], seen["quick"], seen["device"]) == (tmp_path, True, "cpu")
    assert seen["jobs"] >= 1
