"""Attention seen on CUDA: the families against their own maps, every kernel of torch, compiled flex, CUDA graphs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.attention import SDPBackend, sdpa_kernel

from scansnap.probe.capture import AttentionCall, watch_attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of the compiler, about what it could do better
]
families = pytest.importorskip("model_families", reason="no transformers")


@pytest.mark.parametrize("family", families.CONFIGS)
def test_as_they_come(family: str) -> None:
    families.compared(family, families.as_it_comes(family).cuda())


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt_oss", "bert"])
def test_flex_attention_that_was_compiled(family: str) -> None:
    """Sinks too, which flex attention has on CUDA only."""
    model = families.built(family, "flex_attention").cuda()
    batch = {name: tensor.cuda() for name, tensor in families.inputs(family).items()}
    with torch.no_grad():
        before = model(**batch).last_hidden_state
        families.compared(family, model)
        assert torch.equal(model(**batch).last_hidden_state, before)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_a_kernel_that_is_replaced_while_it_is_watched(family: str) -> None:
    model = families.built(family, "eager").cuda()
    families.takes(model, "flash_attention_2")
    families.compared(family, model)


@pytest.mark.parametrize("kernel", [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
def test_whatever_kernel_torch_takes(kernel: SDPBackend) -> None:
    """In bfloat16, in which a map of its own has three digits: those of the first layer, before errors grow."""
    batch = families.inputs("gpt2", padded=False)
    own = families.built("gpt2", "eager").cuda().bfloat16()
    with torch.no_grad():
        maps = own(**{name: t.cuda() for name, t in batch.items()}, output_attentions=True).attentions
    with sdpa_kernel(kernel):
        found, _ = families.seen_in(families.built("gpt2").cuda().bfloat16(), batch)
    assert families.differs(found[0].rows.p, maps[0].float().cpu()) < 2e-2
    assert families.differs(found[0].rows.p, maps[1].float().cpu()) > 1e-1, "the control: layers swapped"


class Wide(nn.Module):
    """Attention with products that are large enough for TF32 to be used."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(256, 768)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 128)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, 4 * k, v, is_causal=True)


def test_products_are_made_anew_in_float32_where_the_model_has_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made of a model's q and k has all digits, whatever its own products have."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    errors, coarse = [], []

    def look(call: AttentionCall) -> None:
        assert call.products is not None
        q, k, scale = call.products.q, call.products.k, call.products.scale
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        ahead = torch.ones(call.shape[2:], dtype=torch.bool, device=q.device).triu(1)

        def attention(dtype: torch.dtype) -> torch.Tensor:
            logits = scale * q.to(dtype) @ k.to(dtype).mT
            return logits.masked_fill(ahead, -torch.inf).softmax(-1)

        exact, seen = attention(torch.float64), call.rows(torch.arange(call.shape[2], device=q.device)).p
        errors.append(float((seen - exact).abs().max()))
        coarse.append(float((attention(torch.float32) - exact).abs().max()))

    torch.manual_seed(0)
    model = Wide().cuda()
    with torch.no_grad(), watch_attention(model, look):
        model(torch.randn(4, 256, 256, device="cuda"))
    assert len(errors) == 1
    assert max(errors) < 1e-5
    assert max(coarse) > 1e-5, "the control: products as the model makes them"


def test_a_model_in_cuda_graphs_is_seen_and_stays_in_them() -> None:
    torch._dynamo.reset()
    counters.clear()
    model = families.built("gpt2").cuda()
    batch = {name: tensor.cuda() for name, tensor in families.inputs("gpt2", padded=False).items()}
    plain, _ = families.seen_in(model, batch)
    compiled: nn.Module = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        before = [compiled(**batch).last_hidden_state.clone() for _ in range(4)][-1]  # warmed up, recorded, replayed
        graphs = counters["stats"]["unique_graphs"]
        assert graphs > 0
        for _ in range(2):
            found, _ = families.seen_in(compiled, batch)
            for one, other in zip(found, plain, strict=True):
                assert one.path == other.path
                assert torch.equal(one.rows.p, other.rows.p)
            with torch.compiler.set_stance("fail_on_recompile"):
                assert torch.equal(compiled(**batch).last_hidden_state, before)
    assert counters["stats"]["unique_graphs"] == graphs
