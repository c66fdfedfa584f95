"""JSON of numbers that JSON lacks."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from scansnap.storage.json_text import to_float, to_json

VALUES = {"t": math.inf, "x": (np.float32(1.5), -np.inf), "n": np.arange(2), "loss": [math.nan], 3: np.True_, "é": None}


def test_json_is_strict_and_its_numbers_come_back() -> None:
    text = to_json(VALUES, separators=(",", ":"))
    assert text == '{"t":"inf","x":[1.5,"-inf"],"n":[0,1],"loss":[null],"3":true,"é":null}'
    table = json.loads(text, parse_constant=pytest.fail)
    assert [to_float(value) for value in (table["t"], *table["x"])] == [math.inf, 1.5, -math.inf]
    assert math.isnan(to_float(table["loss"][0]))
