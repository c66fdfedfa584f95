"""Finished runs survive a stop, are told apart, and go when their figure is made."""

import numpy as np
import pytest

from scansnap.paper.report import make as report
from scansnap.paper.shared import text_runs
from scansnap.paper.shared.run_cache import cached_run


def test_a_run_is_made_once_for_each_description(tmp_path):
    made = []

    def run():
        made.append(len(made))
        return {"values": np.arange(3.0) + len(made), "failed": False, "worst": np.nan}

    first = cached_run(tmp_path, {"eta": 0.1, "seed": 0}, run)
    again = cached_run(tmp_path, {"seed": 0, "eta": 0.1}, run)
    assert made == [0]
    for name, value in first.items():
        np.testing.assert_array_equal(again[name], value)
    assert again["failed"].item() is False
    cached_run(tmp_path, {"eta": 0.1, "seed": 1}, run)
    cached_run(None, {"eta": 0.1, "seed": 0}, run)
    assert made == [0, 1, 2]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_run_whose_record_is_damaged_is_done_again(tmp_path, damage):
    first = cached_run(tmp_path, {"seed": 0}, lambda: {"values": np.arange(100.0)})
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    file.write_bytes({"cut": content[:200], "empty": b""}.get(damage, content))
    again = cached_run(tmp_path, {"seed": 0}, lambda: {"values": np.arange(100.0)})
    np.testing.assert_array_equal(again["values"], first["values"])
    assert cached_run(tmp_path, {"seed": 0}, lambda: pytest.fail("it was not kept"))


def test_a_stopped_figure_goes_on_where_it_was(effort, tmp_path, monkeypatch):
    monkeypatch.setitem(text_runs.SIZES, (False, True), text_runs.TextSize(None, 4, 1, 400))
    out, trained, calls = tmp_path / "out", text_runs.trained, []

    def stopped(*args, **options):
        calls.append(options["seed"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return trained(*args, **options)

    monkeypatch.setattr(text_runs, "trained", stopped)
    with pytest.raises(KeyboardInterrupt):
        report.make("fig10", effort, out)
    assert len(list((out / report.UNFINISHED / "fig10").iterdir())) == 2
    target = report.make("fig10", effort, out)
    assert len(calls) == 3 + 1  # of three rates two were done
    assert not (out / report.UNFINISHED).exists()
    monkeypatch.setattr(text_runs, "trained", trained)
    fresh = report.make("fig10", effort, tmp_path / "other")
    np.testing.assert_array_equal(target.computed.table.entropy, fresh.computed.table.entropy)
