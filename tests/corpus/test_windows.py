"""Windows: every token once, targets one later, the same batches from the same seed."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from scansnap.corpus.windows import Windows


def epoch(windows, seed=None, number=0):
    return [windows[i] for i in windows.order(seed, number)]


@given(
    n=st.integers(2, 120), batch=st.integers(1, 6), length=st.integers(1, 12), seed=st.none() | st.integers(0, 2**40)
)
def test_windows_cover_the_stream_once(n: int, batch: int, length: int, seed: int | None) -> None:
    if n < 2 * batch:
        with refused("tokens"):
            Windows(np.arange(n), batch, length)
        return
    windows = Windows(np.arange(n, dtype=np.int32), batch, length)
    rows = n // batch
    inputs, targets = zip(*epoch(windows, seed), strict=True)
    for x, y in zip(inputs, targets, strict=True):
        assert x.shape == y.shape
        assert x.shape[0] == batch
        assert 1 <= x.shape[1] <= length
        assert x.dtype == y.dtype == torch.int64
        assert torch.equal(y, x + 1)  # the stream counts up
    starts = np.arange(batch)[:, None] * rows
    expected = (starts + np.arange(rows - 1)).ravel()
    assert sorted(torch.cat([x.ravel() for x in inputs]).tolist()) == expected.tolist()
    assert len(windows) == len(inputs)


def test_columns_go_on_from_batch_to_batch() -> None:
    windows = Windows(np.arange(100), batch=4, length=7)
    batches = epoch(windows)
    assert torch.equal(torch.cat([x for x, _ in batches], dim=1), windows.columns[:, :-1])
    for (_, before), (after, _) in itertools.pairwise(batches):
        assert torch.equal(before[:, -1], after[:, 0])


def test_order_is_by_seed_and_epoch() -> None:
    windows = Windows(np.arange(2000), batch=2, length=5)
    assert windows.order() == list(range(200))
    orders = [windows.order(seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0), (2**32, 0))]
    assert windows.order(0, 1) == orders[1]
    assert all(sorted(order) == list(range(200)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_shuffled_order_is_uniform() -> None:
    windows = Windows(np.arange(7), batch=1, length=2)
    firsts = np.bincount([windows.order(3, epoch)[0] for epoch in range(3000)], minlength=3)
    # five standard deviations
    assert np.abs(firsts - 1000).max() < 5 * np.sqrt(3000 * 2 / 9)


def test_index_out_of_range() -> None:
    windows = Windows(np.arange(10), batch=1, length=4)
    for i in (-1, len(windows)):
        with pytest.raises(IndexError):
            windows[i]


def test_digest_is_that_of_four_bytes_an_id() -> None:
    """As checkpoints had it before ids took two: those go on."""
    stream = np.arange(50_000, 50_011)
    expected = hashlib.sha256(stream[:10].astype(np.int32).tobytes()).hexdigest()[:16]
    assert Windows(stream.astype(np.int32), 2, 3).digest() == expected
    assert Windows(stream.astype(np.uint16), 2, 3).digest() == expected
    assert Windows(stream.astype(np.uint16) + 1, 2, 3).digest() != expected
    assert Windows(stream.astype(np.uint16), 2, 3).bounds() == (50_000, 50_009)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tokens": np.zeros((3, 3), int)}, "tokens"),
        ({"tokens": np.zeros(9)}, "tokens"),
        ({"batch": 0}, "batch"),
        ({"length": 0}, "length"),
    ],
    ids=["a table", "floats", "batch", "length"],
)
def test_bad_input_is_refused(options, field) -> None:
    with refused(field):
        Windows(**{"tokens": np.arange(9), "batch": 1, "length": 1} | options)
