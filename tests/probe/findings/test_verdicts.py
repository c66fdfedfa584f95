"""Verdicts in words, each with the control in which it must not be given."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from scansnap.probe.findings import add_findings, summary
from scansnap.probe.findings.verdicts import NOTE, VERDICT_WORDS, join_verdict, position_findings

STEPS = np.unique(np.rint(np.append(0, np.geomspace(1, 10_000, 40)))).astype(int)
SNAPPED = 0.5 * -np.expm1(-((STEPS / 100) ** 2))[:, None, None]
GOES_ON = 0.05 * np.log1p(STEPS / 10)[:, None, None]


def moving(gone: np.ndarray) -> dict[str, np.ndarray]:
    return {"moved_from_start": gone, "moved": np.abs(np.diff(gone, axis=0, prepend=0))}


def scanning(to: float) -> dict[str, object]:
    start = np.random.default_rng(0).normal(0.5, 0.05, (1, 16, 1, 1))
    change = to * np.random.default_rng(1).normal(1, 0.1, (1, 16, 1, 1))
    return {"distinctness": start + change * np.minimum(STEPS / 100, 1)[:, None, None, None], "scan_chance": 0.01}


SINKS = {"sink": 0.7, "sink_share": 1.0}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**scanning(0.2), **moving(SNAPPED)}, "scans and snaps"),
        ({**scanning(0.2), **moving(GOES_ON)}, "scans"),
        ({**scanning(-0.2), **moving(SNAPPED)}, "snaps"),
        ({**scanning(0.2), **moving(SNAPPED), **SINKS}, "sink and scans and snaps"),
        ({**scanning(-0.2), **moving(GOES_ON), **SINKS}, "sink"),
        ({**moving(GOES_ON), "previous": 0.9}, "positional"),
        ({**moving(GOES_ON), "self": 0.4, "previous": 0.4}, "positional"),
        ({**moving(GOES_ON), "self": np.nan, "self_uniform": np.nan, "previous": 0.9}, "positional"),
        ({**moving(GOES_ON), "sink": 0.4, "sink_share": 0.6, "previous": 0.55}, "sink and positional"),
        (moving(GOES_ON), "other"),
        (moving(0 * SNAPPED), "idle"),
        (moving(SNAPPED * 0.08), "idle"),  # stops too, after 0.04 of its attention: it never snaps
        ({**moving(GOES_ON), "output_share": np.nan, "output_norm": np.nan}, "other"),  # unknown health is no verdict
        ({**moving(GOES_ON), "sink": 0.4, "sink_share": 0.4}, "other"),  # a few extreme sequences
        ({**scanning(0.2), **moving(GOES_ON), "scan_chance": 0.2}, "undecided"),
        ({**scanning(0.2), **moving(GOES_ON), "corpus": "the batch itself"}, "undecided"),
        ({**scanning(0.2), **moving(SNAPPED), "corpus": "the batch itself"}, "snaps"),
    ],
)
def test_known_heads(record, given: dict, words: str) -> None:
    assert add_findings(record(STEPS, **given)).verdict.values.tolist() == [[words]]


@pytest.mark.parametrize("uniform", [0.01, 0.4, 0.6, 1.0])
def test_uniform_attention_is_neither_sink_nor_positional(record, uniform: float) -> None:
    """In a short window it gives every key much: more than any threshold without the baseline."""
    names = ("sink", "self", "previous")
    given = {name: uniform / (1 if name == "sink" else 2) for name in names}
    given |= {f"{name}_uniform": value for name, value in given.items()} | {"sink_share": float(uniform > 0.3)}
    found = position_findings(record(STEPS, **given))
    assert not (found.is_sink == 1).any()
    assert not (found.is_positional == 1).any()
    if uniform < 1:
        assert (found.sink_excess == 0).all()


def test_all_combinations_are_said() -> None:
    n_health = len(VERDICT_WORDS) - 4
    for health, behaviour in itertools.product(
        itertools.product([0.0, np.nan], repeat=n_health), itertools.product([0.0, 1.0, np.nan], repeat=4)
    ):
        said = join_verdict(np.array([*health, *behaviour]))
        for word, value in zip(list(VERDICT_WORDS.values())[n_health:], behaviour, strict=True):
            assert (word in said.split(" and ")) == (value == 1)
        assert (said == "other") == all(value == 0 for value in behaviour)
        assert (said == "undecided") == (1 not in behaviour and any(map(np.isnan, behaviour)))
    for i, word in enumerate(list(VERDICT_WORDS.values())[:n_health]):
        holds = np.full(len(VERDICT_WORDS), np.nan)
        holds[i] = 1
        assert join_verdict(holds) == word


def test_the_numbers_stand_beside_the_words(record) -> None:
    found = add_findings(record(STEPS, **scanning(0.2), **moving(SNAPPED)))
    said = str(found.verdict_numbers.values[0, 0])
    assert f"scan index {float(found.scan_index[-1, 0, 0]):+.3f}" in said
    assert f"fastest around step {float(found.t_fastest_ln[0, 0]):,.0f}" in said
    assert "moved by 0.500" in said
    assert found.attrs["findings_note"] == NOTE
    assert "learning rate" in NOTE
    assert set(record(STEPS).data_vars) < set(found.data_vars), "nothing of the record is lost"


def test_a_line_for_each_head(record) -> None:
    data = record(STEPS, heads=2, layers=2, **moving(GOES_ON))
    data["n_queries"][:, 1, 1] = np.nan  # a layer with one head less
    lines = summary(data).splitlines()
    assert lines[0] == "No problem found in 3 heads, max logit 5 at step 10,000."
    assert lines[1] == f"3 heads, {len(STEPS)} measurements from step 0 to 10000: 3 other"
    assert [line.split("  ")[0] for line in lines[2:-1]] == [
        "layers.0.attn head 0", "layers.0.attn head 1", "layers.1.attn head 0"]  # fmt: skip
    assert add_findings(data).verdict.values[1, 1] == ""
    assert "no corpus" in summary(record(STEPS, corpus="the batch itself"))
    assert summary(data.isel(step=slice(0))) == "no measurements"


def test_one_measurement_says_where_attention_rests(record) -> None:
    found = add_findings(record([0], **SINKS))
    assert found.verdict.values.tolist() == [["sink"]]
    assert "scanning undecided (a single measurement)" in str(found.verdict_numbers.values[0, 0])
