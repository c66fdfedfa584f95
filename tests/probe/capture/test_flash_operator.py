"""The operator of the package flash-attn, which is not here: one of the same name and arguments stands for it.

Its conventions are those the package documents: sequences before heads, causal masks and windows that end at the last
key, ALiBi by distance.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scansnap.probe.capture import AttentionCall, watch_attention

pytestmark = pytest.mark.skipif(importlib.util.find_spec("flash_attn") is not None, reason="the package itself is here")
B, T, S, H, G, D = 2, 7, 13, 4, 2, 8


@pytest.fixture(scope="module")
def operator() -> Any:
    @torch.library.custom_op("flash_attn::_flash_attn_forward", mutates_args=())
    def forward(
        q: Tensor, k: Tensor, v: Tensor, dropout_p: float, softmax_scale: float, causal: bool, window_size_left: int,
        window_size_right: int, softcap: float, alibi_slopes: Tensor | None, return_softmax: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        p = own(q, k, softmax_scale, causal, (window_size_left, window_size_right), softcap, alibi_slopes)
        return (p @ v.transpose(1, 2).repeat_interleave(H // G, 1)).transpose(1, 2), p.sum(-1)

    return torch.ops.flash_attn._flash_attn_forward


def own(q: Tensor, k: Tensor, scale: float, causal: bool, window: tuple[int, int], cap: float, slopes: Any) -> Tensor:
    """Pair by pair, as it is documented."""
    q, k = q.transpose(1, 2), k.transpose(1, 2).repeat_interleave(H // G, 1)
    logits = scale * torch.einsum("bhid,bhjd->bhij", q, k)
    logits = cap * torch.tanh(logits / cap) if cap > 0 else logits
    n_queries, n_keys = q.shape[2], k.shape[2]
    for i in range(n_queries):
        for j in range(n_keys):
            place = i + n_keys - n_queries
            if slopes is not None:
                logits[:, :, i, j] -= slopes * abs(place - j)
            late, early = window[1] >= 0 and j > place + window[1], window[0] >= 0 and j < place - window[0]
            if (causal and j > place) or late or early:
                logits[:, :, i, j] = -torch.inf
    return logits.double().exp().div(logits.double().exp().sum(-1, keepdim=True)).float()


@pytest.mark.parametrize("queries", [T, S])
@pytest.mark.parametrize(
    ("causal", "window", "cap", "alibi"),
    [(False, (-1, -1), 0.0, False), (True, (-1, -1), 0.0, False), (True, (3, 0), 0.0, False),
     (False, (2, 1), 0.0, False), (True, (-1, -1), 0.5, False), (True, (-1, -1), 0.0, True)],
    ids=["all", "causal", "window", "both sides", "capped", "ALiBi"],
)  # fmt: skip
def test_what_it_attends_to(operator: Any, queries: int, causal: bool, window: Any, cap: float, alibi: bool) -> None:
    class Flash(torch.autograd.Function):  # as the package hides it
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None) -> Tensor:
            return operator(
                q, k, v, 0.0, 0.3, causal=causal, window_size_left=window[0], window_size_right=window[1],
                softcap=cap, alibi_slopes=slopes, return_softmax=False,
            )[0]  # fmt: skip

    torch.manual_seed(0)
    q, k, v = torch.randn(B, queries, H, D), torch.randn(B, S, G, D), torch.randn(B, S, G, D)
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.05]) if alibi else None
    found: list[Tensor] = []

    def keep(call: AttentionCall) -> None:
        found.extend(call.rows(torch.arange(queries)))

    with watch_attention(nn.Identity(), keep), torch.no_grad():
        given = Flash.apply(q, k, v, slopes)
    p, visible = found
    torch.testing.assert_close(p, own(q, k, 0.3, causal, window, cap, slopes), rtol=0, atol=1e-6)
    assert torch.equal(visible.expand(p.shape), p > 0)
    torch.testing.assert_close((p @ v.transpose(1, 2).repeat_interleave(H // G, 1)).transpose(1, 2), given)
