"""Lemma 1: the gradients that training really uses, against automatic differentiation of the loss.

With f_n = c_n/‖c_n‖ and r_n = e_n − α_n, one sequence of class n moves the tables along

    dY = f_n r_nᵀ        dz_m = diag(f_n)(I − f_n f_nᵀ) Y r_n,   m = ψ(n)

These lines stand in the engine of ``simulate`` (dynamics/yz.py) and in the field of ``flow`` (flow/compact.py),
each in its own coordinates. The claim puts every recorded Y and Z into both, lets them make one step, and compares the
step with autograd through a plain forward pass:

    the engine on the classes themselves   T → ∞, expectation over the classes
    the engine on sampled sequences        it uses counts; the forward pass uses single tokens
    the flow                               T → ∞, expectation; from Y(0) = 0 only, as it has one column for all
                                           outputs that are never right

The engine is the general one, in float64; tests compare the fused one with it. The claim is an identity: it holds at
any state, and a failure is a bug of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scansnap.claims.claim import Claim, Curve, Statement, index_of_largest
from scansnap.claims.evidence import Array, Evidence
from scansnap.classes import SequenceClasses
from scansnap.dynamics.engines.batches import Batches
from scansnap.dynamics.engines.hand_written import Engine
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.flow.compact import CompactFlow, PaddedLayout
from scansnap.dynamics.settings import ModelConfig, Settings
from scansnap.dynamics.state import start
from scansnap.runs import grid

STATEMENT = Statement(
    "lemma-1", "Lemma 1",
    "engine and flow move along the gradients of log α_n, dY = f(e_n − α)ᵀ and dz_m = diag(f)(I − ffᵀ)Y(e_n − α)",
    kind="identity",
)  # fmt: skip
STATEMENTS = (STATEMENT,)

# Both sides are exact in float64 up to sums of K and M terms of either sign, about 1e-15 to 1e-13 of their size.
# 1e-9 leaves four digits for larger tables and is far below any wrong term (1/M, 1/T, a missing projection).
TOLERANCE = 1e-9

# dz is a difference: (I − ffᵀ) cancels all of Y r for a single class, and at a balance between classes their sum
# cancels. Its error is then relative to the terms, whose size max|Y| ‖dY‖ bounds; this share of it is the floor.
_CANCELLED = 1e-3

_SAMPLED = Settings(steps=1, batch_size=32, context=64, sampling="tokens", dtype="float64")
_EXPECTED = replace(_SAMPLED, batch_size=None, context=math.inf)
_CPU = torch.device("cpu")

Gradients = Callable[[Array, Array, SequenceClasses], tuple[Array, Array]]  # (y, z, classes) → (dy, dz)


class Implementation(NamedTuple):
    """A hand-written implementation of the gradients, and autograd on the same sequences."""

    name: str
    by_hand: Gradients
    by_autograd: Gradients
    lumped: bool = False  # only for tables whose never-right outputs have equal columns


def check(evidence: Evidence, *, ways: Sequence[Implementation] | None = None) -> Claim:
    """``ways`` replaces the engine and the flow."""
    if evidence.y is None or evidence.y_times is None:
        return STATEMENT.not_applicable("the trajectory holds no y")
    if evidence.classes.vocab_size == 1:
        return STATEMENT.not_applicable("with a single output there is nothing to learn")
    ways = WAYS if ways is None else ways
    ways = [way for way in ways if not way.lumped or all(_lumps(y, evidence.classes) for y in evidence.y)]
    size = np.zeros((len(ways), len(evidence.y), 2, 2))  # way; state; Y or Z; by hand or by autograd
    share = np.zeros((len(ways), len(evidence.y), 2))
    cells = {}
    for w, way in enumerate(ways):
        for i, (y, time) in enumerate(zip(evidence.y, evidence.y_times, strict=True)):
            z = evidence.z[time]
            ours, true = way.by_hand(y, z, evidence.classes), way.by_autograd(y, z, evidence.classes)
            scale = [np.linalg.norm(true[0]), np.linalg.norm(true[1])]
            scale[1] = max(scale[1], _CANCELLED * np.abs(y).max() * scale[0])
            for part in range(2):
                error = ours[part] - true[part]
                size[w, i, part] = np.linalg.norm(ours[part]), np.linalg.norm(true[part])
                share[w, i, part] = _share(float(np.linalg.norm(error)), float(scale[part]))
                cells[w, i, part] = np.unravel_index(np.abs(error).argmax(), error.shape)
    w, i, part = index_of_largest(share)
    row, column = (int(j) for j in cells[w, i, part])
    t = evidence.t[evidence.y_times]
    name = "dY" if part == 0 else "dz"
    place = f"Y[{row}, {column}]" if part == 0 else f"query {evidence.classes.queries[row]}, token {column}"
    shown = (t > 0) & (size[w, :, part] > 0).all(-1)  # on logarithmic axes
    curve = Curve("t", f"‖{name}‖", t[shown], size[w, shown, part, 0], size[w, shown, part, 1], log_y=True)
    return STATEMENT.judge(
        quantity=f"norm of {name} of {ways[w].name} against autograd, at t = {t[i]:.4g} "
        f"(the worst of {', '.join(way.name for way in ways)})",
        measured=size[w, i, part, 0], predicted=size[w, i, part, 1], deviation=share[w, i, part], tolerance=TOLERANCE,
        failure=f"{ways[w].name}: {name} off by {share[w, i, part]:.2g} of its norm at t = {t[i]:.4g}, most at {place}",
        curve=curve if shown.any() else None,
    )  # fmt: skip


# --- by hand: simulate and flow -----------------------------------------------------------------------------------


def by_engine(y: Array, z: Array, classes: SequenceClasses, plan: Settings = _EXPECTED) -> tuple[Array, Array]:
    """The direction of one update of the engine, dY (M, M) and dz (Q, M).

    Without momentum the velocity after an update is the gradient itself, without the rounding of Y and Z.
    """
    plan, batches, engine = _engine(y, classes, plan)
    layout, seeds = engine.layout, engine.runs.seed
    columns = np.where(layout.columns < 0, _never(classes).min(initial=classes.vocab_size - 1), layout.columns)
    compact = torch.tensor(y[np.ix_(layout.rows, columns)])[None]  # (1, L, J)
    state = replace(start(layout, plan, seeds, _CPU), tables={"y": compact, "z": torch.tensor(z)[None, None]})
    after = engine.advance(state, batches.take(0, 1))
    dy = np.zeros_like(y)
    dy[layout.rows] = layout.expand_columns(after.moments["y"]["velocity"][0].numpy())
    return dy, after.moments["z"]["velocity"][0, 0].numpy()


def by_engine_sampled(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    """The same for a mini-batch of sequences."""
    return by_engine(y, z, classes, _SAMPLED)


def by_flow(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    """The flow's field at η_Y = η_Z = 1, as the integrator gets it."""
    places = PaddedLayout(classes)
    field = CompactFlow(places, 1.0, 1.0, z, _CPU)
    dz = np.zeros_like(z)
    with torch.inference_mode():
        field.put_y(y)
        field.rates(0, np.zeros(0))
        field.put_y(np.zeros_like(y))  # 0 plus the rates is the rates, without rounding
        dz[places.cell_query, places.cell_token] = field.z.rate[0].numpy()
        return field.y(np.ones(1)), dz


def _engine(y: Array, classes: SequenceClasses, plan: Settings) -> tuple[Settings, Batches, Engine]:
    """One run of the general engine, in the coordinates of a run with such a Y."""
    model = ModelConfig(init="zero" if _lumps(y, classes) else "uniform")
    plan, runs = replace(plan, model=model), grid(eta_y=1.0, eta_z=1.0).filled()
    layout = make_layout(classes, model, decays=False)
    return plan, Batches(layout, plan, runs.seed, _CPU), Engine(layout, plan, runs, _CPU, "general")


def _never(classes: SequenceClasses) -> Array:
    """Outputs that are no class's next token."""
    return np.setdiff1d(np.arange(classes.vocab_size), classes.next_token)


def _lumps(y: Array, classes: SequenceClasses) -> bool:
    """Whether all outputs that are never right have the same column, as from Y(0) = 0."""
    columns = y[:, _never(classes)]
    return bool((columns == columns[:, :1]).all())


# --- by autograd: the loss, plainly --------------------------------------------------------------------------------


def by_autograd(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    """T → ∞: ascent directions of Σ p_n log α_n, dY (M, M) and dz (Q, M)."""
    y_, z_, row = _leaves(y, z, classes)
    c = torch.softmax(z_[row] + torch.tensor(classes.p_context).log(), dim=-1)  # (K, M)  P e^z, normalised
    log_alpha = _log_alpha(c, y_, torch.tensor(classes.next_token))
    return _ascent((torch.tensor(classes.p_class) * log_alpha).sum(), y_, z_)


def by_autograd_sampled(y: Array, z: Array, classes: SequenceClasses) -> tuple[Array, Array]:
    """Of the mean log α_n over the engine's mini-batch, token by token: b = softmax(z_m,x), c = X^T b."""
    y_, z_, row = _leaves(y, z, classes)
    (cls,), (tokens,) = _engine(y, classes, _SAMPLED)[1].tokens(0)  # (B,), (B, T − 1)
    b = torch.softmax(z_[row[cls]].gather(1, tokens), dim=-1)  # (B, T − 1)
    c = torch.zeros(len(cls), y.shape[0], dtype=y_.dtype).scatter_add(1, tokens, b)  # (B, M)
    return _ascent(_log_alpha(c, y_, torch.tensor(classes.next_token)[cls]).mean(), y_, z_)


def _leaves(y: Array, z: Array, classes: SequenceClasses) -> tuple[Tensor, Tensor, Tensor]:
    tables = [torch.tensor(table, dtype=torch.float64, requires_grad=True) for table in (y, z)]
    return tables[0], tables[1], torch.as_tensor(np.searchsorted(classes.queries, classes.query))


def _log_alpha(c: Tensor, y: Tensor, right: Tensor) -> Tensor:
    """log α_n of attention c (B, M) and next tokens (B,)."""
    f = c / c.norm(dim=-1, keepdim=True)
    w = f @ y  # (B, M)
    others = (w - w.gather(-1, right[:, None])).scatter(-1, right[:, None], -torch.inf)
    # log α_n = log σ(−ln Σ_{j≠n} e^{w_j − w_n}): log_softmax, but with 1 − α_n to full precision
    return torch.nn.functional.logsigmoid(-others.logsumexp(-1))


def _ascent(objective: Tensor, y: Tensor, z: Tensor) -> tuple[Array, Array]:
    dy, dz = torch.autograd.grad(objective, (y, z))
    return dy.numpy(), dz.numpy()


def _share(error: float, scale: float) -> float:
    if error == 0:
        return 0.0  # both gradients may be exactly 0, as dz is at Y = 0
    return error / scale if scale > 0 else np.inf


WAYS = (
    Implementation("the engine in expectation", by_engine, by_autograd),
    Implementation("the engine on sampled sequences", by_engine_sampled, by_autograd_sampled),
    Implementation("the flow", by_flow, by_autograd, lumped=True),
)
