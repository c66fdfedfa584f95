"""The count form against the long way: one-hot sequences, softmax over positions, autograd."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import scansnap as ss
from scansnap.classes import SequenceClasses
from scansnap.dynamics import yz
from scansnap.dynamics.engines import hand_written as engine
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.layout import TableLayout, make_layout
from scansnap.dynamics.settings import NORMS, OUTPUTS, RESIDUALS, ModelConfig, Settings

CPU = torch.device("cpu")
INITS = ("zero", "uniform", "normal(0.5)")
BIASES = (None, 0.7, (0.3, -1.0, 0.5))


def same(found: Any, wanted: Any, what: str, tolerance: float = 1e-10) -> None:
    """Equal to within ``tolerance`` of the largest entry (and 1e-14 where everything cancels)."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape, f"{what}: shape {found.shape} instead of {wanted.shape}"
    error, size = np.abs(found - wanted).max(), np.abs(wanted).max()
    assert error <= tolerance * size + 1e-14, f"{what}: off by {error:.1e}, largest entry {size:.1e}"


def contexts(classes: SequenceClasses, cls: np.ndarray, length: int, rng: np.random.Generator) -> Tensor:
    """Token sequences of the given classes, (…, length)."""
    p = classes.p_context
    drawn = [rng.choice(classes.vocab_size, size=length, p=p[n]) for n in cls.ravel()]
    return torch.from_numpy(np.array(drawn).reshape(*cls.shape, length))


def batch_of(
    layout: TableLayout, classes: SequenceClasses, model: ModelConfig, cls: Tensor, context: Tensor, weight: Tensor
) -> yz.CountBatch:
    """The sequences in count form, made by comparing every position with every slot."""
    slots = torch.from_numpy(layout.slots)[cls]  # (R, B, S)
    is_key = (context[..., None, :] == slots[..., None]).double()  # (R, B, S, T - 1)
    counts = is_key @ torch.exp(reference.position_bias(model, context.shape[-1]))
    if model.query_in_keys:
        counts += slots == torch.from_numpy(classes.query.copy())[cls][..., None]
    counts[torch.arange(slots.shape[-1]) >= torch.from_numpy(layout.n_slots)[cls][..., None]] = 0  # padding
    return yz.CountBatch(cls, counts, weight)


def compact(layout: TableLayout, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Full tables (R, M, M) and (R, H, M, M) in the layout's coordinates."""
    columns = np.where(layout.columns >= 0, layout.columns, lumped(layout)[:1].sum())
    return y[:, layout.rows][:, :, columns], z[:, :, layout.queries]


def lumped(layout: TableLayout) -> np.ndarray:
    """Outputs that have no column of their own."""
    return np.setdiff1d(np.arange(layout.vocab_size), layout.columns)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("query_in_keys", [False, True])
@pytest.mark.parametrize("position_bias", BIASES)
@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=3, deadline=None)
@given(classes=reference.sequence_classes(), seed=st.integers(0, 2**32 - 1))
def test_gradients_equal_autograd_through_one_hot_sequences(
    norm: str, residual: str, position_bias: Any, query_in_keys: bool, outputs: str, heads: int,
    classes: SequenceClasses, seed: int,
) -> None:  # fmt: skip
    """Lemma 1 and its analogues, for every combination of the model's options, over the full M×M tables."""
    rng = np.random.default_rng(seed)
    m, runs, samples, length = classes.vocab_size, 2, int(rng.integers(1, 6)), int(rng.integers(1, 7))
    cls = rng.choice(classes.n_classes, size=(runs, samples), p=classes.p_class)
    context, cls = contexts(classes, cls, length, rng), torch.from_numpy(cls)
    weight = torch.from_numpy(rng.dirichlet(np.ones(samples), size=runs))
    z = torch.from_numpy(rng.normal(size=(runs, heads, m, m)))
    y_any = torch.from_numpy(rng.normal(size=(runs, m, m)) * 2)
    for init in INITS:
        model = ModelConfig(norm, residual, query_in_keys, outputs, heads, position_bias, init)
        layout = make_layout(classes, model, decays=bool(rng.integers(2)))
        y = y_any.clone()
        if init == "zero":  # outputs that are never a next token are alike
            y[:, :, lumped(layout)] = y[:, :, lumped(layout)[:1]]
        batch = batch_of(layout, classes, model, cls, context, weight)
        found = yz.gradients(*compact(layout, y, z), batch, yz.Tables.of(layout, CPU, torch.float64), model)
        dy, dz = np.zeros((runs, m, m)), np.zeros((runs, heads, m, m))
        dy[:, layout.rows] = np.nan_to_num(layout.expand_columns(found.dy.numpy()))  # NaN: not in the objective
        dz[:, :, layout.queries] = found.dz.numpy()
        for r in range(runs):
            wanted = reference.directions(y[r], z[r], context[r], cls[r], weight[r], classes, model)
            same(found.loss[r], wanted[0], f"loss, {model}", 1e-12)
            same(dy[r], wanted[1], f"dY, {model}")
            same(dz[r], wanted[2], f"dZ, {model}")


@settings(max_examples=60, deadline=None)
@given(classes=reference.sequence_classes(), seed=st.integers(0, 2**32 - 1))
def test_lemma_1_as_printed(classes: SequenceClasses, seed: int) -> None:
    """dY = f (e_n − α)ᵀ and dz_m = diag(f)(I − f fᵀ) Y (e_n − α), one sample at a time in the T → ∞ limit."""
    rng = np.random.default_rng(seed)
    m = classes.vocab_size
    y, z = rng.normal(size=(m, m)), rng.normal(size=(m, m))
    model = ModelConfig(init="uniform")
    layout = make_layout(classes, model, decays=True)
    tables = yz.Tables.of(layout, CPU, torch.float64)
    for n in range(classes.n_classes):
        query = classes.query[n]
        c = classes.p_context[n] * np.exp(z[query])
        f = c / np.linalg.norm(c)
        alpha = np.exp(y.T @ f) / np.exp(y.T @ f).sum()
        error = np.eye(m)[classes.next_token[n]] - alpha
        one = torch.ones(1, 1, dtype=torch.float64)
        batch = yz.CountBatch(torch.tensor([[n]]), torch.from_numpy(layout.slot_p[n])[None, None], one)
        tensors = torch.from_numpy(y)[None], torch.from_numpy(z[layout.queries])[None, None]
        found = yz.gradients(*tensors, batch, tables, model)
        same(found.dy[0], np.outer(f, error), "dY")
        row = np.flatnonzero(layout.queries == query)[0]
        same(found.dz[0, 0, row], np.diag(f) @ (np.eye(m) - np.outer(f, f)) @ y @ error, "dz_m")
        same(np.delete(found.dz[0, 0].numpy(), row, axis=0).sum(), 0.0, "rows of the other queries")
        seen = yz.forward(*tensors, batch, tables, model)
        own = slice(0, int(layout.n_slots[n]))
        same(seen.attention[0, 0, own], (c / c.sum())[layout.slots[n, own]], "c")
        same(seen.f[0, 0, own], f[layout.slots[n, own]], "f")
        same(seen.log_alpha[0, 0], np.log(alpha), "ln α")


@pytest.mark.parametrize(("norm", "residual"), list(product(NORMS, RESIDUALS)))
def test_infinite_context_is_a_sequence_with_exact_proportions(norm: str, residual: str) -> None:
    """P(·|n) in eighths: eight tokens in just these proportions attend like T = ∞, whatever z."""
    rng = np.random.default_rng(8)
    eighths = np.array([[4, 3, 1, 0, 0, 0], [2, 0, 0, 1, 5, 0], [0, 0, 8, 0, 0, 0]])
    classes = SequenceClasses(eighths / 8, query=[5, 5, 2], next_token=[1, 4, 3], p_class=[0.5, 0.2, 0.3])
    model = ModelConfig(norm=norm, residual=residual, init="uniform")
    plan = Settings(context=math.inf, batch_size=None, model=model, dtype="float64", record=(0,))
    layout = make_layout(classes, model, decays=False)
    batches = Batches(layout, plan, np.array([0]), CPU)
    context = torch.from_numpy(np.array([np.repeat(np.arange(6), row) for row in eighths]))
    y, z = torch.from_numpy(rng.normal(size=(1, 6, 6))), torch.from_numpy(rng.normal(size=(1, 1, 6, 6)))
    wanted = reference.directions(
        y[0], z[0], context, torch.arange(3), torch.from_numpy(classes.p_class.copy()), classes, model
    )
    tables = yz.Tables.of(layout, CPU, torch.float64)
    for batch in (batches.take(0, 1).batch(0, torch.tensor([0])), batches.expected(1)):
        found = yz.gradients(*compact(layout, y, z), batch, tables, model)
        same(found.loss[0], wanted[0], "loss")
        same(found.dy[0], wanted[1][layout.rows], "dY")
        same(found.dz[0], wanted[2][:, layout.queries], "dZ")


def test_infinite_context_weighs_classes_by_how_often_they_were_drawn() -> None:
    """One draw per sample, as in finite contexts, and the mean over the batch."""
    p = np.array([[0.5, 0.5, 0, 0, 0], [0, 0.5, 0.5, 0, 0], [0.25, 0, 0.75, 0, 0]])
    classes = SequenceClasses(p, query=[3, 3, 4], next_token=[0, 1, 2], p_class=[0.5, 0.2, 0.3])
    layout = make_layout(classes, ModelConfig(), decays=False)
    finite, infinite = (
        Batches(layout, Settings(context=context, batch_size=10, record=(0,), dtype="float64"), np.array([1, 5]), CPU)
        for context in (4, math.inf)
    )
    drawn, stretch = finite.take(3, 9).cls.numpy(), infinite.take(3, 9)
    assert stretch.weight.shape == (2, 6, 3)
    for at in np.ndindex(2, 6):
        np.testing.assert_allclose(stretch.weight[at], np.bincount(drawn[at], minlength=3) / 10, rtol=1e-15)
        np.testing.assert_array_equal(stretch.cls[at], [0, 1, 2])
        np.testing.assert_array_equal(stretch.counts[at], layout.slot_p)
    np.testing.assert_array_equal(finite.take(3, 9).weight, np.full(drawn.shape, 0.1))


STEP_OPTIONS = {
    "the paper's model": {},
    "random start": {"init": "uniform"},
    "residual": {"init": "normal(0.5)", "residual": "normed"},
    "plain residual, layernorm": {"init": "normal(0.5)", "residual": "plain", "norm": "layernorm"},
    "query among the keys": {"init": "uniform", "query_in_keys": True},
    "ALiBi": {"init": "uniform", "position_bias": 0.3, "query_in_keys": True},
    "bias by distance, heads": {"init": "normal(1)", "position_bias": (0.5, -2.0, 1.0), "heads": 3},
    "next tokens only": {"init": "uniform", "outputs": "next", "heads": 2},
    "no norm": {"init": "normal(1)", "norm": "none"},
}


@pytest.mark.parametrize("options", STEP_OPTIONS.values(), ids=STEP_OPTIONS)
def test_simulated_steps_equal_steps_through_token_sequences(options: dict[str, Any]) -> None:
    """Three updates of ``simulate`` against torch.optim.SGD on the sequences that it sampled itself."""
    classes = SequenceClasses(
        [[0.5, 0.2, 0.3, 0, 0, 0, 0], [0.1, 0, 0, 0.4, 0.5, 0, 0], [0, 0.6, 0, 0.3, 0, 0, 0.1]],
        query=[5, 6, 5], next_token=[1, 6, 2], p_class=[0.5, 0.2, 0.3],
    )  # fmt: skip
    steps, rates, m = 3, (0.7, 1.3), 7
    common: dict[str, Any] = {"batch_size": 5, "context": 9, "sampling": "tokens", "dtype": "float64"}
    data = ss.simulate(
        classes, ss.grid(eta_y=rates[0], eta_z=rates[1], seed=[4, 2], momentum=[0.0, 0.8]), steps=steps,
        record="all", variables=("z", "y", "batch_loss"), device="cpu", **common, **options,
    )  # fmt: skip
    model = ModelConfig(**options)
    plan = Settings(steps=steps, model=model, record=(0,), **common)
    seeds = np.array([2, 4])
    batches = Batches(make_layout(classes, model, decays=False), plan, seeds, CPU)
    weight = torch.full((5,), 0.2, dtype=torch.float64)
    for r in range(4):
        stream = int(np.flatnonzero(seeds == int(data.seed[r]))[0])
        start = data.isel(run=r, step=0)
        y = torch.from_numpy(np.nan_to_num(start.y.values)).requires_grad_()
        z = torch.zeros(model.heads, m, m, dtype=torch.float64)
        z[:, torch.from_numpy(classes.queries)] = torch.from_numpy(start.z.values.reshape(model.heads, -1, m))
        z.requires_grad_()
        momentum = float(data.momentum[r])
        sgd = torch.optim.SGD([{"params": y, "lr": rates[0]}, {"params": z, "lr": rates[1]}], momentum=momentum)
        for step in range(steps):
            cls, tokens = (t[stream] for t in batches.tokens(step))
            query, next_token = (torch.from_numpy(ids.copy())[cls] for ids in (classes.query, classes.next_token))
            assert (torch.from_numpy(classes.p_context)[cls[:, None], tokens] > 0).all(), "tokens of other classes"
            value = reference.loss(y, z, tokens, query, next_token, weight, classes, model)
            same(data.batch_loss[r, step], value.detach(), f"loss of batch {step}, run {r}", 1e-12)
            sgd.zero_grad()
            value.backward()
            sgd.step()
            seen = data.isel(run=r, step=step + 1)
            z_seen = seen.z.values.reshape(model.heads, -1, m)
            same(np.nan_to_num(seen.y.values), y.detach(), f"Y after step {step + 1}, run {r}")
            same(z_seen, z.detach()[:, classes.queries], f"z after step {step + 1}, run {r}")
    for table, least in ((data.y, 1e-2), (data.z, 1e-3)):
        assert np.nanmax(np.abs(table[:, -1] - table[:, 0])) > least, f"{table.name} hardly moved: nothing to compare"


def test_groups_of_runs_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The general path takes runs in groups that fit the cache, several at a time; here one run each, four at once."""
    runs = ss.grid(eta_z=[0.5, 2.0], ratio=[1, 5], seed=[0, 3, 7], momentum=[0.0, 0.9])
    options: dict[str, Any] = {
        "steps": 12, "batch_size": 7, "context": 20, "init": "uniform", "residual": "normed", "record": [0, 5, 12],
        "dtype": "float64", "device": "cpu",
    }  # fmt: skip
    together = ss.simulate(SequenceClasses.syn_medium(2), runs, **options)
    monkeypatch.setattr(engine, "_GROUP_BYTES", {"cpu": 1})
    torch.set_num_threads(4)
    try:
        apart = ss.simulate(SequenceClasses.syn_medium(2), runs, **options)
        assert torch.get_num_threads() == 4, "the number of threads was not put back"
    finally:
        torch.set_num_threads(1)
    for name in ("z", "loss", "entropy", "attention"):
        same(apart[name], together[name], name, 1e-12)
