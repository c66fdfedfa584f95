"""The transformer on CUDA: recorded steps, precision, exact continuation; skips itself where there is no device."""

import numpy as np
import pytest
import torch
from dropout_masks import check_dropout

from scansnap.text.training import train
from scansnap.text.transformer.model import Transformer
from scansnap.text.transformer.settings import TransformerSettings

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
M = 999


def settings(**options):
    return TransformerSettings(M, **({"width": 64, "feed_forward": 48, "eta": 1.0} | options))


def batches(n, b=6, t=20, device="cuda"):
    stream = torch.randint(0, M, (n, b, t + 1), generator=torch.Generator().manual_seed(0)) ** 2 // M
    return [(x[:, :-1].to(device), x[:, 1:].to(device)) for x in stream]


def losses(model, data):
    return [float(model.train_step(*batch)) for batch in data]


@pytest.mark.parametrize(
    "options",
    [
        {}, {"precision": "bf16"}, {"optimizer": "adam", "eta": 0.01},
        {"optimizer": "adamw", "eta": 0.01, "weight_decay": 0.1, "precision": "bf16"},
        {"optimizer": "nesterov", "eta": 0.1}, {"objective": "masked"}, {"dropout": 0.0, "layers": 2},
        {"dropout": 0.0, "precision": "bf16", "positions": "alibi"},
        {"tied": True, "positions": "rope", "precision": "bf16"},
        {"positions": "alibi", "heads": 4, "optimizer": "momentum"},
    ],
    ids=str,
)  # fmt: skip
def test_recorded_steps_are_the_steps(options):
    """Bit for bit, with batches of another shape between them; and the same again in a second run."""
    data = batches(8)
    data.insert(5, batches(1, t=7)[0])
    recorded, again, eager = (Transformer(settings(**options), "cuda", graphs=g) for g in (True, True, False))
    expected = losses(eager, data)
    assert losses(recorded, data) == expected
    assert losses(again, data) == expected
    for name, tensor in eager.tensors().items():
        assert torch.equal(tensor, recorded.tensors()[name]), name


@pytest.mark.parametrize(
    "options", [{}, {"optimizer": "adam", "eta": 0.01}, {"positions": "alibi", "heads": 2, "layers": 2}], ids=str
)
def test_cuda_follows_the_cpu(options):
    """Without dropout, which is drawn by another generator there."""
    arguments = settings(dropout=0.0, dtype="float64", **options)
    on_cpu = losses(Transformer(arguments), batches(5, device="cpu"))
    on_gpu = losses(Transformer(arguments, "cuda"), batches(5))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-9)


def test_low_precision_follows_float32():
    exact = losses(Transformer(settings(dropout=0.0), "cuda"), batches(10))
    for precision, rtol in (("tf32", 5e-3), ("bf16", 2e-2)):
        np.testing.assert_allclose(
            losses(Transformer(settings(dropout=0.0, precision=precision), "cuda"), batches(10)), exact, rtol
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("m", [7, 4096, 5003])
def test_the_decoders_loss_and_gradients(dtype, m):
    """The kernel against float64 on the CPU, with one target whose share underflows."""
    from scansnap.text.transformer.decoder_loss import DecoderLoss, decoder_weight

    generator = torch.Generator().manual_seed(0)
    h, w = torch.randn(50, 24, generator=generator).to(dtype), torch.randn(m, 24, generator=generator).to(dtype)
    bias, targets = torch.randn(m, generator=generator).to(dtype), torch.randint(1, m, (50,), generator=generator)
    w[0], h[5], targets[5] = 0.0, 8 * w[1], 0
    wide = decoder_weight(w.float(), bias.float())
    exact = DecoderLoss()(h.double(), wide.double(), targets)
    result = DecoderLoss()(h.cuda(), wide.cuda(), targets.cuda())
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    assert float(h[5].double() @ w[1].double()) > 110  # e^−110 is no float32
    torch.testing.assert_close(result.loss.cpu().double(), exact.loss, rtol=tolerance, atol=0)
    for mine, right in ((result.h, exact.h), (result.weight, exact.weight)):
        scale = float(right.abs().max())
        torch.testing.assert_close(mine.cpu().double(), right, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_dropout_on_cuda_drops_the_right_share(precision):
    """Read from the updates of recorded steps; test_transformer.py does the same on the CPU."""
    check_dropout("cuda", precision)


def test_resumes_exactly_on_cuda(tmp_path):
    pytest.importorskip("safetensors")
    stream = np.random.default_rng(0).integers(0, M, 3000)
    options = settings(precision="bf16")
    whole = train(Transformer(options, "cuda"), stream, steps=40, batch=6, length=20)
    file = tmp_path / "run.safetensors"
    train(Transformer(options, "cuda"), stream, steps=17, batch=6, length=20, checkpoint=file)
    rest = train(Transformer(options, "cuda"), stream, steps=40, batch=6, length=20, checkpoint=file, resume=True)
    assert np.array_equal(rest.losses, whole.losses)
