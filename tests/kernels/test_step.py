"""The compiled training step against torch's autograd in float64: attention, products, loss, GELU, Adam."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from scansnap.kernels.cpu import library, step

pytestmark = pytest.mark.skipif(library.find("step") is None, reason="needs the compiled kernel step")


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.double(), wanted, rtol=0, atol=3e-6 * float(wanted.abs().max()))


def sight(n_q: int, n_k: int, kind: str) -> torch.Tensor:
    """(…, Q, S) what queries see: what is before them, or a random part with counts, other for every sequence."""
    if kind == "before":
        mask = torch.ones(n_k, n_k, dtype=torch.bool).tril(-1)
        mask[0, 0] = True
        return torch.where(mask, 0.0, -torch.inf)[None, None, None, n_k - n_q :]
    counts = torch.poisson(torch.full((3, 1, 2, n_q, n_k), 0.7))
    counts[..., 1] = 1  # something to see
    return counts.log()


def turned(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    angle = place[..., None] * 0.3 ** torch.arange(half)
    c, s = angle.cos().to(x), angle.sin().to(x)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * c - b * s, a * s + b * c, rest], -1)


@pytest.mark.parametrize(
    ("n_q", "n_k", "width", "depth", "kind", "rope", "placed"),
    [(64, 64, 16, 16, "before", True, False), (24, 24, 16, 16, "before", False, False),
     (10, 24, 16, 32, "some", True, True), (33, 79, 79, 79, "some", False, False), (5, 17, 7, 7, "before", True, False),
     (1, 20, 4, 40, "some", True, True)],
)  # fmt: skip
def test_attention_and_its_gradients(n_q, n_k, width, depth, kind, rope, placed) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 2, n, i) for n, i in ((n_q, width), (n_k, width), (n_k, depth)))
    bias, slope = sight(n_q, n_k, kind), torch.randn(3, 2, n_q, 2, depth)
    place = torch.randint(n_k, (3, 2, n_q)) if placed else None
    angle = torch.arange(n_k)[:, None] * 0.3 ** torch.arange(width // 2)
    turn = torch.cat([angle.cos(), angle.sin()], -1) if rope else None
    single = [x.clone().requires_grad_() for x in (q, k, v)]
    out = step.attend(tuple(single), bias, turn, place)
    result = [out, *torch.autograd.grad(out, single, slope)]
    double = [x.double().requires_grad_() for x in (q, k, v)]
    a, b, read = double
    if rope:
        at = torch.arange(n_k - n_q, n_k) if place is None else place[:, None]
        a, b = turned(a, at), turned(b, torch.arange(n_k))
    out = ((a @ b.mT + bias).softmax(-1) @ read).permute(0, 2, 3, 1, 4)
    for gradient, reference in zip(result, [out, *torch.autograd.grad(out, double, slope.double())], strict=True):
        close(gradient.detach(), reference.detach())


@pytest.mark.parametrize("form", ["all in one", "keys and values in one", "the same for all heads"])
def test_attention_reads_parts_as_products_make_them(form: str) -> None:
    torch.manual_seed(1)
    bias = sight(20, 20, "before")
    wide = torch.randn(3, 2, 20, 3, 2, 16)
    if form == "all in one":
        inputs = [wide]
    elif form == "keys and values in one":
        inputs = [torch.randn(3, 2, 20, 2, 16).permute(0, 3, 1, 2, 4), wide[:, :, :, :2].contiguous()]
    else:
        inputs = [torch.randn(3, 2, 2, 20, 16), *(torch.randn(3, 1, 2, 20, 16) for _ in range(2))]
    single, double = ([x.to(dtype).requires_grad_() for x in inputs] for dtype in (torch.float32, torch.float64))
    q, k, v = step.heads(double)
    expected = ((q @ k.mT + bias).softmax(-1) @ v).permute(0, 2, 3, 1, 4)
    out = step.attend(tuple(single), bias, None, None)
    slope = torch.randn_like(out)
    close(out.detach(), expected.detach())
    gradients = torch.autograd.grad(out, single, slope), torch.autograd.grad(expected, double, slope.double())
    for a, b in zip(*gradients, strict=True):
        close(a, b)


@pytest.mark.parametrize(("n", "k", "m"), list(itertools.product((4, 7, 130), (3, 70), (5, 16, 79))))
def test_products_and_their_gradients(n: int, k: int, m: int) -> None:
    torch.manual_seed(2)
    x, matrix, slope = torch.randn(3, n, k), torch.randn(3, m, k).mT, torch.randn(3, n, m)
    single, double = ([t.to(dtype).requires_grad_() for t in (x, matrix)] for dtype in (torch.float32, torch.float64))
    result, expected = step.product(*single), double[0] @ double[1]
    close(result.detach(), expected.detach())
    gradients = torch.autograd.grad(result, single, slope), torch.autograd.grad(expected, double, slope.double())
    for a, b in zip(*gradients, strict=True):
        close(a, b)


@pytest.mark.parametrize("margin", [0.0, 15.0, 60.0])
def test_cross_entropy_is_exact_however_small(margin: float) -> None:
    """1 − α is the sum of the others, so that 10⁻²⁶ is as good as ½."""
    torch.manual_seed(3)
    logits, target, weight = torch.randn(2, 3, 5, 79), torch.randint(79, (2, 3, 5)), torch.rand(1, 3, 5)
    logits.scatter_add_(-1, target[..., None], torch.full((2, 3, 5, 1), margin))
    single, double = logits.clone().requires_grad_(), logits.double().requires_grad_()
    others = double.scatter(-1, target[..., None], -torch.inf).logsumexp(-1)
    expected = (weight * torch.nn.functional.softplus(others - double.gather(-1, target[..., None])[..., 0])).sum(
        (1, 2)
    )
    result = step.cross_entropy(single, target, weight)
    np.testing.assert_allclose(result.detach(), expected.detach(), rtol=2e-5)
    outer = torch.tensor([1.0, 2.0])
    (a,), (b,) = torch.autograd.grad(result, single, outer), torch.autograd.grad(expected, double, outer.double())
    np.testing.assert_allclose(a, b, rtol=2e-5)


def test_gelu_and_its_derivative() -> None:
    x = torch.linspace(-9, 9, 1003)
    single, double = x.clone().requires_grad_(), x.double().requires_grad_()
    result, expected = step.gelu(single), torch.nn.functional.gelu(double)
    np.testing.assert_allclose(result.detach(), expected.detach(), rtol=0, atol=1e-6)
    slopes = (torch.autograd.grad(y.sum(), inputs)[0] for y, inputs in ((result, single), (expected, double)))
    np.testing.assert_allclose(*slopes, rtol=0, atol=1e-6)


def test_what_is_not_finite_stays_so_and_no_other_run_sees_it() -> None:
    torch.manual_seed(5)
    q, k, v = (torch.randn(2, 1, 1, 20, 16) for _ in range(3))
    whole = step.attend((q, k, v), sight(20, 20, "before"), None, None)
    k[0, 0, 0, 3] = torch.inf
    broken = step.attend((q, k, v), sight(20, 20, "before"), None, None)
    assert broken[0].isnan().any()
    assert torch.equal(broken[1], whole[1])
    logits = torch.randn(2, 1, 1, 79)
    logits[0, 0, 0, 5] = torch.nan
    result = step.cross_entropy(logits, torch.zeros(2, 1, 1, dtype=torch.int64), torch.ones(2, 1, 1))
    assert result.isnan().tolist() == [True, False]
    assert step.gelu(torch.tensor([torch.nan])).isnan().all()


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize(("norm", "act"), [("none", "linear"), ("layernorm", "gelu"), ("rmsnorm", "relu")])
def test_mlp_and_its_gradients(norm: str, act: str, past: bool) -> None:
    torch.manual_seed(6)
    inputs = torch.randn(3, 30, 32), torch.randn(3, 32, 80), torch.randn(3, 80, 32)
    single, double = ([t.to(dtype).requires_grad_() for t in inputs] for dtype in (torch.float32, torch.float64))
    assert step.takes_mlp(*single[:2])
    assert not step.takes_mlp(*double[:2])
    x, first, second = double
    inside = {"none": x, "layernorm": torch.nn.functional.layer_norm(x, (32,)),
              "rmsnorm": x * (x.square().mean(-1, True) + 1e-5).rsqrt()}[norm]  # fmt: skip
    functions = {"linear": lambda v: v, "relu": torch.relu, "gelu": torch.nn.functional.gelu}
    expected = functions[act](inside @ first) @ second + (x if past else 0)
    result = step.mlp(*single, norm=norm, act=act, past=past)
    slope = torch.randn_like(result)
    close(result.detach(), expected.detach())
    gradients = torch.autograd.grad(result, single, slope), torch.autograd.grad(expected, double, slope.double())
    for a, b in zip(*gradients, strict=True):
        close(a, b)


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_norms_and_their_gradients(kind: str) -> None:
    torch.manual_seed(7)
    x, slope = 3 + torch.randn(3, 5, 80), torch.randn(3, 5, 80)
    single, double = (x.to(dtype).requires_grad_() for dtype in (torch.float32, torch.float64))
    expected = torch.nn.functional.layer_norm(double, (80,)) if kind == "layernorm" else (
        double * (double.square().mean(-1, True) + 1e-5).rsqrt())  # fmt: skip
    result = step.normed(kind, single)
    close(result.detach(), expected.detach())
    (a,), (b,) = torch.autograd.grad(result, single, slope), torch.autograd.grad(expected, double, slope.double())
    close(a, b)


def test_what_kernels_include_is_packaged_and_nothing_is_said_twice() -> None:
    """A source package without a header would not build; definitions that several kernels need stand in one."""
    folder = Path(library.__file__).parent
    root = Path(__file__).parents[2]
    inputs = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    texts = {path.name: path.read_text() for path in folder.glob("*.c")}
    headers = {name for text in texts.values() for name in re.findall(r'#include "(.+)"', text)}
    assert headers
    for name in headers:
        assert (folder / name).is_file()
        assert f"**/*{Path(name).suffix}" in inputs
        for defined in re.findall(r"^(?:INLINE|typedef|#define) .+", (folder / name).read_text(), re.M):
            assert not [c for c, text in texts.items() if f'#include "{name}"' in text and defined in text], defined
