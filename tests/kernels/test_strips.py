"""The CUDA kernel on tensor cores, run by an emulation that cuts factors as they do, against the general path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from emulation import COMPILER, MACHINE
from numpy.testing import assert_array_equal
from test_kernels import EPS, random_classes

import scansnap as ss
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import settings
from scansnap.dynamics.state import start
from scansnap.kernels.cuda.runs import InitialValues, KernelRates, Program
from scansnap.runs import Runs

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

RUNS = ss.grid(eta_z=[0.5, 1.5], ratio=2.0, seed=[5, 0], momentum=0.9)
STEPS = 3
SHAPES: dict[str, tuple[int, dict[str, Any]]] = {
    "held by one warp": (1, {}),
    "held by two": (2, {"held": True, "tiles": 1, "warps": 2}),
    "visited, three warps": (2, {"held": False, "tiles": 1, "warps": 3, "group": 2}),
    "visited, velocities outside": (3, {"held": False, "tiles": 1, "warps": 2, "group": 3, "v_shared": False}),
}


class Trained:
    """Runs on Syn-Medium(q) by the kernel, and by the general path in float64."""

    def __init__(self, q: int, runs: Runs = RUNS, chosen: dict[str, Any] | None = None, **options: Any) -> None:
        classes = ss.SequenceClasses.syn_medium(q)
        plan = settings({"steps": STEPS, "batch_size": 45, "context": 40, "init": "uniform"} | options)
        layout = make_layout(classes, plan.model, decays=False)
        self.program = Program(
            layout, MACHINE, layout.expected_counts(plan.context, plan.model.query_in_keys), **(chosen or {})
        )
        seeds, stream = np.unique(runs.seed, return_inverse=True)
        assert plan.batch_size is not None
        own = layout.slot_query if plan.model.query_in_keys else None
        data = self.program.draw(seeds, 0, STEPS, plan.batch_size, int(plan.context) - 1, own)
        n, y, z = len(runs), (len(layout.rows), len(layout.columns)), (len(layout.queries), layout.vocab_size)
        shapes = ((n, *y), (n, *y), (n, *z), (n, *z))
        new = tuple(torch.full(shape, torch.nan) for shape in shapes)
        one = np.ones(STEPS)
        rates = KernelRates(runs.eta_y, runs.eta_z, runs.momentum, one, one)
        begin = InitialValues(*plan.model.init_scale(layout.vocab_size))
        record_z, loss, finite = self.program.train(data, stream, runs.seed, rates, begin, record=(0, STEPS), new=new)  # type: ignore[arg-type]
        assert finite.all()
        self.y, self.v, self.z, self.vz = (table.numpy() for table in new)
        self.loss, self.recorded = loss.numpy(), record_z.numpy()

        double = replace(plan, dtype="float64")
        engine = Engine(layout, double, runs, torch.device("cpu"), "general")
        state = start(layout, double, runs.seed, torch.device("cpu"))
        self.first = {name: table.numpy() for name, table in state.tables.items()}
        state = engine.advance(state, Batches(layout, double, seeds, torch.device("cpu")).take(0, STEPS))
        self.exact = {name: table.numpy() for name, table in state.tables.items()}
        self.velocity = state.moments["y"]["velocity"].numpy()
        self.simulated = ss.simulate(classes, runs, settings=double, engine="general", record=[0, STEPS],
                                     variables=("loss",), device="cpu").loss.values  # fmt: skip

    def check(self, runs: Runs = RUNS) -> None:
        """Within the limits at the head of test_kernels.py."""
        top_y, top_z = (np.abs(self.exact[name]).max() for name in "yz")
        rate_y, rate_z = (np.sqrt(STEPS) * rate.max() / (1 - runs.momentum.max()) for rate in (runs.eta_y, runs.eta_z))
        limit_y, limit_z = 10 * EPS * (top_y + rate_y), 10 * EPS * (top_z + rate_z * top_y)
        read = ~np.isnan(self.z)
        exact_z = self.exact["z"].reshape(self.z.shape)
        moved = np.abs(exact_z - self.first["z"].reshape(self.z.shape))[read]
        assert moved.max() > 100 * limit_z, "hardly moved: nothing to compare"
        assert np.abs(self.exact["y"] - self.first["y"]).max() > 100 * limit_y
        assert np.abs(self.y - self.exact["y"]).max() < limit_y
        assert np.abs(self.v - self.velocity).max() < limit_y
        assert np.abs(self.z - exact_z)[read].max() < limit_z
        np.testing.assert_allclose(self.loss, self.simulated, rtol=2e-5, atol=10 * limit_y)


@pytest.mark.parametrize("shape", SHAPES)
def test_tables_are_those_of_the_general_path(shape: str) -> None:
    q, chosen = SHAPES[shape]
    trained = Trained(q, chosen=chosen)
    assert trained.program.strips is not None
    trained.check()


def test_classes_may_have_an_odd_number_of_tokens() -> None:
    trained = Trained(1, query_in_keys=True)
    assert trained.program.strips is not None
    assert trained.program.strips.slots % 2 == 1
    trained.check()


@pytest.mark.integration
@pytest.mark.parametrize("held", [True, False])
def test_a_favourite_key_that_is_not_there(held: bool) -> None:
    """Short sequences and very different keys: some samples need keys of their own, or their squares vanish."""
    trained = Trained(
        2, init="normal(15)", context=4, batch_size=60, chosen={"held": held, "tiles": 1 + held, "warps": 2, "group": 1}
    )
    z = trained.first["z"]
    assert z.max() - z.min() > 60, "no square can vanish"
    trained.check()


@pytest.mark.integration
def test_logits_that_are_far_from_those_before() -> None:
    """The first shift is 0: sums that leave the float range are made again."""
    trained = Trained(1, init="normal(150)", batch_size=20)
    assert trained.loss.max() > 100, "no sum leaves the float range"
    trained.check()


@pytest.mark.integration
def test_a_run_has_the_same_bits_alone_and_among_others() -> None:
    chosen = {"held": False, "tiles": 1, "warps": 3, "group": 2}
    run = ss.grid(eta_z=RUNS.eta_z[2], eta_y=RUNS.eta_y[2], seed=RUNS.seed[2], momentum=0.9)
    together, alone = Trained(2, chosen=chosen), Trained(2, run, chosen=chosen)
    for name in ("y", "v", "z", "vz", "loss", "recorded"):
        assert_array_equal(getattr(alone, name)[0], getattr(together, name)[2], name)


def test_it_is_taken_where_classes_are_alike() -> None:
    def strips(classes: ss.SequenceClasses, **model: Any) -> object:
        layout = make_layout(classes, ss.ModelConfig(**model), decays=False)
        return Program(layout, MACHINE, layout.slot_p).strips

    assert strips(ss.SequenceClasses.syn_medium(10), init="uniform")
    assert strips(ss.SequenceClasses.syn_small(), init="uniform")
    assert strips(ss.SequenceClasses.syn_medium(3), init="zero") is None, "a column stands for several outputs"
    assert strips(random_classes(1, 20, 4, 9), init="uniform") is None
