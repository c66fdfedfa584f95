"""The map of the rates: one simulation of 81 runs, each the run of its rates, told once per set-up."""

from typing import Any

import numpy as np
import pytest
from explorer_site import Site

from scansnap.classes import SequenceClasses
from scansnap.explorer.live.run import LiveRun
from scansnap.explorer.pages import rates
from scansnap.explorer.pages.predict import Cancelled
from scansnap.explorer.protocol import LIMITS
from scansnap.explorer.setups.read import read_setup

SMALL: dict[str, Any] = {"classes": {"preset": "syn-small"}, "steps": 30, "momentum": 0.5, "seed": 3}


def never() -> bool:
    return False


def test_a_cell_is_where_the_run_of_its_rates_ends() -> None:
    told = rates.rate_map(read_setup(SMALL), 1e9, never)
    assert (told["step"], told["steps"]) == (30, 30)
    assert told["eta_y"].tolist() == told["eta_z"].tolist()
    assert (told["eta_y"][0], told["eta_y"][4], told["eta_y"][8]) == (0.01, 1.0, 100.0)
    for i, j in ((0, 0), (4, 4), (6, 3), (3, 8)):
        setup = {**SMALL, "eta_y": told["eta_y"][i], "eta_z": told["eta_z"][j]}
        live = LiveRun(read_setup(setup))
        while not live.over:
            live.advance(1000)
        attention = live.layout()["fields"][4]
        assert attention["name"] == "attention"
        c = live.film.rows[-1][attention["offset"] : attention["offset"] + attention["size"]].reshape(2, 20)
        common = [np.isin(live.layout()["tokens"][n], live.classes.common) for n in range(2)]
        by_hand = np.mean([c[n][common[n]].sum() for n in range(2)])
        assert told["share"][i, j] == pytest.approx(by_hand, rel=1e-4)


def test_classes_count_by_their_probability() -> None:
    rare, frequent = 0.1, 0.9
    table = [
        {"query": 4, "next_token": n, "p_class": p, "tokens": [0, 1 + n], "p_context": [0.5, 0.5]}
        for n, p in enumerate((rare, frequent))
    ]
    classes = SequenceClasses.from_table({"vocab_size": 6, "class": table}, "the classes")
    attention = np.zeros((1, 2, 6))
    attention[0, 0, [0, 1]] = 0.2, 0.8
    attention[0, 1, [0, 2]] = 0.7, 0.3
    assert rates.common_share(attention, classes) == pytest.approx([rare * 0.2 + frequent * 0.7])


def test_runs_that_diverge_are_no_numbers() -> None:
    told = rates.rate_map(
        read_setup({**SMALL, "weight_decay": 5.0, "momentum": 0.9, "init": "uniform", "steps": 200}), 1e9, never
    )
    diverged = [[step is not None for step in row] for row in told["failed_step"]]
    assert np.array_equal(np.isnan(told["share"]), diverged)
    assert 0 < np.sum(diverged) < 81


def test_it_ends_when_nobody_waits_and_tells_what_it_has_when_the_time_is_over() -> None:
    with pytest.raises(Cancelled):
        rates.rate_map(read_setup(SMALL), 1e9, lambda: True)
    told = rates.rate_map(read_setup({**SMALL, "steps": 10**7}), 0.0, never)
    assert 0 < told["step"] < told["steps"] == 10**7
    assert np.isfinite(told["share"]).all()


def test_a_set_up_has_one_map_whatever_its_rates(quiet: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, job = [], quiet.switchboard.job

    async def counted(header: dict[str, Any], payload: bytes = b"") -> bytes:
        asked.append(header["kind"])
        return await job(header, payload)

    monkeypatch.setattr(quiet.switchboard, "job", counted)
    answers = [quiet.client.post("/api/map", json={**SMALL, "steps": 8, "eta_y": eta}).json() for eta in (1.0, 5.0)]
    assert answers[0] == answers[1]
    assert quiet.client.post("/api/map", json={**SMALL, "steps": 9}).json()["step"] == 9
    assert asked == ["map", "map"]


def test_a_map_without_room_is_refused_in_words(quiet: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "map_bytes", 1 << 10)
    answer = quiet.client.post("/api/map", json=SMALL)
    assert answer.status_code == 422
    assert answer.json()["field"] == "map"
    assert "81 runs" in answer.json()["message"]
    assert "at most 0 MiB" in answer.json()["message"]
