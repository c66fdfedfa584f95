"""``scansnap verify --map … --sgd`` as a person meets it: stopped, continued, drawn; flows are not computed anew."""

from __future__ import annotations

import csv

import pytest

from local_pool import local_pool
from scansnap.claims import regime_map, regime_map_sgd

MAP = ("verify", "--map", "theorem-3", "--sgd", "--points", 3, "--seeds", 2, "--batch-size", 4, "--finite-T", 8,
       "--x", "vocab_size=20:60", "--device", "cpu")  # fmt: skip


@pytest.fixture
def work(scansnap, monkeypatch):
    for module in (regime_map, regime_map_sgd):
        monkeypatch.setattr(module, "killable_pool", local_pool)
    monkeypatch.setattr(regime_map, "_point", lambda theorem, point: ({"theorem-3-upper": point.overlap - 0.5}, True))
    monkeypatch.setattr(regime_map, "as_completed", list)
    return scansnap


def test_a_map_tells_its_cost_and_is_drawn_beside_the_flow_s(work, tmp_path):
    code, out, err = work(*MAP, "--out", "new/m.png")
    assert code == 0, err
    assert err.startswith("18 runs on cpu, 2 seeds, batch 4, T = 8: about ")
    assert "9 flows beside them" in err
    assert "theorem-3-upper: by SGD holds on " in out
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"m.png", "m.csv"}
    rows = list(csv.DictReader((tmp_path / "new/m.csv").read_text().splitlines()))
    assert {"claim", "x", "y", "margin", "low", "high", "flow_margin", "assumptions_met"} <= rows[0].keys()
    upper = [row for row in rows if row["claim"] == "theorem-3-upper"]
    assert len(upper) == 9
    assert all(abs(float(row["flow_margin"]) - (float(row["y"]) - 0.5)) < 1e-9 for row in upper)


def test_a_stopped_map_keeps_what_is_finished_and_the_same_command_does_the_rest(work, refuses, tmp_path, monkeypatch):
    assert work(*MAP, "--out", "whole.png")[0] == 0
    train, groups = regime_map_sgd.train_group, []

    def stops(group, *rest):
        groups.append(group)
        if len(groups) == 3 + 4:  # three for the estimate; of the others some are trained ahead
            raise KeyboardInterrupt
        return train(group, *rest)

    monkeypatch.setattr(regime_map_sgd, "train_group", stops)
    code, _, err = work(*MAP, "--out", "m.png")
    assert code == 130
    assert "m.unfinished" in err
    assert not (tmp_path / "m.png").exists()
    monkeypatch.setattr(regime_map_sgd, "train_group", train)
    refuses("the folder with unfinished work", *MAP, "--seeds", 3, "--out", "m.png", names="--overwrite")
    code, _, err = work(*MAP, "--out", "m.png")
    assert code == 0
    assert "(4 are finished already)" in err
    assert not (tmp_path / "m.unfinished").exists()
    assert (tmp_path / "m.csv").read_text() == (tmp_path / "whole.csv").read_text()


def test_nothing_finished_is_said(work, monkeypatch):
    def stops(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(regime_map_sgd, "train_group", stops)
    code, _, err = work(*MAP, "--out", "m.png")
    assert (code, err) == (130, "Stopped. Nothing was finished.\n")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("verify", "--sgd"), "--sgd"), ((*MAP, "--seeds", 1), "seeds"), ((*MAP, "--batch-size", 0), "batch_size"),
        ((*MAP, "--finite-T", 0), "context"), ((*MAP, "--device", "tpu"), "device"),
        ((*MAP, "--x", "eta_y=1e-300:1"), "eta_y"), ((*MAP, "--out", "m.txt"), "--out"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(work, refuses, tmp_path, words, field):
    refuses(field, *words)
    assert list(tmp_path.iterdir()) == []


def test_help_has_an_example(work):
    code, out, _ = work("verify", "--help")
    assert code == 0
    assert "scansnap verify --map theorem-3 --sgd" in " ".join(out.split())
