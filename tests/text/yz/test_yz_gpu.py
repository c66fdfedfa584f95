"""The YZ model on CUDA: kernels against plain torch against float64 on the CPU; skips itself where there is no CUDA."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from scansnap.kernels.cuda import triton_available
from scansnap.text.cuda import matmul_precision
from scansnap.text.yz.model import YZTransformer
from scansnap.text.yz.settings import YZSettings
from scansnap.text.yz.tables import multiply_states

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
needs_triton = pytest.mark.skipif(not triton_available(), reason="no Triton")

FUSED = [
    {"optimizer": optimizer, "residual": residual, "norm": norm, "query_in_keys": self_too, "length": length}
    for optimizer, residual, norm, self_too, length in [
        ("sgd", "none", "l2", False, 35), ("sgd", "normed", "l2", True, 35), ("sgd", "plain", "l2", False, 64),
        ("sgd", "none", "none", True, 7), ("sgd", "none", "l2", False, 1), ("momentum", "none", "l2", False, 35),
        ("adam", "normed", "l2", False, 35),
    ]
]  # fmt: skip
FUSED += [{**FUSED[0], "precision": "bf16x3"}, {**FUSED[5], "precision": "bf16x3"}, {**FUSED[0], "precision": "tf32"}]
FUSED += [  # windows of more than one tile
    {"length": 65},
    {"length": 150, "residual": "normed", "precision": "bf16x3"},
    {"length": 100, "optimizer": "adam", "query_in_keys": True},
    {"length": 100, "optimizer": "momentum", "norm": "none"},
]


def batches(m: int, windows: int, length: int, n: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    p = 1 / torch.arange(1, m + 1)
    tokens = torch.multinomial(p, n * windows * (length + 1), replacement=True, generator=generator)
    return [(t[:, :-1], t[:, 1:]) for t in tokens.view(n, windows, length + 1)]


def settings(**options) -> YZSettings:
    rates = (
        {"eta_y": 0.02, "eta_z": 0.02}
        if options.get("optimizer") in ("adam", "adamw")
        else {"eta_y": 20.0, "eta_z": 5.0}
    )
    return YZSettings(**{"vocab_size": 1003, "init": "normal(0.3)", **rates, **options})


def trained(model: YZTransformer, data: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[list[float], dict]:
    losses = [float(model.train_step(*(t.to(model.device) for t in batch_))) for batch_ in data]
    return losses, {name: tensor.cpu().double() for name, tensor in model.tensors().items()}


@needs_triton
@pytest.mark.parametrize("options", FUSED, ids=lambda o: " ".join(str(v) for v in o.values()))
def test_the_kernels_give_the_numbers_of_float64(options):
    length = options["length"]
    rest = {name: value for name, value in options.items() if name != "length"}
    data = batches(1003, 6, length, 4)
    starts = YZTransformer(settings(**rest))
    wanted_model = YZTransformer(settings(**rest, dtype="float64"))
    for name, tensor in starts.tensors().items():
        wanted_model.tensors()[name].copy_(tensor)
    losses, expected = trained(wanted_model, data)
    for graphs in (False, True):
        model = YZTransformer(settings(**rest), "cuda", fused=True, graphs=graphs)
        found_losses, result = trained(model, data)
        loose = {"bf16x3": 30, "tf32": 2000}.get(options.get("precision"), 1)
        assert found_losses == pytest.approx(losses, rel=2e-6 * loose)
        for name, tensor in expected.items():
            error = (result[name] - tensor).abs().max() / tensor.abs().max()
            assert error < loose * (2e-4 if "adam" in options.values() else 5e-6), f"{name}: off by {error:.1e}"
        untouched = torch.ones(1003, dtype=torch.bool)
        untouched[torch.cat([batch_[0].flatten() for batch_ in data])] = False
        start = starts.tensors()["layer0.y"].double()
        assert torch.equal(result["layer0.y"][untouched], start[untouched])


@needs_triton
@pytest.mark.parametrize("options", FUSED, ids=lambda o: " ".join(str(v) for v in o.values()))
def test_kernels_with_uniform_attention_agree_with_float64(options):
    """Y learns with uniform attention, Z gathers its directions there; with attention they would be other numbers."""
    length = options["length"]
    rest = {name: value for name, value in options.items() if name != "length"} | {"init": "zero"}
    data = batches(1003, 6, length, 6)
    losses, expected = trained(YZTransformer(settings(**rest, dtype="float64"), uniform_attention=True), data)
    _, attending = trained(YZTransformer(settings(**rest, dtype="float64")), data)
    loose = {"bf16x3": 30, "tf32": 2000}.get(options.get("precision"), 1)
    for graphs in (False, True):
        model = YZTransformer(settings(**rest), "cuda", fused=True, graphs=graphs, uniform_attention=True)
        found_losses, result = trained(model, data)
        assert found_losses == pytest.approx(losses, rel=2e-6 * loose)
        for name, tensor in expected.items():
            most = tensor.abs().max().clamp_min(1e-30)  # a window of one position has no Z to hear
            error = (result[name] - tensor).abs().max() / most
            assert error < loose * (2e-4 if "adam" in options.values() else 5e-6), f"{name}: off by {error:.1e}"
    z, other = expected["layer0.z"], attending["layer0.z"]
    if length > 1:
        assert (z - other).abs().max() > 1e-3 * z.abs().max()


@needs_triton
@pytest.mark.parametrize(
    ("optimizer", "length", "precision"),
    [*((optimizer, 35, "bf16x3") for optimizer in ("sgd", "momentum", "adam")), ("sgd", 90, None), ("adam", 90, None)],
)
def test_a_run_repeats_bit_by_bit(optimizer, length, precision):
    """With the kernels, also by layers in windows of several tiles, with or without recording."""
    data = batches(1003, 20, length, 6)
    options = settings(optimizer=optimizer, **({"precision": precision} if precision else {}))
    runs = [trained(YZTransformer(options, "cuda", graphs=graphs), data) for graphs in (True, True, False)]
    for losses, tensors in runs[1:]:
        assert losses == runs[0][0]
        for name, tensor in tensors.items():
            assert torch.equal(tensor, runs[0][1][name]), name


@pytest.mark.parametrize(
    "options",
    [
        {}, {"optimizer": "momentum"}, {"optimizer": "adam", "rank": 20}, {"optimizer": "nesterov"},
        {"optimizer": "adamw", "weight_decay": 0.1}, {"weight_decay": 0.001}, {"layers": 2, "residual": "normed"},
        {"layers": 3, "rank": 20, "residual": "plain", "activation": "relu"},
        {"layers": 2, "optimizer": "adam", "activation": "none", "query_in_keys": True},
    ],
    ids=str,
)  # fmt: skip
def test_plain_torch_gives_the_same_on_both_devices(options):
    data = batches(1003, 5, 12, 4)
    arguments = settings(**options, dtype="float64")
    losses, expected = trained(YZTransformer(arguments), data)
    found_losses, result = trained(YZTransformer(arguments, "cuda"), data)
    assert found_losses == pytest.approx(losses, rel=1e-9)
    for name, tensor in expected.items():
        torch.testing.assert_close(result[name], tensor, rtol=1e-6, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}")


@needs_triton
@pytest.mark.parametrize("options", [{"rank": 20}, {"layers": 2, "residual": "normed"}], ids=str)
def test_adam_in_one_launch_gives_the_numbers_of_float64(options):
    """A factor of more than two stretches, and padded tables that are not contiguous."""
    m = 5003 if "rank" in options else 1003
    data = batches(m, 5, 12, 4)
    arguments = settings(**options, vocab_size=m, optimizer="adam")
    starts, wanted_model = YZTransformer(arguments), YZTransformer(replace(arguments, dtype="float64"))
    for name, tensor in starts.tensors().items():
        wanted_model.tensors()[name].copy_(tensor)
    losses, expected = trained(wanted_model, data)
    found_losses, result = trained(YZTransformer(arguments, "cuda"), data)
    assert found_losses == pytest.approx(losses, rel=5e-6)
    for name, tensor in expected.items():
        error = (result[name] - tensor).abs().max() / tensor.abs().max()
        assert error < 1e-3, f"{name}: off by {error:.1e}"


@needs_triton
@pytest.mark.parametrize(("windows", "length", "width"), [(20, 35, 5008), (3, 64, 1100), (2, 5, 1040)])
def test_products_in_windows_are_those_of_float64_to_tf32(windows, length, width):
    from scansnap.text.yz import states_triton

    generator = torch.Generator("cuda").manual_seed(1)
    a, b = (torch.randn(windows, length, width, device="cuda", generator=generator) for _ in range(2))
    wide = a.double(), b.double()
    exact = wide[0] @ wide[1].mT
    with matmul_precision(torch.device("cuda"), "tf32"):
        result, again = multiply_states(a, b), multiply_states(a, b)
    assert torch.equal(result, again)
    assert float((result - exact).norm() / exact.norm()) < 1e-3
    p = torch.softmax(a, -1)
    exact_dh = p.double() * (wide[1] - (p.double() * wide[1]).sum(-1, keepdim=True))
    assert float((states_triton.soft_backward(p, b) - exact_dh).norm() / exact_dh.norm()) < 1e-6


@needs_triton
def test_two_layers_in_tf32_are_near_those_of_float32():
    settings = YZSettings(1100, layers=2, residual="normed", init="uniform", eta_y=5.0, eta_z=5.0, precision="tf32")
    tokens = torch.randint(1100, (2, 3, 35), generator=torch.Generator().manual_seed(2))
    models = [YZTransformer(settings, "cuda"), YZTransformer(replace(settings, precision="float32"))]
    losses = [[float(model.train_step(*tokens.to(model.device))) for _ in range(4)] for model in models]
    assert losses[1][0] - losses[1][-1] > 0.1, "hardly moved: nothing to compare"
    torch.testing.assert_close(*(torch.tensor(batch_) for batch_ in losses), rtol=5e-4, atol=0)
