"""Messages survive their way."""

import json
import math

import numpy as np
import pytest

from scansnap.explorer.protocol import REPLAY, TABLE_Y, dumps, pack_frames, unpack_frames


def test_frames_come_back_as_they_were() -> None:
    steps, values = np.array([0, 7, 2**32 - 1]), np.array([[1.5, np.nan], [np.inf, -0.0], [3e-8, 4]], dtype=np.float32)
    kind, flags, steps_, values_ = unpack_frames(pack_frames(steps, values, REPLAY, TABLE_Y))
    assert (kind, flags) == (TABLE_Y, REPLAY)
    np.testing.assert_array_equal(steps_, steps)
    np.testing.assert_array_equal(values_, values)
    assert values_.tobytes() == values.tobytes()


def test_the_header_is_four_little_endian_words() -> None:
    message = pack_frames(np.array([5]), np.array([[1.0]], dtype=np.float32), 2)
    assert message == bytes([1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0x80, 0x3F])


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.inf, '"inf"'), (math.nan, "null"), (np.float32(0.5), "0.5"), (np.array([1, 2]), "[1,2]"), (True, "true")],
)
def test_json_is_strict(value: object, text: str) -> None:
    assert dumps({"x": value}) == f'{{"x":{text}}}'


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert json.loads(dumps({"x": "\ud800"}).encode())["x"] == "\ud800"
