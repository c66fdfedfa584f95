"""Roles, exact parts of fused projections, ratios and schedules, on the models of transformers and torch."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import scansnap as ss
from scansnap.checks import InputError
from scansnap.rates import Ratio, RuleOptimizer, rates_by_role, ratio_schedule
from scansnap.rates.fused import FusedPart

transformers = pytest.importorskip("transformers")
V, D, HEADS = 40, 16, 4
SIZES = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": HEADS,
         "intermediate_size": 24, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
SMALL = {"vocab_size": V, "n_layer": 2, "n_head": HEADS, "bos_token_id": 1, "eos_token_id": 2}


def make(name: str) -> nn.Module:
    """A small model, its weights drawn by seed 0."""
    torch.manual_seed(0)
    t = transformers
    grouped = SIZES | {"num_key_value_heads": 2}
    return {
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(n_embd=D, **SMALL)),
        "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**SIZES)),
        "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(hidden_size=D, **SMALL)),
        "falcon": lambda: t.FalconForCausalLM(t.FalconConfig(**SIZES)),
        "falcon_grouped": lambda: t.FalconForCausalLM(
            t.FalconConfig(new_decoder_architecture=True, num_kv_heads=2, **SIZES)
        ),
        "phi3": lambda: t.Phi3ForCausalLM(t.Phi3Config(**grouped)),
        "mpt": lambda: t.MptForCausalLM(t.MptConfig(vocab_size=V, d_model=D, n_layers=2, n_heads=HEADS)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**grouped, tie_word_embeddings=True)),
        "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(head_dim=4, **grouped)),
        "opt": lambda: t.OPTForCausalLM(t.OPTConfig(
            vocab_size=V, hidden_size=D, num_hidden_layers=2, num_attention_heads=HEADS, ffn_dim=24,
            word_embed_proj_dim=D,
        )),
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(**SIZES)),
        "t5": lambda: t.T5ForConditionalGeneration(
            t.T5Config(vocab_size=V, d_model=D, d_kv=4, d_ff=24, num_layers=1, num_heads=HEADS)
        ),
        "torch": lambda: nn.Transformer(D, HEADS, 1, 1, 24, batch_first=True),
    }[name]()  # fmt: skip


FUSED = ("gpt2", "gpt_neox", "bloom", "falcon", "falcon_grouped", "phi3", "mpt")
OTHER = ("llama", "qwen3", "opt", "bert", "t5", "torch")


def quiet_groups(model: nn.Module, **arguments: object) -> list[dict]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about parameters without a role
        return ss.param_groups(model, **{"lr": 0.1, **arguments})


@pytest.mark.parametrize("name", FUSED + OTHER)
def test_every_parameter_is_in_one_group(name: str) -> None:
    model = make(name)
    groups = quiet_groups(model, qk=2.0)
    in_groups = sum(p.numel() for group in groups for p in group["params"])
    assert in_groups == sum(p.numel() for p in model.parameters())
    roles = {group["role"] for group in groups}
    assert roles >= {"qk", "vo", "mlp", "norm"}
    unknown = {n for group in groups if group["role"] == "none" for n in group["names"]}
    assert all(n.startswith("cls.") for n in unknown), unknown
    assert {group["lr"] for group in groups} == {0.1, 0.2}


@pytest.mark.parametrize("name", FUSED)
def test_parts_are_queries_keys_and_values(name: str) -> None:
    """Only the query and key parts of the first layer change its attention; only the value part changes the rest."""
    model = make(name).eval()
    ids = torch.arange(1, 13)[None]
    parts = {n: p for group in quiet_groups(model) for n, p in zip(group["names"], group["params"], strict=True)
             if isinstance(p, FusedPart) and ".0." in n and "weight" in n}  # fmt: skip
    assert [n[-3:] for n in parts] == ["[q]", "[k]", "[v]"]

    def attention() -> np.ndarray:
        probe = ss.Probe(model, {"input_ids": ids})
        probe.measure(0)
        return probe.dataset().attention_last.isel(layer=0).values

    def output() -> torch.Tensor:
        with torch.no_grad():
            return model(input_ids=ids).logits

    start, logits = attention(), output()
    for label, part in parts.items():
        kept = part.data.clone()
        part.data.add_(torch.randn(part.shape, generator=torch.Generator().manual_seed(1)))
        moved = not np.allclose(attention(), start, atol=1e-6)
        assert moved == (label[-2] in "qk"), label
        assert not torch.allclose(output(), logits, atol=1e-6)
        part.data.copy_(kept)
    assert torch.equal(output(), logits), "what is put back is put back"


class Separate(nn.Module):
    """Three projections, fused or not; fused: consecutive, with outputs first or (as Conv1D) last."""

    def __init__(self, fused: bool, outputs_last: bool) -> None:
        super().__init__()
        self.outputs_last = outputs_last
        generator = torch.Generator().manual_seed(3)
        w = torch.randn(3, D, D, generator=generator, dtype=torch.float64) / D**0.5  # Adam amplifies rounding
        b = torch.randn(3, D, generator=generator, dtype=torch.float64) / 10
        module = type("Conv1D" if outputs_last else "Linear", (nn.Module,), {})
        self.attn = nn.Module()
        if fused:
            self.attn.c_attn = module()
            whole = torch.cat(list(w))
            self.attn.c_attn.weight = nn.Parameter(whole.mT.contiguous() if outputs_last else whole)
            self.attn.c_attn.bias = nn.Parameter(b.flatten())
        else:
            for i, name in enumerate(("q_proj", "k_proj", "v_proj")):
                projection = module()
                projection.weight = nn.Parameter(w[i].mT.contiguous() if outputs_last else w[i].clone())
                projection.bias = nn.Parameter(b[i].clone())
                setattr(self.attn, name, projection)
        self.fused = fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        projections = [self.attn.c_attn] if self.fused else [self.attn.q_proj, self.attn.k_proj, self.attn.v_proj]
        outputs = [x @ (p.weight if self.outputs_last else p.weight.mT) + p.bias for p in projections]
        q, k, v = outputs[0].chunk(3, -1) if self.fused else outputs
        attended = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
        return (
            attended + k[:, None].square()
        )  # softmax alone has no gradient in the bias of keys: Adam would see rounding

    def tensors(self) -> list[torch.Tensor]:
        """Weights and biases of queries, keys, values, in this order."""
        if not self.fused:
            return [
                p.detach() for name in ("q_proj", "k_proj", "v_proj") for p in getattr(self.attn, name).parameters()
            ]
        c, dim = self.attn.c_attn, 1 if self.outputs_last else 0
        pairs = zip(c.weight.detach().chunk(3, dim), c.bias.detach().chunk(3), strict=True)
        return [t for pair in pairs for t in pair]


OPTIMIZERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1),
    "momentum": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.1, weight_decay=0.1),
    "adamw, foreach": lambda groups: torch.optim.AdamW(groups, lr=0.1, weight_decay=0.1, foreach=True),
    "muon": lambda groups: RuleOptimizer(groups, rule="muon", weight_decay=0.1),
    "rule adamw": lambda groups: RuleOptimizer(groups, rule="adamw", weight_decay=0.1),
}


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 5, clip: float | None = None) -> None:
    for step in range(steps):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        for part in range(2):  # gradients accumulate
            x = torch.randn(2, 7, D, dtype=torch.float64, generator=torch.Generator().manual_seed(10 * step + part))
            model(x).square().sum().backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


@pytest.mark.parametrize("outputs_last", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parts_train_as_separate_parameters(name: str, outputs_last: bool) -> None:
    results = []
    for fused in (True, False):
        model = Separate(fused, outputs_last)
        groups = quiet_groups(model, qk=4.0, vo=0.5)
        assert [group["lr"] for group in groups] == pytest.approx([0.4, 0.05])
        trained(model, OPTIMIZERS[name](groups), clip=1.0)
        results.append(model.tensors())
    for whole, separate in zip(*results, strict=True):
        torch.testing.assert_close(whole, separate, rtol=1e-10, atol=1e-10)
    one_rate = Separate(True, outputs_last)
    trained(one_rate, OPTIMIZERS[name](quiet_groups(one_rate)), clip=1.0)
    assert not torch.allclose(one_rate.tensors()[0], results[0][0], atol=1e-3), "the ratio matters"


def test_a_rescaled_gradient_is_not_a_ratio_with_adam() -> None:
    """The control: the simple way, multiplying the gradient of a slice, has no effect with AdamW."""
    model, plain = Separate(True, False), Separate(True, False)
    model.attn.c_attn.weight.register_hook(lambda g: g * torch.tensor([4.0, 4.0, 1.0]).repeat_interleave(D)[:, None])
    for each in (model, plain):
        trained(each, torch.optim.AdamW(each.parameters(), lr=0.1))
    assert torch.allclose(model.tensors()[0], plain.tensors()[0], atol=1e-3)


def test_muon_needs_matrices() -> None:
    with pytest.raises(InputError) as error:
        RuleOptimizer(quiet_groups(make("gpt_neox"), qk=2.0), rule="muon")
    assert error.value.field == "params"


def test_state_is_saved_and_resumed() -> None:
    whole = make("gpt2")
    ids = torch.arange(24).reshape(2, 12)

    def start(model: nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
        optimizer = torch.optim.AdamW(quiet_groups(model, qk=Ratio(4.0, end=0.5), vo=0.5))
        return optimizer, ratio_schedule(optimizer, 6, "warmup(2) constant")

    def run(model: nn.Module, both: tuple, steps: int) -> None:
        model.eval()  # without dropout
        for _ in range(steps):
            both[0].zero_grad()
            model(input_ids=ids, labels=ids).loss.backward()
            both[0].step()
            both[1].step()

    first = start(whole)
    run(whole, first, 3)
    saved = copy.deepcopy((whole.state_dict(), first[0].state_dict(), first[1].state_dict()))
    run(whole, first, 3)
    resumed = make("gpt2")
    second = start(resumed)
    for target, state in zip((resumed, *second), saved, strict=True):
        target.load_state_dict(state)
    run(resumed, second, 3)
    for p, q in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(p, q)


def test_parts_follow_a_model_that_moves() -> None:
    model = Separate(True, False)
    optimizer = torch.optim.SGD(quiet_groups(model, qk=4.0))
    model.float()
    x = torch.randn(2, 7, D, generator=torch.Generator().manual_seed(0))
    before = model.attn.c_attn.weight.detach().clone()
    model(x).sum().backward()
    optimizer.step()
    change, gradient = model.attn.c_attn.weight.detach() - before, model.attn.c_attn.weight.grad
    torch.testing.assert_close(change[: 2 * D], -0.4 * gradient[: 2 * D])
    torch.testing.assert_close(change[2 * D :], -0.1 * gradient[2 * D :])


def test_ratios_by_layer_and_in_the_upper_half() -> None:
    model = make("llama")
    rates = {row["name"]: row["lr"] for row in ss.describe_groups(model, lr=1.0, qk=[2.0, 3.0], upper=0.5).rows}
    assert rates["model.layers.0.self_attn.q_proj.weight"] == 2.0
    assert rates["model.layers.1.self_attn.k_proj.weight"] == 1.5
    assert rates["model.layers.1.self_attn.v_proj.weight"] == 1.0
    by_depth = ss.describe_groups(model, qk=lambda layer, n: (layer + 1) / n).rows
    assert [row["lr"] for row in by_depth if "q_proj" in row["name"]] == [0.5, 1.0]


def test_the_schedule_changes_the_ratio_alone() -> None:
    optimizer = torch.optim.SGD(quiet_groups(make("llama"), qk=Ratio(8.0, start=0.5), mlp=Ratio(0.5, end=0.25)))
    schedule = ratio_schedule(optimizer, 8, lambda step: 0.5)
    seen = []
    for _ in range(8):
        rates = rates_by_role(optimizer)
        seen.append((rates["qk"] / rates["vo"], rates["mlp"] / rates["vo"]))
        optimizer.step()
        schedule.step()
    np.testing.assert_allclose(seen, [(1, 0.5)] * 2 + [(1, 1)] * 2 + [(8, 1)] * 4)
    assert rates_by_role(torch.optim.SGD([torch.zeros(1, requires_grad=True)])) == {}


def test_rules_tied_weights_and_what_has_no_role() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb, self.head = nn.Embedding(V, D), nn.Linear(D, V, bias=False)
            self.head.weight = self.emb.weight
            self.mixer, self.both = nn.Linear(D, D, bias=False), nn.Linear(D, 2 * D, bias=False)

    model = Model()
    with pytest.warns(UserWarning, match="mixer.weight"):
        groups = ss.param_groups(model, lr=1.0, embedding=3.0)
    assert [(g["role"], g["lr"], g["names"]) for g in groups] == [
        ("embedding", 3.0, ["emb.weight"]), ("none", 1.0, ["mixer.weight", "both.weight"])
    ]  # fmt: skip
    assert "no role: mixer.weight" in str(ss.describe_groups(model))
    groups = ss.param_groups(model, lr=1.0, qk=2.0, rules={"both": ("qk", "vo"), "mixer": 0.25})
    assert {g["role"]: g["lr"] for g in groups} == {"qk": 2.0, "vo": 1.0, "embedding": 1.0, "rule": 0.25}
    ss.param_groups(model, lr=1.0, rules=lambda name, p: "mlp" if name in ("mixer.weight", "both.weight") else None)
    with pytest.raises(InputError) as error:
        ss.param_groups(model, lr=1.0, rules={"head": "mlp", "emb": "vo"} | {"mixer|both": "mlp"})
    assert error.value.field in ("model", "rules")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({"lr": 0.0}, "lr"), ({"qk": -1.0}, "qk"), ({"qk": [1.0]}, "qk"), ({"rules": {"nothing here": "qk"}}, "rules"),
     ({"rules": {"c_attn": "key"}}, "rules"), ({"rules": {"(": "qk"}}, "rules"), ({"rules": 3}, "rules"),
     ({"rules": {"c_attn.w": ("qk",) * 5}}, "model")],
)  # fmt: skip
def test_bad_input(arguments: dict, field: str) -> None:
    with pytest.raises(InputError) as error:
        quiet_groups(make("gpt2"), **arguments)
    assert error.value.field == field


def test_refusals() -> None:
    for action, field in (
        (lambda: ss.param_groups(nn.Linear(2, 2), lr=1.0, qk=2.0), "qk"),
        (lambda: ss.param_groups(3, lr=1.0), "model"),
        (lambda: ss.describe_groups(nn.Linear(2, 2), query=2.0), "query"),
        (lambda: ratio_schedule(torch.optim.SGD(nn.Linear(2, 2).parameters()), 3), "optimizer"),
        (lambda: Ratio(0.0, end=0.5), "value"),
        (lambda: Ratio(2.0, start=0.7, end=0.5), "end"),
        (lambda: ss.param_groups(make_glm(), lr=1.0), "model"),
    ):
        with pytest.raises(InputError) as error:
            action()
        assert error.value.field == field


def make_glm() -> nn.Module:
    """A fused projection of unknown layout."""
    model = nn.Module()
    model.attention = type("OtherAttention", (nn.Module,), {})()
    model.attention.query_key_value = nn.Linear(D, 3 * D)
    return model
