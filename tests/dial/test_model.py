"""The model of the components: with no flags the YZ model, and with any flags what a plain loop over runs computes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import scansnap as ss
from refusals import refused
from scansnap.dial.cells import OPTIMIZERS, Cell
from scansnap.dial.components import BUILT_IN, COMPONENTS, Flags, flags_of
from scansnap.dial.data import Task
from scansnap.dial.model import SMALL, first_scores, forward, loss, start, trained
from scansnap.dial.training import CellRuns, Descent
from scansnap.dynamics.optimizers import Optimizer
from scansnap.kernels.cpu import library

CPU, DOUBLE = torch.device("cpu"), torch.float64


def runs_of(
    flags: Flags, optimizer: str, eta_y: float, eta_z: float, seeds: int = 2, data: str = "syn-medium"
) -> CellRuns:
    task = Task(flags, data.removeprefix("shuffled:"), CPU, DOUBLE, shuffled=data.startswith("shuffled:"))
    eta = {"y": torch.full((seeds,), eta_y, dtype=DOUBLE), "z": torch.full((seeds,), eta_z, dtype=DOUBLE)}
    return CellRuns(flags, task, optimizer, np.arange(seeds), eta, 1000)


@pytest.mark.parametrize(
    ("flags", "same"),
    [
        ({}, {}),
        ({"norm": "none"}, {"norm": "none"}),
        ({"norm": "layernorm"}, {"norm": "layernorm"}),
        ({"heads": 2}, {"heads": 2}),
        ({"residual": True}, {"residual": "plain"}),
    ],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_without_positions_it_is_simulate(flags, same, optimizer) -> None:
    """The anchor: the same numbers as the hand-written engine, to rounding in float64."""
    classes = ss.SequenceClasses.syn_medium(n_queries=3)
    eta_y, eta_z = (0.5, 0.25) if optimizer == "sgd" else (0.02, 0.01)  # Adam's division makes rounding larger
    runs = runs_of(Flags(**flags), optimizer, eta_y, eta_z)
    theirs = ss.simulate(classes, ss.grid(eta_y=eta_y, eta_z=eta_z, seed=[0, 1]), steps=30, record=[0, 30],
                         context=math.inf, batch_size=None, init=f"normal({SMALL})", optimizer=optimizer,
                         dtype="float64", device="cpu", variables=["attention", "z", "loss"], **same)  # fmt: skip
    for step in (0, 1):
        seen = runs.read()
        attention, z = (theirs[name].isel(step=step) for name in ("attention", "z"))
        if "head" not in z.dims:
            z = z.expand_dims(head=1, axis=1)
        used = classes.p_context > 0
        row = np.searchsorted(classes.queries, classes.query)
        ours = seen.z[:, :, row][:, :, used]
        np.testing.assert_allclose(ours, z.transpose("run", "head", "query", "token").values[:, :, row][:, :, used],
                                   rtol=0, atol=1e-12)  # fmt: skip
        np.testing.assert_allclose(seen.attention.mean(1), _mean(attention), rtol=0, atol=1e-12)
        np.testing.assert_allclose(seen.loss, theirs.loss.isel(step=step), rtol=1e-12)
        runs.advance(30)


def _mean(attention):
    return attention.mean("head") if "head" in attention.dims else attention


def plain_forward(p: dict[str, torch.Tensor], flags: Flags, keys, queries, bias) -> torch.Tensor:
    """One run, one sequence, one query position at a time, in plain words; (Q, M)."""
    d = p["embed"].shape[1]

    def norm(kind: str, v: torch.Tensor) -> torch.Tensor:
        if kind == "layernorm":
            return (v - v.mean()) / (v.var(correction=0) + 1e-5).sqrt()
        return v / (v.square().mean() + 1e-5).sqrt()

    def turn(v: torch.Tensor, place: int) -> torch.Tensor:
        half, out = len(v) // 2, v.clone()
        for i in range(half):
            angle = place * 10_000.0 ** (-i / half)
            a, b = v[i], v[half + i]
            out[i] = a * math.cos(angle) - b * math.sin(angle)
            out[half + i] = a * math.sin(angle) + b * math.cos(angle)
        return out

    def vectors(tokens, first: int) -> list[torch.Tensor]:
        places = p["place"][first:] if "place" in p else torch.zeros(len(tokens), d, dtype=p["embed"].dtype)
        return [p["embed"][token] + place for token, place in zip(tokens, places, strict=True)]

    first = len(keys) - len(queries) if flags.sequences else 0
    x, x_q = vectors(keys, 0), vectors(queries, first)
    for layer in range(flags.layers):
        at = f".{layer}" if layer else ""
        pre = [norm(flags.prenorm, v) if flags.prenorm != "none" else v for v in x]
        new = []
        for i, own in enumerate(x_q):
            ask = norm(flags.prenorm, own) if flags.prenorm != "none" else own
            read = []
            for h in range(flags.heads):
                logits = []
                for s, key in enumerate(pre):
                    if flags.separate:
                        q, k = ask @ p[f"w_q{at}"][h], key @ p[f"w_k{at}"][h]
                        q = q / math.sqrt(len(q))
                    else:
                        q, k = ask @ p[f"z{at}"][h], key
                    if flags.positions == "rope":
                        q, k = turn(q, first + i), turn(k, s)
                    logit = q @ k
                    if flags.positions == "alibi":
                        slope = 1 / 16 if flags.heads == 1 else 2.0 ** (-8 * (h + 1) / flags.heads)
                        logit = logit - slope * abs(first + i - s)
                    logits.append(logit + bias[i, s])
                weight = torch.softmax(torch.stack(logits), 0)
                read.append(sum(w * key for w, key in zip(weight, pre, strict=True)))

            def of_read(c: torch.Tensor, at: str = at) -> torch.Tensor:
                if flags.norm == "l2":
                    return c / c.norm()
                if flags.norm == "rms":
                    return norm("rms", c) * p[f"gain{at}"]
                return c if flags.norm == "none" else (c - c.mean()) / c.var(correction=0).sqrt()

            if flags.separate:
                out = sum(of_read(c) @ p[f"w_v{at}"][h] @ p[f"w_o{at}"][h] for h, c in enumerate(read))
                out = own + out if flags.residual else out
            else:
                c = sum(read) / flags.heads
                stream = flags.residual and flags.prenorm != "none"
                f = of_read(c + own if flags.residual and not stream else c)
                out = f @ p[f"y{at}"] + (own if stream else f if layer + 1 < flags.layers else 0)
            if flags.mlp != "none":
                inside = out if flags.prenorm == "none" else norm(flags.prenorm, out)
                act = {"linear": lambda v: v, "relu": torch.relu, "gelu": torch.nn.functional.gelu}[flags.mlp]
                added = act(inside @ p[f"w_1{at}"]) @ p[f"w_2{at}"]
                out = out + added if flags.residual else added
            new.append(out)
        x_q = x = new
    if flags.prenorm != "none" and flags.residual:
        x_q = [norm(flags.prenorm, v) for v in x_q]
    return torch.stack([p["embed"] @ v for v in x_q])


MODELS = {f"{name}:{chosen}:alone": flags_of(f"{name}:{chosen}" if chosen else name, "single")
          for name in BUILT_IN for chosen in COMPONENTS[name].choices}  # fmt: skip
MODELS |= {f"{name}:cumulative": flags_of(name, "cumulative") for name in BUILT_IN[6:]}
MODELS |= {
    "without separate": flags_of("separate", "leave_one_out"),
    "without residual": flags_of("residual", "leave_one_out"),
}


@pytest.mark.parametrize("flags", MODELS.values(), ids=MODELS)
def test_all_runs_at_once_are_each_run_for_itself(flags: Flags) -> None:
    task = Task(flags, "textbook", CPU, DOUBLE, context=8)
    seeds = torch.tensor([3, 5])
    p = start(flags, task.vocab_size, task.context, seeds, DOUBLE)
    torch.manual_seed(0)
    p = {name: t + 0.3 * torch.randn_like(t) if name != "embed" or flags.separate else t for name, t in p.items()}
    (batch,) = task.batches(seeds, 4, 5)
    batch = batch.of(torch.tensor([0, 1]))
    logits = forward(p, flags, batch).logits
    one = {name: t[1] for name, t in p.items()}
    which = min(1, logits.shape[1] - 1)
    keys, queries, bias = (t[min(1, len(t) - 1), which] for t in (batch.keys, batch.queries, batch.bias))
    if not flags.sequences:
        queries, bias = queries[:2], bias[:2]
    expected = plain_forward(one, flags, keys, queries, bias)
    if batch.positions is not None:  # the positions with a target, and some to fill up
        assert batch.positions.shape[-1] < len(queries)
        expected = expected[batch.positions[1, which]]
    np.testing.assert_allclose(logits[1, which, : len(expected)], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "flags",
    [flags_of("masked", "cumulative"), flags_of("layers", "cumulative"),
     Flags(finite=True, every_position=True, masked=True, positions="alibi", heads=2)],
)  # fmt: skip
def test_what_is_not_asked_need_not_be_computed(flags: Flags) -> None:
    """Positions without weight in the loss have no gradient: all are asked, or those that have one, and some more."""
    task = Task(flags, "syn-medium", CPU, DOUBLE, context=24)
    seeds = torch.tensor([0, 1])
    p = start(flags, task.vocab_size, task.context, seeds, DOUBLE)
    (cut,) = task.batches(seeds, 3, 4)
    assert cut.positions is not None
    every = torch.arange(task.context).expand_as(cut.keys)
    target, weight = (
        torch.zeros_like(every, dtype=t.dtype).scatter(-1, cut.positions, t) for t in (cut.target, cut.weight)
    )
    whole = replace(cut, target=target, weight=weight, positions=None)
    tables = {name: t.requires_grad_() for name, t in p.items() if trained(flags, name)}
    found = []
    for batch in (cut, whole):
        each = loss(p, flags, batch)
        found.append([each.detach(), *torch.autograd.grad(each.sum(), list(tables.values()))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(library.find("step") is None, reason="needs the compiled kernel step")
@pytest.mark.parametrize("flags", MODELS.values(), ids=MODELS)
def test_the_compiled_step_is_the_plain_one(flags: Flags, monkeypatch) -> None:
    """Gradients of all tables in float32, where the kernel is, and in float64, where it is not; then some steps."""
    monkeypatch.setattr("scansnap.dial.attention._LARGE", 1)  # small as this is
    found = {}
    for dtype in (torch.float32, DOUBLE):
        task = Task(flags, "syn-medium", CPU, dtype, context=24)
        eta = torch.full((2,), 0.05, dtype=dtype)
        runs = CellRuns(flags, task, "sgd", np.arange(2), {"y": eta, "z": eta}, 1000)
        (batch,) = task.batches(runs.streams, 4, 5)
        tables = {name: t.clone().requires_grad_() for name, t in runs.descent.tables.items()}
        total = loss({**runs.fixed, **tables}, flags, batch.of(runs.stream)).sum()
        gradients = torch.autograd.grad(total, list(tables.values()))
        runs.advance(3)
        found[dtype] = [*gradients, *runs.descent.tables.values()]
    for single, double in zip(*found.values(), strict=True):
        size = float(double.abs().max())
        np.testing.assert_allclose(single.double(), double, rtol=0, atol=2e-5 * size)


def test_gradients_of_all_runs_are_those_of_each() -> None:
    """CellRuns do not see each other: one run alone moves as it does beside another, in the full model too."""
    flags = flags_of("layers", "cumulative")
    both, alone = runs_of(flags, "adamw", 1e-3, 1e-3, seeds=2), runs_of(flags, "adamw", 1e-3, 1e-3, seeds=1)
    for runs in (both, alone):
        runs.advance(2)
    for name, table in alone.descent.tables.items():
        np.testing.assert_allclose(both.descent.tables[name][:1], table, rtol=1e-9, atol=1e-12)


def test_the_loss_falls_with_every_component() -> None:
    for name in BUILT_IN:
        flags = flags_of(name, "single")
        runs = runs_of(flags, "adamw", 0.02, 0.01, seeds=1)
        before = runs.read().loss
        runs.advance(6)
        assert runs.read().loss < before, name


def test_a_run_that_becomes_infinite_is_told_by_its_loss_and_by_no_other() -> None:
    task = Task(Flags(separate=True), "syn-medium", CPU, DOUBLE)
    eta = torch.tensor([1e200, 0.1], dtype=DOUBLE)
    runs = CellRuns(task.flags, task, "sgd", np.arange(2), {"y": eta, "z": eta}, 1000)
    alone = CellRuns(task.flags, task, "sgd", np.array([1]), {"y": eta[1:], "z": eta[1:]}, 1000)
    for each in (runs, alone):
        each.advance(4)
    found = runs.read().loss
    assert not np.isfinite(found[0])
    np.testing.assert_allclose(found[1:], alone.read().loss, rtol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(
    ("optimizer", "dtype", "tolerance"),
    [*((optimizer, DOUBLE, 1e-12) for optimizer in OPTIMIZERS), ("adamw", torch.float32, 1e-5)],  # the compiled kernel
)
def test_updates_in_place_are_those_of_every_other_training(optimizer, dtype, tolerance, decay: float) -> None:
    """Tables of two shapes and a vector, beside one another in one long vector, against each by its rule."""
    torch.manual_seed(0)
    tables = {"y": torch.randn(3, 5, 4, dtype=dtype), "z": torch.randn(3, 2, 4, 4, dtype=dtype),
              "gain": torch.randn(3, 4, dtype=dtype)}  # fmt: skip
    eta = {name: torch.rand(3, dtype=dtype) for name in tables}
    shrink = {name: torch.full((3,), decay, dtype=dtype) for name in tables}
    moved = Descent(optimizer, tables, eta, shrink)
    rule = Optimizer("sgd" if optimizer == "momentum" else optimizer)
    expected = {name: t[:, None] if t.ndim == 2 else t for name, t in tables.items()}
    moments = {name: rule.start(t) for name, t in expected.items()}
    momentum = torch.full((3,), 0.9 if optimizer in ("momentum", "sign", "muon") else 0.0, dtype=dtype)
    for step in range(4):
        g = {name: torch.randn_like(t) for name, t in tables.items()}
        moved.move([-gradient for gradient in g.values()])
        for name, table in expected.items():
            expected[name], moments[name] = rule.update(
                table, -g[name].reshape(table.shape), moments[name], step=step, eta=eta[name], momentum=momentum,
                weight_decay=shrink[name],
            )  # fmt: skip
    for name, table in moved.tables.items():
        np.testing.assert_allclose(table, expected[name].reshape(table.shape), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "flags",
    [flags_of("layers", "cumulative"), flags_of("separate", "leave_one_out"),
     flags_of("every-position", "leave_one_out"), Flags(finite=True, layers=2)],
)  # fmt: skip
def test_asked_at_the_end_the_answer_is_that_of_all_positions(flags: Flags) -> None:
    task = Task(flags, "textbook", CPU, DOUBLE, context=8)
    p = start(flags, task.vocab_size, task.context, torch.tensor([3, 5]), DOUBLE)
    every, last = (forward(p, flags, task.evaluation, at_end=at_end) for at_end in (False, True))
    np.testing.assert_allclose(last.logits[:, :, -1], every.logits[:, :, -1], rtol=1e-12)
    np.testing.assert_allclose(first_scores(p, flags, task.evaluation), every.scores[0], rtol=1e-12)


def test_loss_is_the_weighted_mean_of_what_is_asked() -> None:
    flags = Flags(finite=True, every_position=True)
    task = Task(flags, "syn-medium", CPU, DOUBLE)
    seeds = torch.tensor([0, 1])
    (batch,) = task.batches(seeds, 0, 1)
    p = start(flags, task.vocab_size, task.context, seeds, DOUBLE)
    p["y"].zero_()  # every next token is as likely as any
    np.testing.assert_allclose(loss(p, flags, batch), math.log(task.vocab_size), rtol=1e-12)


@pytest.mark.parametrize("margin", [10.0, 20.0])
def test_gradients_are_those_of_double_precision_however_small_the_loss(margin: float) -> None:
    """Muon and sign go on where 1 − α has long been rounded away, and followed what was left of it."""
    flags, found = Flags(), {}
    for dtype in (torch.float32, DOUBLE):
        task = Task(flags, "syn-medium", CPU, dtype)
        p = start(flags, task.vocab_size, task.context, torch.tensor([0]), dtype)
        for n, token in enumerate(task.classes.next_token):
            p["y"][:, task.classes.distinct(n), int(token)] += margin
        tables = {name: p[name].requires_grad_() for name in ("y", "z")}
        total = loss({**p, **tables}, flags, task.expectation).sum()
        found[dtype] = [g.double() / g.double().norm() for g in torch.autograd.grad(total, list(tables.values()))]
    for single, double in zip(*found.values(), strict=True):
        np.testing.assert_allclose(single, double, atol=1e-4)


def test_cells_refuse_what_there_is_not() -> None:
    for given, field in ((("nothing", "single", "sgd"), "component"), (("norm:l7", "single", "sgd"), "component"),
                         (("yz", "sideways", "sgd"), "mode"), (("yz", "single", "lion"), "optimizer"),
                         (("yz", "leave_one_out", "sgd"), "mode"), (("99", "single", "sgd"), "component")):  # fmt: skip
        with refused(field):
            Cell(*given)


@pytest.mark.parametrize(
    "flags",
    [{"positions": "rope"}, {"positions": "absolute"}, {"every_position": True}, {"layers": 2}, {"bos": True},
     {"positions": "sideways"}, {"heads": 0}, {"width": 1}, {"norm": "l7"}, {"mlp": "tanh"}],
)  # fmt: skip
def test_contradictory_flags_are_refused(flags) -> None:
    with refused(next(iter(flags))):
        Flags(**flags)


@pytest.mark.parametrize("data", ["syn-medium", "zipf", "textbook", "shuffled:syn-medium", "shuffled:zipf"])
@pytest.mark.parametrize("flags", [Flags(), Flags(finite=True, bos=True), Flags(finite=True, masked=True)], ids=str)
def test_reading_is_at_t_infinity_on_all_data(flags: Flags, data: str) -> None:
    """Before training attention is P(l|n), whatever the positions; a first token and a mask's query stand apart."""
    runs = runs_of(flags, "sgd", 0.5, 0.5, seeds=1, data=data)
    seen, classes = runs.read(), runs.task.classes
    own = seen.attention[0, 0] * (classes.p_context > 0)
    np.testing.assert_allclose(own / own.sum(-1, keepdims=True), classes.p_context, rtol=0.1)
    if not data.startswith("shuffled:"):
        runs.advance(3)
        assert runs.read().loss < seen.loss
