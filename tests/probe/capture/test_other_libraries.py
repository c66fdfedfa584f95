"""Attention of models that do not come from transformers: x-transformers, torch's own, nanoGPT's, TransformerLens."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scansnap.probe.capture import AttentionCall, AttentionRows, watch_attention

B, T, WIDTH, HEADS, M = 2, 13, 32, 4, 37
NEAR, FAR = 1e-5, 1e-2

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotary_pos_emb": True},
    "ALiBi": {"alibi_pos_bias": True},
    "T5's bias": {"rel_pos_bias": True},
    "normed q and k": {"attn_qk_norm": True},
    "grouped": {"attn_kv_heads": 2},
    "one head of keys": {"attn_one_kv_head": True},
    "flash": {"attn_flash": True},
    "flash, ALiBi": {"attn_flash": True, "alibi_pos_bias": True},
    "flash, rotary, grouped": {"attn_flash": True, "rotary_pos_emb": True, "attn_kv_heads": 2},
    "talking heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
    "clamped": {"attn_softclamp_logits": True, "attn_logit_softclamp_value": 1.0},
    "few keys": {"attn_sparse_topk": 4},
    "memories": {"attn_num_mem_kv": 3},
}


def rows_in(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, AttentionRows]:
    found: dict[str, AttentionRows] = {}

    def keep(call: AttentionCall) -> None:
        found[call.path] = call.rows(torch.arange(call.shape[2]))

    with watch_attention(model, keep) as watched, torch.no_grad():
        model(*args, **kwargs)
    assert watched.coverage().complete
    return found


def spread(model: nn.Module) -> None:
    """Weights with which attention looks somewhere."""
    chance = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.ndim == 2:
                tensor.normal_(0, 0.3, generator=chance)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_x_transformers(variant: str, causal: bool) -> None:
    from x_transformers import Decoder, Encoder, TransformerWrapper

    def built(**options: Any) -> nn.Module:
        layers = (Decoder if causal else Encoder)(dim=WIDTH, depth=2, heads=HEADS, attn_dim_head=8, **options)
        model = TransformerWrapper(num_tokens=M, max_seq_len=32, attn_layers=layers).eval()
        spread(model)
        return model

    options = VARIANTS[variant]
    model, plain = built(**options), built(**{key: value for key, value in options.items() if key != "attn_flash"})
    plain.load_state_dict(model.state_dict())
    ids, mask = torch.arange(B * T).reshape(B, T) % M, torch.arange(T) < torch.tensor([[T], [9]])
    with torch.no_grad():
        _, told = plain(ids, mask=mask, return_intermediates=True)
    own = [one.post_softmax_attn for one in told.attn_intermediates]
    found = list(rows_in(model, ids, mask=mask).values())
    assert len(found) == len(own) == 2
    for rows, whole in zip(found, own, strict=True):
        assert (rows.p - whole).abs().max() < NEAR
        assert torch.equal(rows.visible.expand(whole.shape), whole > 0)
    assert (found[0].p - own[1]).abs().max() > FAR, "the control: layers swapped"
    dropped = list(rows_in(model, ids).values())
    assert (dropped[0].p - own[0]).abs().max() > FAR, "the control: without the mask"


class CausalSelfAttention(nn.Module):
    """As in nanoGPT, with flash attention and without."""

    def __init__(self, flash: bool) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.attn_dropout, self.n_head, self.flash = nn.Dropout(0.2), HEADS, flash
        self.register_buffer("bias", torch.tril(torch.ones(T, T)).view(1, 1, T, T))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.c_attn(x).split(WIDTH, dim=2))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2 if self.training else 0.0, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.c_proj(y.transpose(1, 2).flatten(2))


class GPT(nn.Module):
    def __init__(self, flash: bool) -> None:
        super().__init__()
        self.wte, self.lm_head = nn.Embedding(M, WIDTH), nn.Linear(WIDTH, M, bias=False)
        blocks = [nn.ModuleDict({"ln_1": nn.LayerNorm(WIDTH), "attn": CausalSelfAttention(flash)}) for _ in range(2)]
        self.h = nn.ModuleList(blocks)
        spread(self)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.wte(idx)
        for block in self.h:
            x = x + block["attn"](block["ln_1"](x))
        return self.lm_head(x)


@pytest.mark.parametrize("flash", [True, False])
def test_nanogpt(flash: bool) -> None:
    model, ids = GPT(flash).eval(), torch.arange(B * T).reshape(B, T) % M
    found = rows_in(model, ids)
    assert list(found) == ["h.0.attn", "h.1.attn"]
    x, own = model.wte(ids), []
    for block in model.h:  # what the formula says, step by step
        q, k, _ = (
            t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in block.attn.c_attn(block.ln_1(x)).split(WIDTH, 2)
        )
        hidden = torch.ones(T, T).triu(1).bool()
        own.append((q @ k.mT / math.sqrt(WIDTH // HEADS)).masked_fill(hidden, -math.inf).softmax(-1).detach())
        x = x + block.attn(block.ln_1(x))
        assert (found[f"h.{len(own) - 1}.attn"].p - own[-1]).abs().max() < NEAR
    assert (found["h.0.attn"].p - own[1]).abs().max() > FAR, "the control: layers swapped"
    assert torch.equal(found["h.0.attn"].visible.expand(own[0].shape), own[0] > 0)


@pytest.mark.parametrize("nested", [True, False])
def test_torchs_encoder_with_padding(nested: bool) -> None:
    """Its fast path, which would hide everything, is not taken while it is watched."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 48, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    spread(encoder)
    x, padding = (
        torch.randn(B, T, WIDTH, generator=torch.Generator().manual_seed(3)),
        torch.zeros(B, T, dtype=torch.bool),
    )
    padding[1, 9:] = True
    found, own, state = list(rows_in(encoder, x, src_key_padding_mask=padding).values()), [], x
    for one in encoder.layers:
        with torch.no_grad():
            own.append(one.self_attn(state, state, state, padding, average_attn_weights=False)[1])
            state = one(state, src_key_padding_mask=padding)
    for rows, whole in zip(found, own, strict=True):
        assert (rows.p - whole).abs()[:, :, :9].max() < NEAR  # what padding looks at depends on the path
        assert torch.equal(rows.visible.expand(whole.shape), whole > 0)
    assert (found[0].p - own[1]).abs().max() > FAR, "the control: layers swapped"
    assert (next(iter(rows_in(encoder, x).values())).p - own[0]).abs().max() > FAR, "the control: without the mask"


def test_transformer_lens() -> None:
    """Its own model, which version 4 no longer has; its many packages are not among those we test with."""
    lens = pytest.importorskip("transformer_lens", reason="transformer_lens is not installed")
    if not hasattr(lens, "HookedTransformer"):
        pytest.skip("transformer_lens 4 wraps models of transformers, which are tested as such")
    torch.manual_seed(0)
    size = {"n_layers": 2, "d_model": WIDTH, "n_heads": HEADS, "d_head": 8, "n_ctx": 16, "d_vocab": M}
    model = lens.HookedTransformer(lens.HookedTransformerConfig(**size, act_fn="gelu")).eval()
    ids = torch.randint(M, (B, T))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
        found = rows_in(model, ids)
        _, own = model.run_with_cache(ids)
    assert list(found) == ["blocks.0.attn", "blocks.1.attn"]
    for i, rows in enumerate(found.values()):
        assert float((rows.p - own["pattern", i]).abs().max()) < NEAR
        assert float((rows.p - own["pattern", 1 - i]).abs().max()) > FAR, "the control: layers swapped"
