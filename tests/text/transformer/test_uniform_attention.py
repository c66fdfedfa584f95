"""A transformer trained with uniform attention has the loss of W_Q = 0 and the gradients there."""

import pytest
import torch

from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings

M = 12


def model(*, uniform_attention=False, **options):
    settings = {"width": 8, "feed_forward": 6, "dropout": 0.0, "clip": None, "dtype": "float64", "eta": 0.5, **options}
    return Transformer(TransformerSettings(M, **settings), uniform_attention=uniform_attention)


def batch():
    tokens = torch.randint(0, M, (3, 7), generator=torch.Generator().manual_seed(2))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize("options", [{}, {"norm": "none", "residual": False, "feed_forward": 0}], ids=str)
def test_an_update_is_the_gradient_at_uniform_attention(options):
    uniform, zero, attends = model(uniform_attention=True, **options), model(**options), model(**options)
    d, weights = uniform.settings.width, uniform.tensors()["layer0.w_qkv"]
    zero.tensors()["layer0.w_qkv"][:d] = 0  # W_Q = 0: every logit is 0
    zero.tensors()["layer0.b_qkv"][:d] = 0
    before = weights.clone()
    losses = [float(trained.train_step(*batch())) for trained in (uniform, zero, attends)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert abs(losses[0] - losses[2]) > 1e-6
    change = weights[:d] - before[:d]
    assert change.abs().max() > 1e-6
    torch.testing.assert_close(change, zero.tensors()["layer0.w_qkv"][:d], rtol=1e-9, atol=1e-14)
    attended = attends.tensors()["layer0.w_qkv"][:d] - before[:d]
    assert (change - attended).abs().max() > 1e-3 * change.abs().max()
    torch.testing.assert_close(uniform.tensors()["decoder"], zero.tensors()["decoder"])


def test_outside_an_update_attention_follows_the_logits():
    uniform, plain = model(uniform_attention=True), model()
    uniform.train_step(*batch())
    for name, tensor in plain.tensors().items():
        tensor.copy_(uniform.tensors()[name])
    inputs = batch()[0]
    assert torch.equal(uniform.attention(inputs)[0], plain.attention(inputs)[0])
    assert uniform.attention(inputs)[0][0, 0, 5].std() > 1e-6
