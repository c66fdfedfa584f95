"""The compact coordinates: what they keep, and that leaving out the rest changes nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import scansnap as ss
from scansnap.classes import SequenceClasses
from scansnap.dynamics import yz
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.layout import TableLayout, make_layout
from scansnap.dynamics.optimizers import Optimizer
from scansnap.dynamics.settings import OUTPUTS, RESIDUALS, ModelConfig, Settings
from scansnap.dynamics.state import start
from scansnap.runs import Runs

CPU = torch.device("cpu")
CLASSES = SequenceClasses(
    [[0, 0, 0.5, 0, 0.5, 0, 0, 0, 0], [0.1, 0, 0, 0, 0.3, 0, 0, 0.6, 0], [0, 0, 1, 0, 0, 0, 0, 0, 0]],
    query=[7, 3, 7], next_token=[1, 8, 4], p_class=[0.25, 0.5, 0.25],
)  # fmt: skip


# --- what is kept ----------------------------------------------------------------------------------------


def test_the_smallest_layout_to_the_letter() -> None:
    layout = make_layout(CLASSES, ModelConfig(), decays=False)
    assert_array_equal(layout.slots, [[2, 4, 0], [0, 4, 7], [2, 0, 0]])
    assert_array_equal(layout.n_slots, [2, 3, 1])
    assert_array_equal(layout.slot_p, [[0.5, 0.5, 0], [0.1, 0.3, 0.6], [1, 0, 0]])
    assert_array_equal(layout.slot_query, np.zeros((3, 3)))
    assert_array_equal(layout.rows, [0, 2, 4, 7])
    assert_array_equal(layout.columns, [1, 8, 4, -1])
    assert_array_equal(layout.multiplicity, [1, 1, 1, 6])
    assert_array_equal(layout.target, [0, 1, 2])
    assert_array_equal(layout.queries, [3, 7])
    assert_array_equal(layout.class_query, [1, 0, 1])


@pytest.mark.parametrize("options", [{"query_in_keys": True}, {"residual": "normed"}, {"residual": "plain"}])
def test_the_query_gets_a_slot_where_the_model_looks_at_it(options: dict[str, Any]) -> None:
    layout = make_layout(CLASSES, ModelConfig(**options), decays=False)
    assert_array_equal(layout.slots, [[2, 4, 7, 0], [0, 3, 4, 7], [2, 7, 0, 0]])
    assert_array_equal(layout.n_slots, [3, 4, 2])
    assert_array_equal(layout.slot_query, [[0, 0, 1, 0], [0, 1, 0, 0], [0, 1, 0, 0]])
    assert_array_equal(layout.slot_p, [[0.5, 0.5, 0, 0], [0.1, 0, 0.3, 0.6], [1, 0, 0, 0]])
    assert_array_equal(layout.rows, [0, 2, 3, 4, 7])


def test_a_query_inside_its_context_has_one_slot() -> None:
    classes = SequenceClasses([[0.5, 0.5, 0]], query=[1], next_token=[2])
    layout = make_layout(classes, ModelConfig(query_in_keys=True), decays=False)
    assert_array_equal(layout.slots, [[0, 1]])
    assert_array_equal(layout.slot_p, [[0.5, 0.5]])
    assert_array_equal(layout.slot_query, [[0, 1]])


@settings(max_examples=80, deadline=None)
@given(
    classes=reference.sequence_classes(most_tokens=14, most_classes=6),
    model=st.builds(
        ModelConfig,
        norm=st.sampled_from(["l2", "none", "layernorm"]),
        residual=st.sampled_from(RESIDUALS),
        query_in_keys=st.booleans(),
        outputs=st.sampled_from(OUTPUTS),
        init=st.sampled_from(["zero", "uniform", "normal(0.5)"]),
    ),
    decays=st.booleans(),
)
def test_index_tables_point_at_each_other(classes: SequenceClasses, model: ModelConfig, decays: bool) -> None:
    layout = make_layout(classes, model, decays=decays)
    k, m = classes.n_classes, classes.vocab_size
    assert_array_equal(layout.queries[layout.class_query], classes.query)
    assert_array_equal(layout.columns[layout.target], classes.next_token)
    assert_array_equal(layout.rows, np.unique(layout.rows))
    assert ((layout.slot_row >= 0) & (layout.slot_row < len(layout.rows))).all(), "a row out of range"
    dense = np.zeros((k, m))
    for n in range(k):
        own = slice(0, layout.n_slots[n])
        tokens = layout.slots[n, own]
        assert_array_equal(layout.rows[layout.slot_row[n, own]], tokens, "rows of slots")
        assert len(np.unique(tokens)) == len(tokens), "a token has two slots"
        dense[n, tokens] = layout.slot_p[n, own]
        assert not layout.slot_p[n, layout.n_slots[n] :].any(), "padding with probability"
        assert not layout.slot_query[n, layout.n_slots[n] :].any(), "padding that is the query"
        if model.query_in_keys or model.residual != "none":
            assert_array_equal(tokens[layout.slot_query[n, own] == 1], classes.query[[n]])
    assert_array_equal(dense, classes.p_context)
    assert_array_equal(layout.table.p_slot, layout.slot_p)
    assert_array_equal(layout.table.p_class, classes.p_class)
    assert layout.multiplicity.sum() == (m if model.outputs == "all" else k)
    assert (layout.multiplicity > 0).all()
    if model.norm == "layernorm" or (decays and model.init != "zero"):
        assert_array_equal(layout.rows, np.arange(m), "all rows move here, all are kept")
    if model.outputs == "all" and model.init != "zero":
        assert_array_equal(layout.columns, np.arange(m), "columns differ from the start, all are kept")


def test_no_column_is_lumped_where_every_token_is_a_next_token() -> None:
    classes = SequenceClasses(np.eye(3), query=[0, 0, 1], next_token=[2, 0, 1])
    layout = make_layout(classes, ModelConfig(), decays=False)
    assert_array_equal(layout.columns, [2, 0, 1])
    assert_array_equal(layout.multiplicity, [1, 1, 1])


def test_expand_columns() -> None:
    y = np.arange(8.0).reshape(1, 2, 4)
    lumped = make_layout(CLASSES, ModelConfig(), decays=False).expand_columns(y)
    assert_array_equal(lumped[0], [[3, 0, 3, 3, 2, 3, 3, 3, 1], [7, 4, 7, 7, 6, 7, 7, 7, 5]])
    nan = math.nan
    next_only = make_layout(CLASSES, ModelConfig(outputs="next"), decays=False).expand_columns(y[..., :3])
    assert_array_equal(next_only[0, 0], [nan, 0, nan, nan, 2, nan, nan, nan, 1])
    full = make_layout(CLASSES, ModelConfig(init="uniform"), decays=False)
    everything = np.random.default_rng(0).normal(size=(2, 4, 9)).astype(np.float32)
    assert_array_equal(full.expand_columns(everything), everything)
    assert full.expand_columns(everything).dtype == np.float32


def test_expected_counts() -> None:
    plain = make_layout(CLASSES, ModelConfig(), decays=False)
    assert_array_equal(plain.expected_counts(math.inf, False), plain.slot_p)
    assert_allclose(plain.expected_counts(11, False), 10 * plain.slot_p)
    looking = make_layout(CLASSES, ModelConfig(query_in_keys=True), decays=False)
    assert_array_equal(looking.expected_counts(math.inf, True), looking.slot_p)  # 1 among infinitely many
    assert_allclose(looking.expected_counts(11, True), 10 * looking.slot_p + looking.slot_query)
    residual = make_layout(CLASSES, ModelConfig(residual="plain"), decays=False)
    assert_allclose(residual.expected_counts(11, False), 10 * residual.slot_p)


# --- that leaving out the rest changes nothing -----------------------------------------------------------


def advanced(layout: TableLayout, plan: Settings, runs: Runs) -> tuple[np.ndarray, np.ndarray]:
    """Full Y (R, M, columns expanded) and z after all steps from the plan's start, in the given layout."""
    engine = Engine(layout, plan, runs, CPU, "general")
    batches = Batches(layout, plan, np.unique(runs.seed), CPU)
    state = engine.advance(start(layout, plan, runs.seed, CPU), batches.take(0, plan.steps))
    assert state.alive.all(), "a run failed"
    y = np.zeros((len(runs), layout.vocab_size, layout.vocab_size))
    y[:, layout.rows] = layout.expand_columns(state.tables["y"].numpy())
    return y, state.tables["z"].numpy()


def whole(classes: SequenceClasses, model: ModelConfig) -> TableLayout:
    """The layout that keeps every row and column: that of a random start under weight decay."""
    layout = make_layout(classes, replace(model, init="uniform"), decays=True)
    assert len(layout.rows) == classes.vocab_size
    assert (layout.columns >= 0).all()
    return layout


def same_from_zero(classes: SequenceClasses, model: ModelConfig, rule: Optimizer, context: float, runs: Runs) -> None:
    """A few steps from zero, in the smallest layout and in the full one."""
    plan = Settings(
        steps=12, batch_size=4, context=context, model=model, optimizer_y=rule, optimizer_z=rule, record=(0,),
        dtype="float64",
    )  # fmt: skip
    compact = make_layout(classes, model, decays=runs.decays)
    lean, full = advanced(compact, plan, runs), advanced(whole(classes, model), plan, runs)
    for name, found, wanted in zip(("Y", "z"), lean, full, strict=True):
        assert_allclose(found, wanted, rtol=0, atol=1e-9, err_msg=f"{name}, {rule}, {model}")


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adam", "adamw"])
@settings(max_examples=8, deadline=None)
@given(
    classes=reference.sequence_classes(most_tokens=12),
    model=st.builds(
        ModelConfig,
        norm=st.sampled_from(["l2", "none"]),
        residual=st.sampled_from(RESIDUALS),
        query_in_keys=st.booleans(),
    ),
    context=st.sampled_from([5, math.inf]),
    decay=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 1000),
)
def test_compact_and_full_layouts_give_the_same_trajectory_from_zero(
    optimizer: str, clip: float | None, classes: SequenceClasses, model: ModelConfig, context: float, decay: float,
    seed: int,
) -> None:  # fmt: skip
    """Rows without data left out and columns lumped, with clipping and weight decay."""
    rule = Optimizer(optimizer, clip=clip, eps=1e-3)  # a smaller eps would blow up rounding errors
    runs = ss.grid(eta_y=[0.1, 0.4], eta_z=0.3, seed=seed, momentum=[0.0, 0.9], weight_decay=decay)
    same_from_zero(classes, model, rule, context, runs)


@pytest.mark.parametrize("classes", [CLASSES, SequenceClasses.syn_medium(2)], ids=["small", "syn-medium"])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_and_so_does_muon(clip: float | None, classes: SequenceClasses) -> None:
    """On classes without symmetries: it forgets the gradient's size, so where a gradient is 0 but for rounding it
    steps along the rounding. (The sign rule does so entry by entry; test_optimizers.py compares its columns.)"""
    runs = ss.grid(eta_y=[0.1, 0.4], eta_z=0.3, seed=[1, 2], momentum=[0.0, 0.9], weight_decay=[0.0, 0.05])
    for context in (5, 64):
        same_from_zero(classes, ModelConfig(), Optimizer("muon", clip=clip), context, runs)


@pytest.mark.parametrize("options", [{"init": "uniform"}, {"init": "normal(0.5)", "residual": "normed"}])
def test_rows_without_data_may_be_left_out_from_a_random_start(options: dict[str, Any]) -> None:
    """Initial values go by token, so an entry starts the same whichever rows are kept."""
    model = ModelConfig(**options)
    plan = Settings(steps=15, batch_size=4, context=9, model=model, record=(0,), dtype="float64")
    runs = ss.grid(eta_y=0.5, eta_z=0.7, seed=[3, 8], momentum=0.9)
    compact, full = make_layout(CLASSES, model, decays=False), whole(CLASSES, model)
    assert len(compact.rows) < len(full.rows)
    (y, z), (full_y, full_z) = advanced(compact, plan, runs), advanced(full, plan, runs)
    assert_allclose(z, full_z, rtol=0, atol=1e-12)
    assert_allclose(y[:, compact.rows], full_y[:, compact.rows], rtol=0, atol=1e-12)
    recorded = ss.simulate(
        CLASSES, runs, steps=15, batch_size=4, context=9, record=[0, 15], variables=("y",), dtype="float64",
        device="cpu", **options,
    ).y.values  # fmt: skip
    assert_allclose(recorded[:, 1], full_y, rtol=0, atol=1e-12, err_msg="the recorded Y has all rows")
    assert_array_equal(recorded[:, 0], start(full, plan, runs.seed, CPU).tables["y"])


def test_padding_may_point_anywhere() -> None:
    """Other tokens and rows in the padded slots: not one bit changes."""
    rng = np.random.default_rng(2)
    model = ModelConfig(residual="normed", query_in_keys=True, init="uniform")
    layout = make_layout(CLASSES, model, decays=False)
    padding = np.arange(layout.slots.shape[1]) >= layout.n_slots[:, None]
    assert padding.any()
    other = replace(
        layout,
        slots=np.where(padding, rng.integers(0, 9, padding.shape), layout.slots),
        slot_row=np.where(padding, rng.integers(0, len(layout.rows), padding.shape), layout.slot_row),
    )
    plan = Settings(steps=5, batch_size=6, context=9, model=model, record=(0,), dtype="float64")
    runs = ss.grid(eta_y=0.5, eta_z=0.7, seed=[3, 8], momentum=0.9)
    for found, wanted in zip(advanced(other, plan, runs), advanced(layout, plan, runs), strict=True):
        assert_array_equal(found, wanted)
    tables = yz.Tables.of(layout, CPU, torch.float64)
    batch = Batches(layout, plan, np.array([3]), CPU).take(0, 1).batch(0, torch.tensor([0]))
    state = start(layout, plan, np.array([3]), CPU)
    seen = yz.forward(state.tables["y"], state.tables["z"], batch, tables, model)
    empty = torch.from_numpy(padding)[batch.cls]
    assert not seen.f[empty].any(), "padding has weight in f"
    assert not batch.counts[empty].any(), "padding was drawn"


def test_layernorm_moves_every_row() -> None:
    """Its mean subtraction makes f non-zero everywhere, so no row could have been left out."""
    run = ss.simulate(
        CLASSES, eta_y=0.5, eta_z=0.5, steps=3, batch_size=4, context=9, norm="layernorm", init="uniform",
        record=[0, 3], variables=("y",), dtype="float64", device="cpu",
    )  # fmt: skip
    assert (np.abs(run.y.values[0, 1] - run.y.values[0, 0]).max(axis=1) > 0).all()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_weight_decay_moves_what_the_data_does_not_reach(optimizer: str) -> None:
    """By the factor 1 − η λ in every step; all rows are kept then."""
    eta_y, eta_z, decay, steps = 0.5, 0.25, 0.1, 6
    run = ss.simulate(
        CLASSES, eta_y=eta_y, eta_z=eta_z, weight_decay=decay, steps=steps, batch_size=4, context=9,
        init="uniform", optimizer=optimizer, record=[0, steps], variables=("y", "z"), dtype="float64",
        device="cpu",
    )  # fmt: skip
    y, z = run.y.values[0], run.z.values[0]
    outside = np.setdiff1d(np.arange(9), [0, 2, 4, 7])
    assert_allclose(y[1, outside], y[0, outside] * (1 - eta_y * decay) ** steps, rtol=1e-12)
    for row, reached in ((0, [0, 4, 7]), (1, [2, 4])):
        rest = np.setdiff1d(np.arange(9), reached)
        assert_allclose(z[1, row, rest], z[0, row, rest] * (1 - eta_z * decay) ** steps, rtol=1e-12)
    inside = np.abs(y[1, [0, 2, 4, 7]] / y[0, [0, 2, 4, 7]] - (1 - eta_y * decay) ** steps)
    assert inside.max() > 0.1, "rows with data moved by decay only"
