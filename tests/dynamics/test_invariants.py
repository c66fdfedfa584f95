"""What no SGD step may change, along whole runs: the exact invariants of Lemma 1.

Σ_j dY[l, j] = 0, Σ_l dz_m[l] = 0, what the data does not reach never moves, and from zero the outputs that are
never a next token stay alike. All runs are in float64; where nothing but rounding may differ, the limit is
1e-12 of the largest entry.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import reference
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import ModelConfig, Settings

OPTIMIZERS = {"sgd": ("sgd", 0.0), "momentum": ("sgd", 0.9), "nesterov": ("nesterov", 0.9)}
DATA: dict[str, dict[str, Any]] = {
    "T = 7": {"context": 7, "batch_size": 4},
    "T = 200": {"context": 200, "batch_size": 16},
    "T = inf, sampled classes": {"context": math.inf, "batch_size": 3},
    "T = inf, expectation": {"context": math.inf, "batch_size": None},
}


def trained(classes: SequenceClasses, optimizer: str, seed: int = 0, **options: Any) -> xr.Dataset:
    """A run of 30 steps at rates that move the tables by about their own size."""
    name, momentum = OPTIMIZERS.get(optimizer, (optimizer, 0.0))
    return ss.simulate(
        classes, eta_y=0.5, eta_z=0.8, seed=seed, momentum=momentum, optimizer=name, steps=30, record="linear:7",
        variables=("y", "z"), dtype="float64", device="cpu", **options,
    )  # fmt: skip


def constant(values: np.ndarray, size: float, what: str) -> None:
    """Along the first dimension, to within rounding."""
    drift = np.abs(values - values[0]).max()
    assert drift <= 1e-12 * max(size, 1), f"{what} drifts by {drift:.1e}; the table's largest entry is {size:.1e}"


def reached(classes: SequenceClasses, query_in_keys: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens enter some f (M,), and which entries of z some attention (Q, M)."""
    in_z = np.zeros((len(classes.queries), classes.vocab_size), dtype=bool)
    for n in range(classes.n_classes):
        row = int(np.flatnonzero(classes.queries == classes.query[n])[0])
        in_z[row] |= classes.p_context[n] > 0
        if query_in_keys:
            in_z[row, classes.query[n]] = True
    return in_z.any(0), in_z


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@settings(max_examples=6, deadline=None)
@given(
    classes=reference.sequence_classes(most_tokens=12),
    seed=st.integers(0, 1000),
    init=st.sampled_from(["zero", "uniform", "normal(1)"]),
    outputs=st.sampled_from(["all", "next"]),
    query_in_keys=st.booleans(),
)
def test_sums_are_constant_and_what_the_data_does_not_reach_never_moves(
    data: str, optimizer: str, classes: SequenceClasses, seed: int, init: str, outputs: str, query_in_keys: bool
) -> None:
    options = {"init": init, "outputs": outputs, "query_in_keys": query_in_keys, **DATA[data]}
    run = trained(classes, optimizer, seed, **options)
    y, z = run.y.values[0], run.z.values[0]  # (step, M, M), (step, Q, M)
    if outputs == "next":
        outside = np.setdiff1d(np.arange(classes.vocab_size), classes.next_token)
        assert np.isnan(y[:, :, outside]).all()
        y = y[:, :, classes.next_token]
    constant(y.sum(-1), np.abs(y).max(), "Σ_j Y[l, j]")
    constant(z.sum(-1), np.abs(z).max(), "Σ_l z_m[l]")
    rows, entries = reached(classes, query_in_keys)
    assert (y[:, ~rows] == y[0, ~rows]).all(), "rows of Y outside the support moved"
    assert (z[:, ~entries] == z[0, ~entries]).all(), "entries of z outside the support moved"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("data", DATA)
def test_the_runs_above_do_move(optimizer: str, data: str) -> None:
    """Constant sums would say nothing about tables that stand still."""
    classes = SequenceClasses.syn_medium(2)
    run = trained(classes, optimizer, init="uniform", **DATA[data])
    rows, entries = reached(classes)
    for table, moving in ((run.y.values[0], rows), (run.z.values[0], entries)):
        change = np.abs(table[-1] - table[0])[moving]
        assert change.max() > 0.1, f"moved by at most {change.max():.1e}"
        still = (change == 0).mean()
        assert still < 0.1, f"{still:.0%} of what the data reaches did not move"  # rare tokens may not be drawn


@pytest.mark.parametrize(
    ("norm", "residual"), [("none", "none"), ("l2", "normed"), ("l2", "plain"), ("layernorm", "none")]
)
@pytest.mark.parametrize("heads", [1, 3])
def test_sums_are_constant_for_the_other_models_too(norm: str, residual: str, heads: int) -> None:
    """Both sums vanish whatever stands between attention and logits: they come from the two softmaxes."""
    run = trained(
        SequenceClasses.syn_medium(2), "momentum", norm=norm, residual=residual, heads=heads, init="uniform",
        context=20, batch_size=8,
    )  # fmt: skip
    y, z = run.y.values[0], run.z.values[0]
    constant(y.sum(-1), np.abs(y).max(), "Σ_j Y[l, j]")
    constant(z.sum(-1), np.abs(z).max(), "Σ_l z_m[l]")
    assert np.ptp(z, axis=0).max() > 1e-3


@pytest.mark.parametrize("optimizer", ["adam", "sign"])
def test_the_sums_are_not_kept_by_other_optimisers(optimizer: str) -> None:
    """The invariants belong to updates that are linear in the gradients, so the tests above can fail."""
    run = trained(SequenceClasses.syn_small(), optimizer, init="uniform", context=math.inf, batch_size=None)
    for name in ("y", "z"):
        sums = run[name].values[0].sum(-1)
        assert np.abs(sums - sums[0]).max() > 1e-3, f"the sums of {name} are constant under {optimizer}"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("options", [{}, {"query_in_keys": True}, {"residual": "normed"}, {"norm": "layernorm"}],
                         ids=["paper", "query_in_keys", "residual", "layernorm"])  # fmt: skip
def test_from_zero_the_columns_that_are_never_a_next_token_stay_alike(optimizer: str, options: dict[str, Any]) -> None:
    """The full M×M dynamics by autograd and torch.optim, which knows of no lumping, on the same sequences."""
    classes = SequenceClasses(
        [[0.5, 0.2, 0.3, 0, 0, 0, 0, 0, 0], [0.1, 0, 0, 0.4, 0.5, 0, 0, 0, 0], [0, 0.6, 0, 0.3, 0, 0, 0.1, 0, 0]],
        query=[5, 6, 5], next_token=[1, 6, 8], p_class=[0.5, 0.2, 0.3],
    )  # fmt: skip
    others = np.setdiff1d(np.arange(9), classes.next_token)
    data: dict[str, Any] = {"batch_size": 6, "context": 8, "sampling": "tokens"}
    run = trained(classes, optimizer, 11, **data, **options)
    model = ModelConfig(**options)
    plan = Settings(steps=30, model=model, record=(0,), dtype="float64", **data)
    batches = Batches(make_layout(classes, model, decays=False), plan, np.array([11]), torch.device("cpu"))
    y = torch.zeros(9, 9, dtype=torch.float64, requires_grad=True)
    z = torch.zeros(1, 9, 9, dtype=torch.float64, requires_grad=True)
    momentum = OPTIMIZERS[optimizer][1]
    sgd = torch.optim.SGD(
        [{"params": y, "lr": 0.5}, {"params": z, "lr": 0.8}], momentum=momentum, nesterov=optimizer == "nesterov"
    )
    weight = torch.full((6,), 1 / 6, dtype=torch.float64)
    for step in range(30):
        cls, tokens = (t[0] for t in batches.tokens(step))
        query, next_token = (torch.from_numpy(ids.copy())[cls] for ids in (classes.query, classes.next_token))
        sgd.zero_grad()
        reference.loss(y, z, tokens, query, next_token, weight, classes, model).backward()
        sgd.step()
        if step + 1 in run.step:
            full, seen = y.detach().numpy(), run.sel(step=step + 1).y.values[0]
            spread = np.ptp(full[:, others], axis=1).max()
            assert spread <= 1e-13, f"columns without a next token differ by {spread:.1e} in the full dynamics"
            np.testing.assert_allclose(seen, full, rtol=0, atol=1e-11, err_msg=f"Y after step {step + 1}")
            np.testing.assert_allclose(
                run.sel(step=step + 1).z.values[0], z.detach().numpy()[0, classes.queries], rtol=0, atol=1e-11,
                err_msg=f"z after step {step + 1}",
            )  # fmt: skip
    assert np.abs(full).max() > 0.3, "hardly moved"
    assert np.ptp(full[:, classes.next_token], axis=1).max() > 0.3, "next tokens are told apart"
