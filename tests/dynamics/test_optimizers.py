"""The batched optimisers against torch.optim, run by run, and against explicit copies of lumped columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import scansnap as ss
from refusals import refused
from scansnap.classes import SequenceClasses
from scansnap.dynamics.optimizers import RULES, InPlaceOptimizer, Optimizer, orthogonalize
from scansnap.dynamics.schedules import Schedule

STEPS = 15
ETA = torch.tensor([0.3, 0.01, 1.7], dtype=torch.float64)
MOMENTUM = torch.tensor([0.9, 0.5, 0.95], dtype=torch.float64)
DECAY = torch.tensor([0.1, 0.0, 0.02], dtype=torch.float64)
NONE = torch.zeros(3, dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def gradient(table: Tensor, step: int, run: int) -> Tensor:
    """Of a noisy quadratic, with curvatures of both signs, so that the path feeds back into the updates."""
    return torch.linspace(-0.1, 0.2, table.numel()).double().reshape(table.shape) * table + normal(
        *table.shape, seed=100 * step + run
    )


def path(optimizer: Optimizer, shape: tuple[int, ...], momentum: Tensor, decay: Tensor, **options: Any) -> Tensor:
    """Tables of the three runs after each step, (steps, R, …)."""
    table = normal(3, *shape)
    state, tables = optimizer.start(table), []
    for step in range(STEPS):
        d = -torch.stack([gradient(table[r], step, r) for r in range(3)])
        table, state = optimizer.update(
            table, d, state, step=step, eta=ETA, momentum=momentum, weight_decay=decay, **options
        )
        tables.append(table)
    return torch.stack(tables)


def torch_path(
    make: Callable[[list[Tensor], int], torch.optim.Optimizer], shape: tuple[int, ...], clip: float | None = None
) -> Tensor:
    """The same, by one torch optimiser for each run."""
    runs = []
    for r in range(3):
        table = normal(3, *shape)[r].clone().requires_grad_()
        optimizer, tables = make([table], r), []
        for step in range(STEPS):
            table.grad = gradient(table.detach(), step, r)
            if clip is not None:
                torch.nn.utils.clip_grad_norm_([table], clip)
            optimizer.step()
            tables.append(table.detach().clone())
        runs.append(torch.stack(tables))
    return torch.stack(runs, dim=1)


def same(found: Tensor, wanted: Tensor, what: str, tolerance: float = 1e-12) -> None:
    """To within ``tolerance`` of the largest entry."""
    error, size = (found - wanted).abs().max(), wanted.abs().max()
    assert error <= tolerance * size, f"{what}: off by {error:.1e}, largest entry {size:.1e}"


# --- against torch.optim ---------------------------------------------------------------------------------

TORCH: dict[str, tuple[str, Tensor, Tensor, Callable[[list[Tensor], int], torch.optim.Optimizer]]] = {
    "sgd": ("sgd", NONE, NONE, lambda p, r: torch.optim.SGD(p, lr=float(ETA[r]))),
    "sgd with decay": (
        "sgd", NONE, DECAY, lambda p, r: torch.optim.SGD(p, lr=float(ETA[r]), weight_decay=float(DECAY[r])),
    ),
    "momentum": (
        "sgd", MOMENTUM, NONE, lambda p, r: torch.optim.SGD(p, lr=float(ETA[r]), momentum=float(MOMENTUM[r])),
    ),
    "momentum with decay": (
        "sgd", MOMENTUM, DECAY, lambda p, r: torch.optim.SGD(
            p, lr=float(ETA[r]), momentum=float(MOMENTUM[r]), weight_decay=float(DECAY[r])),
    ),
    "nesterov": (
        "nesterov", MOMENTUM, NONE, lambda p, r: torch.optim.SGD(
            p, lr=float(ETA[r]), momentum=float(MOMENTUM[r]), nesterov=True),
    ),
    "nesterov with decay": (
        "nesterov", MOMENTUM, DECAY, lambda p, r: torch.optim.SGD(
            p, lr=float(ETA[r]), momentum=float(MOMENTUM[r]), weight_decay=float(DECAY[r]), nesterov=True),
    ),
    "adam": ("adam", NONE, NONE, lambda p, r: torch.optim.Adam(p, lr=float(ETA[r]))),
    "adam with decay": (
        "adam", NONE, DECAY, lambda p, r: torch.optim.Adam(p, lr=float(ETA[r]), weight_decay=float(DECAY[r])),
    ),
    "adamw": ("adamw", NONE, NONE, lambda p, r: torch.optim.AdamW(p, lr=float(ETA[r]), weight_decay=0.0)),
    "adamw with decay": (
        "adamw", NONE, DECAY, lambda p, r: torch.optim.AdamW(p, lr=float(ETA[r]), weight_decay=float(DECAY[r])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5)], ids=["Y", "Z with heads"])
@pytest.mark.parametrize("case", TORCH)
def test_paths_equal_those_of_torch(case: str, shape: tuple[int, ...]) -> None:
    """Each run with its own rate, momentum and weight decay."""
    name, momentum, decay, make = TORCH[case]
    same(path(Optimizer(name), shape, momentum, decay), torch_path(make, shape), case)


def test_betas_and_eps_equal_those_of_torch() -> None:
    for name, make in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        ours = path(Optimizer(name, beta1=0.7, beta2=0.95, eps=0.3), (4, 3), NONE, DECAY)
        theirs = torch_path(
            lambda p, r, make=make: make(p, lr=float(ETA[r]), betas=(0.7, 0.95), eps=0.3, weight_decay=float(DECAY[r])),
            (4, 3),
        )
        same(ours, theirs, name)


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("clip", [0.5, 3.7])
def test_clipping_equals_that_of_torch(name: str, clip: float) -> None:
    """torch adds 1e-6 to the norm it divides by, which is all the difference there may be."""
    makes = {
        "sgd": lambda p, r: torch.optim.SGD(p, lr=float(ETA[r]), momentum=float(MOMENTUM[r])),
        "adam": lambda p, r: torch.optim.Adam(p, lr=float(ETA[r])),
    }
    momentum = MOMENTUM if name == "sgd" else NONE
    ours = path(Optimizer(name, clip=clip), (2, 3, 5), momentum, NONE)
    same(ours, torch_path(makes[name], (2, 3, 5), clip), f"clip {clip}", 1e-5)
    free = path(Optimizer(name), (2, 3, 5), momentum, NONE)
    assert (ours - free).abs().max() > 1e-3, "the clip never acted"


def test_clipping_is_exact_and_by_run() -> None:
    """A direction above the limit is scaled to it, one below is left alone, whatever the other runs do."""
    d = normal(3, 4, 3)
    d = d / d.flatten(1).norm(dim=1)[:, None, None] * torch.tensor([0.5, 2.0, 10.0])[:, None, None]
    zero = torch.zeros_like(d)
    moved, _ = Optimizer("sgd", clip=2.5).update(
        zero, d, {"velocity": zero}, step=0, eta=torch.ones(3), momentum=NONE, weight_decay=NONE
    )
    same(moved.flatten(1).norm(dim=1), torch.tensor([0.5, 2.0, 2.5], dtype=torch.float64), "norms")
    same(moved[:2], d[:2], "below the limit")
    nothing, _ = Optimizer("sgd", clip=2.5).update(
        zero, zero, {"velocity": zero}, step=0, eta=torch.ones(3), momentum=NONE, weight_decay=NONE
    )
    assert not nothing.any(), "a zero direction must stay zero under clipping"


def test_sign_moves_by_the_rate_along_the_sign_of_the_momentum() -> None:
    table = normal(3, 4, 3)
    state, velocity = Optimizer("sign").start(table), torch.zeros_like(table)
    for step in range(12):
        d = normal(3, 4, 3, seed=step + 1)
        d[:, 0] = 0  # what no data touches stays
        velocity = MOMENTUM[:, None, None] * velocity + d
        new, state = Optimizer("sign").update(table, d, state, step=step, eta=ETA, momentum=MOMENTUM, weight_decay=NONE)
        same(new - table, ETA[:, None, None] * torch.sign(velocity), f"step {step}")
        assert not (new - table)[:, 0].any()
        table = new


@pytest.mark.parametrize("name", RULES)
def test_runs_do_not_see_each_other(name: str) -> None:
    """A run alone gives what it gives among others, also next to one that explodes."""
    table, d = normal(3, 4, 5), normal(3, 4, 5, seed=1)
    d[1] *= 1e200
    optimizer = Optimizer(name, clip=1.5)
    common = {"eta": ETA, "momentum": MOMENTUM, "weight_decay": DECAY}
    together, _ = optimizer.update(table, d, optimizer.start(table), step=3, **common)
    for r in (0, 2):
        alone = {key: value[[r]] for key, value in common.items()}
        own, _ = optimizer.update(table[[r]], d[[r]], optimizer.start(table[[r]]), step=3, **alone)
        same(own[0], together[r], f"{name}, run {r}")


@pytest.mark.parametrize("name", ["momentum", *RULES])
@pytest.mark.parametrize("spread", [False, True])
def test_updates_in_place_are_those_of_one_run(name: str, spread: bool) -> None:
    """Rates and decays may be one number or one per entry."""
    decay, eta = 0.3, torch.tensor(0.2, dtype=torch.float64)
    one = InPlaceOptimizer.of(name, weight_decay=torch.full((4, 5), decay, dtype=torch.float64) if spread else decay)
    table = normal(4, 5)
    expected, moments, mine = table[None].clone(), one.optimizer.start(table[None]), one.start(table)
    for step in range(4):
        d = normal(4, 5, seed=step + 1)
        expected, moments = one.optimizer.update(
            expected, d[None], moments, step=step, eta=eta.view(1),
            momentum=eta.new_full((1,), one.momentum), weight_decay=eta.new_full((1,), decay),
        )  # fmt: skip
        one.update(table, d, mine, eta=eta.expand(4, 5) if spread else eta, step=step)
        same(table, expected[0], f"{name}, step {step}")
    assert one.is_plain_sgd is False
    assert InPlaceOptimizer.of("sgd").is_plain_sgd
    assert InPlaceOptimizer.of("sgd").start(table) == {}


# --- Muon and lumped columns -----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    scale=st.sampled_from([1e-3, 1.0, 1e6]),
    seed=st.integers(0, 1000),
)
def test_orthogonalize_pushes_singular_values_near_one(rows: int, columns: int, scale: float, seed: int) -> None:
    """And leaves the singular vectors: for a spectrum within a factor 50, whatever the size and shape."""
    rng = np.random.default_rng(seed)
    rank = min(rows, columns)
    left, _ = np.linalg.qr(rng.normal(size=(rows, rank)))
    right, _ = np.linalg.qr(rng.normal(size=(columns, rank)))
    spectrum = np.exp(rng.uniform(np.log(0.02), 0, size=rank))
    x = torch.from_numpy((left * spectrum) @ right.T * scale)[None]
    found = orthogonalize(x)[0].numpy()
    core = left.T @ found @ right
    values = np.diag(core)
    assert np.abs(core - np.diag(values)).max() < 1e-9, "singular vectors turned"
    assert np.abs(left @ core @ right.T - found).max() < 1e-9, "something outside the singular vectors"
    assert values.min() > 0.6, f"singular values {values} of a spectrum {spectrum}"
    assert values.max() < 1.3, f"singular values {values} of a spectrum {spectrum}"


def test_orthogonalize_leaves_rounding_small() -> None:
    """A direction that is zero but for rounding must not become a step of full size."""
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 5, 4)) * 1e-16)
    assert 0 < orthogonalize(noise).abs().max() < 1e-5


def test_orthogonalize_keeps_zero_and_low_rank() -> None:
    assert not orthogonalize(torch.zeros(2, 3, 4)).any()
    x = torch.zeros(1, 5, 6, dtype=torch.float64)
    x[0, 1:3, 2:5] = normal(2, 3)
    result = orthogonalize(x)
    outside = torch.ones(5, 6, dtype=torch.bool)
    outside[1:3, 2:5] = False
    assert not result[0, outside].any(), "rows and columns that are zero must stay zero"


def copies(lumped: Tensor, multiplicity: Tensor) -> Tensor:
    """Each column as often as it stands for."""
    return lumped.repeat_interleave(multiplicity.long(), dim=-1)


MULTIPLICITY = torch.tensor([1.0, 7.0, 1.0, 30.0], dtype=torch.float64)


@pytest.mark.parametrize("rows", [2, 4, 60])
def test_orthogonalize_of_a_lumped_column_is_that_of_its_copies(rows: int) -> None:
    x = normal(3, rows, 4)
    same(copies(orthogonalize(x, MULTIPLICITY), MULTIPLICITY), orthogonalize(copies(x, MULTIPLICITY)), f"{rows}")
    assert (orthogonalize(x, MULTIPLICITY) - orthogonalize(x)).abs().max() > 0.1, "multiplicity made no difference"


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("clip", [None, 2.0])
def test_paths_of_lumped_columns_are_those_of_their_copies(name: str, clip: float | None) -> None:
    optimizer = Optimizer(name, clip=clip)
    lumped = normal(3, 6, 4)
    full = copies(lumped, MULTIPLICITY)
    state, full_state = optimizer.start(lumped), optimizer.start(full)
    common = {"eta": ETA, "momentum": MOMENTUM, "weight_decay": DECAY}
    for step in range(10):
        d = normal(3, 6, 4, seed=step + 1)
        lumped, state = optimizer.update(lumped, d, state, step=step, multiplicity=MULTIPLICITY, **common)
        full, full_state = optimizer.update(full, copies(d, MULTIPLICITY), full_state, step=step, **common)
        same(copies(lumped, MULTIPLICITY), full, f"{name}, clip {clip}, step {step}")


def test_muon_step() -> None:
    """Decay apart, the step is η times the orthogonalised momentum."""
    table, optimizer = normal(3, 4, 5), Optimizer("muon")
    velocity, state = torch.zeros_like(table), optimizer.start(table)
    for step in range(3):
        d = normal(3, 4, 5, seed=step + 1)
        velocity = MOMENTUM[:, None, None] * velocity + d
        eta = ETA[:, None, None]
        wanted = table * (1 - eta * DECAY[:, None, None]) + eta * orthogonalize(velocity)
        table, state = optimizer.update(table, d, state, step=step, eta=ETA, momentum=MOMENTUM, weight_decay=DECAY)
        same(table, wanted, f"step {step}")


# --- schedules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("constant", {0: 1, 99: 1}),
        ("cosine", {0: 1, 25: 0.5 + math.sqrt(0.125), 50: 0.5, 75: 0.5 - math.sqrt(0.125), 100: 0}),
        ("cosine(0.2)", {0: 1, 50: 0.6, 100: 0.2}), ("cosine(1)", {0: 1, 37: 1, 100: 1}),
        ("step(10, 0.5)", {0: 1, 9: 1, 10: 0.5, 19: 0.5, 20: 0.25, 99: 0.5**9}),
        ("step(1,2)", {0: 1, 1: 2, 5: 32, 5000: math.inf}), ("step(1, 0.5)", {5000: 0}),
        ("step(1, 0.5, 0.1)", {1: 0.5, 5000: 0.1}), ("linear", {0: 1, 25: 0.75, 100: 0}),
        ("linear(0.2, 50)", {0: 1, 25: 0.6, 50: 0.2, 99: 0.2}), ("warmup(4) constant", {0: 0.25, 3: 1, 99: 1}),
        ("warmup(20) cosine(0.2)", {0: 0.05, 19: 1, 20: 1, 60: 0.6, 100: 0.2}),
        ("warmup(2) step(10, 0.5)", {11: 1, 12: 0.5}),
    ],
)  # fmt: skip
def test_schedules(schedule: str, factors: dict[int, float]) -> None:
    optimizer = Optimizer(schedule=schedule)
    assert {step: optimizer.rate_factor(step, 100) for step in factors} == pytest.approx(factors, abs=1e-15)
    parsed = Schedule.parse(schedule)
    assert Schedule.parse(str(parsed)) == parsed
    assert Schedule.parse(str(parsed.resolve(100))).factor(70, 1000) == parsed.factor(70, 100)
    assert parsed.largest_factor(100) >= max(parsed.factor(step, 100) for step in range(100))


def test_schedules_act_on_each_table_of_a_simulation() -> None:
    """Every step is the population direction times the rate that the schedule of its table gives."""
    classes = SequenceClasses.syn_small()
    optimizer = {"y": {"schedule": "step(2, 0.5)"}, "z": {"schedule": "cosine(0.1)"}}
    common: dict[str, Any] = {
        "context": math.inf, "batch_size": None, "dtype": "float64", "variables": ("y", "z"), "device": "cpu",
    }  # fmt: skip
    data = ss.simulate(classes, eta_y=2.0, eta_z=3.0, steps=5, optimizer=optimizer, record="all", **common)
    for step in range(5):
        before, after = (data.isel(run=0, step=i) for i in (step, step + 1))
        dy, dz = population_direction(classes, before.y.values, before.z.values)
        rate_y = 2.0 * 0.5 ** (step // 2)
        rate_z = 3.0 * (0.1 + 0.9 * (1 + math.cos(math.pi * step / 5)) / 2)
        np.testing.assert_allclose(after.y.values - before.y.values, rate_y * dy, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(after.z.values - before.z.values, rate_z * dz, rtol=1e-10, atol=1e-13)


def population_direction(classes: SequenceClasses, y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ_n p_n of Lemma 1 in the T → ∞ limit, in NumPy."""
    dy, dz, m = np.zeros_like(y), np.zeros_like(z), classes.vocab_size
    for n in range(classes.n_classes):
        row = int(np.searchsorted(classes.queries, classes.query[n]))
        c = classes.p_context[n] * np.exp(z[row])
        f = c / np.linalg.norm(c)
        logits = y.T @ f
        error = np.eye(m)[classes.next_token[n]] - np.exp(logits) / np.exp(logits).sum()
        g = y @ error
        dy += classes.p_class[n] * np.outer(f, error)
        dz[row] += classes.p_class[n] * f * (g - f * (f @ g))
    return dy, dz


# --- bad values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": "rmsprop"}, "optimizer"),
        ({"name": 3}, "optimizer"),
        ({"beta1": 1.0}, "beta1"),
        ({"beta1": -0.1}, "beta1"),
        ({"beta2": math.nan}, "beta2"),
        ({"beta2": "0.9"}, "beta2"),
        ({"eps": 0}, "eps"),
        ({"clip": 0}, "clip"),
        ({"clip": math.inf}, "clip"),
        ({"clip": True}, "clip"),
        *[
            ({"schedule": schedule}, "schedule")
            for schedule in (
                "", "cosine(2)", "cosine(-0.1)", "cosine(0.1, 0.2)", "linear(0.1, 0)", "warmup cosine", "warmup(5)",
                "warmup(50) cosine(0, 50)", "warmup(-1) constant", "step(10, 0.5, 2)", "cosine(x)", "cosine(nan)",
                "step",
                "step(10)", "step(0, 0.5)", "step(2.5, 0.5)", "step(10, 0)", "step(10, -1)", "step(10, inf)",
                "step(inf, 0.5)", "step(nan, 0.5)", "step(10, 0.5, 0, 1)", "step(10; 0.5)", "constant(1)",
                "step(10, 0.5) ", None, 3,
            )
        ],
    ],
)  # fmt: skip
def test_bad_values_are_refused(values: dict[str, Any], field: str) -> None:
    with refused(field):
        Optimizer(**values)


def test_optimizers_are_read_from_names_and_tables() -> None:
    given = Optimizer("adam", beta1=0.8)
    assert Optimizer.of(given) is given
    assert Optimizer.of("muon") == Optimizer(name="muon")
    assert Optimizer.of({"name": "adam", "beta1": 0.8}) == given
    assert Optimizer.of({"clip": 2}) == Optimizer("sgd", clip=2)
    with refused("beta_1"):
        Optimizer.of({"name": "adam", "beta_1": 0.8})
