"""The paper's model as anybody's module, trained by a plain loop: the probe sees what ``simulate`` records.

The same sequences, rates and steps, so that Z and Y are the same to rounding. In each sequence that the probe looks at
every token stands k_l ∝ P(l|n) times (for Syn-Small 10 times each common one and 1 to 10 times the distinct ones), and
then token-level attention in it *is* the class's attention c_n ∝ P(l|n) e^{z}: no sampling error is left, and what is
seen over positions follows exactly,

    entropy over positions    Σ_l c_l (ln k_l − ln c_l)      each of the k_l positions gets c_l/k_l
    mass on distinct tokens   Σ c_l over them                their decile, in a corpus of these very sequences
    total variation           ½ Σ_l |c_l − c_l′|             positions of one token move together

so the tolerance is that of float64 sums, and of the float32 in which the probe keeps its sample for movement.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

import scansnap as ss
from scansnap.classes.sampler import ClassSampler
from scansnap.measure import snap_time
from scansnap.probe.probe import Probe

CLASSES = ss.SequenceClasses.syn_small()
CONTEXT, BATCH, STEPS, RATE = 33, 16, 300, 1.0
RECORD = sorted({0, *np.rint(np.geomspace(1, STEPS, 40)).astype(int).tolist()})


class Attention(nn.Module):
    """Only the last token is a query, and it does not look at itself; the others have one key and so no choice."""

    def __init__(self, m: int) -> None:
        super().__init__()
        self.z = nn.Parameter(torch.zeros(m, m, dtype=torch.float64))

    def forward(self, tokens: Tensor) -> Tensor:
        place = torch.arange(tokens.shape[1])
        last = place[-1]
        keys = torch.where(place[:, None] == last, place < last, place[:, None] == place)
        logits = self.z[tokens[:, :, None], tokens[:, None, :]]  # (B, T, T)
        return torch.softmax(logits.masked_fill(~keys, -math.inf), dim=-1)[:, -1]


class YZ(nn.Module):
    def __init__(self, m: int) -> None:
        super().__init__()
        self.attention = Attention(m)
        self.y = nn.Parameter(torch.zeros(m, m, dtype=torch.float64))

    def forward(self, tokens: Tensor) -> Tensor:
        b = self.attention(tokens)
        c = torch.zeros(len(b), len(self.y), dtype=b.dtype).scatter_add(1, tokens, b)
        return nn.functional.normalize(c, dim=-1) @ self.y


def counts() -> np.ndarray:
    """(K, M) how often each token stands in the sequence of a class."""
    k = np.rint(CLASSES.p_context / CLASSES.p_context[CLASSES.p_context > 0].min()).astype(int)
    np.testing.assert_allclose(k / k.sum(1, keepdims=True), CLASSES.p_context, atol=1e-12)
    return np.asarray(k)


def simulated(seed: int) -> xr.Dataset:
    data = ss.simulate(CLASSES, eta_y=RATE, eta_z=RATE, seed=seed, steps=STEPS, context=CONTEXT, batch_size=BATCH,
                       sampling="tokens", init="zero", record=RECORD, dtype="float64", device="cpu")  # fmt: skip
    return data.isel(run=0)


@pytest.fixture(scope="module")
def both() -> tuple[xr.Dataset, xr.Dataset]:
    """What the probe saw, and what simulate recorded."""
    m = CLASSES.vocab_size
    rows = [np.append(np.repeat(np.arange(m), k), query) for k, query in zip(counts(), CLASSES.query, strict=True)]
    model = YZ(m)
    probe = Probe(model, torch.tensor(np.array(rows)), rows, every=RECORD, queries=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    drawn = ClassSampler(CLASSES, CONTEXT)(torch.tensor([0]), torch.arange(STEPS), BATCH)
    for step in range(STEPS):
        probe.step(step)
        tokens, target, weight = (part[0, step] for part in drawn)
        optimizer.zero_grad()
        (weight * nn.functional.cross_entropy(model(tokens), target, reduction="none")).sum().backward()
        optimizer.step()
    probe.step(STEPS)
    run = simulated(seed=0)
    return probe.dataset().isel(layer=0, head=0), run


def test_entropy_and_distinct_mass_are_those_of_simulate(both: tuple[xr.Dataset, xr.Dataset]) -> None:
    seen, run = both
    c, k = run.attention.values, counts()  # (step, class, token)
    with np.errstate(divide="ignore", invalid="ignore"):
        over_positions = np.where(c > 0, c * (np.log(k) - np.log(c)), 0).sum(-1).mean(-1)
    np.testing.assert_allclose(seen.entropy, over_positions, atol=1e-12)
    distinct = np.mean([c[:, n, CLASSES.distinct(n)].sum(-1) for n in range(CLASSES.n_classes)], axis=0)
    uniform = seen.uniform_by_decile.isel(step=-1).values
    rare = np.flatnonzero(uniform)[-1]  # two deciles have tokens: the common ones and the distinct
    assert (uniform > 0).sum() == 2
    np.testing.assert_allclose(seen.mass_by_decile.isel(decile=rare), distinct, atol=1e-12)
    assert distinct[-1] - distinct[0] > 0.1, "there was something to see"


def test_snapping_is_when_simulate_has_it(both: tuple[xr.Dataset, xr.Dataset]) -> None:
    seen, run = both
    c = run.attention.values
    gone = np.abs(c - c[0]).sum(-1).mean(-1) / 2
    np.testing.assert_allclose(seen.moved_from_start[1:], gone[1:], atol=1e-6)
    steps = np.array(RECORD)[1:]
    assert float(seen.t_snap) == steps[np.argmax(gone[1:] / steps)]
    # snap_time follows the odds of distinct against common tokens, e^{2S} − 1, which go on where the distance saturates
    odds = snap_time(run, CLASSES)
    assert np.isfinite(odds.t_fastest)
    assert float(seen.t_snap) < float(odds.t_snap_high)


def test_another_run_is_not_that_one(both: tuple[xr.Dataset, xr.Dataset]) -> None:
    """The control: other sequences, same everything else, differ by far more than the tolerance."""
    seen, _ = both
    other = simulated(seed=1)
    c = other.attention.values
    gone = np.abs(c - c[0]).sum(-1).mean(-1) / 2
    assert np.abs(seen.moved_from_start[1:] - gone[1:]).max() > 1e-4


def test_it_scans(both: tuple[xr.Dataset, xr.Dataset]) -> None:
    """And attention follows IDF, as the paper has it: among these keys distinctness is all that IDF knows."""
    seen, _ = both
    assert float(seen.scan_index[-1]) > 0.05
    assert float(seen.rank_corr.sel(against="idf")[-1]) > 0.5
