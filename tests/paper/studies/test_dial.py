"""The dial as a target: what is counted, and a control that does not stay empty is seen."""

from __future__ import annotations

import pandas as pd
import pytest

from scansnap.dial.study import COLUMNS
from scansnap.paper.figure import Computed, Effort
from scansnap.paper.studies import dial


def table(*rows: tuple[str, str, str]) -> pd.DataFrame:
    full = [("yz", mode, "sgd", name, 1.0, 1.0, 1.0, verdict) for mode, name, verdict in rows]
    return pd.DataFrame(full, columns=list(COLUMNS))


def test_each_statement_is_counted_over_cells() -> None:
    result = dial.findings(
        table(
            ("single", "scan_order_end", "holds"),
            ("cumulative", "scan_order_end", "diverged"),
            ("leave_one_out", "scan_order_end", "undecided"),
            ("single", "c_max", "diverged"),
        )
    )
    (order,) = result
    assert (order.agree, order.of, order.undecided) == (1, 3, 1)
    assert "at least 0.8" in order.says


def test_a_control_in_which_something_holds_disagrees() -> None:
    empty, full = (dial.findings(table(("control", "t_snap", verdict)))[-1] for verdict in ("fails", "holds"))
    assert (empty.verdict, full.verdict) == ("agrees", "disagrees")


def cell(component: str, mode: str, optimizer: str) -> dict[str, object]:
    return {"component": component, "mode": mode, "optimizer": optimizer, "ratios": [1.0, 10.0], "t0": 5.0,
            "step": [0, 1, 10, 100], "gap": [[0, 0.1, 0.2, 0.3], [0, 0.1, 0.5, 0.9]], "seeds": 2,
            "matching": "kernel"}  # fmt: skip


def test_the_figure_has_a_half_for_each_optimiser_and_names_few_curves() -> None:
    """One row for a component's first choice with SGD and AdamW, one for each other optimiser."""
    asked = [("yz", "single", "sgd"), ("yz", "single", "adamw"), ("norm:none", "single", "sgd"),
             ("heads", "single", "sgd"), ("norm:rms", "single", "sgd"), ("optimizer", "single", "muon"),
             ("layers", "cumulative", "sgd")]  # fmt: skip
    words = ("holds", "fails", "undecided", "rates not matched", "not applicable", "diverged", "no rates")
    rows = [(*case, name, 1.0, 1.0, 1.0, word) for case, word in zip(asked, words, strict=True) for name in dial.SHORT]
    full = pd.DataFrame(rows, columns=list(COLUMNS))
    assert [row[0] for row in dial._rows(full)] == ["yz", "norm:none", "heads", "optimizer", "layers"]
    figure = dial.draw(Computed(full, {}, (), "", {"cells": [cell(*case) for case in asked]}))
    axes = [ax for part in figure.subfigs for ax in part.axes]
    alone, together, sgd, adamw = axes
    assert [tick.get_text() for tick in alone.get_yticklabels()] == ["yz", "norm:none", "heads", "Muon", "layers"]
    signs = [text.get_text() for text in alone.texts]
    n = len(dial.SHORT)
    assert [signs.count(sign) for sign in "✓✗?!"] == [n, n, n, 2 * n]  # yz, yz, norm:none, heads and Muon
    assert {text.get_text() for text in together.texts} == {"!"}
    named = {text.get_text().strip() for text in sgd.texts} - {"ln t", "ln ln t", "2 ln ln t"}
    assert named == {"YZ", "no norm", "heads", "full model"}
    assert {text.get_text().strip() for text in adamw.texts} - {"ln t", "ln ln t", "2 ln ln t"} == {"YZ"}


def test_the_target_takes_over_finished_cells(tmp_path, monkeypatch) -> None:
    """``reproduce`` gives the folder in which a stopped command left its cells."""
    arguments = {}

    def measured(**given):
        arguments.update(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(dial, "run_dial", measured)
    with pytest.raises(KeyboardInterrupt):
        dial.compute(Effort(quick=True, device="cpu", cache_folder=tmp_path))
    assert arguments["out"].parent == tmp_path  # a folder for these versions
    assert (arguments["quick"], arguments["device"]) == (True, "cpu")
    assert arguments["jobs"] >= 1
