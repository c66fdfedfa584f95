"""A transformer whose attention only listens: what it computes with is uniform, what it hears is the gradient there."""

from __future__ import annotations

import pytest
import torch

from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings

M = 12


def model(*, listening: bool = False, **options) -> Transformer:
    given = {"width": 8, "feed_forward": 6, "dropout": 0.0, "clip": None, "dtype": "float64", "eta": 0.5, **options}
    return Transformer(TransformerSettings(M, **given), listening=listening)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, M, (3, 7), generator=torch.Generator().manual_seed(2))
    return tokens[:, :-1], tokens[:, 1:]


def without_queries(one: Transformer) -> Transformer:
    """W_Q = 0: every logit is 0, and attention uniform by itself."""
    d = one.settings.width
    one.tensors()["layer0.w_qkv"][:d] = 0
    one.tensors()["layer0.b_qkv"][:d] = 0
    return one


@pytest.mark.parametrize("options", [{}, {"norm": "none", "residual": False, "feed_forward": 0}], ids=str)
def test_it_hears_the_gradient_at_uniform_attention(options):
    listens, uniform, attends = model(listening=True, **options), without_queries(model(**options)), model(**options)
    before = {name: tensor.clone() for name, tensor in listens.tensors().items()}
    losses = [float(one.train_step(*batch())) for one in (listens, uniform, attends)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert abs(losses[0] - losses[2]) > 1e-6
    d = listens.settings.width
    heard = listens.tensors()["layer0.w_qkv"][:d] - before["layer0.w_qkv"][:d]
    assert heard.abs().max() > 1e-6
    torch.testing.assert_close(heard, uniform.tensors()["layer0.w_qkv"][:d], rtol=1e-9, atol=1e-14)
    other = attends.tensors()["layer0.w_qkv"][:d] - before["layer0.w_qkv"][:d]
    assert (heard - other).abs().max() > 1e-3 * heard.abs().max()
    torch.testing.assert_close(listens.tensors()["decoder"], uniform.tensors()["decoder"])


def test_what_it_shows_is_what_it_has_heard():
    """Attention outside an update goes by the logits."""
    listens = model(listening=True)
    listens.train_step(*batch())
    plain = model()
    for name, tensor in plain.tensors().items():
        tensor.copy_(listens.tensors()[name])
    inputs = batch()[0]
    assert torch.equal(listens.attention(inputs)[0], plain.attention(inputs)[0])
    assert listens.attention(inputs)[0][0, 0, 5].std() > 1e-6
