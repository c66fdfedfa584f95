"""A model in which an induction head forms, and one in which a head only knows the lag: the probe tells them apart.

Two layers of attention, one head each. The first kind of text repeats after a lag that differs from text to text: what
comes next is found only by looking for the token's earlier occurrence and at what came after it, which takes two
layers, the first looking one back. The second kind always repeats after nine tokens: looking eight back is enough. In
its own texts that head is where an induction head would be; texts with varied lags tell.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import xarray as xr
from torch import Tensor, nn

from scansnap.probe.probe import Probe

M, T, WIDTH, LAG, STEPS = 20, 33, 32, 9, 150


class Attention(nn.Module):
    """One head; places are known to queries and keys only."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.place = nn.Parameter(0.5 * torch.randn(T, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x + self.place), self.k(x + self.place), self.v(x)
        mixed = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)
        return self.out(mixed[:, 0])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.words = nn.Embedding(M, WIDTH), nn.Linear(WIDTH, M)
        self.layers = nn.ModuleList(Attention() for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.words(x)


def texts(n: int, generator: torch.Generator, varied: bool) -> Tensor:
    """Different tokens in a random order, again and again: after 4 to 16 tokens, or always after LAG."""
    lag = torch.randint(4, 17, (n, 1), generator=generator) if varied else torch.full((n, 1), LAG)
    order = torch.rand(n, M, generator=generator).argsort(1)
    return order.gather(1, torch.arange(T) % lag)


def trained(varied: bool) -> dict[str, xr.Dataset]:
    """What probes with texts of both kinds saw."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Model()
    looked_at = {"varied": texts(16, generator, True), "fixed": texts(16, generator, False)}
    probes = {kind: Probe(model, batch, every=STEPS // 5, queries=None) for kind, batch in looked_at.items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(STEPS + 1):
        for probe in probes.values():
            probe.step(step)
        batch = texts(32, generator, varied)
        optimizer.zero_grad()
        F.cross_entropy(model(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimizer.step()
    return {kind: probe.dataset().isel(head=0) for kind, probe in probes.items()}


@pytest.fixture(scope="module")
def inducts() -> dict[str, xr.Dataset]:
    return trained(varied=True)


def test_an_induction_head_forms_and_is_seen(inducts: dict[str, xr.Dataset]) -> None:
    seen = inducts["varied"]
    start, end = seen.isel(step=0, layer=1), seen.isel(step=-1, layer=1)
    assert float(end.induction_uniform) < 0.15
    assert float(start.induction) == pytest.approx(float(start.induction_uniform), abs=0.05), "it was not there before"
    assert float(end.induction) > 0.7
    assert float(end["copy"]) > 0.7, "and it looks at what comes next"
    assert float(end.previous) < 0.15, "which no position explains"
    assert float(end["self"]) < 0.15
    assert end.is_positional == 0
    assert "positional" not in str(end.verdict.values)


def test_the_first_layer_does_not_induct(inducts: dict[str, xr.Dataset]) -> None:
    """It looks one back, more than any other place, which is what the second needs."""
    end = inducts["varied"].isel(step=-1, layer=0)
    assert float(end.induction) < 0.15
    assert float(end.previous) > 2 * float(end.previous_uniform)


def test_a_head_that_knows_the_lag_is_no_induction_head() -> None:
    """The control: where the lag is fixed it looks like one, as it would to a probe with such texts alone."""
    seen = trained(varied=False)
    by_kind = {kind: data.induction.isel(step=-1).max() for kind, data in seen.items()}
    assert float(by_kind["fixed"]) > 0.4
    assert float(by_kind["varied"]) < 0.2
