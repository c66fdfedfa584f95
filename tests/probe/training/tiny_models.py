"""Tiny models with dropout, as people write and train them, and one way to train them all: few steps, any variant."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scansnap.probe.probe import Probe

M, T, B, D = 17, 9, 3, 16
IDS = torch.arange(2 * 11).reshape(2, 11) % M  # what the probe looks at: not as long as what is trained on

AttentionCollector = Callable[[nn.Module, int], None]  # what is done with the model after a step


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.attn, self.proj, self.dropout = nn.Linear(D, 3 * D), nn.Linear(D, D), dropout
        self.norm, self.mlp = nn.LayerNorm(D), nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.attn(self.norm(x)).split(D, dim=-1))
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Plain(nn.Module):
    """A plain loop over blocks around scaled_dot_product_attention; ``reentrant`` says how it is checkpointed."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.embed, self.place, self.out = nn.Embedding(M, D), nn.Embedding(64, D), nn.Linear(D, M)
        self.blocks = nn.ModuleList([Block(dropout), Block(dropout)])
        self.reentrant: bool | None = None

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids) + self.place.weight[: input_ids.shape[1]]
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.out(x)


class Encoder(nn.Module):
    """torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(M, D), nn.Linear(D, M)
        layer = nn.TransformerEncoderLayer(D, 2, D, dropout=0.2, batch_first=True)
        self.encode = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.reentrant: bool | None = None

    def forward(self, input_ids: Tensor) -> Tensor:
        n = input_ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(n, device=input_ids.device)
        x = self.embed(input_ids)
        if self.reentrant is None:
            return self.out(self.encode(x, mask=mask))
        return self.out(checkpoint(self.encode, x, mask, use_reentrant=self.reentrant))


def gpt2(**options: Any) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=M, n_positions=64, n_embd=D, n_layer=2, n_head=2,
                                      bos_token_id=0, eos_token_id=0, **options))  # fmt: skip


def llama(**options: Any) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(vocab_size=M, hidden_size=D, intermediate_size=D, num_hidden_layers=2,
                                        num_attention_heads=2, num_key_value_heads=1, attention_dropout=0.2,
                                        max_position_embeddings=64, **options))  # fmt: skip


MODELS: dict[str, Callable[[], nn.Module]] = {"gpt2": gpt2, "llama": llama, "plain": Plain, "encoder": Encoder}


def loss_of(model: Any, x: Tensor) -> Tensor:
    """Of the next token."""
    out = model(input_ids=x)
    logits = out if isinstance(out, Tensor) else out.logits
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), x[:, 1:].flatten())


def probing(wanted: list[Probe], graph: bool = False) -> Callable[[nn.Module], AttentionCollector]:
    """Looks through a probe, which is put into ``wanted``; by replays of a ``graph``."""

    def start(model: nn.Module) -> AttentionCollector:
        device = next(model.parameters()).device
        wanted.append(Probe(model, {"input_ids": IDS.to(device)}, every=1, graph=graph))
        return lambda model, step: wanted[-1].step(step)

    return start


def naive(model: nn.Module) -> AttentionCollector:
    """The look of somebody in a hurry: no gradients, but dropout."""

    def look(model: nn.Module, step: int) -> None:
        with torch.no_grad():
            model(input_ids=IDS.to(next(model.parameters()).device))

    return look


def checkpointed(model: Any, reentrant: bool) -> None:
    """As each of them does it; transformers renamed its method in 5.23."""
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
    enable = next((getattr(model, name) for name in names if hasattr(model, name)), None)
    if enable is not None:
        enable({"use_reentrant": reentrant})
        if reentrant:
            model.enable_input_require_grads()
    else:
        model.reentrant = reentrant
        model.embed.register_forward_hook(lambda module, args, output: output.requires_grad_())


def trained(
    make: Callable[[], nn.Module],
    start: Callable[[nn.Module], AttentionCollector] | None,
    *,
    wrap: Callable[[nn.Module], Any] = lambda model: model,
    autocast: bool = False,
    looked_at_so: bool = False,
    accumulate: int = 1,
    before_update: bool = False,
    steps: int = 3,
    device: str = "cpu",
    seed: int = 0,
) -> dict[str, Tensor]:
    """Weights, optimiser state and the next random number after some steps, looked at after each and, where gradients
    are gathered over several batches, in the middle; ``before_update``: also when all are there. Looks come outside
    of autocast, as most loops would have it, unless they are to be so too."""
    torch.manual_seed(seed)
    model = make().to(device)
    model.train()
    data = torch.randint(M, (steps, accumulate, B, T)).to(device)
    wrapped = wrap(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    look = start(wrapped) if start is not None else None
    if look is not None and looked_at_so:
        look = torch.autocast(device, torch.bfloat16)(look)
    if look is not None:
        look(wrapped, 0)
    for step in range(steps):
        optimizer.zero_grad()
        for i, x in enumerate(data[step]):
            with torch.autocast(device, torch.bfloat16) if autocast else nullcontext():
                loss = loss_of(wrapped, x)
            loss.backward()
            if look is not None and (before_update or i < accumulate - 1):
                look(wrapped, 100 + accumulate * step + i)
        optimizer.step()
        if look is not None:
            look(wrapped, step + 1)
    state = {f"{i} {name}": value for i, one in enumerate(optimizer.state.values()) for name, value in one.items()}
    weights = {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    return {**weights, **state, "next": torch.rand(3), "next there": torch.rand(3, device=device)}


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of what is not the same, bit by bit."""
    assert one.keys() == other.keys()
    return [name for name, value in one.items() if not torch.equal(value, other[name])]
