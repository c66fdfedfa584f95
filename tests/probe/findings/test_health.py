"""What is wrong with heads: planted faults are named, and heads without the fault are not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from scansnap.probe.findings import add_findings
from scansnap.probe.findings.health import MAX_LOGIT, headline, health_findings, logit_growth

STEPS = [0, 10, 100, 500, 1500]
MOVED = np.linspace(0, 0.5, len(STEPS))[:, None, None]
GROWS = np.array([1, 5, 50, 120, 212.0])[:, None, None]


@pytest.mark.parametrize(
    ("given", "verdict", "expected"),
    [
        ({}, "is_collapsed", 0),
        ({"entropy_rel": 0.01}, "is_collapsed", 1),
        ({"entropy_rel": 0.2}, "is_collapsed", 0),  # uniform over few of many keys, say
        ({"entropy_rel": 0.01, "previous": 0.97}, "is_collapsed", 0),  # a previous-token head at work
        ({"entropy_rel": 0.01, "sink": 0.97}, "is_collapsed", 0),
        ({"entropy_rel": 0.01, "induction_all": 0.8}, "is_collapsed", 0),
        ({"entropy_rel": np.nan}, "is_collapsed", np.nan),
        ({"max_logit": GROWS}, "is_exploding", 1),
        ({"max_logit": 213.0}, "is_exploding", 0),  # large, and constant: models train well with it
        ({"max_logit": GROWS[::-1]}, "is_exploding", 0),
        ({"max_logit": GROWS / 3}, "is_exploding", 0),  # grows, and is small
        ({"max_logit": np.nan}, "is_exploding", np.nan),
        ({"max_logit": 213.0, "steps": [1500]}, "is_exploding", np.nan),  # whether it grows is unknown
        ({"max_logit": 13.0, "steps": [1500]}, "is_exploding", 0),
        ({"output_share": 1e-4}, "is_dead", 1),
        ({"output_share": 0.02}, "is_dead", 0),
        ({"output_share": np.nan, "output_norm": 0.0}, "is_dead", 1),  # V = 0, without a residual stream
        ({"output_share": np.nan}, "is_dead", np.nan),
        ({"moved_from_start": 0.014}, "is_idle", 1),
        ({"steps": [0]}, "is_idle", np.nan),
        ({"moved_from_start": MOVED * (MOVED < 0.4)}, "is_idle", 0),  # it moved, and came back
        ({"n_nonfinite": np.array([0, 2, 0, 1, 3])[:, None, None]}, "is_nonfinite", 1),
        ({"n_nonfinite": np.array([0, 2, 0, 1, 0])[:, None, None]}, "is_nonfinite", 0),
    ],
)  # fmt: skip
def test_planted_faults(record, given: dict, verdict: str, expected: float) -> None:
    steps = given.get("steps", STEPS)
    values = {"moved_from_start": MOVED[: len(steps)]} | {k: v for k, v in given.items() if k != "steps"}
    found = health_findings(record(steps, **values))
    np.testing.assert_equal(found[verdict].item(), expected)
    others = [name for name in found if name.startswith("is_") and name != verdict and len(steps) > 1]
    if not math.isnan(expected) and verdict != "is_nonfinite":
        assert not any(found[name].item() == 1 for name in others)
    if verdict == "is_nonfinite":
        np.testing.assert_equal(found.nonfinite_from.item(), 500 if expected else np.nan)


def test_growth_is_per_e_fold() -> None:
    steps = np.array([0, 1, 10, 100])
    largest = np.array([0, 1, 5, 5 + 3 * math.log(10)])[:, None, None]
    assert logit_growth(steps, largest) == pytest.approx(3)
    assert np.isnan(logit_growth(steps[:2], largest[:2])).all()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "No problem found in 8 heads, max logit 5 at step 1,500"),
        ({"entropy_rel": [[0.9, 0.01, 0.9, 0.01], [0.9] * 4], "max_logit": [[1, 212, 3, 4], [5] * 4]},
         "2 heads collapsed (layer 0: heads 1, 3), max logit 212 at step 1,500"),
        ({"output_share": [[0.1] * 4, [0, 0.1, 0.1, 0.1]], "entropy_rel": [[0.01, 0.9, 0.9, 0.9], [0.9] * 4]},
         "1 head collapsed (layer 0: head 0); 1 head dead (layer 1: head 0), max logit 5 at step 1,500"),
        ({"max_logit": np.nan, "output_norm": np.nan, "output_share": np.nan},
         "No problem found in 8 heads at step 1,500 (unknown: whether heads are exploding or dead)"),
        ({"output_share": 0.0}, "all 8 heads dead (layer 0: heads 0, 1, 2, 3; layer 1: heads 0, 1, 2, 3), "
         "max logit 5 at step 1,500"),
    ],
)  # fmt: skip
def test_headline(record, given: dict, expected: str) -> None:
    data = record(STEPS, heads=4, layers=2, moved_from_start=MOVED, **given)
    assert add_findings(data).attrs["headline"] == expected


def test_headline_of_a_model_with_nan(record) -> None:
    bad = np.array([0, 0, 0, 3, 3])[:, None, None]
    data = record(STEPS, heads=2, moved_from_start=MOVED, n_nonfinite=bad, max_logit=np.where(bad > 0, np.nan, 5.0))
    data.attrs["nonfinite_since"] = json.dumps({"attention": 500, "train_loss": 1500})
    assert headline(data.merge(health_findings(data))) == (
        "NaN or infinite values since step 500 (attention, train loss) at step 1,500"
    )
    assert MAX_LOGIT == 100
    assert headline(data.isel(step=slice(0))) == "Nothing has been measured"
