"""The probe's CUDA kernel against the torch version in float64 on the CPU; skips itself where there is no CUDA."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.kernels.cuda import triton_available
from scansnap.probe.capture import AttentionCall, watch_attention
from scansnap.probe.capture.sources import attention_logits
from scansnap.probe.schema import DECILES
from scansnap.probe.statistics import AttentionSums, StatisticsPlan, compute_sums
from scansnap.probe.statistics.compute import _kernel_takes

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
              pytest.mark.skipif(not triton_available(), reason="no Triton")]  # fmt: skip


class Attention(nn.Module):
    """One attention of given q, k and mask, by sdpa or by a softmax; its name says what the softmax is."""

    def __init__(self, q: Tensor, k: Tensor, causal: bool, mask: Tensor | None, by_softmax: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.causal, self.mask, self.by_softmax = q, k, causal, mask, by_softmax

    def forward(self) -> Tensor:
        if self.by_softmax:
            logits = self.q @ self.k.mT / math.sqrt(self.q.shape[-1])
            if self.causal:
                logits = logits.masked_fill(~torch.ones_like(logits, dtype=torch.bool).tril(), -torch.inf)
            return logits.softmax(-1) @ self.k
        shared = self.q.shape[1] != self.k.shape[1]
        return F.scaled_dot_product_attention(self.q, self.k, self.k, self.mask, 0.0, self.causal, enable_gqa=shared)


def seen(model: nn.Module) -> AttentionCall:
    calls: list[AttentionCall] = []
    with torch.no_grad(), watch_attention(model, calls.append):
        model()
    assert len(calls) == 1
    return calls[0]


def both(
    dtype: torch.dtype = torch.float32,
    shape: tuple[int, int, int, int] = (2, 4, 511, 511),
    heads_of_keys: int = 4,
    causal: bool = True,
    mask: Tensor | None = None,
    width: int = 64,
    queries: int = 20,
    block: int | None = None,
    by_softmax: bool = False,
    known: bool = True,
) -> tuple[AttentionSums, AttentionSums]:
    """By the kernel, and by torch in float64 on the CPU from the same numbers."""
    b, h, t, s = shape
    generator = torch.Generator().manual_seed(0)
    q, k = (3 * torch.randn(b, n, length, width, generator=generator).to(dtype)
            for n, length in ((h, t), (heads_of_keys, s)))  # fmt: skip
    strided = q.transpose(1, 2).contiguous().transpose(1, 2)  # as models make them
    tokens = torch.randint(30, (b, s), generator=generator)
    distinctness = torch.rand(b, s, generator=generator)
    distinctness[:, ::7] = torch.nan
    decile = torch.where(distinctness.isnan(), -1, (DECILES * distinctness).long())
    at = torch.linspace(0, t - 1, queries).long().unique()
    kept = torch.tensor([0, len(at) // 2, len(at) - 1]).unique()
    facts = (tokens, distinctness, decile) if t == s and known else (None, None, None)
    plan = StatisticsPlan(at, kept, *facts)

    def on(device: str) -> StatisticsPlan:
        fields = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
        return StatisticsPlan(**{name: None if one is None else one.to(device) for name, one in fields.items()})

    device_mask = None if mask is None else mask.cuda()
    call = seen(Attention(strided.cuda(), k.cuda(), causal, device_mask, by_softmax))
    assert _kernel_takes(call)
    wide = None if mask is None else mask if mask.dtype == torch.bool else mask.double()
    exact = seen(Attention(q.double(), k.double(), causal, wide, by_softmax))
    return compute_sums(call, on("cuda"), block), compute_sums(exact, plan)


def close(found: AttentionSums, exact: AttentionSums, atol: float = 2e-5) -> None:
    """Every line of the sums but share95, whose steps are 1/S: there a rounding error may move a query by one key."""
    sums, wanted = found.sums.cpu().double(), exact.sums.double()
    torch.testing.assert_close(sums[..., 2], wanted[..., 2], rtol=0, atol=0)
    n = wanted[..., 2].clamp_min(1)
    steady = [i for i in range(len(sums)) if i not in (2, 4)]
    for part in (0, 1):
        torch.testing.assert_close((sums[..., part] / n)[steady], (wanted[..., part] / n)[steady], rtol=1e-5, atol=atol)
        torch.testing.assert_close(sums[2, ..., part], wanted[2, ..., part], rtol=1e-4, atol=0)  # e to the entropy
    torch.testing.assert_close(sums[4, ..., 1], wanted[4, ..., 1], rtol=1e-6, atol=0)
    step = 1 / exact.sample.p.shape[-1]
    torch.testing.assert_close(
        (sums / n[..., None])[4, ..., 0], (wanted / n[..., None])[4, ..., 0], rtol=0, atol=2 * step
    )
    torch.testing.assert_close(found.sample.p.cpu(), exact.sample.p, rtol=0, atol=1e-5)
    visible = exact.sample.visible.expand(exact.sample.p.shape)
    assert torch.equal(found.sample.visible.cpu(), visible)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_types(dtype: torch.dtype, causal: bool) -> None:
    close(*both(dtype, causal=causal))


@pytest.mark.parametrize("length", [2, 13, 511, 512, 2048, 8192])
def test_lengths(length: int) -> None:
    close(*both(shape=(1, 2, length, length), heads_of_keys=2, queries=min(length, 20)))


def test_tf32_is_not_used() -> None:
    """Nor for attention whose logits are changed, which the kernel does not start from."""
    asked = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        close(*both())
        q, k = torch.randn(2, 2, 6, 65, 64, generator=torch.Generator().manual_seed(0))
        exact = 0.3 * q.double() @ k[:, :3].repeat_interleave(2, 1).double().mT
        found = attention_logits(q.cuda(), k[:, :3].cuda(), 0.3)
        torch.testing.assert_close(found.cpu().double(), exact, rtol=0, atol=1e-5)
    finally:
        torch.set_float32_matmul_precision(asked)


@pytest.mark.parametrize("width", [8, 20, 80, 128, 256])
def test_widths(width: int) -> None:
    close(*both(width=width, shape=(2, 2, 33, 33), heads_of_keys=2))


def test_heads_that_share_keys() -> None:
    close(*both(shape=(2, 6, 65, 65), heads_of_keys=2))


def test_more_keys_than_queries() -> None:
    close(*both(shape=(2, 4, 40, 77), causal=False))


def window(length: int, width: int) -> Tensor:
    at = torch.arange(length)
    return (at <= at[:, None]) & (at > at[:, None] - width)


def padded(b: int, length: int) -> Tensor:
    """Left padding: the first rows of the second sequence see nothing."""
    real = torch.ones(b, 1, 1, length, dtype=torch.bool)
    real[1, ..., : length // 2] = False
    return real & torch.ones(length, length, dtype=torch.bool).tril()


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("kind", ["window", "padded", "keys only", "by head"])
def test_masks(kind: str, additive: bool) -> None:
    length = 127
    mask = {"window": window(length, 9), "padded": padded(2, length),
            "keys only": torch.arange(length).view(1, 1, 1, -1) % 5 != 0,
            "by head": torch.stack([window(length, n) for n in (3, 9, 30, 120)])[None]}[kind]  # fmt: skip
    if additive:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        mask = mask - 0.1 * torch.arange(length)  # and a slope, as ALiBi has
    found, exact = both(shape=(2, 4, length, length), causal=False, mask=mask)
    close(found, exact)
    if kind == "padded":
        assert found.n_queries[1, 0] < found.n_queries[0, 0]


def test_attention_that_is_written_out() -> None:
    close(*both(by_softmax=True, shape=(2, 3, 65, 65), heads_of_keys=3))


def test_without_tokens() -> None:
    close(*both(known=False, shape=(2, 3, 65, 65), heads_of_keys=3))


def test_blocks_change_nothing() -> None:
    found = [both(shape=(2, 3, 65, 65), heads_of_keys=3, block=block)[0] for block in (1, 4000, None)]
    for one in found[:2]:
        torch.testing.assert_close(one.sums, found[2].sums, rtol=1e-12, atol=1e-12)
        assert torch.equal(one.sample.p, found[2].sample.p)


def test_twice_is_the_same_to_the_bit() -> None:
    one, two = (both(torch.bfloat16)[0] for _ in range(2))
    assert torch.equal(one.sums, two.sums)
    assert torch.equal(one.sample.p, two.sample.p)


def test_equal_weights_need_as_many_keys_as_their_share() -> None:
    """Ties: of 20 equal keys 19 have 95 %; what rounds must not make it 20."""
    q = torch.zeros(1, 1, 64, 16, device="cuda")
    queries = torch.tensor([1, 19, 39, 63], device="cuda")
    for at, wanted in zip(queries, (2, 19, 38, 61), strict=True):
        found = compute_sums(
            seen(Attention(q, q, True, None)), StatisticsPlan(at[None], torch.tensor([0], device="cuda"))
        )
        assert float(found.value[4]) == pytest.approx(wanted / (int(at) + 1), rel=1e-6)
        assert float(found.uniform[4]) == pytest.approx(wanted / (int(at) + 1), rel=1e-6)
