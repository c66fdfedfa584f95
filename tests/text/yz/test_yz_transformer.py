"""Updates of the YZ model against autograd through the long way, and against the dynamics of sequence classes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import yz_reference as reference

from refusals import refused
from scansnap.classes import SequenceClasses
from scansnap.dynamics import norms, yz
from scansnap.dynamics.engines.layout import make_layout
from scansnap.dynamics.settings import ModelConfig
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import FullTable, InitialTables, TableRows

ONE_LAYER = [
    {"residual": residual, "norm": norm, "query_in_keys": self_too, "rank": rank}
    for residual, norm, self_too, rank in product(("none", "normed", "plain"), ("l2", "none"), (False, True), (None, 3))
]
SEVERAL = [
    {"layers": 2, "residual": residual, "activation": activation, "norm": norm, "rank": rank, "query_in_keys": self_too}
    for residual, activation, (norm, rank, self_too) in product(
        ("none", "normed", "plain"),
        ("softmax", "relu", "none"),
        (("l2", None, False), ("l2", 3, True), ("none", None, True)),
    )
] + [{"layers": 3, "residual": "normed"}, {"layers": 3, "rank": 2, "query_in_keys": True}]


def named(options: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in options.items() if value not in (None, False))


def before_and_after(model: YZTransformer, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[Any, Any, Any]:
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    loss = model.train_step(inputs, targets)
    return loss, before, model.tensors()


@pytest.mark.parametrize("options", ONE_LAYER + SEVERAL, ids=named)
def test_a_step_is_the_gradient_of_the_long_way(options):
    model = reference.model(**options)
    inputs, targets = reference.batch(9, 2, 4, seed=1)
    wanted_loss, expected = reference.gradients(model, inputs, targets)
    shown = reference.logits(model.tensors(), inputs, model.settings)
    torch.testing.assert_close(model.logits(inputs), shown, rtol=1e-10, atol=1e-12)
    loss, before, after = before_and_after(model, inputs, targets)
    assert float(loss) == pytest.approx(wanted_loss, rel=1e-12)
    for name, gradient in expected.items():
        largest = gradient.abs().max()
        assert largest > 1e-8, f"{name} has no gradient: nothing is tested"
        error = (after[name] - before[name] + gradient).abs().max()
        assert error < 1e-10 * (1 + largest), f"{name}: off by {error:.1e} of {largest:.1e}"


def test_a_rule_of_a_user_moves_tables(halves):
    """By half of the first direction, which it then remembers; by half of it and half of the second."""
    model = reference.model(optimizer=halves, eta_y=0.5, eta_z=0.5)
    inputs, targets = reference.batch(9, 2, 4, seed=1)
    _, first = reference.gradients(model, inputs, targets)
    _, before, after = before_and_after(model, inputs, targets)
    after = {name: tensor.clone() for name, tensor in after.items()}
    _, second = reference.gradients(model, inputs, targets)
    model.train_step(inputs, targets)
    for name, gradient in first.items():
        torch.testing.assert_close(after[name] - before[name], -0.25 * gradient)
        torch.testing.assert_close(after[f"{name}.last"], -gradient)
        torch.testing.assert_close(model.tensors()[name] - after[name], -0.25 * (gradient + second[name]))


def test_momentum_and_sgd_with_one_train_alike():
    named_so, options = (reference.model(optimizer=name, momentum=0.8) for name in ("momentum", "sgd"))
    for seed in range(3):
        batch = reference.batch(9, 2, 4, seed=seed)
        assert torch.equal(named_so.train_step(*batch), options.train_step(*batch))
    for name, tensor in named_so.tensors().items():
        assert torch.equal(tensor, options.tensors()[name]), name


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A norm of a user, f = v/Σv: positions and tokens have the same sum."""

    def backward(g, v, f, lift):
        return (g - (f * g).sum(-1, keepdim=True)) / v.sum(-1, keepdim=True)

    norms.register_norm("shares", norms.Norm(lambda v, lift: v / v.sum(-1, keepdim=True), backward))
    monkeypatch.setattr(reference, "norm", lambda v, kind: v / v.sum())
    yield "shares"
    del norms.NORMS["shares"]


@pytest.mark.parametrize("options", [{"residual": "plain"}, {"layers": 2, "residual": "normed"}], ids=named)
def test_a_norm_of_a_user_trains(shares, options):
    model = reference.model(norm=shares, **options)
    inputs, targets = reference.batch(9, 2, 4, seed=1)
    wanted_loss, expected = reference.gradients(model, inputs, targets)
    loss, before, after = before_and_after(model, inputs, targets)
    assert float(loss) == pytest.approx(wanted_loss, rel=1e-12)
    for name, gradient in expected.items():
        torch.testing.assert_close(before[name] - after[name], gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank": 3, "query_in_keys": True},
        {"layers": 2, "residual": "normed"},
        {"layers": 3, "residual": "none"},
        {"layers": 2, "residual": "normed", "rank": 3},
    ],
    ids=named,
)
def test_optimisers_move_what_a_batch_touches_and_nothing_else(optimizer, options):
    """Lazy momentum and Adam, written for whole tables with a mask of what is touched."""
    layers = options.get("layers", 1)
    rates = {"eta_y": (0.3, 0.2, 0.25)[:layers], "eta_z": (0.1, 0.4, 0.2)[:layers]}
    momentum = 0.8 if optimizer == "momentum" else None
    model = reference.model(optimizer=optimizer, momentum=momentum, beta2=0.95, **options, **rates)
    own = {name: tensor.clone() for name, tensor in model.tensors().items()}
    for step in range(1, 5):
        inputs, targets = reference.batch(9, 2, 3, seed=step)
        _, gradients = reference.gradients(model, inputs, targets)  # at the model's own values, compared below
        for name, gradient in gradients.items():
            mask, d = reference.touched(name, inputs, model), -gradient
            eta = rates["eta_y" if ".y" in name else "eta_z"][int(name[5])]
            if optimizer == "sgd":
                move = d
            elif optimizer == "momentum":
                key = f"{name}.velocity"
                own[key] = torch.where(mask, 0.8 * own[key] + d, own[key])
                move = own[key]
            else:
                mean, square = f"{name}.mean", f"{name}.square"
                own[mean] = torch.where(mask, 0.9 * own[mean] + 0.1 * d, own[mean])
                own[square] = torch.where(mask, 0.95 * own[square] + 0.05 * d * d, own[square])
                move = own[mean] / (1 - 0.9**step) / ((own[square] / (1 - 0.95**step)).sqrt() + 1e-8)
            own[name] = torch.where(mask, own[name] + eta * move, own[name])
        own["step"] = own["step"] + 1
        model.train_step(inputs, targets)
        for name, tensor in model.tensors().items():
            torch.testing.assert_close(tensor, own[name], rtol=1e-8, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("self_too", [False, True])
@pytest.mark.parametrize("residual", ["none", "normed", "plain"])
@pytest.mark.parametrize("norm", ["l2", "none"])
def test_one_query_in_a_window_is_a_sequence_of_a_class(norm, residual, self_too):
    """The last position of each window alone: Y and Z move as in scansnap.dynamics on the same counts."""
    m, length, rng = 8, 6, np.random.default_rng(3)
    classes = SequenceClasses(p_context=np.full((5, m), 1 / m), query=[1, 4, 1, 0, 7], next_token=[3, 2, 5, 0, 1])
    cls = torch.tensor([0, 1, 2, 3, 4, 2, 2])
    windows = torch.from_numpy(rng.integers(0, m, (len(cls), length + 1)))
    windows[:, -1] = torch.from_numpy(classes.query.copy())[cls]
    model = reference.model(vocab_size=m, residual=residual, norm=norm, query_in_keys=self_too)
    y, z = (model.tensors()[f"layer0.{name}"] for name in "yz")

    form = ModelConfig(norm=norm, residual=residual, query_in_keys=self_too, init="uniform")
    layout = make_layout(classes, form, decays=True)
    assert layout.slots.tolist() == [list(range(m))] * 5
    counts = torch.stack([torch.bincount(w if self_too else w[:-1], minlength=m) for w in windows]).double()
    weight = torch.full((1, len(cls)), 1 / len(cls), dtype=torch.float64)
    expected = yz.gradients(
        y.clone()[None], z[torch.from_numpy(layout.queries)][None, None],
        yz.CountBatch(cls[None], counts[None], weight),
        yz.Tables.of(layout, torch.device("cpu"), torch.float64), form,
    )  # fmt: skip

    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    done = model.first.forward(windows)
    y_part = TableRows(model.y[0], windows)
    h = y_part.apply(done.f)
    target = torch.from_numpy(classes.next_token.copy())[cls]
    log_alpha = torch.log_softmax(h[:, -1], -1)
    assert float(-log_alpha[torch.arange(7), target].mean()) == pytest.approx(float(expected.loss[0]), rel=1e-12)
    dh = torch.zeros_like(h)
    dh[:, -1] = (torch.nn.functional.one_hot(target, m) - log_alpha.exp()) / len(cls)
    model.first.backward(done, y_part.apply_backward(done.f, dh, model.step), model.step)
    columns = np.argsort(layout.columns)
    torch.testing.assert_close(y - before["layer0.y"], expected.dy[0][:, columns], rtol=1e-10, atol=1e-12)
    dz = torch.zeros(m, m, dtype=torch.float64)
    dz[torch.from_numpy(layout.queries)] = expected.dz[0, 0]
    torch.testing.assert_close(z - before["layer0.z"], dz, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [*ONE_LAYER[::2], {"layers": 2, "residual": "normed"}], ids=named)
def test_what_every_step_keeps(options):
    """Σ_j dY[l, j] = 0, Σ_l dz_m[l] = 0 in the layer that reads tokens, and what the batch lacks does not move."""
    model = reference.model(**options)
    inputs, targets = reference.batch(9, 3, 6, seed=5)
    _, before, after = before_and_after(model, inputs, targets)
    dy, dz = (after[f"layer0.{name}"] - before[f"layer0.{name}"] for name in "yz")
    last = after[f"layer{model.layers - 1}.y"] - before[f"layer{model.layers - 1}.y"]
    assert last.sum(1).abs().max() < 1e-12 < last.abs().max()
    assert dz.sum(1).abs().max() < 1e-12 < dz.abs().max()
    absent = torch.ones(9, dtype=torch.bool)
    absent[inputs.flatten()] = False
    assert absent.any()
    assert not dy[absent].any()
    assert not dz[absent].any()
    assert not dz[:, absent].any()
    pairs = reference.touched("layer0.z", inputs, model)
    assert not dz[~pairs].any()


def test_equal_tokens_share_one_place():
    """The attention of a token is the sum over its positions, and its norm that of the summed vector."""
    model = reference.model(vocab_size=4)
    b = model.attention(torch.tensor([[2, 2, 1, 2, 3]]))[0][0, 0]
    torch.testing.assert_close(b.sum(-1), torch.ones(5, dtype=torch.float64))
    assert b[0, 0] == 1  # the first position has only itself
    assert not b.triu()[1:].any()
    z = model.tensors()["layer0.z"]
    weight = torch.tensor([0.0, 1.0, 3.0, 0.0], dtype=torch.float64) * z[3].exp()
    c = torch.zeros(4, dtype=torch.float64).index_add(0, torch.tensor([2, 2, 1, 2]), b[4, :4])
    torch.testing.assert_close(c, weight / weight.sum())
    f = c / torch.linalg.vector_norm(c)
    torch.testing.assert_close(model.logits(torch.tensor([[2, 2, 1, 2, 3]]))[0, 4], f @ model.tensors()["layer0.y"])


def test_attention_can_be_cut_to_the_keys_that_matter():
    """All of the mass is the model itself; the strongest key alone makes f the one-hot vector of its token."""
    inputs, _ = reference.batch(9, 3, 6, seed=4)
    for options in ({}, {"layers": 2, "residual": "normed"}):
        model = reference.model(**options)
        torch.testing.assert_close(model.logits(inputs, attention_mass=1.0), model.logits(inputs))
        assert not torch.allclose(model.logits(inputs, attention_mass=0.3), model.logits(inputs))
    model = reference.model()
    strongest = inputs.gather(1, model.attention(inputs)[0][:, 0].argmax(-1))  # (B, T)
    torch.testing.assert_close(model.logits(inputs, attention_mass=1e-6), model.tensors()["layer0.y"][strongest])


def test_a_state_of_zeros_is_harmless():
    """relu can switch every vote off; such a position has no state, and passes no gradient."""
    model = reference.model(layers=2, activation="relu")
    model.tensors()["layer0.y"].copy_(-torch.ones(9, 9, dtype=torch.float64))
    inputs, targets = reference.batch(9, 2, 4, seed=0)
    for _ in range(3):
        assert torch.isfinite(model.train_step(inputs, targets))
    assert all(torch.isfinite(tensor).all() for tensor in model.tensors().values())


@pytest.mark.parametrize(
    "options",
    [
        {"eta_y": 30.0, "eta_z": 3.0},
        {"rank": 8, "optimizer": "adam", "eta_y": 0.03, "eta_z": 0.03},
        {"layers": 2, "optimizer": "adam", "eta_y": 0.1, "eta_z": 0.1},
    ],
    ids=named,
)
def test_it_learns_a_text_that_can_be_learnt(options):
    """Each token of a cycle of 20 follows from the one before it."""
    model = reference.model(vocab_size=25, dtype="float32", init="normal(0.05)", residual="normed", **options)
    windows = torch.arange(0, 20).repeat(20)[: 16 * 11].view(16, 11)
    losses = [float(model.train_step(windows[:, :-1], windows[:, 1:])) for _ in range(80)]
    assert losses[0] == pytest.approx(np.log(25), rel=0.05)
    assert losses[-1] < 0.3


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("options", [{}, {"rank": 3}, {"layers": 2}], ids=named)
def test_a_run_goes_on_from_its_tensors_bit_by_bit(optimizer, options):
    rates = {"eta_y": 0.5, "eta_z": 0.5, "optimizer": optimizer, "dtype": "float32", **options}
    whole = reference.model(**rates)
    batches = [reference.batch(9, 3, 5, seed=seed) for seed in range(6)]
    for pair in batches[:3]:
        whole.train_step(*pair)
    saved = {name: tensor.clone() for name, tensor in whole.tensors().items()}
    later = YZTransformer.from_description(whole.describe())
    for name, tensor in later.tensors().items():
        tensor.copy_(saved[name])
    for pair in batches[3:]:
        assert torch.equal(whole.train_step(*pair), later.train_step(*pair))
    for name, tensor in later.tensors().items():
        assert torch.equal(tensor, whole.tensors()[name]), name


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(
    "options", [{}, *({"layers": 2, "activation": a} for a in ("softmax", "relu", "none"))], ids=named
)
def test_padded_tables_train_as_others_do(options, optimizer, monkeypatch):
    """As on CUDA; the padding stays zero, and what is shown has none."""
    arguments = {"residual": "normed", "optimizer": optimizer, "eta_y": 0.3, "eta_z": 0.2, **options}
    plain = reference.model(**arguments)
    monkeypatch.setattr(FullTable, "PADDED_DEVICES", ("cpu",))
    padded = reference.model(**arguments)
    for seed in range(3):
        batch = reference.batch(9, 3, 5, seed=seed)
        assert float(padded.train_step(*batch)) == pytest.approx(float(plain.train_step(*batch)), rel=1e-12)
    for name, tensor in plain.tensors().items():
        torch.testing.assert_close(padded.tensors()[name], tensor, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(padded.logits(batch[0]), plain.logits(batch[0]), rtol=1e-9, atol=1e-12)
    for table in padded.y + padded.z:
        assert table.storage.shape == (16, 16)
        assert not table.storage[9:].any()
        assert not table.storage[:, 9:].any()


@pytest.mark.parametrize("rank", [None, 3])
def test_models_of_one_seed_share_their_start(rank):
    """Whatever their depth and the order in which they are made; training one leaves it as it was."""
    options = {"vocab_size": 9, "init": "uniform", "residual": "normed", "seed": 4, "rank": rank}
    alone = {n: YZTransformer(YZSettings(layers=n, **options)) for n in (1, 3)}
    start = InitialTables(YZSettings(layers=1, **options), "cpu")
    for n in (1, 3, 1):
        shared = YZTransformer(YZSettings(layers=n, **options), initial_tables=start)
        for name, tensor in alone[n].tensors().items():
            assert torch.equal(shared.tensors()[name], tensor), name
        shared.train_step(*reference.batch(9, 2, 4, seed=1))
        assert not torch.equal(shared.y[-1].matrix(), alone[n].y[-1].matrix())
    with refused("initial_tables"):
        YZTransformer(YZSettings(**{**options, "seed": 5}), initial_tables=start)


def test_rates_can_be_scaled_for_a_schedule():
    models = [reference.model(eta_y=0.5, eta_z=0.25), reference.model(eta_y=1.0, eta_z=0.5)]
    models[1].scale_rates(0.5)
    for model in models:
        model.train_step(*reference.batch(9, 2, 4, seed=2))
    for name, tensor in models[0].tensors().items():
        assert torch.equal(tensor, models[1].tensors()[name]), name
