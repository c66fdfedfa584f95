"""Sizes of logits, queries, keys and outputs, by architecture, against what the model's own eager code computes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from model_families import HEADS, WIDTH, built, inputs, takes
from torch import Tensor, nn

from scansnap.probe.capture import watch_attention
from scansnap.probe.measurement import AttentionCollector

NEAR = 2e-4  # relative: a norm is the root of a sum of products
SCALE, CAP = (WIDTH / HEADS) ** -0.5, 30.0  # the cap leaves differences between the largest logits
GROUPED = ("llama", "mistral", "gemma2")  # two query heads share each key head
PROJECTIONS = {"gpt2": "attn.c_proj", "llama": "o_proj", "gpt_neox": "attention.dense", "mistral": "o_proj",
               "gemma2": "o_proj", "bert": "attention.output.dense"}  # fmt: skip


class Eager(NamedTuple):
    """One layer, as eager code computes it."""

    q: Tensor  # (B, H, T, d)
    k: Tensor
    logits: Tensor  # (B, H, T, S) that softmax takes
    outputs: Tensor  # (B, T, H, D) what each head adds
    residual: Tensor  # (B, T, D)


def eager(model: nn.Module, batch: dict[str, Any], projections: list[nn.Module], residuals: Any) -> list[Eager]:
    """Run a model with its own eager attention, and note what its products and softmax take."""
    factors, logits, values = [], [], []
    product, softmax = torch.matmul, F.softmax
    hooks = [module.register_forward_pre_hook(lambda _, args: values.append(args[0])) for module in projections]
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(torch, "matmul", lambda a, b: factors.append((a, b)) or product(a, b))
        patch.setattr(F, "softmax", lambda x, *args, **rest: logits.append(x) or softmax(x, *args, **rest))
        out = model(**batch)
    for hook in hooks:
        hook.remove()
    factors = [pair for pair in factors if pair[0].ndim == 4][::2]  # the others are p v
    layers = []
    for (q, k), scores, x, module, stream in zip(factors, logits, values, projections, residuals(out), strict=True):
        weight = module.weight if type(module).__name__ == "Conv1D" else module.weight.T  # (in, out)
        heads = x.reshape(*stream.shape[:2], HEADS, -1)
        alone = torch.stack([heads[:, :, h] @ weight.unflatten(0, (HEADS, -1))[h] for h in range(HEADS)], 2)
        layers.append(Eager(q, k.mT, scores, alone, stream))
    return layers


def expected(layer: Eager, padding: Tensor) -> dict[str, Tensor]:
    """All numbers of a layer, in float64 and without blocks."""
    real = padding.bool()
    logits = layer.logits.double().masked_fill(~real[:, None, :, None], -torch.inf)
    logits = logits.masked_fill(logits < -1e30, -torch.inf)
    spreads: list[list[float]] = [[] for _ in range(HEADS)]
    for row, of_row in enumerate(logits.flatten(0, 2)):
        seen = of_row[of_row > -torch.inf]
        if len(seen) > 1:
            spreads[row // logits.shape[2] % HEADS].append(float(seen.std(correction=0)))
    counts = real & (logits > -torch.inf).sum(-1).gt(1)[:, 0]  # the first query of causal attention has one key
    norms = {name: t.double().norm(dim=-1).transpose(1, 2)[some].mean(0) for name, t, some in
             (("q_norm", layer.q, counts), ("k_norm", layer.k, real))}  # fmt: skip
    outputs = layer.outputs.double().norm(dim=-1)
    share = outputs / layer.residual.double().norm(dim=-1, keepdim=True)
    return {"max_logit": logits.amax((0, 2, 3)), "logit_std": torch.tensor([sum(s) / len(s) for s in spreads]),
            **norms, "output_norm": outputs[counts].mean(0), "output_share": share[counts].mean(0)}  # fmt: skip


def measured(model: nn.Module, batch: dict[str, Any] | Tensor, padding: Tensor | None) -> list[dict[str, Tensor]]:
    collector = AttentionCollector(None, None, None, padding)
    with watch_attention(model, collector, collector.add_output), torch.no_grad():
        model(**batch) if isinstance(batch, dict) else model(batch)
    return list(collector.magnitudes.values())


def agree(ours: dict[str, Tensor], theirs: dict[str, Tensor], name: str) -> bool:
    return torch.allclose(ours[name].double(), theirs[name].double(), rtol=NEAR, atol=1e-6)


def capped(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if hasattr(module, "attn_logit_softcapping"):
            module.attn_logit_softcapping = CAP
    return model


def broken(layer: Eager, family: str) -> dict[str, Eager]:
    """What comes out if a part of the attention is left out; nothing, to show that the rest is right."""

    def scores(k: Tensor) -> Tensor:
        return SCALE * layer.q @ k.mT

    def cap(logits: Tensor) -> Tensor:
        return CAP * torch.tanh(logits / CAP) if family == "gemma2" else logits

    def mask(logits: Tensor) -> Tensor:
        return logits.masked_fill(layer.logits < -1e30, -torch.inf)

    swapped = layer.k[:, [0, 2, 1, 3]]  # key heads 0 1 0 1 in place of 0 0 1 1
    variants = {"nothing": mask(cap(scores(layer.k))), "mask": cap(scores(layer.k))}
    variants |= {"soft cap": mask(scores(layer.k))} if family == "gemma2" else {}
    variants |= {"groups of heads": mask(cap(scores(swapped)))} if family in GROUPED else {}
    return {name: layer._replace(logits=logits) for name, logits in variants.items()}


def hf(family: str) -> list[Eager]:
    """What eager code of a family of transformers computes."""
    model, batch = capped(built(family, "eager")), inputs(family)
    modules = [m for name, m in model.named_modules() if name.endswith(PROJECTIONS[family])]
    streams = lambda out: out["hidden_states"][:-1]  # noqa: E731
    return eager(model, {**batch, "output_hidden_states": True}, modules, streams)


@pytest.mark.parametrize(
    ("family", "kinds"),
    [("gemma3", ["sliding", "self"]), ("mistral", ["sliding"] * 2), ("gpt2", ["self"] * 2), ("bert", ["self"] * 2)],
)
def test_kinds_of_layers(family: str, kinds: list[str]) -> None:
    batch = inputs(family)
    collector = AttentionCollector(None, None, None, batch["attention_mask"])
    with watch_attention(model := built(family), collector), torch.no_grad():
        model(**batch)
    assert [layer.kind for layer, *_ in collector.results.values()] == kinds


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flash_attention_2"])
@pytest.mark.parametrize("family", PROJECTIONS)
def test_families(family: str, implementation: str) -> None:
    if family == "gemma2" and implementation == "sdpa":
        pytest.skip("transformers has no sdpa with a soft cap")
    model = capped(built(family, "eager" if implementation == "flash_attention_2" else implementation))
    if implementation == "flash_attention_2":
        takes(model, implementation)  # replaced while it is watched
    batch = inputs(family)
    ours, layers = measured(model, batch, batch["attention_mask"]), hf(family)
    theirs = [expected(layer, batch["attention_mask"]) for layer in layers]
    assert len(ours) == len(theirs) == 2
    for layer, own in zip(ours, theirs, strict=True):
        for name in own:
            assert agree(layer, own, name), (family, name, layer[name], own[name])
    for number in ("max_logit", "logit_std"):
        agreeing: dict[str, list[bool]] = {}
        for layer, own in zip(layers, ours, strict=True):
            for name, variant in broken(layer, family).items():
                agreeing.setdefault(name, []).append(agree(own, expected(variant, batch["attention_mask"]), number))
        assert all(agreeing.pop("nothing"))
        assert not any(map(all, agreeing.values())), f"the controls: {number} where a part is left out, {agreeing}"
    for name in theirs[0]:
        assert not agree(ours[0], theirs[1], name), f"the control: layers swapped, {name}"
        assert not agree(ours[0], {name: theirs[0][name].flip(0)}, name), f"the control: heads swapped, {name}"
