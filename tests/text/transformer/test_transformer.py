"""The transformer against torch's own layers, its positions, attention and settings."""

import math

import pytest
import torch
from dropout_masks import check_dropout
from transformer_reference import Reference, optimizer

from refusals import bad_values, refused
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings

M, D = 30, 12


def small(**options):
    defaults = {"width": D, "feed_forward": 16, "dropout": 0.0, "dtype": "float64", "eta": 0.5}
    return TransformerSettings(M, **(defaults | options))


def batch(b=3, t=9, seed=0, m=M):
    stream = torch.randint(0, m, (b, t + 1), generator=torch.Generator().manual_seed(seed))
    return stream[:, :-1], stream[:, 1:]


@pytest.mark.parametrize(
    "options",
    [
        {}, {"layers": 2, "heads": 3}, {"norm": "pre", "layers": 2}, {"tied": True}, {"optimizer": "momentum"},
        {"optimizer": "adam", "eta": 0.01}, {"optimizer": "adamw", "eta": 0.01, "weight_decay": 0.1},
        {"optimizer": "nesterov", "weight_decay": 0.1}, {"clip": None, "eta": 0.1, "positions": "none"},
        {"tied": True, "optimizer": "adam", "eta": 0.01, "clip": 0.1},
    ],
    ids=str,
)  # fmt: skip
def test_trains_as_the_same_model_of_torchs_own_layers(options):
    model = Transformer(small(**options))
    reference = Reference(model)
    step = optimizer(reference, model)
    for k in range(6):
        inputs, targets = batch(seed=k)
        torch.testing.assert_close(model.logits(inputs), reference(inputs).detach(), rtol=1e-9, atol=1e-10)
        step.zero_grad()
        loss = torch.nn.functional.cross_entropy(reference(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        if model.settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(reference.parameters(), model.settings.clip)
        step.step()
        torch.testing.assert_close(model.train_step(inputs, targets), loss.detach(), rtol=1e-10, atol=1e-10)
    state = reference.state_dict()
    torch.testing.assert_close(model.weights["embedding"], state["embedding.weight"], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(model.tensors()["decoder_bias"], state["decoder.bias"], rtol=1e-8, atol=1e-10)


def test_a_rule_of_a_user_moves_weights(halves):
    """Half of the first direction is a step of SGD at half the rate; then comes half of it and half of the second."""
    start = Transformer(small(clip=None)).tensors()["decoder"]
    model, plain = Transformer(small(optimizer=halves, clip=None)), Transformer(small(eta=0.25, clip=None))
    for trained in (model, plain):
        trained.train_step(*batch())
    for name, tensor in plain.tensors().items():
        torch.testing.assert_close(model.tensors()[name], tensor)
    first = (plain.tensors()["decoder"] - start) / 0.25
    model.train_step(*batch())
    last, moved = (model.tensors()[name] for name in ("decoder.last", "decoder"))
    torch.testing.assert_close(moved - plain.tensors()["decoder"], 0.25 * (first + last), rtol=1e-9, atol=1e-11)


def test_words_beyond_the_vocabulary_do_not_decay():
    """The decoder is padded by words that never come; decay would bring them in."""
    model = Transformer(small(eta=0.1, weight_decay=0.5))
    before = model.weights["decoder"].clone()
    model.train_step(*batch())
    assert len(before) == 64
    assert torch.equal(model.weights["decoder"][M:], before[M:])
    assert not torch.equal(model.weights["decoder"][:M], before[:M])


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_dropout_drops_the_right_share_and_scales_the_rest(precision):
    check_dropout("cpu", precision)


def test_a_batch_of_many_tokens_moves_the_same_rows(monkeypatch):
    """The embedding's gradient by rows, and as a whole table."""
    by_rows, whole = Transformer(small()), Transformer(small())
    by_rows.train_step(*batch())
    monkeypatch.setattr("scansnap.text.transformer.model.MAX_ROWS", 1)
    whole.train_step(*batch())
    torch.testing.assert_close(by_rows.weights["embedding"], whole.weights["embedding"], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned", "alibi", "rope"])
@pytest.mark.parametrize("objective", ["next", "masked"])
def test_fused_attention_agrees_with_the_maps(positions, objective):
    """attention_mass=1 takes every key, and the explicit path."""
    model = Transformer(small(positions=positions, objective=objective, heads=2, layers=2, max_length=9))
    inputs, _ = batch()
    torch.testing.assert_close(model.logits(inputs), model.logits(inputs, attention_mass=1.0), rtol=1e-10, atol=1e-10)
    maps = model.attention(inputs)
    assert len(maps) == 2
    assert maps[0].shape == (3, 2, 9, 9)
    torch.testing.assert_close(maps[1].sum(-1), torch.ones(3, 2, 9, dtype=torch.float64))
    assert (maps[0].triu(1) == 0).all() == (objective == "next")


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned", "alibi", "rope"])
def test_no_position_sees_what_follows(positions):
    model = Transformer(small(positions=positions, layers=2))
    inputs, _ = batch()
    other = inputs.clone()
    other[:, 5:] = (other[:, 5:] + 1) % M
    torch.testing.assert_close(model.logits(inputs)[:, :5], model.logits(other)[:, :5])
    assert not torch.allclose(model.logits(inputs)[:, 5:], model.logits(other)[:, 5:])


def test_positions_tell_the_order_and_none_does_not():
    inputs, _ = batch(b=1)
    turned = inputs.clone()
    turned[:, :8] = inputs[:, :8].flip(1)
    for positions in ("none", "sinusoidal", "learned", "alibi", "rope"):
        model = Transformer(small(positions=positions))
        same = torch.allclose(model.logits(inputs)[:, -1], model.logits(turned)[:, -1], atol=1e-9)
        assert same == (positions == "none"), positions


@pytest.mark.parametrize("positions", ["alibi", "rope"])
def test_relative_positions_do_not_know_where_the_window_begins(positions):
    """One repeated token: every row is a function of t − s alone, so ratios of weights repeat along diagonals."""
    model = Transformer(small(positions=positions, bias=False))
    b = model.attention(torch.full((1, 8), 3))[0][0, 0]  # (T, T)
    ratio = b.diagonal(-1)[1:] / b.diagonal()[2:]  # weight of the key before against the query's own
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
    assert not math.isclose(float(ratio[0]), 1.0, rel_tol=1e-4)


def test_alibi_slopes_are_those_of_the_paper():
    model = Transformer(small(positions="alibi", heads=2, bias=False))
    model.tensors()["layer0.w_qkv"].zero_()
    b = model.attention(torch.zeros(1, 5, dtype=torch.int64))[0][0]
    torch.testing.assert_close((b[:, 4, 4] / b[:, 4, 3]).log(), torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64))


def test_dropping_keys_changes_the_logits_as_it_should():
    """One plain layer: renormalised attention on the keys of the smallest set, by hand."""
    model = Transformer(small(norm="none", residual=False, feed_forward=0, positions="none", init=1.0))
    inputs, _ = batch(b=1, t=6)
    b = model.attention(inputs)[0][0, 0]  # (T, T)
    y = model.to_yz().y[0]
    sparse = torch.zeros_like(b)
    for t in range(6):
        chosen, mass = [], 0.0
        for s in b[t].argsort(descending=True).tolist():
            if mass < 0.7:
                chosen.append(s)
                mass += float(b[t, s])
        sparse[t, chosen] = b[t, chosen] / b[t, chosen].sum()
    assert (sparse > 0).sum() < (b > 0).sum()
    torch.testing.assert_close(model.logits(inputs, attention_mass=0.7)[0], sparse @ y[inputs[0]])


@pytest.mark.parametrize(
    "options", [{}, {"heads": 3}, {"bias": False}, {"mixing": False, "tied": True}, {"scaled": False}], ids=str
)
def test_the_plain_model_is_its_yz_form(options):
    model = Transformer(small(norm="none", residual=False, feed_forward=0, positions="none", init=0.7, **options))
    for k in range(3):
        model.train_step(*batch(seed=k))  # biases are zero at the start
    yz = model.to_yz()
    assert yz.exact
    inputs, _ = batch(seed=9)
    z = yz.z[:, inputs[:, :, None], inputs[:, None, :]]  # (H, B, T, T)
    b = torch.softmax(z.masked_fill(torch.ones(9, 9, dtype=torch.bool).triu(1), -torch.inf), -1)
    votes = (b @ yz.y[:, inputs]).sum(0)  # (B, T, M)
    torch.testing.assert_close(votes, model.logits(inputs), rtol=1e-9, atol=1e-10)
    assert not Transformer(small()).to_yz().exact


def test_the_implied_tables_run_as_a_yz_model():
    from scansnap.text.yz.model import YZTransformer
    from scansnap.text.yz.settings import YZSettings

    model = Transformer(small(norm="none", residual=False, feed_forward=0, positions="none", init=0.7))
    yz = YZTransformer(YZSettings(M, norm="none", query_in_keys=True, dtype="float64"))
    implied, tables = model.to_yz(), yz.tensors()
    tables["layer0.y"].copy_(implied.y[0])
    tables["layer0.z"].copy_(implied.z[0])
    inputs, _ = batch()
    torch.testing.assert_close(yz.logits(inputs), model.logits(inputs), rtol=1e-9, atol=1e-10)


def test_without_bias_none_appears():
    model = Transformer(small(bias=False))
    before = model.weights["decoder"][:M, D:].clone()
    model.train_step(*batch())
    assert torch.equal(model.weights["decoder"][:M, D:], before)
    assert (before == 0).all()
    assert not any("bias" in name or ".b_" in name for name in model.tensors())


def test_bf16_follows_float32():
    exact, low = (Transformer(small(dtype="float32", precision=p, width=16, clip=0.5)) for p in ("float32", "bf16"))
    for k in range(5):
        a, b = exact.train_step(*batch(seed=k)), low.train_step(*batch(seed=k))
        assert b.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=0.02, atol=0)
    assert low.logits(batch()[0]).dtype == torch.float32


def test_an_underflowing_target_has_a_finite_loss():
    """float32 has no share below e^−103; the loss of a run that fails must still be right."""
    model = Transformer(small(dtype="float32"))
    model.tensors()["decoder_bias"][0] = 300.0
    inputs, targets = batch()
    targets = targets.clamp(min=1)
    expected = torch.nn.functional.cross_entropy(model.logits(inputs).flatten(0, 1), targets.flatten())
    assert expected > 200
    torch.testing.assert_close(model.train_step(inputs, targets), expected)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        *bad_values(
            heads=[5], dropout=[1.0], norm=["both"], positions=["absolute"], optimizer=["muon"], clip=[0.0], bias=[1],
            precision=["bf16"], mask_share=[0], layers=[0],
        ),
        ({"width": 9, "heads": 3}, "width"), ({"positions": "rope", "heads": 4}, "width"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_settings_are_named(options, field):
    with refused(field):
        small(**options)


def test_bad_batches_are_named():
    model = Transformer(small(positions="learned", max_length=4))
    inputs, targets = batch()
    with refused("inputs", names="max_length"):
        model.train_step(inputs, targets)
    with refused("targets"):
        model.train_step(inputs, targets[:, 1:])
    with refused("attention_mass"):
        model.logits(inputs[:, :4], attention_mass=0.0)
    with refused("layer"):
        model.to_yz(1)


def test_describes_itself():
    model = Transformer(small(layers=2, tied=True))
    again = Transformer.from_description(model.describe())
    assert again.settings == model.settings
    for name, tensor in model.tensors().items():
        assert torch.equal(tensor, again.tensors()[name]), name
    with refused("wdith", 3):
        Transformer.from_description({"kind": "transformer", "vocab_size": 3, "wdith": 3})
