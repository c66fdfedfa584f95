"""Two runs compared head by head: differences that were planted are found, and none where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import scansnap as ss
from scansnap.checks import InputError
from scansnap.probe.comparison import describe, write_page
from scansnap.probe.comparison.diff import QUANTITIES, events_in_order

HEADS, WIDTH = 3, 4


class Patterned(torch.nn.Module):
    """Two layers whose heads look at the previous token with a strength that the tests set, or at everything."""

    def __init__(self, strengths: np.ndarray) -> None:
        super().__init__()
        self.strength = torch.nn.Parameter(torch.as_tensor(strengths, dtype=torch.float32))  # (layer, head)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        t = tokens.shape[1]
        value = torch.nn.functional.one_hot(tokens, 7).float()[:, None, :, :WIDTH].expand(-1, HEADS, -1, -1)
        noise = torch.randn(len(tokens), HEADS, t, t, generator=torch.Generator().manual_seed(0)) / 10
        previous = torch.diag(torch.ones(t - 1), -1)
        for strength in self.strength:
            mask = noise + strength[:, None, None] * previous
            mask = mask.masked_fill(torch.ones(t, t).triu(1).bool(), -torch.inf)
            value = torch.nn.functional.scaled_dot_product_attention(value, value * 0, value, attn_mask=mask)
        return value


def measured(*strengths: np.ndarray, length: int = 19) -> xr.Dataset:
    """A probe of a model whose strengths change from one measurement to the next."""
    batch = torch.randint(7, (8, length), generator=torch.Generator().manual_seed(1))
    model = Patterned(strengths[0])
    probe = ss.Probe(model, batch, corpus=batch)
    for step, strength in enumerate(strengths):
        model.strength.data = torch.as_tensor(strength, dtype=torch.float32)
        probe.measure(step)
    return probe.dataset()


UNIFORM = np.zeros((2, HEADS))
ONE = UNIFORM + np.array([[0, 6, 0], [0, 0, 0]])
OTHER = UNIFORM + np.array([[6, 0, 0], [0, 0, 0]])


def test_a_planted_difference_is_found_in_its_head_and_nowhere_else() -> None:
    result = ss.probe.diff(measured(UNIFORM), measured(UNIFORM, ONE))
    changed = np.isin(result.verdict.sel(quantity="previous").values, ("rises", "falls"))
    np.testing.assert_array_equal(changed, ONE > 0)
    row = result.sel(quantity="previous").isel(layer=0, head=1)
    assert float(row.low) < float(row.difference) < float(row.high)
    assert float(row.low) > 0.5
    others = result.verdict.values[:, ONE == 0]
    assert not np.isin(others, ("rises", "falls")).any()


def test_heads_in_another_order_are_matched_by_similarity() -> None:
    a, b = measured(ONE), measured(OTHER)
    by_index = ss.probe.diff(a, b)
    assert np.isin(by_index.verdict.sel(quantity="previous").values[0, :2], ("rises", "falls")).all()
    matched = ss.probe.diff(a, b, match="similarity")
    assert int(matched.head_b[0, 1]) == 0
    assert not np.isin(matched.verdict.values, ("rises", "falls")).any()


def test_events_have_the_first_step_in_which_they_are_measured() -> None:
    result = ss.probe.diff(measured(UNIFORM, UNIFORM, ONE), measured(UNIFORM, ONE, ONE))
    assert events_in_order(result.event_a) == [("previous token", 2.0)]
    assert events_in_order(result.event_b) == [("previous token", 1.0)]
    assert np.isfinite(result.event_a.sel(event="previous token").values).sum() == 1


def test_the_share_of_differences_between_seeds_is_stated() -> None:
    a = measured(ONE)
    same = ss.probe.diff(a, measured(UNIFORM), seed_of_a=a)
    other = ss.probe.diff(a, measured(UNIFORM), seed_of_a=measured(OTHER))
    assert same.attrs["between_seeds"] == 0 < other.attrs["between_seeds"]
    assert "seed" in describe(other)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("match", {"match": "layer"}),
        ("b", {"b": measured(ONE, length=17)}),
        ("seed_of_a", {"seed_of_a": measured(ONE, length=17)}),
        ("a", {"a": xr.Dataset()}),
    ],
)
def test_what_cannot_be_paired_is_refused(field: str, change: dict) -> None:
    with pytest.raises(InputError) as error:
        ss.probe.diff(**{"a": measured(ONE), "b": measured(ONE)} | change)
    assert error.value.field == field


def test_the_command_and_the_page(scansnap, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = measured(UNIFORM), measured(UNIFORM, ONE)
    for name, data in (("a.zarr", a), ("b.zarr", b)):
        ss.save(data, name)
    code, out, _ = scansnap("probe", "diff", "a.zarr", "b.zarr", "--seed-of-a", "a.zarr", "--report", "diff.html")
    assert code == 0
    assert out == describe(ss.probe.diff(a, b, seed_of_a=a)) + "\n"
    text = (tmp_path / "diff.html").read_text()
    assert all(quantity in text for quantity in ("previous", "entropy"))
    assert text.count("<svg") > 4
    assert scansnap("probe", "diff", "a.zarr", "b.zarr", "--report", "diff.html")[0] == 2
    code, _, err = scansnap("probe", "diff", "a.zarr", "none.zarr")
    assert code == 2
    assert err.startswith("Error: B: ")
    assert write_page(a, b, ss.probe.diff(a, b), tmp_path / "again.html").is_file()
    assert set(QUANTITIES) == set(ss.probe.diff(a, b).quantity.values)
