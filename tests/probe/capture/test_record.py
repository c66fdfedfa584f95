"""Attention that no probe can see, told by the model itself; and what a probe says of attention it did not see."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import scansnap as ss
from refusals import refused
from scansnap.probe.capture import AttentionCall, watch_attention
from scansnap.probe.capture.modules import Coverage

B, T, WIDTH = 2, 13, 8


@torch.jit.ignore
def told(p):  # to a script that is a tensor in and a tensor out
    ss.probe.record(p, "weights")
    return p


class Attention(nn.Module):
    """In ways that no probe sees."""

    def __init__(self, way: str, tells: bool = False) -> None:
        super().__init__()
        self.way, self.tells = way, tells

    def forward(self, x: Tensor) -> Tensor:
        logits = (x @ x.transpose(-2, -1))[:, None]
        if self.way == "sigmoid":
            p = torch.sigmoid(logits) / logits.shape[-1]
        elif self.way == "exp":
            e = torch.exp(logits - logits.amax(-1, keepdim=True))
            p = e / e.sum(-1, keepdim=True)
        elif self.way == "log":
            p = F.log_softmax(logits, dim=-1).exp()
        else:
            p = torch.softmax(logits, dim=-1)
        if self.tells:
            p = told(p)
        return (p @ x[:, None])[:, 0]


class Model(nn.Module):
    def __init__(self, *attention: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(attention)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def watched(model: nn.Module, x: Tensor) -> tuple[dict[str, AttentionCall], Coverage]:
    found: dict[str, AttentionCall] = {}
    with watch_attention(model, lambda call: found.update({call.path: call})) as watching_, torch.no_grad():
        model(x)
    return found, watching_.coverage()


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("way", ["sigmoid", "exp", "log", "script"])
def test_what_is_not_seen_is_said_and_recording_cures_it(way: str) -> None:
    def hidden(tells: bool) -> nn.Module:
        return torch.jit.script(Attention(way, tells)) if way == "script" else Attention(way, tells)

    x = torch.randn(B, T, WIDTH, generator=torch.Generator().manual_seed(0))
    found, coverage = watched(Model(Attention("softmax"), hidden(False), Attention("softmax")), x)
    assert list(found) == ["layers.0", "layers.2"]
    assert coverage == Coverage(2, 3, ("layers.1",))
    assert coverage.sentence().startswith("the probe captured 2 of 3 attention modules (missing: layers.1): ")
    assert "ss.probe.record(p, name)" in coverage.sentence()

    found, coverage = watched(Model(Attention("softmax"), hidden(True), Attention("softmax")), x)
    assert coverage == Coverage(3, 3, ())
    assert coverage.complete
    name = "layers.1.weights"
    state = x + Attention("softmax")(x)
    logits = (state @ state.mT)[:, None]
    own = torch.sigmoid(logits) / T if way == "sigmoid" else logits.softmax(-1)
    rows = found[name].rows(torch.arange(T))
    torch.testing.assert_close(rows.p, own, rtol=0, atol=1e-6)
    assert found[name].shape == (B, 1, T, T)


def test_nothing_seen_at_all() -> None:
    _, coverage = watched(nn.Linear(WIDTH, WIDTH), torch.randn(B, T, WIDTH))
    assert coverage == Coverage(0, 0, ())
    assert not coverage.complete
    assert coverage.sentence().startswith("the probe captured no attention")
    _, coverage = watched(Model(*(Attention("sigmoid") for _ in range(5))), torch.randn(B, T, WIDTH))
    assert coverage.sentence().startswith(
        "the probe captured no attention (missing: layers.0, layers.1, layers.2 and 2 more)"
    )


def test_modules_that_do_not_run_are_not_missing() -> None:
    model = Model(Attention("softmax"))
    model.cross_attention = Attention("exp")
    _, coverage = watched(model, torch.randn(B, T, WIDTH))
    assert coverage == Coverage(1, 1, ())


def test_attention_outside_of_any_module_called_so_counts_too() -> None:
    class Block(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]

    _, coverage = watched(Model(Block(), Attention("exp")), torch.randn(B, T, WIDTH))
    assert coverage == Coverage(1, 2, ("layers.1",))


def test_parts_that_are_called_after_their_attention_are_not_missing() -> None:
    model = Model(Attention("softmax"))
    model.layers[0].attn_cap = nn.Identity()  # of torch.nn or not, by its name it could be one
    model.layers[0].register_forward_pre_hook(lambda module, args: module.attn_cap(*args))
    _, coverage = watched(model, torch.randn(B, T, WIDTH))
    assert coverage == Coverage(1, 1, ())


class Records(nn.Module):
    def __init__(self, p: Any, name: Any = "it") -> None:
        super().__init__()
        self.p, self.name = p, name

    def forward(self, x: Tensor) -> Tensor:
        ss.probe.record(self.p, self.name)
        return x


@pytest.mark.parametrize("shape", [(B, 3, T, 5), (3, T, 5), (T, 5)])
def test_dimensions_may_be_left_out(shape: tuple[int, ...]) -> None:
    p = torch.rand(shape).softmax(-1)
    found, coverage = watched(nn.Sequential(Records(p)), torch.randn(B, T, WIDTH))
    assert coverage.complete
    assert found["0.it"].shape == (1, 1, 1, *shape)[-4:]
    assert found["0.it"].kind == "cross"
    assert torch.equal(found["0.it"].rows(torch.arange(T)).p.reshape(shape), p)


@pytest.mark.parametrize(
    ("p", "name", "field"),
    [
        (torch.full((T,), 0.1), "it", "p"),
        (torch.full((1, 1, 1, T, T), 0.01), "it", "p"),
        (torch.zeros(T, 0), "it", "p"),
        (torch.full((T, T), 0.5), "it", "p"),
        (torch.full((T, T), -0.1), "it", "p"),
        (torch.zeros(T, T, dtype=torch.long), "it", ("p", "torch.int64")),
        ([[1.0]], "it", ("p", "list")),
        (torch.eye(T), "", "name"),
        (torch.eye(T), 3, "name"),
    ],
)
def test_what_is_no_attention_is_one_sentence(p: Any, name: Any, field: str) -> None:
    model = Records(p, name)
    model(torch.ones(1))  # outside a measurement nothing is asked of it
    with refused(field):
        watched(model, torch.ones(1))
    with refused(field):  # before training
        ss.Probe(model, torch.ones(1, 1))


def test_it_does_not_hold_up_a_compiler() -> None:
    model = Attention("sigmoid", tells=True)
    x = torch.randn(B, T, WIDTH)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))
    found, _ = watched(compiled, x)
    assert list(found) == ["weights"]


def test_a_probe_says_what_it_did_not_see_once_and_keeps_it() -> None:
    probe = ss.Probe(Model(Attention("softmax"), Attention("exp")), torch.randn(B, T, WIDTH))
    with pytest.warns(UserWarning, match=r"the probe captured 1 of 2 attention modules \(missing: layers.1\)"):
        probe.measure(0)
    probe.measure(1)  # a second warning would be an error
    assert probe.dataset().attrs["coverage"].startswith("the probe captured 1 of 2")
